"""What pages look like: the page encoder, the index pages live in, and the search over what they show."""

from __future__ import annotations

from contexture.adapters.pages import registry as encoders
from contexture.config import Settings
from contexture.documents import PageEncoder
from contexture.pages.records import PAGES
from contexture.pages.visual import VISUAL, VisualOptions, VisualPages
from contexture.ports import Index
from contexture.retrieval.encoders import Encoders
from contexture.text.language import detect


def page_encoder(settings: Settings, speakers: Encoders) -> PageEncoder:
    """What turns pages into vectors."""
    return encoders.load(settings.page_encoder, speakers, detect, threads=settings.embedder_threads)


def placed(settings: Settings, store: Index, speakers: Encoders) -> Index:
    """The store's index, or one that keeps pages where the settings say and everything else in the store."""
    if not settings.pages_index:
        return store
    from contexture.adapters.index.chroma.index import ChromaIndex, ChromaOptions
    from contexture.adapters.index.routed import RoutedIndex

    vectors = {**speakers.vectors, **page_encoder(settings, speakers).vectors}
    pages = ChromaIndex(settings.pages_index, ChromaOptions(vectors=vectors))
    return RoutedIndex(store, {PAGES.name: pages, VISUAL.name: pages})


def visual_pages(settings: Settings, store: Index, encoder: PageEncoder) -> VisualPages:
    """The search over what pages show."""
    return VisualPages(index=store, encoder=encoder, options=VisualOptions(floor=settings.search_floor))
