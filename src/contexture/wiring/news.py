"""The news store, from settings."""

from __future__ import annotations

from contexture.config import Settings
from contexture.news.store import NewsStore
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
) -> NewsStore:
    """Articles over the engine's own index and search; searches that nothing reranks share it where they can."""
    plain = search(settings.model_copy(update={"reranker": ""}), store, speakers) if settings.reranker else searcher
    return NewsStore(index=store, preparer=preparer, search=searcher, plain=plain, rules=scanner.rules)
