"""News for tests of commands: articles at set ages, and a store that answers from a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from contexture.adapters.token_counters import counter_for
from contexture.builders.command.build import CommandContextBuilder
from contexture.builders.command.request import DEFAULT_ROUTING, Experiments, Routing
from contexture.ledger import Trace
from contexture.news.articles import Article, FoundArticle, NewsQuestion
from contexture.ports import Redactor
from contexture.testing.doubles import NOON, FixedClock, WordRedactor
from contexture.text.segmentation import split_sentences
from contexture.types import Candidate, Citation, Scope

HIDDEN = "hunter2"


def article(name: str, text: str, *, hours: float = 1, source: str = "example.org", lang: str = "en") -> Article:
    """An article that is so many hours old at noon; every one is a story of its own."""
    return Article(
        article_id=name,
        title=f"{text.split('.', maxsplit=1)[0]} ({name})",
        text=f"{text} {' '.join(f'{name}x{at}' for at in range(30))}",
        url=f"https://{source}/{name}",
        source=source,
        published=NOON - timedelta(hours=hours),
        lang=lang,
    )


def found(name: str, text: str, *, score: float = 0.5, hours: float = 1, lang: str = "en") -> FoundArticle:
    """An article as a store finds it, with one passage."""
    told = article(name, text, hours=hours, lang=lang)
    citation = Citation(collection="articles", record_id=name, title=name, start=0, end=len(text), hash="0" * 64)
    passage = Candidate(
        id=f"{name}#00000",
        key=f"{name}#00000",
        text=text,
        title=name,
        source=told.source,
        lang=lang,
        time=told.published,
        score=score,
        sentences=split_sentences(text),
        origins=split_sentences(text),
        citation=citation,
    )
    return FoundArticle(article=told, candidates=(passage,), score=score, dated_by_loading=False)


@dataclass(slots=True)
class ScriptedNews:
    """Gives these answers in turn, then nothing, and remembers what it was asked; raises the errors among them."""

    answers: Sequence[Sequence[FoundArticle] | Exception] = ()
    asked: list[tuple[NewsQuestion, int, bool]] = field(default_factory=list[tuple[NewsQuestion, int, bool]])

    async def find(
        self, scope: Scope, question: NewsQuestion, *, k: int, rerank: bool, trace: Trace
    ) -> Sequence[FoundArticle]:
        """The next answer, whoever asks."""
        del scope, trace
        self.asked.append((question, k, rerank))
        answer = self.answers[len(self.asked) - 1] if len(self.asked) <= len(self.answers) else ()
        if isinstance(answer, Exception):
            raise answer
        return answer[:k]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandBench:
    """A command builder over doubles; change a part with `dataclasses.replace`."""

    news: ScriptedNews = field(default_factory=ScriptedNews)
    redactor: Redactor = field(default_factory=lambda: WordRedactor((HIDDEN,)))
    models: Routing = field(default_factory=lambda: DEFAULT_ROUTING)
    experiments: Experiments = field(default_factory=dict[str, Mapping[str, Any]])

    def builder(self) -> CommandContextBuilder:
        """The builder, with a clock that stands still."""
        return CommandContextBuilder(
            news=self.news,
            token_counter=counter_for("gpt-4o"),
            redactor=self.redactor,
            clock=FixedClock(),
            models=self.models,
            experiments=self.experiments,
        )


SIX = tuple(found(f"a{at}", f"Pump {at} leaks oil.", score=0.9 - at / 10) for at in range(6))
"""Six articles, best first: as many as a list needs to be full."""


def surroundings(defaults: Mapping[str, Any] | None = None, **flags: bool) -> dict[str, Any]:
    """The `env` of a request with these defaults and feature flags."""
    return {"defaults": dict(defaults or {}), "feature_flags": flags}
