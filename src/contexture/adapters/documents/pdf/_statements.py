"""Finds tables of figures, such as balance sheets, by the positions of their numbers; they need no ruling lines.

A row is a label followed by figures. Figures of one column overlap horizontally, because they are aligned; the columns
of a table are therefore the merged ranges of its figures. Rows above the first figures give the header of each column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from statistics import median

from contexture.adapters.documents.pdf.layout import Rectangle, TextLine, Word, build_line

_CURRENCY = frozenset("$ € £ ¥ ₽ US$ A$ C$ ($ (€ (£".split())
_CLOSING = frozenset(") % )% %) ]".split())
_FIGURE = re.compile(
    r"[(\[]?\s?[-–—−+]?\s?(?:[A-Z]{0,2}[$€£¥₽])?\s?[(]?[-–—−+]?\s?"
    r"(?:\d[\d,. \u00a0]*|\.\d+)(?:bps|[xX×])?\s?[)\]]?\s?%?\s?[)\]]?"
    r"(?:\s?(?:\([a-z0-9]{1,2}\)|[*†‡¹²³]))*"
    r"|(?:[$€£¥₽]\s?)?[-–—−]{1,3}\s?%?|[Nn]/?[AaMm]\.?|\*"
)
_YEAR = re.compile(r"(?:FY\s?)?(?:19|20)\d\d(?:\s?\([a-z0-9]\)|[*†])?")
_DIGIT = re.compile(r"\d")
_LOOSE_SIGN = re.compile(r"(?<=[(\[]) (?=[\d$€£.])|(?<=[$€£¥₽]) (?=[\d(.—–-])|(?<=\d) (?=[)\]%])|(?<=\)) (?=%)")
_PERIOD = re.compile(r"\b(?:(?:19|20)\d\d|ended|months|weeks|quarter|год|квартал|месяц)", re.IGNORECASE)
_OPEN_END = re.compile(
    r"(?:[,–—-]|\b(?:and|or|of|the|in|to|for|from|by|with|on|и|или|в|на|из|от|для|по|с))$", re.IGNORECASE
)
_MIN_CELL_GAP = 0.75  # times the font size: a wider gap separates two cells
_MIN_FIGURE_GAP = 0.4  # times the font size: the same between two figures
_MIN_ROWS = 2  # rows with figures that make a table
_MAX_ROW_DISTANCE = 4.2  # times the font size: rows further apart belong to different tables
_MAX_HEADER_DISTANCE = 2.8  # times the font size
_MAX_HEADER_ROWS = 8
_MAX_LABEL_ROWS = 3  # rows of labels between the header and the first figures, such as "Assets" and "Current assets:"
_MAX_LABEL_SHIFT = 0.9  # times the font size: a label and its figures may be printed on baselines this far apart
_MAX_COLUMNS = 24
_MIN_LIST_ROWS = 4


@dataclass(frozen=True, slots=True)
class _Cell:
    """Words that belong together, and whether they are a figure."""

    words: list[Word]
    left: float
    right: float
    is_figure: bool

    @property
    def text(self) -> str:
        return _join_words(self.words)


@dataclass(slots=True)
class _TableRow:
    """Cells of one row, left to right."""

    cells: list[_Cell]
    top: float
    bottom: float
    size: float

    @property
    def figures(self) -> list[_Cell]:
        return [cell for cell in self.cells if cell.is_figure]

    @property
    def words(self) -> list[Word]:
        return [word for cell in self.cells for word in cell.words]


Column = tuple[float, float]
"""Left and right edge of a column of figures."""


@dataclass(frozen=True, slots=True)
class FigureTable:
    """A table of figures: its area, its rows with the header first, and the words it holds."""

    area: Rectangle
    cells: tuple[tuple[str, ...], ...]
    words: tuple[Word, ...]
    columns: tuple[Column, ...]
    is_list: bool = False

    @property
    def has_header(self) -> bool:
        """Whether a column of figures has a header."""
        return any(self.cells[0][1:])

    def with_header_of(self, other: FigureTable) -> FigureTable:
        """The table with the header of another one, if it has none and their columns are the same."""
        if self.has_header or not other.has_header or len(self.columns) != len(other.columns):
            return self
        if not all(a[0] < b[1] and b[0] < a[1] for a, b in zip(self.columns, other.columns, strict=True)):
            return self
        return replace(self, cells=((self.cells[0][0] or other.cells[0][0], *other.cells[0][1:]), *self.cells[1:]))


def has_figures(cells: Sequence[str]) -> bool:
    """Whether cells beside a label are figures, or signs of them, so that they are no header; years may be one."""
    return any(
        cell in _CURRENCY or (_is_figure(cell) and _DIGIT.search(cell) and not _is_year(cell)) for cell in cells[1:]
    )


def find_figure_tables(rows: Sequence[Sequence[TextLine]]) -> list[FigureTable]:
    """Tables of figures in rows of a page or of a column of it, top to bottom."""
    parsed = _merge_shifted_labels([_parse_row([word for line in row for word in line.words]) for row in rows if row])
    found: list[FigureTable] = []
    at = 0
    while at < len(parsed):
        block = _grow_block(parsed, at) if _is_data_row(parsed[at]) else None
        if block is None:
            at += 1
            continue
        for table in _build_tables(parsed, block):
            found.append(table.with_header_of(found[-1]) if found else table)
        at = block.last
    return found


# --- rows ---


def _parse_row(words: Sequence[Word]) -> _TableRow:
    ordered = sorted(words, key=lambda word: word.left)
    groups: list[list[Word]] = []
    for word in ordered:
        if groups and not _starts_cell(groups[-1], word):
            groups[-1].append(word)
        else:
            groups.append([word])
    cells = _merge_signs(groups)
    return _TableRow(
        cells,
        min(word.top for word in words),
        median(word.bottom for word in words),
        median(word.style.size for word in words),
    )


def _starts_cell(group: Sequence[Word], word: Word) -> bool:
    last = group[-1]
    size = max(last.style.size, word.style.size)
    gap = word.left - last.right
    if gap > _MIN_CELL_GAP * size:
        return True
    if word.text in _CURRENCY:
        return _is_figure(_join_words(group)) or gap > _MIN_FIGURE_GAP * size
    if gap > _MIN_FIGURE_GAP * size and _is_figure(word.text) and word.text not in _CLOSING:
        return _is_figure(_join_words(group)) and last.text not in _CURRENCY
    return False


def _merge_signs(groups: Sequence[list[Word]]) -> list[_Cell]:
    """Cells of a row; a currency sign joins the figure after it, and a closing sign the figure before it."""
    merged: list[list[Word]] = []
    for group in groups:
        text = _join_words(group)
        before = merged[-1] if merged else None
        if (before and _join_words(before) in _CURRENCY and _is_figure(text)) or (
            before and text in _CLOSING and _is_figure(_join_words(before))
        ):
            before.extend(group)
        else:
            merged.append(list(group))
    return [_make_cell(group) for group in merged]


def _make_cell(words: list[Word]) -> _Cell:
    text = _join_words(words)
    figure = _is_figure(text)
    solid = [word for word in words if word.text not in _CURRENCY] if figure else words
    return _Cell(words, min(w.left for w in solid or words), max(w.right for w in solid or words), figure)


def _is_figure(text: str) -> bool:
    return _FIGURE.fullmatch(text) is not None


def _is_year(text: str) -> bool:
    return _YEAR.fullmatch(text) is not None


def _join_words(words: Sequence[Word]) -> str:
    """Text of a cell, without spaces inside brackets and before a percent sign."""
    text = " ".join(word.text for word in words)
    return _LOOSE_SIGN.sub("", text)


def _is_data_row(row: _TableRow) -> bool:
    """Whether a row has figures after its first cell; years alone are a header, a number before text is a heading's."""
    figures = row.figures
    if not figures or not any(_DIGIT.search(cell.text) for cell in figures):
        return False
    if all(_is_year(cell.text) or not _DIGIT.search(cell.text) for cell in figures):
        return False
    return any(cell.is_figure for cell in row.cells[1:])


