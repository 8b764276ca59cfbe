"""What a built context asks to be executed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from contexture.builders.command.params import TTL_DAYS, search_text
from contexture.builders.command.result import CommandContext
from contexture.builders.command.words import Command
from contexture.news.articles import NewsQuestion
from contexture.text.language import detect

_LANGUAGES = ("en", "ru")


@dataclass(frozen=True, kw_only=True, slots=True)
class SemanticKey:
    """A subject to remember, and for how many days."""

    key: str
    ttl_days: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The parts of a context that its execution needs; `question` is as it was typed, and shown to nobody."""

    command: Command
    question: str
    lang: str
    search: NewsQuestion
    k: int
    rerank: bool
    articles: tuple[str, ...]
    models: tuple[str, ...]
    max_tokens: int
    budget_cents: float
    timeout_s: float
    learns: bool
    hops: int
    keys: tuple[SemanticKey, ...]
    now: datetime

    def news_question(self, text: str) -> NewsQuestion:
        """A question to the news within the window and the filters in which the context found its documents."""
        asked = self.search
        return NewsQuestion(text=text, since=asked.since, before=asked.before, langs=asked.langs, sources=asked.sources)


def plan_of(context: CommandContext) -> Plan:
    """The plan of a context."""
    asked, found = context.asked, context.retrieval
    question = search_text(asked)
    return Plan(
        command=context.command,
        question=question,
        lang=language(context.params.lang, question),
        search=NewsQuestion(
            text=question,
            since=context.now - found.window.span,
            langs=(found.lang,) if found.lang in _LANGUAGES else (),
            sources=(*asked.sources, *asked.domains) if found.sources else (),
        ),
        k=context.params.k_final,
        rerank=found.rerank_enabled,
        articles=tuple(dict.fromkeys(each.article_id for each in found.docs)),
        models=(context.models.primary, *context.models.fallback),
        max_tokens=context.limits.max_tokens,
        budget_cents=context.limits.budget_cents,
        timeout_s=context.limits.timeout_s,
        learns=context.graph.build_policy != "cached_only",
        hops=context.graph.hop_limit,
        keys=_keys(context),
        now=context.now,
    )


def language(wanted: str, question: str) -> str:
    """The language to answer in: the one asked for, else that of the question."""
    if wanted in _LANGUAGES:
        return wanted
    return "ru" if detect(question) in ("ru", "uk") else "en"


def _keys(context: CommandContext) -> tuple[SemanticKey, ...]:
    """The subjects of a memory command as they were typed; memory keeps its own redactions."""
    if not context.memory.enabled:
        return ()
    asked = context.asked
    named = (asked.query or asked.text, asked.topic, asked.entity)
    return tuple(SemanticKey(key=key, ttl_days=TTL_DAYS) for key in dict.fromkeys(named) if key)
