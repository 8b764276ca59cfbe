"""Reads Markdown and plain text files, and splits Markdown into pages with regions and section paths.

The HTML and office readers use the same pagination; the PDF reader uses `HeadingOutline` for section paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from contexture.documents import BoundingBox, Page, ReadDocument, ReadLimits, Region, RegionKind
from contexture.errors import InvalidRequest

_BINARY_SAMPLE_BYTES = 8_192


class TextReader:
    """Implements `DocumentReader` for text that needs no conversion."""

    extensions = ("md", "markdown", "txt", "text", "rst")

    def read(self, path: Path, limits: ReadLimits, progress: Callable[[int, int], None]) -> ReadDocument:
        """Read a text file; pages are split at form feeds, headings and by length."""
        text = decode_text(path.read_bytes())
        return build_document(text, limits, progress)


def build_document(
    text: str, limits: ReadLimits, progress: Callable[[int, int], None], title: str = ""
) -> ReadDocument:
    """Paginate Markdown into a document; raises `InvalidRequest` for too many pages or no text."""
    pages = split_pages(text, max_pages=limits.pages)
    if len(pages) > limits.pages:
        raise InvalidRequest(f"the file has more than {limits.pages} pages")
    if not any(page.text.strip() for page in pages):
        raise InvalidRequest("the file contains no text")
    progress(len(pages), len(pages))
    return ReadDocument(pages=pages, title=title or find_title(text))


def decode_text(data: bytes) -> str:
    """Decode UTF-8, or UTF-16 with a byte order mark.

    Invalid bytes become U+FFFD; binary data raises `InvalidRequest`.
    """
    if data[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        return data.decode("utf-16", "replace")
    if b"\0" in data[:_BINARY_SAMPLE_BYTES]:
        raise InvalidRequest("a binary file, not text")
    return data.decode("utf-8-sig", "replace")


PAGE_BREAK = "\f"
"""Form feed, which separates two pages."""

PAGE_CHARACTERS = 3_000
"""Target length of a page without page breaks; it ends at a paragraph."""

_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t#]*$")
_FENCE = re.compile(r"[ ]{0,3}(```|~~~)")
_TABLE_ROW = re.compile(r"\s*\|.*\|\s*$")
_TABLE_RULE = re.compile(r"[\s|:-]+$")
_IMAGE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
_WHOLE_PAGE: BoundingBox = (0.0, 0.0, 1.0, 1.0)


def split_pages(text: str, *, max_pages: int) -> tuple[Page, ...]:
    """Pages of a text, numbered from 1: at least one, at most `max_pages + 1` so that a caller can detect too many."""
    outline = HeadingOutline()
    parts = [part for sheet in text.replace("\r\n", "\n").split(PAGE_BREAK) for part in _paginate(sheet)] or [[]]
    return tuple(_build_page(number, part, outline) for number, part in enumerate(parts[: max_pages + 1], start=1))


def pages_from_texts(sheets: Sequence[str]) -> tuple[Page, ...]:
    """One page per text, whatever its length."""
    outline = HeadingOutline()
    return tuple(
        _build_page(number, list(_split_blocks(sheet)), outline) for number, sheet in enumerate(sheets, start=1)
    )


def find_title(text: str) -> str:
    """First heading of a text, empty without one."""
    return next((found[2] for block in _split_blocks(text) if (found := _HEADING.match(block))), "")


def _paginate(sheet: str) -> Iterator[list[str]]:
    """Blocks of each page; a page ends when it is long enough, earlier before a heading."""
    page: list[str] = []
    length = 0
    for block in _split_blocks(sheet):
        heading = _HEADING.match(block) is not None
        if page and (length + len(block) > PAGE_CHARACTERS or (heading and length > PAGE_CHARACTERS // 2)):
            yield page
            page, length = [], 0
        page.append(block)
        length += len(block)
    if page:
        yield page


def _split_blocks(text: str) -> Iterator[str]:
    """Paragraphs, headings, tables and whole code listings; a far too long block is split at a line end.

    Each part of a split table has its header.
    """
    lines: list[str] = []
    fenced = False
    for line in text.split("\n"):
        fenced ^= _FENCE.match(line) is not None
        if not fenced and (not line.strip() or _HEADING.match(line)):
            yield from _split_long_block("\n".join(lines))
            lines = []
            if line.strip():
                yield line.strip()
        else:
            lines.append(line.rstrip())
    yield from _split_long_block("\n".join(lines))


def _split_long_block(block: str) -> Iterator[str]:
    if len(block) > PAGE_CHARACTERS and _is_table(block) and _TABLE_RULE.match(block.split("\n")[1]):
        yield from _split_long_table(block.split("\n"))
        return
    while len(block) > PAGE_CHARACTERS:
        at = max(block.rfind("\n", 0, PAGE_CHARACTERS), block.rfind(" ", 0, PAGE_CHARACTERS))
        at = at if at > PAGE_CHARACTERS // 2 else PAGE_CHARACTERS
        yield block[:at].rstrip()
        block = block[at:].lstrip()
    if block.strip():
        yield block.strip("\n")


def _split_long_table(rows: Sequence[str]) -> Iterator[str]:
    head, rest = rows[:2], rows[2:]
    part: list[str] = []
    for row in rest:
        if part and sum(map(len, (*head, *part, row))) + len(part) > PAGE_CHARACTERS:
            yield "\n".join([*head, *part])
            part = []
        part.append(row)
    yield "\n".join([*head, *part])


def _build_page(number: int, blocks: Sequence[str], outline: HeadingOutline) -> Page:
    headings = [_HEADING.match(block) for block in blocks]
    section = outline.add_page(
        [(len(found[1]), found[2]) if found else (0, block) for found, block in zip(headings, blocks, strict=True)]
    )
    text, regions = _join_blocks(blocks)
    return Page(
        number=number,
        text=text,
        section_path=section.path,
        parent_heading=section.heading,
        num_headings=sum(found is not None for found in headings),
        num_tables=sum(_is_table(block) for block in blocks),
        num_pictures=sum(len(_IMAGE.findall(block)) for block in blocks),
        regions=regions,
    )


def _join_blocks(blocks: Sequence[str]) -> tuple[str, tuple[Region, ...]]:
    """Text and regions of a page; without a layout a region's height is its share of the text."""
    text = "\n\n".join(blocks)
    regions: list[Region] = []
    start = 0
    for block in blocks:
        end = start + len(block)
        box = (0.0, start / max(len(text), 1), 1.0, end / max(len(text), 1))
        regions.append(
            Region(kind=_classify_block(block), box=box if blocks else _WHOLE_PAGE, text=block, start=start, end=end)
        )
        start = end + 2
    return text, tuple(regions)