def _is_dashed_row(row: _TableRow) -> bool:
    """Whether a row has a label and no figures but dashes, so that it belongs to the table above it."""
    label, *cells = row.cells
    return bool(cells) and not label.is_figure and all(c.is_figure and not _DIGIT.search(c.text) for c in cells)


def _merge_shifted_labels(rows: Sequence[_TableRow]) -> list[_TableRow]:
    """Rows with a label and its figures together, where their baselines differ by a little."""
    found: list[_TableRow] = []
    for row in rows:
        last = found[-1] if found else None
        if last is not None and _are_halves(last, row):
            cells = sorted([*last.cells, *row.cells], key=lambda cell: cell.left)
            found[-1] = _TableRow(cells, min(last.top, row.top), row.bottom, max(last.size, row.size))
        else:
            found.append(row)
    return found


def _are_halves(upper: _TableRow, lower: _TableRow) -> bool:
    if lower.bottom - upper.bottom > _MAX_LABEL_SHIFT * max(upper.size, lower.size):
        return False
    texts, figures = (upper, lower) if not upper.figures else (lower, upper)
    if texts.figures or len(texts.cells) != 1 or not figures.figures or not all(c.is_figure for c in figures.cells):
        return False
    return texts.cells[0].right <= figures.cells[0].left


