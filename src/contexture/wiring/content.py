"""From settings: the stores of blocks, articles and pages, and the readers of feeds and files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from contexture.adapters.blocks.sqlite import SqliteBlocks, StoredBlocks
from contexture.adapters.documents.file_types import EXTENSIONS, TEXT_EXTENSIONS
from contexture.adapters.documents.ocr import load_tesseract
from contexture.adapters.documents.worker_pool import DocumentWorkerPool
from contexture.adapters.feeds.http import FeedMarkFile, FeedparserParser, HttpFeedFetcher
from contexture.blocks.links import extract_links
from contexture.blocks.workspace import BlockRemovalListener, Workspace, keep_block_copies
from contexture.config import Settings
from contexture.documents import ReadLimits
from contexture.errors import SourceUnavailable
from contexture.feeds import FeedParser, PageExtractor
from contexture.ingestion.articles import FeedSource
from contexture.news.store import NewsStore
from contexture.pages.images import PageImages
from contexture.pages.store import PageStore
from contexture.ports import Index, Redactor, RemovalListener, VectorBacklog, keep_copies
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.prepare import Preparer
from contexture.retrieval.search import HybridSearch
from contexture.wiring._core import page_encoder, search, visual_pages
from contexture.workspace import WritableBlocks

if TYPE_CHECKING:
    from contexture.adapters.postgres.pool import PostgresPool


def block_store(settings: Settings, pool: PostgresPool | None = None) -> StoredBlocks:
    """Open the blocks, in a file of the store's folder that is created at the first write, or in its database."""
    if pool is not None:
        from contexture.adapters.blocks.postgres import PostgresBlocks

        return PostgresBlocks(pool, extract_links)
    return SqliteBlocks(settings.home / "blocks.db", extract_links)


def block_writer(
    store: WritableBlocks, index: Index, preparer: Preparer, on_removed: BlockRemovalListener = keep_block_copies
) -> Workspace:
    """Create the workspace, which writes blocks to their store and to the engine's index."""
    return Workspace(store=store, index=index, preparer=preparer, on_removed=on_removed)


def news_store(
    settings: Settings,
    store: Index,
    embedders: Encoders,
    *,
    preparer: Preparer,
    searcher: HybridSearch,
    scanner: Redactor,
    on_removed: RemovalListener = keep_copies,
) -> NewsStore:
    """Create the store of articles over the engine's index; it shares the engine's search where nothing is reranked."""
    plain = search(settings.model_copy(update={"reranker": ""}), store, embedders) if settings.reranker else searcher
    return NewsStore(
        index=store,
        preparer=preparer,
        search=searcher,
        plain=plain,
        rules=scanner.rules,
        vectors=embedders.generalist_vectors,
        backlog=store if isinstance(store, VectorBacklog) else None,
        on_removed=on_removed,
    )


def feed_parser() -> FeedParser:
    """Return the parser for RSS and Atom."""
    return FeedparserParser()


def page_extractor() -> PageExtractor | None:
    """Return the extractor of web pages; None if its extra is not installed."""
    try:
        from contexture.adapters.feeds.extractor import TrafilaturaExtractor
    except ImportError:
        return None
    return TrafilaturaExtractor()


def feed_source(settings: Settings, *, again: bool = False) -> FeedSource:
    """Create the feed source; the validators of each feed's last load are stored in the store's folder."""
    return FeedSource(
        fetcher=HttpFeedFetcher(
            timeout=settings.feed_timeout_seconds,
            max_bytes=settings.feed_max_bytes,
            allow_private=settings.feed_private,
        ),
        marks=FeedMarkFile(settings.home / "feeds.json"),
        name=f"{settings.url} {settings.tenant} {settings.user}".strip(),
        again=again,
    )


def page_store(
    settings: Settings,
    store: Index,
    embedders: Encoders,
    *,
    preparer: Preparer,
    searcher: HybridSearch,
    scanner: Redactor,
    pool: PostgresPool | None = None,
    on_removed: RemovalListener = keep_copies,
) -> PageStore:
    """Create the store of documents over the engine's index and search; images go to the store's folder or database."""
    return PageStore(
        index=store,
        preparer=preparer,
        search=searcher,
        rules=scanner.rules,
        images=_page_images(settings, pool),
        counters=preparer.counters,
        visual=visual_pages(settings, store, page_encoder(settings, embedders)),
        on_removed=on_removed,
    )


def _page_images(settings: Settings, pool: PostgresPool | None) -> PageImages:
    if pool is None:
        return PageImages(settings.home / "pages")
    from contexture.adapters.postgres.files import PostgresFiles

    return PageImages(Path("pages"), PostgresFiles(pool))


PAGE_FILES = EXTENSIONS
"""Extensions of the files that can be read as pages."""

DEFAULT_PAGE_FILES = EXTENSIONS - TEXT_EXTENSIONS
"""Extensions read as pages by default; text files are records unless requested otherwise."""


def ocr_state() -> tuple[str, str]:
    """Return which engine reads images, or that none is installed, and what to install so that it can be loaded."""
    return ("tesseract" if find_spec("tesserocr") else "not installed"), missing_ocr_library()


def missing_ocr_library() -> str:
    """Return what to install so that the extra `ocr` can read images; empty if it can, or is not installed."""
    if find_spec("tesserocr") is None:
        return ""
    try:
        load_tesseract()
    except SourceUnavailable as missing:
        return str(missing)
    return ""


def reading_workers(*, draw: bool = True) -> DocumentWorkerPool:
    """Create the processes that read files; close them, or use them as an async context.

    `draw` says whether pages are rendered as images.
    """
    return DocumentWorkerPool(limits=ReadLimits(draw=draw))