def _classify_block(block: str) -> RegionKind:
    if _HEADING.match(block):
        return RegionKind.HEADING
    if _is_table(block):
        return RegionKind.TABLE
    return RegionKind.PICTURE if _IMAGE.fullmatch(block.strip()) else RegionKind.TEXT


def _is_table(block: str) -> bool:
    lines = block.split("\n")
    return len(lines) > 1 and all(_TABLE_ROW.match(line) for line in lines)


_MAX_HEADING_CHARACTERS = 120
_MAX_OUTLINE_DEPTH = 6


@dataclass(frozen=True, slots=True)
class PageSection:
    """Section path of a page (open headings, outermost first) and its innermost heading."""

    path: str | None
    heading: str | None


class HeadingOutline:
    """Tracks the open headings of a document from page to page."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def add_page(self, pieces: Sequence[tuple[int, str]]) -> PageSection:
        """Add a page and return the section that most of its letters belong to, the first on a tie.

        The blocks of the page are given as (heading level, text); the level of text is 0.
        """
        letters: dict[tuple[str, ...], int] = {}
        for level, text in pieces:
            if level:
                self._open_heading(level, text)
            path = tuple(name for _, name in self._open)
            letters[path] = letters.get(path, 0) + len(text)
        if not letters:
            letters[tuple(name for _, name in self._open)] = 0
        best = max(letters, key=lambda path: letters[path])
        return PageSection(" > ".join(best), best[-1]) if best else PageSection(None, None)

    def _open_heading(self, level: int, text: str) -> None:
        while self._open and self._open[-1][0] >= level:
            self._open.pop()
        self._open.append((level, " ".join(text.split())[:_MAX_HEADING_CHARACTERS]))
        del self._open[_MAX_OUTLINE_DEPTH:]
