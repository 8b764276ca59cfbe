"""The page store, from settings."""

from __future__ import annotations

from contexture.adapters.tokens.models import counter_for
from contexture.config import Settings
from contexture.pages.images import PageImages
from contexture.pages.store import PageStore
from contexture.ports import Index, Redactor
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.prepare import Preparer
from contexture.retrieval.search import HybridSearch
from contexture.wiring.core import COUNTED
from contexture.wiring.visual import page_encoder, visual_pages


def page_store(
    settings: Settings,
    store: Index,
    speakers: Encoders,
    *,
    preparer: Preparer,
    searcher: HybridSearch,
    scanner: Redactor,
) -> PageStore:
    """Documents over the engine's own index and search, their pictures in the store's folder."""
    return PageStore(
        index=store,
        preparer=preparer,
        search=searcher,
        rules=scanner.rules,
        images=PageImages(settings.home / "pages"),
        counters=[counter_for(name) for name in COUNTED],
        visual=visual_pages(settings, store, page_encoder(settings, speakers)),
    )
