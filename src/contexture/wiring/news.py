"""The news store, from settings."""

from __future__ import annotations

from contexture.adapters.feeds.http import HttpFeeds
from contexture.adapters.feeds.marks import MarkFile
from contexture.adapters.feeds.parser import FeedparserParser
from contexture.config import Settings
from contexture.feeds import FeedParser
from contexture.ingestion.articles import Wire
from contexture.news.store import NewsStore, Removed
from contexture.ports import Index, Redactor
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.prepare import Preparer
from contexture.retrieval.search import HybridSearch
from contexture.wiring.core import search


def news_store(
    settings: Settings,
    store: Index,
    speakers: Encoders,
    *,
    preparer: Preparer,
    searcher: HybridSearch,
    scanner: Redactor,
    on_removed: Removed | None = None,
) -> NewsStore:
    """Articles over the engine's own index and search; searches that nothing reranks share it where they can."""
    plain = search(settings.model_copy(update={"reranker": ""}), store, speakers) if settings.reranker else searcher
    return NewsStore(
        index=store,
        preparer=preparer,
        search=searcher,
        plain=plain,
        rules=scanner.rules,
        vectors=speakers.general,
        on_removed=on_removed,
    )


def feed_parser() -> FeedParser:
    """What reads RSS and Atom."""
    return FeedparserParser()


def feed_wire(settings: Settings, *, again: bool = False) -> Wire:
    """What brings feeds; which version of each was loaded last is kept in the store's folder."""
    return Wire(
        fetcher=HttpFeeds(
            timeout=settings.feed_timeout_seconds, largest=settings.feed_max_bytes, private=settings.feed_private
        ),
        marks=MarkFile(settings.home / "feeds.json"),
        name=f"{settings.url} {settings.tenant} {settings.user}".strip(),
        again=again,
    )
