"""Documents and their pages as writers and readers of the page store know them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from contexture.documents import Box, Page, Region
from contexture.pages.regions import unpacked
from contexture.types import PUBLIC, Candidate, Span


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A file that was read into pages; `readers` are principals (`public`, `user:anna`, `group:sales`).

    `doc_id` is made of the file's content, so that the same file is the same document wherever it lies.
    """

    doc_id: str
    filename: str
    extension: str
    source_path: str
    timestamp: datetime
    pages: tuple[Page, ...]
    readers: tuple[str, ...] = (PUBLIC,)
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """A stored document without its pages; `pages` says how many there are."""

    doc_id: str
    filename: str
    extension: str
    source_path: str
    timestamp: datetime
    pages: int
    readers: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """What became of a document: `pages` were written, or it was stored already and is `unchanged`."""

    doc_id: str
    pages: int
    unchanged: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPage:
    """A page as it is stored: `text` is its Markdown, which citations with this `hash` point into.

    `image_path` and `thumb_path` name JPEG files, None where the page was not drawn. What was computed about the text
    when it was written comes along: `redactions` are what `rules` found in it, None where nothing was looked for.
    """

    doc_id: str
    filename: str
    page: int
    extension: str
    timestamp: datetime
    source_path: str
    image_path: str | None
    thumb_path: str | None
    section_path: str | None
    parent_heading: str | None
    num_headings: int
    num_tables: int
    num_pictures: int
    text: str
    hash: str
    lang: str
    readers: tuple[str, ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    sentences: tuple[tuple[int, int], ...] = ()
    redactions: tuple[Span, ...] | None = None
    rules: str = ""
    tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    simhash: int = 0
    packed_regions: str | Sequence[Sequence[Any]] = "[]"

    @property
    def regions(self) -> tuple[Region, ...]:
        """What stands where on the page, in reading order; unpacked when asked for, which no build does."""
        return unpacked(self.packed_regions, self.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundPage:
    """A page that matches: how well its words and its looks do, its passages that were found, best first.

    `score` is the better of the two; `box` is the region that was seen best. The passages' citations name the page.
    """

    doc_id: str
    page: int
    filename: str
    score: float
    text_score: float | None = None
    visual_score: float | None = None
    candidates: tuple[Candidate, ...] = ()
    box: Box | None = None
