"""Turns rows of text lines into page elements in Markdown.

Headings by font size, paragraphs, lists, code listings, and tables, ruled or aligned.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from contexture.adapters.documents.pdf.layout import Rectangle, TextLine, Word, build_line, group_rows
from contexture.documents import RegionKind

LineRow = list[TextLine]

_PARAGRAPH_GAP = 1.32  # times the usual line distance: a larger gap separates paragraphs
_MAX_LINE_DISTANCE = 2.6  # times the font size: the largest line distance inside a paragraph
_MIN_INDENT = 0.8  # times the font size
_MIN_CODE_SHARE = 0.8  # share of monospaced letters in a row of a code listing
_BULLET = re.compile(r"[•◦▪‣●○■□–—*·\ue000-\uf8ff-]\s+(?=\S)")
_NUMBERED_ITEM = re.compile(r"(?:\d{1,3}|[a-z])[.)]\s+\S")
_COMPOUND = re.compile(r"[^\W\d_]-[^\W\d_]")
_LAST_WORD = re.compile(r"[^\s]*$")
_FIRST_WORD = re.compile(r"[\w-]*")
_PUNCTUATION = ".,;:!?()[]«»\"'“”‘’"
_TRAILING_HYPHEN = re.compile(r"(?:\x02|(?<=[^\W\d_])-)$")


@dataclass(frozen=True, slots=True)
class PageElement:
    """An element of a page: kind, Markdown, rectangle, and for a heading its level and plain text."""

    kind: RegionKind
    text: str
    area: Rectangle
    level: int = 0
    plain: str = ""


def build_elements(rows: Sequence[LineRow], sizes: FontSizes) -> list[PageElement]:
    """Page elements of a block of rows, in reading order."""
    found: list[PageElement] = []
    waiting: list[LineRow] = []
    pitch = _line_pitch(rows)
    at = 0
    while at < len(rows):
        level = sizes.heading_level(rows[at])
        count = 0 if level else count_aligned_rows(rows[at:])
        if level or count:
            found += _text_elements(waiting, pitch, sizes.compounds)
            waiting = []
        if level:
            count = _count_heading_rows(rows[at:], level, sizes, pitch)
            found.append(_heading_element(rows[at : at + count], level))
        elif count:
            found.append(table_element(build_aligned_table(rows[at : at + count])))
        else:
            waiting.append(rows[at])
        at += max(count, 1)
    return found + _text_elements(waiting, pitch, sizes.compounds)


def table_element(table: PdfTable) -> PageElement:
    """Page element for a table."""
    return PageElement(RegionKind.TEXT if table.is_list else RegionKind.TABLE, table.markdown, table.area)


def _count_heading_rows(rows: Sequence[LineRow], level: int, sizes: FontSizes, pitch: float) -> int:
    """Number of rows that the first heading spans."""
    count = 1
    while count < len(rows) and sizes.heading_level(rows[count]) == level and rows[count][0].size == rows[0][0].size:
        if rows[count][0].bottom - rows[count - 1][0].bottom > 1.6 * max(pitch, rows[0][0].size):
            break
        count += 1
    return count


def _heading_element(rows: Sequence[LineRow], level: int) -> PageElement:
    title = _join_lines([_row_text(row) for row in rows])
    return PageElement(RegionKind.HEADING, f"{'#' * level} {title}", _rows_rectangle(rows), level, title)


def _text_elements(rows: Sequence[LineRow], pitch: float, compounds: Collection[str]) -> list[PageElement]:
    found: list[PageElement] = []
    for part in _split_paragraphs(rows, pitch):
        if _is_code_row(part[0]):
            text = "\n".join(f"    {_code_text(row)}" for row in part)
        else:
            text = _normalize_bullet(_join_lines([_row_text(row) for row in part], compounds))
        if text.strip():
            found.append(PageElement(RegionKind.TEXT, text, _rows_rectangle(part)))
    return found


def _split_paragraphs(rows: Sequence[LineRow], pitch: float) -> list[list[LineRow]]:
    """Rows split where a paragraph, list item or code listing starts."""
    if not rows:
        return []
    left = min(row[0].left for row in rows)
    parts: list[list[LineRow]] = [[rows[0]]]
    for row, below in zip(rows[1:], [*rows[2:], None], strict=False):
        if _starts_paragraph(row, parts[-1], pitch) or _is_indented_start(row, parts[-1], below, left):
            parts.append([row])
        else:
            parts[-1].append(row)
    return parts


def _starts_paragraph(row: LineRow, part: Sequence[LineRow], pitch: float) -> bool:
    """Whether a row starts a new paragraph: after a gap, between code and text, at a list item or after a list."""
    above = part[-1]
    if _is_code_row(row) != _is_code_row(above) or row[0].bottom - above[0].bottom > _PARAGRAPH_GAP * pitch:
        return True
    if _is_code_row(row):
        return False
    return _is_list_item(row) or (_is_list_item(part[0]) and row[0].left <= part[0][0].left + 1)


def _is_indented_start(row: LineRow, part: Sequence[LineRow], below: LineRow | None, left: float) -> bool:
    """Whether a row is indented, and neither the row above nor the row below is."""
    step = _MIN_INDENT * row[0].size
    if row[0].left - left <= step or part[-1][0].left - left > step or _is_code_row(row) or _is_list_item(part[0]):
        return False
    return below is None or below[0].left - left <= step


def _is_list_item(row: LineRow) -> bool:
    text = _row_text(row)
    return bool(_BULLET.match(text) or _NUMBERED_ITEM.match(text))


def _is_code_row(row: LineRow) -> bool:
    """Whether a row belongs to a code listing."""
    letters = sum(len(word.text) for line in row for word in line.words)
    return sum(len(word.text) for line in row for word in line.words if word.style.mono) >= _MIN_CODE_SHARE * letters


def _row_text(row: LineRow) -> str:
    return " ".join(line.text for line in row)


def _line_pitch(rows: Sequence[LineRow]) -> float:
    steps = [
        below[0].bottom - above[0].bottom for above, below in pairwise(rows)
        if below[0].bottom > above[0].bottom
    ]  # fmt: skip
    size = median(row[0].size for row in rows) if rows else 10.0
    tight = sorted(step for step in steps if step <= _MAX_LINE_DISTANCE * size)
    return max(tight[len(tight) // 3] if tight else 1.2 * size, size)


def _join_lines(texts: Sequence[str], compounds: Collection[str] = ()) -> str:
    """Join lines into one text; words hyphenated at a line end are rejoined.

    The hyphen stays in words that the document also has with a hyphen inside a line (`compounds`, in lower case), and
    before a capital or a digit.
    """
    found = ""
    for text in texts:
        if found and _TRAILING_HYPHEN.search(found) and text[:1].isalnum():
            word = f"{_LAST_WORD.search(found[:-1])[0]}-{_FIRST_WORD.match(text)[0]}".lower()  # pyright: ignore[reportOptionalSubscript] - both match
            stays = not text[:1].islower() or word in compounds
            found = f"{found[:-1]}-{text}" if stays else found[:-1] + text
        else:
            found = f"{found.replace(chr(2), '-')} {text}" if found else text
    return found.replace("\x02", "-")


def find_compounds(lines: Iterable[TextLine]) -> frozenset[str]:
    """Words with a hyphen inside a line, in lower case."""
    return frozenset(
        word.text.strip(_PUNCTUATION).lower() for line in lines for word in line.words if _COMPOUND.search(word.text)
    )


def _normalize_bullet(text: str) -> str:
    return _BULLET.sub("- ", text, count=1)


def _code_text(row: LineRow) -> str:
    return "  ".join(line.text for line in row).replace("\x02", "-")


def _rows_rectangle(rows: Sequence[LineRow]) -> Rectangle:
    return bounding_rectangle([line for row in rows for line in row])


_MIN_HEADING_RATIO = 1.15  # times the body size: larger text is a heading
_MAX_HEADING_CHARACTERS = 180
_MAX_LEVEL = 6
_MIN_HEADING_LETTERS = 2
_MAX_HEADING_SHARE = 0.25  # of all letters: a larger size used more often than this is not a heading size
_NUMBERED = re.compile(r"(\d+(?:\.\d+)*)\.?\s+\S")
_LETTER = re.compile(r"[^\W\d_]")
_HEADING_WORDS = frozenset("chapter part section appendix глава часть раздел приложение".split())
_SENTENCE_ENDS = (".", ",", ";", ":", "!")


@dataclass(frozen=True, slots=True)
class FontSizes:
    """Font size of the body text, the larger sizes of headings, largest first, and the document's hyphenated words."""

    body: float
    headings: tuple[float, ...] = ()
    compounds: frozenset[str] = frozenset()

    def heading_level(self, row: Sequence[TextLine]) -> int:
        """Heading level of a row from 1; 0 if it is not a heading."""
        text = " ".join(line.text for line in row)
        size = max(row, key=lambda line: len(line.text)).size
        if (
            len(text) > _MAX_HEADING_CHARACTERS
            or len(_LETTER.findall(text)) < _MIN_HEADING_LETTERS
            or _is_mostly_monospaced(row)
        ):
            return 0
        if size in self.headings:
            return min(self.headings.index(size) + 1, _MAX_LEVEL)
        return min(len(self.headings) + 1, _MAX_LEVEL) if self._is_bold_heading(row, text) else 0

    def _is_bold_heading(self, row: Sequence[TextLine], text: str) -> bool:
        """Whether a body-sized row is a heading: bold, short, one line or a number and a title, and no sentence."""
        alone = len(row) == 1 or (len(row) == 2 and _is_heading_number(row[0].text))  # noqa: PLR2004 - a number and its title
        full = row[0].size >= 0.95 * self.body
        return (
            alone
            and all(line.bold for line in row)
            and full
            and len(text) <= _MAX_HEADING_CHARACTERS // 2
            and not text.endswith(_SENTENCE_ENDS)
        )


