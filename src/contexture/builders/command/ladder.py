"""What is tried, in order, when too few documents are found; a table, and the climb that obeys it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from contexture.builders.command.params import Params
from contexture.builders.command.request import Flags
from contexture.builders.command.windows import Window
from contexture.errors import SourceError
from contexture.ledger import Trace
from contexture.news.articles import FoundArticle, NewsQuestion
from contexture.news.stories import retold
from contexture.resilience.deadline import Deadline
from contexture.types import Scope

ENOUGH = 5
"""Documents below which a result is thin."""

ARTICLES = "articles"

_AHEAD = timedelta(days=1)  # a source whose clock or zone is wrong may date its articles ahead of ours


class Finder(Protocol):
    """Finds articles that a scope may read; `NewsStore` does."""

    async def find(
        self, scope: Scope, question: NewsQuestion, *, k: int, rerank: bool, trace: Trace
    ) -> Sequence[FoundArticle]:
        """The best `k` that match, best first."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """One way to ask for `k` documents, with `more` behind them that might have been among them.

    `known` is how far back the answer is known already.
    """

    window: Window
    langs: tuple[str, ...]
    sources: tuple[str, ...]
    rerank: bool
    k: int
    more: int = 0
    known: Window | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One step of recovery: its rung, what it did, and how many documents it added."""

    rung: str
    done: str
    found: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """One kind of recovery: guarded by a flag, taken at most `most` times while fewer than `until` are found.

    `change` gives the next search with what it does in words, or None when nothing is left to change.
    """

    name: str
    flag: Callable[[Flags], bool]
    most: int
    until: int
    change: Callable[[Search], tuple[Search, str] | None]


def wider(search: Search) -> tuple[Search, str] | None:
    """The next window; only what it adds is asked for."""
    window = search.window.wider
    if window is None:
        return None
    return replace(search, window=window, known=search.window), f"expanded window to {window}"


def relaxed(search: Search) -> tuple[Search, str] | None:
    """Any language and any source."""
    done = [*(["relaxed lang to auto"] if search.langs else []), *(["dropped sources"] if search.sources else [])]
    return (replace(search, langs=(), sources=(), known=None), ", ".join(done)) if done else None


def plain(search: Search) -> tuple[Search, str] | None:
    """Ranks alone, and as many documents as may be."""
    return (replace(search, rerank=False, k=10, known=None), "disabled rerank") if search.rerank else None


LADDER: tuple[Rung, ...] = (
    Rung(name="window", flag=lambda flags: flags.auto_expand_window, most=5, until=ENOUGH, change=wider),
    Rung(name="filters", flag=lambda flags: flags.relax_filters_on_empty, most=1, until=1, change=relaxed),
    Rung(name="rerank", flag=lambda flags: flags.fallback_rerank_false_on_empty, most=1, until=1, change=plain),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Retrieved:
    """Documents in the order they were found, each with its search's number, and how the last useful search asked."""

    found: tuple[tuple[int, FoundArticle], ...]
    search: Search
    steps: tuple[Step, ...]


class Climb:
    """One retrieval over the articles, from the search that was asked for up the ladder, inside one deadline.

    Tenant and permissions are the scope's on every rung. Documents of an earlier search come before those of a later
    one, and none comes twice, nor does a copy of one.
    """

    def __init__(
        self,
        news: Finder,
        search: Search,
        *,
        scope: Scope,
        text: str,
        now: datetime,
        deadline: Deadline,
        trace: Trace,
    ) -> None:
        self._news = news
        self._scope = scope
        self._text = text
        self._now = now
        self._deadline = deadline
        self._trace = trace
        self._found: dict[str, tuple[int, FoundArticle]] = {}
        self._steps: list[Step] = []
        self._current = self._useful = search

    async def retrieve(self, *, flags: Flags, ladder: Sequence[Rung] = LADDER) -> Retrieved:
        """What is found; a store that fails after something was found ends the climb and is a degradation."""
        await self._take(self._current, 0)
        try:
            for rung in ladder:
                if rung.flag(flags):
                    await self._climb(rung)
        except SourceError as failure:
            if not self._found:
                raise
            self._trace.degraded(ARTICLES, failure)
        last = self._useful if self._found else self._current
        return Retrieved(found=tuple(self._found.values()), search=last, steps=tuple(self._steps))

    async def _climb(self, rung: Rung) -> None:
        for _ in range(rung.most):
            changed = rung.change(self._current) if len(self._found) < rung.until else None
            if changed is None:
                return
            self._current, done = changed
            added = await self._take(self._current, len(self._steps) + 1)
            self._steps.append(Step(rung=rung.name, done=done, found=added))
            if added:
                self._useful = self._current

    async def _take(self, search: Search, number: int) -> int:
        """Ask, and keep what is new; returns how many that were."""
        before = len(self._found)
        most, question = search.k + search.more, self._question(search)
        work = self._news.find(self._scope, question, k=most, rerank=search.rerank, trace=self._trace)
        for each in await self._deadline.wait_for(work, "the article store"):
            if each.article.article_id not in self._found and not self._joins(each):
                self._found[each.article.article_id] = (number, each)
        return len(self._found) - before

    def _joins(self, each: FoundArticle) -> bool:
        """Whether an article is a copy of one that an earlier search found, which then says so."""
        for name, (number, known) in self._found.items():
            joined = retold(known, each)
            if joined is not None:
                self._found[name] = (number, joined)
                return True
        return False

    def _question(self, search: Search) -> NewsQuestion:
        known = search.known
        return NewsQuestion(
            text=self._text,
            since=self._now - search.window.span,
            before=self._now + _AHEAD if known is None else self._now - known.span,
            langs=search.langs,
            sources=search.sources,
        )


def first_search(params: Params, *, more: int = 0) -> Search:
    """The search that the parameters ask for."""
    named = (*(params.sources or ()), *(params.domains or ()))
    return Search(
        window=params.window,
        langs=() if params.lang == "auto" else (params.lang,),
        sources=tuple(dict.fromkeys(named)),
        rerank=params.rerank_enabled,
        k=params.k_final,
        more=more,
    )
