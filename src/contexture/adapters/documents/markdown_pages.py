"""A long Markdown text as pages: at page breaks, else at headings and paragraphs, about as long as printed ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from contexture.adapters.documents.sections import Outline
from contexture.documents import Box, Page, Region, RegionKind

BREAK = "\f"
"""Parts two pages."""

LENGTH = 3_000
"""Characters after which a page without breaks ends with its paragraph."""

_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t#]*$")
_FENCE = re.compile(r"[ ]{0,3}(```|~~~)")
_ROW = re.compile(r"\s*\|.*\|\s*$")
_PICTURE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
_WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


def pages_of(text: str, *, most: int) -> tuple[Page, ...]:
    """The pages of a text, numbered from 1; at least one, and not more than `most` and one."""
    outline = Outline()
    parts = [part for sheet in text.replace("\r\n", "\n").split(BREAK) for part in _cut(sheet)] or [[]]
    return tuple(_page(number, part, outline) for number, part in enumerate(parts[: most + 1], start=1))


def sheets_of(sheets: Sequence[str]) -> tuple[Page, ...]:
    """Each text as one page, however long or short it is."""
    outline = Outline()
    return tuple(_page(number, list(_blocks(sheet)), outline) for number, sheet in enumerate(sheets, start=1))


def title_of(text: str) -> str:
    """The first heading of a text; empty without one."""
    return next((found[2] for block in _blocks(text) if (found := _HEADING.match(block))), "")


def _cut(sheet: str) -> Iterator[list[str]]:
    """A sheet's blocks, page by page: a page that is long enough ends, before a heading rather early."""
    page: list[str] = []
    length = 0
    for block in _blocks(sheet):
        heading = _HEADING.match(block) is not None
        if page and (length + len(block) > LENGTH or (heading and length > LENGTH // 2)):
            yield page
            page, length = [], 0
        page.append(block)
        length += len(block)
    if page:
        yield page


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs, headings and whole listings; one that is far too long is cut at a line's end."""
    lines: list[str] = []
    fenced = False
    for line in text.split("\n"):
        fenced ^= _FENCE.match(line) is not None
        if not fenced and (not line.strip() or _HEADING.match(line)):
            yield from _pieces("\n".join(lines))
            lines = []
            if line.strip():
                yield line.strip()
        else:
            lines.append(line.rstrip())
    yield from _pieces("\n".join(lines))


def _pieces(block: str) -> Iterator[str]:
    while len(block) > LENGTH:
        at = max(block.rfind("\n", 0, LENGTH), block.rfind(" ", 0, LENGTH))
        at = at if at > LENGTH // 2 else LENGTH
        yield block[:at].rstrip()
        block = block[at:].lstrip()
    if block.strip():
        yield block.strip("\n")


def _page(number: int, blocks: Sequence[str], outline: Outline) -> Page:
    headings = [_HEADING.match(block) for block in blocks]
    section = outline.page(
        [(len(found[1]), found[2]) if found else (0, block) for found, block in zip(headings, blocks, strict=True)]
    )
    text, regions = _written(blocks)
    return Page(
        number=number,
        text=text,
        section_path=section.path,
        parent_heading=section.heading,
        num_headings=sum(found is not None for found in headings),
        num_tables=sum(_is_table(block) for block in blocks),
        num_pictures=sum(len(_PICTURE.findall(block)) for block in blocks),
        regions=regions,
    )


def _written(blocks: Sequence[str]) -> tuple[str, tuple[Region, ...]]:
    """The page's text and its regions; without a layout each one's box is as high as its share of the text."""
    text = "\n\n".join(blocks)
    regions: list[Region] = []
    start = 0
    for block in blocks:
        end = start + len(block)
        box = (0.0, start / max(len(text), 1), 1.0, end / max(len(text), 1))
        regions.append(Region(kind=_kind(block), box=box if blocks else _WHOLE, text=block, start=start, end=end))
        start = end + 2
    return text, tuple(regions)


def _kind(block: str) -> RegionKind:
    if _HEADING.match(block):
        return RegionKind.HEADING
    if _is_table(block):
        return RegionKind.TABLE
    return RegionKind.PICTURE if _PICTURE.fullmatch(block.strip()) else RegionKind.TEXT


def _is_table(block: str) -> bool:
    lines = block.split("\n")
    return len(lines) > 1 and all(_ROW.match(line) for line in lines)
