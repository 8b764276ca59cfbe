"""Sheets as pages: reading order, furniture out, Markdown, regions, and the section each page belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contexture.adapters.documents.pdf.columns import reading_order
from contexture.adapters.documents.pdf.furniture import furniture, is_page_number
from contexture.adapters.documents.pdf.headings import Sizes, numbered_level, sizes_of
from contexture.adapters.documents.pdf.lines import lines_of
from contexture.adapters.documents.pdf.paragraphs import Piece, pieces_of, table_piece
from contexture.adapters.documents.pdf.tables import Table, ruled
from contexture.adapters.documents.pdf.words import Area, Line, Sheet, Word
from contexture.adapters.documents.sections import Outline
from contexture.documents import Box, Page, Region, RegionKind

_DEPTHS = 10
_LONG = 8  # pages: a document with fewer has no title page
_TEXT = 500  # letters of a page that holds text


@dataclass(slots=True)
class _Laid:
    """A sheet with its lines in place of words; tables are taken out of them."""

    sheet: Sheet
    lines: list[Line]
    tables: list[Table]


def pages_of(sheets: Sequence[Sheet]) -> list[Page]:
    """The pages of a document."""
    laid = [_laid(sheet) for sheet in sheets]
    marked = _framing(laid, furniture([(each.sheet.height, each.lines) for each in laid]))
    sizes = sizes_of(line for each in laid for line in each.lines)
    outline = Outline()
    front = _front(laid)
    return [
        _page(each, taken, sizes, Outline() if at < front else outline)
        for at, (each, taken) in enumerate(zip(laid, marked, strict=True))
    ]


def _framing(laid: Sequence[_Laid], marked: Sequence[set[int]]) -> Sequence[set[int]]:
    """The furniture of pages that have something in it.

    Where most pages would be left empty, as those of tickets and cards, what repeats is what they say; a few empty
    pages among others have a running head and no text.
    """
    bare = [not each.tables and 0 < len(each.lines) == len(taken) for each, taken in zip(laid, marked, strict=True)]
    if 2 * sum(bare) <= sum(bool(each.lines or each.tables) for each in laid):
        return marked
    return [
        {at for at, line in enumerate(each.lines) if is_page_number(line)} if empty else taken
        for each, taken, empty in zip(laid, marked, bare, strict=True)
    ]


def _front(laid: Sequence[_Laid]) -> int:
    """How many pages a long document has before its text: title pages open no sections."""
    if len(laid) < _LONG:
        return 0
    letters = (sum(len(line.text) for line in each.lines) for each in laid)
    return next((at for at, count in enumerate(letters) if count >= _TEXT), 0)


def _laid(sheet: Sheet) -> _Laid:
    tables = ruled(sheet.rules, sheet.words)
    free = [word for word in sheet.words if not any(table.area.holds(word) for table in tables)]
    return _Laid(sheet, lines_of(free) if free else [], tables)


def _page(laid: _Laid, taken: set[int], sizes: Sizes, outline: Outline) -> Page:
    sheet = laid.sheet
    body = [line for at, line in enumerate(laid.lines) if at not in taken]
    aside = [laid.lines[at].text for at in sorted(taken)]
    pieces = _pieces(body, laid.tables, sizes, sheet.width)
    text, regions = _written(pieces, sheet)
    pictures = [Region(kind=RegionKind.PICTURE, box=_box(area, sheet), text="") for area in sheet.pictures]
    section = outline.page([(_level(piece, sizes), piece.plain or piece.text) for piece in pieces])
    return Page(
        number=sheet.number,
        text=text,
        section_path=section.path,
        parent_heading=section.heading,
        num_headings=sum(piece.kind is RegionKind.HEADING for piece in pieces),
        num_tables=sum(piece.kind is RegionKind.TABLE for piece in pieces),
        num_pictures=len(pictures),
        regions=(*regions, *pictures),
        furniture="\n".join(aside).replace("\x02", "-"),
    )


def _pieces(lines: Sequence[Line], tables: Sequence[Table], sizes: Sizes, width: float) -> list[Piece]:
    """Pieces in reading order; a framed table stands in for the lines it took."""
    placed = [(_stand_in(table), table) for table in tables]
    every = [*lines, *(line for line, _ in placed)]
    known = {id(line): table for line, table in placed}
    found: list[Piece] = []
    for block in reading_order(every, width):
        rows: list[list[Line]] = []
        for row in block:
            table = next((known[id(line)] for line in row if id(line) in known), None)
            if table is None:
                rows.append(row)
                continue
            found += pieces_of(rows, sizes)
            found.append(table_piece(table))
            rows = [[line for line in row if id(line) not in known]] if len(row) > 1 else []
        found += pieces_of(rows, sizes)
    return found


def _stand_in(table: Table) -> Line:
    area = table.area
    return Line([], area.left, area.top, area.right, area.bottom, 1.0)


def _level(piece: Piece, sizes: Sizes) -> int:
    """The level of a piece in the outline, 0 for one that opens no section.

    Size comes first, then the depth of a heading's number. Where larger headings exist, a bold line of the body's size
    opens a section only if it is numbered: otherwise it is a note's title.
    """
    if piece.kind is not RegionKind.HEADING:
        return 0
    depth = numbered_level(piece.plain)
    if sizes.heads and piece.level > len(sizes.heads) and not depth:
        return 0
    return piece.level * _DEPTHS + min(max(depth, 1), _DEPTHS - 1)


def _written(pieces: Sequence[Piece], sheet: Sheet) -> tuple[str, list[Region]]:
    """The Markdown of a page, and which characters of it each region holds."""
    text, regions = "", list[Region]()
    for piece in pieces:
        start = len(text) + (2 if text else 0)
        text = f"{text}\n\n{piece.text}" if text else piece.text
        regions.append(
            Region(kind=piece.kind, box=_box(piece.area, sheet), text=piece.text, start=start, end=len(text))
        )
    return text, regions


def _box(area: Area, sheet: Sheet) -> Box:
    edges = (
        area.left / sheet.width, area.top / sheet.height, area.right / sheet.width, area.bottom / sheet.height,
    )  # fmt: skip
    left, top, right, bottom = (min(max(edge, 0.0), 1.0) for edge in edges)
    return left, top, right, bottom


def has_text(words: Sequence[Word]) -> bool:
    """Whether a page has a text layer worth the name."""
    return sum(len(word.text) for word in words) >= 8  # noqa: PLR2004 - a page number and a little more