def _is_mostly_monospaced(row: Sequence[TextLine]) -> bool:
    """Whether at least half of a row is monospaced, as in code listings and function names."""
    letters = sum(len(word.text) for line in row for word in line.words)
    typed = sum(len(word.text) for line in row for word in line.words if word.style.mono)
    return 2 * typed >= letters


def measure_font_sizes(lines: Iterable[TextLine]) -> FontSizes:
    """Font sizes of a document; the body size is the one most letters have."""
    letters: Counter[float] = Counter()
    for line in lines:
        letters[line.size] += len(line.text)
    if not letters:
        return FontSizes(10.0)
    body = max(letters, key=lambda size: (letters[size], -size))
    all_of_them = letters.total()
    larger = [
        size
        for size, count in letters.items()
        if size >= _MIN_HEADING_RATIO * body and count <= _MAX_HEADING_SHARE * all_of_them
    ]
    return FontSizes(body, tuple(sorted(larger, reverse=True)))


def _is_heading_number(text: str) -> bool:
    return not _LETTER.search(text) or text.split(maxsplit=1)[0].casefold() in _HEADING_WORDS


def numbering_depth(text: str) -> int:
    """Number of parts in a heading's number (`2.1` has 2); 0 without one."""
    found = _NUMBERED.match(text)
    return found[1].count(".") + 1 if found else 0


