"""Document types and ports: pages as readers produce them, encoded pages, and the reader and encoder protocols."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from contexture.types import Matrix, Vector

BoundingBox = tuple[float, float, float, float]
"""Left, top, right and bottom of a region, as shares of the page's width and height."""


class RegionKind(StrEnum):
    """What a region of a page shows."""

    HEADING = "heading"
    TEXT = "text"
    TABLE = "table"
    PICTURE = "picture"


@dataclass(frozen=True, kw_only=True, slots=True)
class Region:
    """A part of a page; `start` and `end` say which characters of the page's text it holds, 0 and 0 for none."""

    kind: RegionKind
    box: BoundingBox
    text: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One page: its text as Markdown in reading order, its section in the document, and its picture.

    `furniture` is text that repeats on every page (running heads, page numbers) and is not in `text`.
    `image` and `thumb` are JPEG files as bytes, empty if the page was not rendered. `notes` says what could not be
    read.
    """

    number: int
    text: str
    section_path: str | None = None
    parent_heading: str | None = None
    num_headings: int = 0
    num_tables: int = 0
    num_pictures: int = 0
    regions: tuple[Region, ...] = ()
    furniture: str = ""
    image: bytes = b""
    thumb: bytes = b""
    scanned: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class BadPage:
    """A page that could not be read, and why, in one line."""

    number: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadDocument:
    """The pages of a file that could be read, in order, and those that could not."""

    pages: tuple[Page, ...]
    bad: tuple[BadPage, ...] = ()
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadLimits:
    """Limits for reading one file; a file that exceeds them is refused with an error. `draw` enables page pictures."""

    pages: int = 5_000
    bytes: int = 512 * 2**20
    unpacked_bytes: int = 1_024 * 2**20
    seconds: float = 600.0
    memory_bytes: int = 4 * 2**30
    draw: bool = True


class DocumentReader(Protocol):
    """Port: reads one kind of file; raises `InvalidRequest`, which says why, for a file it cannot read at all."""

    @property
    def extensions(self) -> Sequence[str]:
        """The file extensions it reads, in lower case, without the dot."""
        ...

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read the whole file; calls `progress` with pages done and total pages. Blocks: not for the event loop."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EncodedPage:
    """A page as vectors, by the name of their vector space.

    Each space has a row per region or patch in `rows`, and one vector that represents the page in `whole`; `boxes` has
    the region of each row, in order. An empty page has no rows.
    """

    rows: Mapping[str, Matrix]
    boxes: tuple[BoundingBox, ...]
    whole: Mapping[str, Vector]


@runtime_checkable
class PageEmbeddingCache(Protocol):
    """A page encoder whose embedders store the vectors of texts, and can forget those of pages."""

    async def forget(self, pages: Sequence[Page]) -> None:
        """Remove the stored vectors of the texts of these pages; their pictures are not needed."""
        ...


class PageEncoder(Protocol):
    """Port: encodes pages and questions as rows of unit vectors that are compared by MaxSim, in one or more spaces.

    The MaxSim of a question and a page in a shared space is the mean, over the question's rows, of the best cosine
    with any of the page's rows.
    """

    @property
    def vectors(self) -> Mapping[str, int]:
        """Names and lengths of the vectors of every space; a name changes when the model's weights change."""
        ...

    async def pages(self, pages: Sequence[Page]) -> Sequence[EncodedPage]:
        """The encoded pages, in order."""
        ...

    async def question(self, text: str) -> Mapping[str, Matrix]:
        """The question's rows, by space."""
        ...

    def calibrate(self, name: str, similarity: Vector) -> Vector:
        """MaxSim values of a space as similarities from 0 to 1: unrelated pairs below .3, true pairs about .8."""
        ...