# --- blocks ---


@dataclass(slots=True)
class _Block:
    """Rows `first` to `last` of a table without its header, and its columns."""

    first: int
    last: int
    columns: list[Column] = field(default_factory=list[Column])
    label_right: float = float("-inf")


def _grow_block(rows: Sequence[_TableRow], start: int) -> _Block | None:
    """The longest run of rows from `start` that fit one set of columns; None if they are no table."""
    block = _Block(start, start)
    data = 0
    previous = rows[start]
    for at in range(start, len(rows)):
        row = rows[at]
        if row.bottom - previous.bottom > _MAX_ROW_DISTANCE * row.size:
            break
        if _is_data_row(row) or (data and _is_dashed_row(row)):
            row.cells = [_unless_label(cell, block.label_right) for cell in row.cells]
            merged = _merge_columns(block.columns, row)
            if merged is None:
                break
            block.columns, block.last = merged, at + 1
            block.label_right = max(block.label_right, _label_right(row))
            data += 1
        elif not _is_inner_row(row, block.columns):
            break
        previous = row
    if data < _MIN_ROWS or len(block.columns) > _MAX_COLUMNS or not _is_tabular(rows[block.first : block.last], data):
        return None
    return block


def _unless_label(cell: _Cell, edge: float) -> _Cell:
    """The cell, as text if it is a number among the labels, such as the mark of a footnote."""
    return replace(cell, is_figure=False) if cell.is_figure and cell.right <= edge else cell


def _label_right(row: _TableRow) -> float:
    """Right edge of the label of a row with figures."""
    first = next((at for at, cell in enumerate(row.cells) if cell.is_figure), 0)
    return row.cells[first - 1].right if first else float("-inf")


def _is_tabular(rows: Sequence[_TableRow], data: int) -> bool:
    """Whether rows read as a table: most have figures, and labels are not columns of prose."""
    crowded = sum(sum(not cell.is_figure and len(cell.text) > 24 for cell in row.cells) > 1 for row in rows)  # noqa: PLR2004 - a label
    return 3 * data >= len(rows) and 3 * crowded <= len(rows)


