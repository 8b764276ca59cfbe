"""Article search of a command with recovery.

When too few documents are found, widen the window, drop filters, disable the rerank, in that order and within one
deadline.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from contexture.builders.command.compose import ArticleFacts
from contexture.builders.command.request import CommandParams, Flags
from contexture.builders.command.result import RecoveryStep
from contexture.builders.command.syntax import Window
from contexture.errors import SourceError
from contexture.ledger import Trace
from contexture.news.articles import ArticleFinder, FoundArticle, NewsQuestion
from contexture.news.duplicates import merge_duplicate
from contexture.resilience import Deadline
from contexture.types import Scope

MIN_DOCUMENTS = 5
"""With fewer documents the search window is widened, and the result is a degradation."""

ARTICLES_SOURCE = "articles"

CLOCK_TOLERANCE = timedelta(days=1)
"""How far after the clock a window ends: a source with a wrong clock or time zone dates articles in the future."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleSearch:
    """Parameters of one search for `k` documents, plus `more` for the ledger.

    `known` is the window that an earlier search has covered.
    """

    window: Window
    langs: tuple[str, ...]
    sources: tuple[str, ...]
    rerank: bool
    k: int
    more: int = 0
    known: Window | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RecoveryRule:
    """One kind of recovery.

    Enabled by a flag, applied at most `most` times while fewer than `until` documents are found. `change` returns the
    next search and a description, or None when nothing is left to change.
    """

    name: str
    flag: Callable[[Flags], bool]
    most: int
    until: int
    change: Callable[[ArticleSearch], tuple[ArticleSearch, str] | None]


def widen_window(search: ArticleSearch) -> tuple[ArticleSearch, str] | None:
    """The search with the next wider window; only the added span is searched."""
    window = search.window.wider
    if window is None:
        return None
    return replace(search, window=window, known=search.window), f"expanded window to {window}"


def relax_filters(search: ArticleSearch) -> tuple[ArticleSearch, str] | None:
    """The search without language and source filters; None when it has none."""
    done = [*(["relaxed lang to auto"] if search.langs else []), *(["dropped sources"] if search.sources else [])]
    return (replace(search, langs=(), sources=(), known=None), ", ".join(done)) if done else None


def disable_rerank(search: ArticleSearch) -> tuple[ArticleSearch, str] | None:
    """The search without the rerank and with the largest `k`; None when it has no rerank."""
    return (replace(search, rerank=False, k=10, known=None), "disabled rerank") if search.rerank else None


RECOVERY_RULES: tuple[RecoveryRule, ...] = (
    RecoveryRule(
        name="window", flag=lambda flags: flags.auto_expand_window, most=5, until=MIN_DOCUMENTS, change=widen_window
    ),
    RecoveryRule(
        name="filters", flag=lambda flags: flags.relax_filters_on_empty, most=1, until=1, change=relax_filters
    ),
    RecoveryRule(
        name="rerank", flag=lambda flags: flags.fallback_rerank_false_on_empty, most=1, until=1, change=disable_rerank
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RetrievedArticles:
    """Found articles, each with the number of its search, the last useful search, and the recovery steps taken."""

    found: tuple[tuple[int, FoundArticle], ...]
    search: ArticleSearch
    steps: tuple[RecoveryStep, ...]


class RecoverySearch:
    """One article search with recovery, inside one deadline.

    Tenant and permissions are the scope's in every search. Articles of earlier searches come first; duplicates are
    merged.
    """

    def __init__(
        self,
        news: ArticleFinder,
        search: ArticleSearch,
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
        self._steps: list[RecoveryStep] = []
        self._current = self._useful = search

    async def retrieve(self, *, flags: Flags, ladder: Sequence[RecoveryRule] = RECOVERY_RULES) -> RetrievedArticles:
        """The found articles.

        A store that fails during recovery, after articles were found, ends it and is a degradation; without any the
        `SourceError` is raised.
        """
        await self._search_once(self._current, 0)
        try:
            for rung in ladder:
                if rung.flag(flags):
                    await self._apply_rule(rung)
        except SourceError as failure:
            if not self._found:
                raise
            self._trace.add_degradation(ARTICLES_SOURCE, failure)
        last = self._useful if self._found else self._current
        return RetrievedArticles(found=tuple(self._found.values()), search=last, steps=tuple(self._steps))

    async def _apply_rule(self, rung: RecoveryRule) -> None:
        for _ in range(rung.most):
            changed = rung.change(self._current) if len(self._found) < rung.until else None
            if changed is None:
                return
            self._current, done = changed
            added = await self._search_once(self._current, len(self._steps) + 1)
            self._steps.append(RecoveryStep(rung=rung.name, done=done, found=added))
            if added:
                self._useful = self._current

    async def _search_once(self, search: ArticleSearch, number: int) -> int:
        """Run one search and keep what is new; returns how many articles were added."""
        before = len(self._found)
        most, question = search.k + search.more, self._make_question(search)
        work = self._news.find(self._scope, question, k=most, rerank=search.rerank, trace=self._trace)
        for each in await self._deadline.wait_for(work, "the article store"):
            if each.article.article_id not in self._found and not self._merge_duplicate(each):
                self._found[each.article.article_id] = (number, each)
        return len(self._found) - before

    def _merge_duplicate(self, each: FoundArticle) -> bool:
        """Merge an article into an earlier found copy of it; False when there is none."""
        for name, (number, known) in self._found.items():
            joined = merge_duplicate(known, each)
            if joined is not None:
                self._found[name] = (number, joined)
                return True
        return False

    def _make_question(self, search: ArticleSearch) -> NewsQuestion:
        known = search.known
        return NewsQuestion(
            text=self._text,
            since=self._now - search.window.span,
            before=self._now + CLOCK_TOLERANCE if known is None else self._now - known.span,
            langs=search.langs,
            sources=search.sources,
        )


def initial_search(params: CommandParams, *, more: int = 0) -> ArticleSearch:
    """The search that the parameters ask for."""
    named = (*(params.sources or ()), *(params.domains or ()))
    return ArticleSearch(
        window=params.window,
        langs=() if params.lang == "auto" else (params.lang,),
        sources=tuple(dict.fromkeys(named)),
        rerank=params.rerank_enabled,
        k=params.k_final,
        more=more,
    )


def make_facts(number: int, found: FoundArticle, now: datetime) -> ArticleFacts:
    """Date, language and search number of a found article."""
    article = found.article
    return ArticleFacts(
        article_id=article.article_id,
        date=(article.published or now).astimezone(UTC).date().isoformat(),
        lang=article.lang,
        rung=number,
        dated_by_loading=found.dated_by_loading or article.published is None,
    )