_SNAP_POINTS = 3.0  # points: edges closer than this are the same edge
_MIN_ALIGNED_ROWS = 3  # fewer aligned rows are not a table without ruling lines
_MAX_COLUMNS = 24


@dataclass(frozen=True, slots=True)
class PdfTable:
    """Cells of a table and its rectangle on the page; `is_list` says that it is a list of contents."""

    area: Rectangle
    cells: tuple[tuple[str, ...], ...]
    is_list: bool = False

    @property
    def markdown(self) -> str:
        """Markdown table with the first row as header, or Markdown list."""
        if self.is_list:
            return "\n".join(f"- {' '.join(filter(None, row))}" for row in self.cells if any(row))
        head, *rest = (f"| {' | '.join(_escape_cell(cell) for cell in row)} |" for row in self.cells)
        return "\n".join([head, f"|{' --- |' * len(self.cells[0])}", *rest])


def find_ruled_tables(rules: Sequence[Rectangle], words: Sequence[Word]) -> list[PdfTable]:
    """Tables framed by ruling lines, with at least two rows and two columns."""
    found: list[PdfTable] = []
    for frame in _group_touching_rules(rules):
        upright = [rule for rule in frame if rule.height > rule.width]
        flat = [rule for rule in frame if rule.width >= rule.height]
        across = _merge_edges([rule.left for rule in upright] + [x for rule in flat for x in (rule.left, rule.right)])
        down = _merge_edges([rule.top for rule in flat] + [y for rule in upright for y in (rule.top, rule.bottom)])
        table = _build_grid_table(across, down, words) if upright and len(across) > 2 and len(down) > 2 else None  # noqa: PLR2004 - two cells
        if table is not None:
            found.append(table)
    return found


def count_aligned_rows(rows: Sequence[Sequence[TextLine]]) -> int:
    """Number of leading rows that form a table without ruling lines; 0 if they do not.

    The first row defines the columns, and later rows widen them. Each piece of text must overlap exactly one column, or
    start within `_SNAP_POINTS` of one, and each column has at most one piece per row. Rows without a piece in the first
    column continue the cells above; a row with only a piece there ends the table.
    """
    if not rows or len(rows[0]) < 2 or _BULLET.match(f"{rows[0][0].text} x"):  # noqa: PLR2004 - a table has two columns
        return 0
    columns = [(line.left, line.right) for line in rows[0]]
    full = last = 0
    for at, row in enumerate(rows):
        places = [_find_column(line, columns) for line in row]
        if None in places or len(set(places)) != len(places):
            break
        if len(row) == 1 and places[0] == 0:
            break
        columns = [_extend_column(column, [line for line, place in zip(row, places, strict=True) if place == number])
                   for number, column in enumerate(columns)]  # fmt: skip
        if len(row) > 1:
            full, last = full + 1, at + 1
    return last if full >= _MIN_ALIGNED_ROWS else 0