def _merge_columns(columns: Sequence[Column], row: _TableRow) -> list[Column] | None:
    """The columns widened by a row's figures; None if a figure lies in two columns, or two figures in one."""
    found = list(columns)
    taken: set[int] = set()
    for cell in row.figures:
        touching = [at for at, (left, right) in enumerate(found) if cell.left < right and cell.right > left]
        if len(touching) > 1 or (touching and touching[0] in taken and touching[0] < len(columns)):
            return None
        if touching:
            left, right = found[touching[0]]
            found[touching[0]] = (min(left, cell.left), max(right, cell.right))
            taken.add(touching[0])
        else:
            found.append((cell.left, cell.right))
    ordered = sorted(found)
    if any(right > left for (_, right), (left, _) in pairwise(ordered)):
        return None
    return ordered


def _is_inner_row(row: _TableRow, columns: Sequence[Column]) -> bool:
    """Whether a row without figures may stand inside a table: a sub-heading, part of a label, or years."""
    if not columns:
        return False
    if row.figures and all(cell.is_figure for cell in row.cells):
        return False  # the header of the next table
    return len(row.cells) == 1 and row.cells[0].left < columns[0][0] and row.cells[0].right <= columns[-1][0]


# --- tables ---


def _build_tables(rows: Sequence[_TableRow], block: _Block) -> list[FigureTable]:
    first = _find_header_start(rows, block)
    edge = _label_edge(rows[block.first : block.last], block.columns)
    begin = block.first
    while begin > first and not _cells_over(rows[begin - 1], block.columns, edge):
        begin -= 1
    inside, header = list(rows[begin : block.last]), list(rows[first:begin])
    split = _find_side_by_side(inside, block.columns)
    if split is None:
        return [_build_table(header, inside, block.columns)]
    found: list[FigureTable] = []
    for left, right in ((float("-inf"), split), (split, float("inf"))):
        some_header = [part for row in header if (part := _clip_row(row, left, right))]
        some_rows = [part for row in inside if (part := _clip_row(row, left, right))]
        columns = [column for column in block.columns if left <= column[0] < right]
        if some_rows and columns:
            found.append(_build_table(some_header, some_rows, columns))
    return found


