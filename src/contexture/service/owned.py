"""The collections that a part of the service keeps itself: each has a route of its own, and this says which."""

from __future__ import annotations

from collections.abc import Mapping

from contexture.blocks.records import BLOCKS
from contexture.errors import InvalidRequest
from contexture.memory.records import MEMORIES
from contexture.news.records import ARTICLES
from contexture.pages.records import PAGES
from contexture.pages.visual_records import VISUAL

_FILES = "/v1/ingest/documents with 'files' or 'doc_ids'"

DOORS: Mapping[str, str] = {
    MEMORIES.name: "/v1/ingest/memories",
    ARTICLES.name: "/v1/ingest/articles",
    BLOCKS.name: "/v1/ingest/blocks",
    PAGES.name: _FILES,
    VISUAL.name: _FILES,
}
"""Where to write to and remove from such a collection instead."""


def check_free(collection: str) -> None:
    """Raise `InvalidRequest` for a collection whose records are believed because only its owner writes them."""
    if collection in DOORS:
        raise InvalidRequest(f"records of {collection!r} are kept by a route of their own: use {DOORS[collection]}")