def build_aligned_table(rows: Sequence[Sequence[TextLine]]) -> PdfTable:
    """Table from aligned rows; a row without a first cell continues the one above."""
    columns = [(line.left, line.right) for line in rows[0]]
    cells: list[list[str]] = []
    for row in rows:
        places = [_find_column(line, columns) or 0 for line in row]
        texts = [""] * len(columns)
        for line, place in zip(row, places, strict=True):
            texts[place] = f"{texts[place]} {line.text}".strip()
            columns[place] = _extend_column(columns[place], [line])
        if not texts[0] and cells:
            cells[-1] = [f"{above} {text}".strip() for above, text in zip(cells[-1], texts, strict=True)]
        else:
            cells.append(texts)
    return PdfTable(bounding_rectangle([line for row in rows for line in row]), tuple(map(tuple, cells)))


def bounding_rectangle(lines: Sequence[TextLine]) -> Rectangle:
    """Smallest rectangle around some lines."""
    return Rectangle(
        min(line.left for line in lines),
        min(line.top for line in lines),
        max(line.right for line in lines),
        max(line.bottom for line in lines),
    )


def _find_column(line: TextLine, columns: Sequence[tuple[float, float]]) -> int | None:
    """Index of the column a piece of text is in; None if it is in several or in none."""
    touching = [at for at, (left, right) in enumerate(columns) if line.left < right and line.right > left]
    if not touching:
        near = [at for at, (left, _) in enumerate(columns) if abs(line.left - left) <= _SNAP_POINTS]
        return near[0] if near else None
    return touching[0] if len(touching) == 1 else None


def _extend_column(column: tuple[float, float], lines: Sequence[TextLine]) -> tuple[float, float]:
    left, right = column
    return min([left, *(line.left for line in lines)]), max([right, *(line.right for line in lines)])


def _group_touching_rules(rules: Sequence[Rectangle]) -> list[list[Rectangle]]:
    """Groups of ruling lines that touch each other."""
    groups: list[tuple[Rectangle, list[Rectangle]]] = []
    for rule in sorted(rules, key=lambda rule: (rule.top, rule.left))[:2_000]:
        wide = Rectangle(
            rule.left - _SNAP_POINTS, rule.top - _SNAP_POINTS, rule.right + _SNAP_POINTS, rule.bottom + _SNAP_POINTS
        )
        touching = [group for group in groups if _overlaps(group[0], wide)]
        merged = [rule, *(each for _, group in touching for each in group)]
        box = wide
        for other, _ in touching:
            box = Rectangle(
                min(box.left, other.left), min(box.top, other.top),
                max(box.right, other.right), max(box.bottom, other.bottom),
            )  # fmt: skip
        groups = [group for group in groups if group not in touching] + [(box, merged)]
    return [group for _, group in groups]


def _overlaps(one: Rectangle, other: Rectangle) -> bool:
    across = one.left <= other.right and other.left <= one.right
    return across and one.top <= other.bottom and other.top <= one.bottom


def _merge_edges(places: Sequence[float]) -> list[float]:
    edges: list[float] = []
    for place in sorted(places):
        if not edges or place - edges[-1] > _SNAP_POINTS:
            edges.append(place)
    return edges


def _build_grid_table(across: Sequence[float], down: Sequence[float], words: Sequence[Word]) -> PdfTable | None:
    if len(across) > _MAX_COLUMNS:
        return None
    area = Rectangle(across[0], down[0], across[-1], down[-1])
    inside = [word for word in words if area.contains_center(word)]
    cells = [
        tuple(_cell_text(Rectangle(left, top, right, bottom), inside) for left, right in pairwise(across))
        for top, bottom in pairwise(down)
    ]
    full = [row for row in cells if any(row)]
    if len(full) < 2 or sum(bool(cell) for row in full for cell in row) < len(full):  # noqa: PLR2004 - head and a row
        return None
    if not any(_LETTER.search(cell) for row in full for cell in row):
        return None  # lines around some of the figures of a table
    return PdfTable(area, tuple(full))


def _cell_text(area: Rectangle, words: Sequence[Word]) -> str:
    inside = [word for word in words if area.contains_center(word)]
    rows = group_rows([build_line([word]) for word in inside])
    return " ".join(line.text for row in rows for line in row)


def _escape_cell(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\x02", "-")
