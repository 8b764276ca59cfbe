"""The builder for research questions and what answers them, from settings."""

from __future__ import annotations

from contexture.adapters.tokens.models import counter_for
from contexture.builders.research.build import ResearchContextBuilder
from contexture.builders.research.pages import Pages
from contexture.config import Settings
from contexture.ports import Clock, Redactor, Secrets
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
