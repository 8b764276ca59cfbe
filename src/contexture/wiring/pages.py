"""The page store, from settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from contexture.adapters.postgres.pool import Pool


def page_store(
    settings: Settings,
    store: Index,
    speakers: Encoders,
    *,
    preparer: Preparer,
    searcher: HybridSearch,
    scanner: Redactor,
    pool: Pool | None = None,
) -> PageStore:
    """Documents over the engine's own index and search, their pictures in the store's folder or its database."""
    return PageStore(
        index=store,
        preparer=preparer,
        search=searcher,
        rules=scanner.rules,
        images=_images(settings, pool),
        counters=[counter_for(name) for name in COUNTED],
        visual=visual_pages(settings, store, page_encoder(settings, speakers)),
    )


def _images(settings: Settings, pool: Pool | None) -> PageImages:
    if pool is None:
        return PageImages(settings.home / "pages")
    from contexture.adapters.postgres.files import PostgresFiles

    return PageImages(Path("pages"), PostgresFiles(pool))
