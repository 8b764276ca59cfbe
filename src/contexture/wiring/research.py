"""The builder for research questions and what answers them, from settings."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.adapters.llm.extractive import NAME as EXTRACTIVE
from contexture.adapters.llm.extractive import NOTHING
from contexture.adapters.tokens.models import counter_for
from contexture.answer.research.ask import AskRecipe
from contexture.answer.research.support import Alike
from contexture.builders.research.build import ResearchContextBuilder
from contexture.builders.research.pages import Pages
from contexture.config import Settings
from contexture.ports import Clock, Redactor, Secrets
from contexture.retrieval.encoders import Encoders
from contexture.text.language import detect
from contexture.types import Scope
from contexture.wiring.core import operator


def research_builder(
    settings: Settings, pages: Pages, *, scanner: Redactor, secrets: Secrets, clock: Clock, speaker: Scope
) -> ResearchContextBuilder:
    """The builder over the pages of documents."""
    return ResearchContextBuilder(
        pages,
        settings.research_max_sources,
        settings.research_max_tokens,
        counter=counter_for(settings.model),
        redactor=scanner,
        clock=clock,
        model=settings.model,
        secrets=secrets,
        operator=operator(settings),
        deadline=settings.timeout_seconds,
        speaker=speaker,
    )


def alike(speakers: Encoders) -> Alike:
    """How similar texts are by their meaning, across languages too."""

    async def similar(sentence: str, texts: Sequence[str]) -> float:
        asked = await speakers.question(sentence, detect(sentence))
        rows = await speakers.passages(texts, [detect(text) for text in texts])
        scores = [{name: float(row @ asked[name]) for name, row in each.items() if name in asked} for each in rows]
        return max((found.calibrated for found in speakers.similarities(scores) if found), default=0.0)

    return similar


def ask_recipe(settings: Settings) -> AskRecipe:
    """How research questions are answered."""
    return AskRecipe(
        context_tokens=settings.research_max_tokens,
        answer_tokens=settings.chat_max_tokens,
        quoting=EXTRACTIVE,
        silence=frozenset(NOTHING.values()),
    )
