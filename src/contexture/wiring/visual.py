"""What pages look like: the page encoder, the index pages live in, and the search over what they show."""

from __future__ import annotations

from contexture.adapters.pages import registry as encoders
from contexture.config import Settings
from contexture.documents import PageEncoder
from contexture.pages.visual import VisualOptions, VisualPages
from contexture.ports import Index
from contexture.retrieval.encoders import Encoders
from contexture.text.language import detect


def page_encoder(settings: Settings, speakers: Encoders) -> PageEncoder:
    """What turns pages into vectors."""
    return encoders.load(settings.page_encoder, speakers, detect, threads=settings.embedder_threads)


def visual_pages(settings: Settings, store: Index, encoder: PageEncoder) -> VisualPages:
    """The search over what pages show."""
    return VisualPages(index=store, encoder=encoder, options=VisualOptions(floor=settings.search_floor))