def _find_side_by_side(rows: Sequence[_TableRow], columns: Sequence[Column]) -> float | None:
    """Where the labels of a second table beside the first begin; None for one table."""
    lefts = [
        cell.left
        for row in rows
        for before, cell in pairwise(row.cells)
        if before.is_figure and not cell.is_figure and len(cell.text) > 3 and cell.left > columns[0][1]  # noqa: PLR2004 - a mark
    ]
    if len(lefts) < max(3, len(rows) // 2):
        return None
    edge = min(lefts) - 1
    return edge if columns[-1][0] > max(lefts) and not any(left < edge < right for left, right in columns) else None


def _clip_row(row: _TableRow, left: float, right: float) -> _TableRow | None:
    cells = [cell for cell in row.cells if left <= cell.left < right]
    return _TableRow(cells, row.top, row.bottom, row.size) if cells else None


def _find_header_start(rows: Sequence[_TableRow], block: _Block) -> int:
    """Index of the first row of the header above a block."""
    start = at = block.first
    edge = _label_edge(rows[block.first : block.last], block.columns)
    while at > 0 and start - at <= _MAX_LABEL_ROWS and block.first - at < _MAX_HEADER_ROWS:
        above, below = rows[at - 1], rows[at]
        if below.bottom - above.bottom > _MAX_HEADER_DISTANCE * max(above.size, below.size) or _is_data_row(above):
            break
        over = _cells_over(above, block.columns, edge)
        if len(above.cells) == 1 and over and _is_title(over[0], rows[block.first : block.last], block.columns):
            break
        if any(cell not in over and cell.right > block.columns[0][0] for cell in above.cells):
            break  # it goes over the labels too: a title, or text
        at -= 1
        if over:
            start = at
    return start


def _is_title(cell: _Cell, rows: Sequence[_TableRow], columns: Sequence[Column]) -> bool:
    """Whether a cell alone in its row is centred on the whole table rather than on its columns of figures."""
    left = min(row.cells[0].left for row in rows)
    zone = max((row.cells[0].right for row in rows if row.cells[0].right < columns[0][0]), default=columns[0][0])
    center = (cell.left + cell.right) / 2
    return abs(center - (left + columns[-1][1]) / 2) < abs(center - (zone + columns[-1][1]) / 2)


def _cells_over(row: _TableRow, columns: Sequence[Column], edge: float) -> list[_Cell]:
    """Cells of a header row that are above columns of figures, not above the labels."""
    if len(row.cells) == 1 and not row.cells[0].is_figure and row.cells[0].right < columns[0][0]:
        return []
    return [cell for cell in row.cells if cell.left >= edge or (cell.is_figure and cell.right > edge)]


def _label_edge(rows: Sequence[_TableRow], columns: Sequence[Column]) -> float:
    """Right edge of most labels: a header cell does not begin left of it."""
    edges = sorted(
        row.cells[0].right for row in rows if not row.cells[0].is_figure and row.cells[0].left < columns[0][0]
    )
    return min(edges[len(edges) // 2] if edges else columns[0][0], columns[0][0])


def _build_table(header: Sequence[_TableRow], rows: Sequence[_TableRow], columns: Sequence[Column]) -> FigureTable:
    heads = _build_header(header, columns, _label_edge(rows, columns))
    body = _join_labels([_place_cells(row, columns) for row in rows], rows, columns)
    words = [word for row in (*header, *rows) for word in row.words]
    box = build_line(words)
    area = Rectangle(box.left, box.top, box.right, max(word.bottom for word in words))
    return FigureTable(area, (tuple(heads), *map(tuple, body)), tuple(words), tuple(columns), _is_contents(heads, body))


def _place_cells(row: _TableRow, columns: Sequence[Column]) -> list[str]:
    """Label and cells of a row, one for each column."""
    texts = [""] * (len(columns) + 1)
    for cell in row.cells:
        at = _column_of(cell, columns)
        texts[at] = f"{texts[at]} {cell.text}".strip()
    return texts


def _column_of(cell: _Cell, columns: Sequence[Column]) -> int:
    """Column of a cell from 1; 0 for the label."""
    overlaps = [min(cell.right, right) - max(cell.left, left) for left, right in columns]
    best = max(range(len(columns)), key=lambda at: overlaps[at])
    if overlaps[best] > 0 and (cell.is_figure or cell.left > columns[0][0] - 40):
        return best + 1
    if cell.left < columns[0][0]:
        return 0
    return 1 + min(range(len(columns)), key=lambda at: abs(columns[at][1] - cell.right))


def _build_header(header: Sequence[_TableRow], columns: Sequence[Column], edge: float) -> list[str]:
    """Header of the label column and of each column; a cell over several columns is part of the header of each."""
    heads: list[list[str]] = [[] for _ in range(len(columns) + 1)]
    for row, below in zip_longest(header, header[1:]):
        over = _cells_over(row, columns, edge)
        heads[0] += [cell.text for cell in row.cells if cell not in over]
        goes_on = len(over) == 1 and below is not None and any(_goes_on(over[0], cell) for cell in below.cells)
        matched = [(_column_of(over[0], columns) - 1, over[0])] if goes_on else _match_header_cells(over, columns)
        for at, cell in matched:
            heads[at + 1].append(cell.text)
        heads[0] += [cell.text for cell in over if all(cell is not each for _, each in matched)]
    return [" ".join(parts) for parts in heads]


def _goes_on(cell: _Cell, below: _Cell) -> bool:
    """Whether a header cell goes on in the line below it, as "Europe, Middle East" does in "& Africa"."""
    if _PERIOD.search(cell.text) or not (below.left < cell.right and cell.left < below.right):
        return False
    return below.text[:1] == "&" or below.text[:1].islower()


def _match_header_cells(cells: Sequence[_Cell], columns: Sequence[Column]) -> list[tuple[int, _Cell]]:
    """Each column with the header cell above it: one that overlaps it, or else the nearest one that is near."""
    if not cells:
        return []
    if len(cells) == len(columns):
        return list(enumerate(cells))
    steps = [right[1] - left[1] for left, right in pairwise(columns)]
    pitch = median(steps) if steps else 72.0
    center, zone = (cells[0].left + cells[0].right) / 2, columns[-1][1] - columns[0][0]
    if len(cells) == 1 and abs(center - columns[0][0] - zone / 2) < 0.15 * zone:
        return [(at, cells[0]) for at in range(len(columns))]
    found: list[tuple[int, _Cell]] = []
    for at, (left, right) in enumerate(columns):
        spanning = [
            cell for cell in cells if not _is_narrow(cell, columns, pitch) or (cell.left < right and left < cell.right)
        ]
        if not spanning:
            continue
        best = min(spanning, key=lambda cell: max(cell.left - right, left - cell.right))
        near = 1.2 if _PERIOD.search(best.text) else 0.7
        if max(best.left - right, left - best.right) <= near * pitch:
            found.append((at, best))
    return found


def _is_narrow(cell: _Cell, columns: Sequence[Column], pitch: float) -> bool:
    """Whether a header cell is above one column only."""
    if _PERIOD.search(cell.text):
        return False  # the columns of one period stand beside each other
    overlapping = sum(cell.left < right and left < cell.right for left, right in columns)
    return overlapping == 1 and cell.right - cell.left < 0.8 * pitch


def _join_labels(body: Sequence[list[str]], rows: Sequence[_TableRow], columns: Sequence[Column]) -> list[list[str]]:
    """Rows with labels of several lines joined, and bare continuation lines added to the row above."""
    labels = [row.cells[0] for row in rows if not row.cells[0].is_figure]
    edge = max((cell.right for cell in labels if cell.right <= columns[0][0]), default=columns[0][0])
    found: list[list[str]] = []
    waiting = ""  # a label line whose figures are on a later line
    for at, (texts, row) in enumerate(zip(body, rows, strict=True)):
        bare = not any(texts[1:])
        above = rows[at - 1] if at else None
        if bare and found and not waiting and above is not None and _continues(above, row) and any(found[-1][1:]):
            found[-1][0] = f"{found[-1][0]} {texts[0]}"
            continue
        below = rows[at + 1] if at + 1 < len(rows) else None
        if bare and below is not None and _is_wrapped(row, below, edge):
            waiting = f"{waiting} {texts[0]}".strip()
            continue
        found.append([f"{waiting} {texts[0]}".strip(), *texts[1:]])
        waiting = ""
    return found


def _continues(above: _TableRow, row: _TableRow) -> bool:
    """Whether a line without figures continues the label above, which has its figures on its first line."""
    text = row.cells[0].text
    return (text[:1].islower() or text[:1] in "()&") and row.bottom - above.bottom <= 1.6 * row.size


def _is_wrapped(row: _TableRow, below: _TableRow, edge: float) -> bool:
    """Whether a label goes on in the next line: in lower case, or with a word that would not have fitted."""
    label, after = row.cells[0], below.cells[0]
    if after.is_figure or row.cells[0].text.endswith(":"):
        return False
    if below.bottom - row.bottom > 1.8 * row.size:
        return False
    text = after.text
    first = after.words[0]
    fits = label.right + 0.3 * row.size + (first.right - first.left) <= edge
    return text[:1].islower() or text[:1] in "(&" or (not fits and bool(_OPEN_END.search(label.text)))


def _is_contents(heads: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Whether a table is a list of contents: one column of page numbers that never decrease."""
    if len(heads) != 2 or len(body) < _MIN_LIST_ROWS:  # noqa: PLR2004 - a title and a page
        return False
    numbers = [row[1] for row in body if row[1]]
    if len(numbers) < _MIN_LIST_ROWS or not all(re.fullmatch(r"\d{1,4}|[ivxlc]+", number) for number in numbers):
        return False
    pages = [int(number) for number in numbers if number.isdigit()]
    return pages == sorted(pages) and len(set(pages)) > 1
