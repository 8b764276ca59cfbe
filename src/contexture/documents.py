"""Documents as the rest of the package knows them: what a reader gives, what an encoder sees, and their contracts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from contexture.types import Matrix, Vector

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a part of a page, each as a share of its width or height."""


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
    box: Box
    text: str = ""
    start: int = 0
    end: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """One page: its text as Markdown in reading order, where it stands in the document, and how it looks.

    `furniture` is what repeats on page after page (running heads, page numbers) and is not in `text`.
    `image` and `thumb` are JPEG files as bytes, empty where a page was not drawn. `notes` says what was lost.
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
    """How far a reader goes with one file: beyond these it is refused with a clear error."""

    pages: int = 5_000
    bytes: int = 512 * 2**20
    unpacked_bytes: int = 1_024 * 2**20
    seconds: float = 600.0
    memory_bytes: int = 4 * 2**30
    draw: bool = True


class DocumentReader(Protocol):
    """Reads one kind of file. A file it cannot read at all is an `InvalidRequest` that says why."""

    @property
    def extensions(self) -> Sequence[str]:
        """The endings it reads, lower case, without the dot."""
        ...

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """The whole file; `progress` hears of pages done and pages in all. Not for the event loop."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Encoded:
    """A page as vectors, by the name of the space they live in.

    Each space has a row per region or patch and one vector that stands for them all; `boxes` says where on the page
    the rows look, in their order. A page that shows nothing has no rows.
    """

    rows: Mapping[str, Matrix]
    boxes: tuple[Box, ...]
    whole: Mapping[str, Vector]


class PageEncoder(Protocol):
    """Turns pages and questions into rows of unit vectors that are compared by MaxSim, in one space or several.

    The MaxSim of a question and a page in a space they share is the mean, over the question's rows, of the best cosine
    with any of the page's rows.
    """

    @property
    def vectors(self) -> Mapping[str, int]:
        """Names and lengths of the vectors of every space; a name changes when the weights do."""
        ...

    async def pages(self, pages: Sequence[Page]) -> Sequence[Encoded]:
        """One value per page, in order."""
        ...

    async def question(self, text: str) -> Mapping[str, Matrix]:
        """The question's rows in each space in which it is asked."""
        ...

    def calibrate(self, name: str, similarity: Vector) -> Vector:
        """MaxSim values of a space as similarities from 0 to 1: unrelated pairs below .3, true pairs about .8."""
        ...
