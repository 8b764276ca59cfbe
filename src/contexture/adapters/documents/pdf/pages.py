"""Builds `Page` values from raw pages.

Removes page furniture (running heads, feet, page numbers), orders the content, and writes Markdown with regions and
section paths.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from contexture.adapters.documents._text import HeadingOutline
from contexture.adapters.documents.pdf import _elements as elements
from contexture.adapters.documents.pdf import layout
from contexture.adapters.documents.pdf._contents import take_contents
from contexture.adapters.documents.pdf._statements import FigureTable, find_figure_tables, has_figures
from contexture.documents import BoundingBox, Page, Region, RegionKind

_LEVELS_PER_SIZE = 10
_MIN_LONG_DOCUMENT_PAGES = 8  # a document with fewer pages has no title pages
_MIN_TEXT_PAGE_LETTERS = 500  # a page with fewer letters at the start may be a title page


@dataclass(slots=True)
class _PageLayout:
    """A raw page with its lines outside of tables, its ruled tables, and why its layout could not be analysed."""

    raw: layout.RawPage
    lines: list[layout.TextLine]
    tables: list[elements.PdfTable]
    failure: str = ""


def build_pages(sheets: Sequence[layout.RawPage]) -> list[Page]:
    """Pages of a document from its raw pages."""
    laid = [_try_layout(sheet) for sheet in sheets]
    marked = _drop_false_furniture(laid, find_furniture([(each.raw.height, each.lines) for each in laid]))
    sizes = replace(
        elements.measure_font_sizes(line for each in laid for line in each.lines),
        compounds=elements.find_compounds(line for each in laid for line in each.lines),
    )
    outline = HeadingOutline()
    front = _count_title_pages(laid)
    headers = _TableHeaders()
    return [
        _try_page(each, taken, sizes, HeadingOutline() if at < front else outline, headers)
        for at, (each, taken) in enumerate(zip(laid, marked, strict=True))
    ]


@dataclass(slots=True)
class _TableHeaders:
    """The last table of figures of the page before, whose header a table without one continues."""

    last: FigureTable | None = None

    def continue_tables(self, tables: Sequence[FigureTable]) -> list[FigureTable]:
        """The tables of a page; the first has the header of the table that it continues."""
        found = list(tables)
        if found and self.last is not None:
            found[0] = found[0].with_header_of(self.last)
        self.last = found[-1] if found else None
        return found


_LAYOUT_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def _try_layout(sheet: layout.RawPage) -> _PageLayout:
    try:
        return _analyse_layout(sheet)
    except _LAYOUT_ERRORS as failure:
        return _PageLayout(sheet, [], [], _describe_failure(failure))


def _try_page(
    laid: _PageLayout, taken: set[int], sizes: elements.FontSizes, outline: HeadingOutline, headers: _TableHeaders
) -> Page:
    """The page; one whose layout fails has its words in the order of the file, and a note that says so."""
    failure = laid.failure
    if not failure:
        try:
            return _build_page(laid, taken, sizes, outline, headers)
        except _LAYOUT_ERRORS as raised:
            failure = _describe_failure(raised)
    text = " ".join(word.text for word in laid.raw.words).replace("\x02", "-")
    box = (0.0, 0.0, 1.0, 1.0)
    region = Region(kind=RegionKind.TEXT, box=box, text=text, start=0, end=len(text))
    return Page(number=laid.raw.number, text=text, regions=(region,) if text else (), notes=(failure,))


def _describe_failure(failure: Exception) -> str:
    return (
        "its layout could not be analysed, so its words are in the order of the file "
        f"({type(failure).__name__}: {failure})"
    )


def _drop_false_furniture(laid: Sequence[_PageLayout], marked: Sequence[set[int]]) -> Sequence[set[int]]:
    """Furniture of each page; if removing it would empty most pages, the emptied ones lose only page numbers.

    On tickets and cards, the repeated text is the content. A few emptied pages among others are pages with a running
    head and no text.
    """
    bare = [not each.tables and 0 < len(each.lines) == len(taken) for each, taken in zip(laid, marked, strict=True)]
    if 2 * sum(bare) <= sum(bool(each.lines or each.tables) for each in laid):
        return marked
    return [
        {at for at, line in enumerate(each.lines) if is_page_number(line)} if empty else taken
        for each, taken, empty in zip(laid, marked, bare, strict=True)
    ]


def _count_title_pages(laid: Sequence[_PageLayout]) -> int:
    """Number of title pages of a long document, before the first page of text; their headings open no sections."""
    if len(laid) < _MIN_LONG_DOCUMENT_PAGES:
        return 0
    letters = (sum(len(line.text) for line in each.lines) for each in laid)
    return next((at for at, count in enumerate(letters) if count >= _MIN_TEXT_PAGE_LETTERS), 0)


def _analyse_layout(sheet: layout.RawPage) -> _PageLayout:
    tables = [
        table for table in elements.find_ruled_tables(sheet.rules, sheet.words) if not _is_coarse(table, sheet.words)
    ]
    free = [word for word in sheet.words if not any(table.area.contains_center(word) for table in tables)]
    return _PageLayout(sheet, layout.group_lines(free) if free else [], tables)


def _is_coarse(table: elements.PdfTable, words: Sequence[layout.Word]) -> bool:
    """Whether the rows of figures in ruling lines are read better by their positions.

    The lines frame groups of rows, so that there are more rows of figures than rows of cells, or they frame the rows
    without the header above them.
    """
    inside = [word for word in words if table.area.contains_center(word)]
    figures = find_figure_tables(layout.group_rows(layout.group_lines(inside)))
    count = sum(any(row[1:]) for each in figures for row in each.cells[1:])
    return count > len(table.cells) or (count == len(table.cells) and has_figures(table.cells[0]))


def _build_page(
    laid: _PageLayout, taken: set[int], sizes: elements.FontSizes, outline: HeadingOutline, headers: _TableHeaders
) -> Page:
    sheet = laid.raw
    body = [line for at, line in enumerate(laid.lines) if at not in taken]
    aside = [laid.lines[at].text for at in sorted(taken)]
    pieces = _order_elements(body, laid.tables, sizes, sheet.width, headers)
    text, regions = _join_elements(pieces, sheet)
    pictures = [Region(kind=RegionKind.PICTURE, box=_relative_box(area, sheet), text="") for area in sheet.pictures]
    section = outline.add_page([(_outline_level(piece, sizes), piece.plain or piece.text) for piece in pieces])
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


def _order_elements(
    lines: Sequence[layout.TextLine],
    tables: Sequence[elements.PdfTable],
    sizes: elements.FontSizes,
    width: float,
    headers: _TableHeaders,
) -> list[elements.PageElement]:
    """Elements in reading order; a table replaces the lines inside it."""
    rest, contents = take_contents(layout.group_rows(lines))
    free, figures = _take_figure_tables(rest, headers)
    placed = [(_placeholder_line(table), table) for table in (*tables, *contents, *figures)]
    every = [*free, *(line for line, _ in placed)]
    known = {id(line): table for line, table in placed}
    found: list[elements.PageElement] = []
    for block in layout.reading_order(every, width):
        rows: list[list[layout.TextLine]] = []
        for row in _place_figure_tables(block, known):
            inside = [known[id(line)] for line in row if id(line) in known]
            if not inside:
                rows.append(row)
                continue
            found += elements.build_elements(rows, sizes)
            found += [elements.table_element(table) for table in inside]
            beside = [line for line in row if id(line) not in known]
            rows = [beside] if beside else []
        found += elements.build_elements(rows, sizes)
    return found


def _take_figure_tables(
    lines: Sequence[layout.TextLine], headers: _TableHeaders | None = None
) -> tuple[list[layout.TextLine], list[elements.PdfTable]]:
    """Lines outside of tables of figures, and these tables."""
    found = find_figure_tables(layout.group_rows(lines))
    tables = headers.continue_tables(found) if headers else found
    taken = {id(word) for table in tables for word in table.words}
    free = [line for line in lines if not (line.words and all(id(word) in taken for word in line.words))]
    return free, [elements.PdfTable(table.area, table.cells, table.is_list) for table in tables]


def _place_figure_tables(
    block: Sequence[list[layout.TextLine]], known: dict[int, elements.PdfTable]
) -> list[list[layout.TextLine]]:
    """Rows of a column with its tables of figures as placeholder lines, which are added to `known`."""
    lines = [line for row in block for line in row]
    free, tables = _take_figure_tables([line for line in lines if id(line) not in known])
    if not tables:
        return list(block)
    placed = [(_placeholder_line(table), table) for table in tables]
    known.update({id(line): table for line, table in placed})
    return layout.group_rows([*free, *(line for line in lines if id(line) in known), *(line for line, _ in placed)])


def _placeholder_line(table: elements.PdfTable) -> layout.TextLine:
    area = table.area
    return layout.TextLine([], area.left, area.top, area.right, area.bottom, 1.0)


def _outline_level(piece: elements.PageElement, sizes: elements.FontSizes) -> int:
    """Outline level of an element; 0 if it opens no section.

    Ordered by font size, then by the depth of the heading's number. If larger headings exist, a bold line of body size
    opens a section only if it is numbered; otherwise it is the title of a note.
    """
    if piece.kind is not RegionKind.HEADING:
        return 0
    depth = elements.numbering_depth(piece.plain)
    if sizes.headings and piece.level > len(sizes.headings) and not depth:
        return 0
    return piece.level * _LEVELS_PER_SIZE + min(max(depth, 1), _LEVELS_PER_SIZE - 1)


def _join_elements(pieces: Sequence[elements.PageElement], sheet: layout.RawPage) -> tuple[str, list[Region]]:
    """Markdown of a page, and the character range of each region."""
    text, regions = "", list[Region]()
    for piece in pieces:
        start = len(text) + (2 if text else 0)
        text = f"{text}\n\n{piece.text}" if text else piece.text
        regions.append(
            Region(kind=piece.kind, box=_relative_box(piece.area, sheet), text=piece.text, start=start, end=len(text))
        )
    return text, regions


def _relative_box(area: layout.Rectangle, sheet: layout.RawPage) -> BoundingBox:
    edges = (
        area.left / sheet.width, area.top / sheet.height, area.right / sheet.width, area.bottom / sheet.height,
    )  # fmt: skip
    left, top, right, bottom = (min(max(edge, 0.0), 1.0) for edge in edges)
    return left, top, right, bottom


def has_text(words: Sequence[layout.Word]) -> bool:
    """Whether a page has a usable text layer: more than a page number."""
    return sum(len(word.text) for word in words) >= 8  # noqa: PLR2004 - a page number and a little more


_EDGE_SHARE = 0.13  # of the page height: the zones at top and bottom searched for furniture
_MIN_REPEATS = 3  # pages that must share a text for it to be a running head
_BAND_POINTS = 3.0  # lines whose heights differ by less are in the same band
_MIN_REPEATING_SHARE = 0.5  # of the outermost lines of a band: if more repeat, the whole band is furniture
_NUMBER = re.compile(r"\d+|\b[ivxlcdm]+\b", re.IGNORECASE)
_PAGE_NUMBER = re.compile(r"[-–—|\s]*(?:page|стр\.?|страница)?\s*#(?:\s*(?:/|of|из)\s*#)?[-–—|\s]*", re.IGNORECASE)
_YEAR = re.compile(r"(?:19|20)\d\d")
_BARE_NUMBER = re.compile(r"(?:page\s+|[-–—]\s*)?(\d{1,4})(?:\s*[-–—])?", re.IGNORECASE)
_MAX_FURNITURE_CHARACTERS = 160

EdgePosition = tuple[bool, int]
EdgeCounts = Counter[tuple[EdgePosition, str]]


def find_furniture(pages: Sequence[tuple[float, Sequence[layout.TextLine]]]) -> list[set[int]]:
    """For each page (height, lines), the indexes of its running heads, feet and page numbers.

    In a document of two pages, text that both have at the same place is furniture; on a single page, only its number
    and a repetition of its title.
    """
    edges = [_edge_rows(lines, height) for height, lines in pages]
    numbers = _find_running_numbers([lines for _, lines in pages])
    times: EdgeCounts = Counter()
    outermost: EdgeCounts = Counter()
    for page in edges:
        for rows in page:
            times.update({(mark, text) for row in rows for _, mark, text in row})
            outermost.update({(mark, text) for row in rows[:1] for _, mark, text in row})
    bands = _repeating_bands(outermost)
    enough = max(2, min(_MIN_REPEATS, len(pages)))
    return [
        {at for rows in page for at in _match_furniture(rows, times, bands, enough)}
        | number
        | _find_title_line(page, lines)
        for page, number, (_, lines) in zip(edges, numbers, pages, strict=True)
    ]


def _find_title_line(edges: Sequence[Sequence[EdgeRow]], lines: Sequence[layout.TextLine]) -> set[int]:
    """The index of an outermost line that repeats a larger line of its page: the title as a running head."""
    outermost = [row[0] for rows in edges for row in rows[:1] if len(row) == 1]
    return {
        at
        for at, _, text in outermost
        if any(each.size > lines[at].size and _mask_numbers(each.text) == text for each in lines)
    }


def _find_running_numbers(pages: Sequence[Sequence[layout.TextLine]]) -> list[set[int]]:
    """For each page, the index of its last line if that is a number which grows with the pages.

    A page printed from a browser may end far above the lower edge of its sheet.
    """
    last = [max(range(len(lines)), key=lambda at: lines[at].bottom) if lines else None for lines in pages]
    shifts: dict[int, int] = {}
    for number, (lines, at) in enumerate(zip(pages, last, strict=True)):
        if at is not None and (found := _BARE_NUMBER.fullmatch(lines[at].text.strip())):
            shifts[number] = int(found[1]) - number
    counts = Counter(shifts.values())
    known = {number for number, shift in shifts.items() if counts[shift] >= _MIN_REPEATS}
    return [{at} if number in known and at is not None else set() for number, at in enumerate(last)]


def is_page_number(line: layout.TextLine) -> bool:
    """Whether a line is only a page number."""
    return _PAGE_NUMBER.fullmatch(_mask_numbers(line.text)) is not None


EdgeRow = list[tuple[int, EdgePosition, str]]
"""Lines of one row: index, edge position, and text with numbers masked."""


def _edge_rows(lines: Sequence[layout.TextLine], height: float) -> tuple[list[EdgeRow], list[EdgeRow]]:
    """Rows at the top and at the bottom of a page, outermost first."""
    marked = [
        (at, mark, _mask_numbers(line.text)) for at, line in enumerate(lines) if (mark := _edge_position(line, height))
    ]
    ends: tuple[list[EdgeRow], list[EdgeRow]] = ([], [])
    for end, top in zip(ends, (True, False), strict=True):
        for each in sorted((each for each in marked if each[1][0] is top), key=lambda each: each[1][1]):
            inner = lines[each[0]].bottom
            if end and abs(lines[end[-1][0][0]].bottom - inner) <= _BAND_POINTS:
                end[-1].append(each)
            else:
                end.append([each])
    return ends


def _match_furniture(
    rows: Sequence[EdgeRow], times: EdgeCounts, bands: frozenset[EdgePosition], enough: int
) -> list[int]:
    """Indexes of the furniture lines at one edge, from the outermost row to the first row that is not furniture."""
    found: list[int] = []
    for place, row in enumerate(rows):
        again = [_is_repeated(mark, text, times, enough, alone=len(row) == 1) for _, mark, text in row]
        known = any(again) or any(mark in bands for _, mark, _ in row) if place == 0 else all(again)
        if not known:
            break
        found += [at for at, _, _ in row]
    return found


def _is_repeated(mark: EdgePosition, text: str, times: EdgeCounts, enough: int, *, alone: bool) -> bool:
    """Whether a text repeats at its position, or is a page number; beside other text it is one in a longer document."""
    if _PAGE_NUMBER.fullmatch(text):
        return alone or enough >= _MIN_REPEATS
    return sum(times[(mark[0], mark[1] + shift), text] for shift in (-1, 0, 1)) >= enough


def _repeating_bands(times: EdgeCounts) -> frozenset[EdgePosition]:
    """Edge positions where so many lines repeat that any other line there is furniture too."""
    all_there: dict[EdgePosition, int] = defaultdict(int)
    again: dict[EdgePosition, int] = defaultdict(int)
    for (mark, _), count in times.items():
        all_there[mark] += count
        again[mark] += count if count >= _MIN_REPEATS else 0
    return frozenset(
        mark
        for mark, count in all_there.items()
        if count > _MIN_REPEATS and again[mark] >= _MIN_REPEATING_SHARE * count
    )


def _edge_position(line: layout.TextLine, height: float) -> EdgePosition | None:
    """Whether a line is at the top or bottom edge, and its distance in bands; None for a line in between."""
    if len(line.text) > _MAX_FURNITURE_CHARACTERS:
        return None
    if line.bottom <= _EDGE_SHARE * height:
        return True, round(line.bottom / _BAND_POINTS)
    if line.top >= (1 - _EDGE_SHARE) * height:
        return False, round((height - line.bottom) / _BAND_POINTS)
    return None


def _mask_numbers(text: str) -> str:
    """The text with its numbers masked; a year is masked as such, because it is the header of a column, not a page."""
    masked = _NUMBER.sub(lambda found: "year#" if _YEAR.fullmatch(found[0]) else "#", text)
    return " ".join(masked.casefold().split())
