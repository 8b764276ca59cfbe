"""A news store over doubles, and articles to put into it."""

from __future__ import annotations

from datetime import datetime, timedelta

from contexture.news.articles import Article
from contexture.news.store import NewsStore, RemovalListener, keep_copies
from contexture.ports import Index
from contexture.retrieval.search import HybridSearch
from contexture.testing.doubles import NOON
from support.workbench import Parts, Workbench

STRIKE = (
    "The dockers of Northquay walked out on Monday after talks with the port authority broke down. "
    "About 1,200 workers joined the strike, the union said. "
    "Ships are waiting outside the harbour, and grain exports have stopped."
)


def news_over(
    bench: Workbench, parts: Parts, *, index: Index | None = None, on_removed: RemovalListener = keep_copies
) -> NewsStore:
    """A news store over a workbench; `index` may wrap its index."""
    search = HybridSearch(index=index or bench.index, encoders=parts.encoders, options=parts.options)
    return NewsStore(
        index=index or bench.index,
        preparer=bench.preparer,
        search=search,
        rules=parts.redactor.rules,
        vectors=parts.encoders.generalist_vectors,
        on_removed=on_removed,
    )


def article(
    article_id: str,
    text: str = STRIKE,
    *,
    hours: float | None = 1,
    source: str = "",
    readers: tuple[str, ...] = ("public",),
    now: datetime = NOON,
) -> Article:
    """An article that is so many hours old at `now`; without hours it has no date."""
    return Article(
        article_id=article_id,
        title=f"Title of {article_id}",
        text=text,
        url=f"https://www.{source}/{article_id}" if source else "",
        published=None if hours is None else now - timedelta(hours=hours),
        readers=readers,
    )
