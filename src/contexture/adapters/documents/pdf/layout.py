"""Page geometry: words grouped into lines and rows, and rows in reading order, column by column."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class FontStyle:
    """Font size in points, bold, monospaced."""

    size: float
    bold: bool = False
    mono: bool = False


@dataclass(slots=True)
class Word:
    """A word with its box; the origin is the upper left corner of the page and `bottom` is near the baseline."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    style: FontStyle


@dataclass(slots=True)
class TextLine:
    """Words of one line without a wide gap between them, left to right."""

    words: list[Word]
    left: float
    top: float
    right: float
    bottom: float
    size: float

    @property
    def text(self) -> str:
        """The words with spaces between them."""
        return " ".join(word.text for word in self.words)

    @property
    def center_x(self) -> float:
        """Horizontal centre."""
        return (self.left + self.right) / 2

    @property
    def bold(self) -> bool:
        """Whether every word is bold."""
        return all(word.style.bold for word in self.words)

    @property
    def mono(self) -> bool:
        """Whether every word is monospaced."""
        return all(word.style.mono for word in self.words)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle on a page, in points; the origin is the upper left corner."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """Width in points."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """Height in points."""
        return self.bottom - self.top

    def contains_center(self, line: TextLine | Word) -> bool:
        """Whether the centre of a line or word is inside."""
        x, y = (line.left + line.right) / 2, (line.top + line.bottom) / 2
        return self.left <= x <= self.right and self.top <= y <= self.bottom


@dataclass(slots=True)
class RawPage:
    """Raw content of a page: words, ruling lines and pictures."""

    number: int
    width: float
    height: float
    words: list[Word]
    rules: list[Rectangle]
    pictures: list[Rectangle]


_MAX_BASELINE_SHIFT = 0.4  # times the font size: lines whose baselines differ by less share a row
_MIN_LINE_GAP = 0.9  # times the font size: a wider gap separates two lines of one row


def group_lines(words: Sequence[Word]) -> list[TextLine]:
    """Lines of a page, top to bottom, then left to right."""
    found: list[TextLine] = []
    for row in _group_words(words):
        found.extend(_split_at_gaps(row))
    return found


def group_rows(lines: Iterable[TextLine]) -> list[list[TextLine]]:
    """Lines that share a baseline: rows top to bottom, each left to right."""
    rows: list[list[TextLine]] = []
    for line in sorted(lines, key=lambda line: (line.bottom, line.left)):
        if rows and line.bottom - rows[-1][0].bottom < _MAX_BASELINE_SHIFT * max(line.size, rows[-1][0].size):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: line.left) for row in rows]


def build_line(words: Sequence[Word]) -> TextLine:
    """Line from adjacent words."""
    return TextLine(
        words=list(words),
        left=min(word.left for word in words),
        top=min(word.top for word in words),
        right=max(word.right for word in words),
        bottom=median(word.bottom for word in words),
        size=_dominant_size(words),
    )


def _dominant_size(words: Sequence[Word]) -> float:
    """Font size of most letters of a line."""
    letters: dict[float, int] = {}
    for word in words:
        letters[word.style.size] = letters.get(word.style.size, 0) + len(word.text)
    return max(letters, key=lambda size: (letters[size], size))


def _group_words(words: Sequence[Word]) -> list[list[Word]]:
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.bottom):
        if rows and word.bottom - rows[-1][0].bottom < _MAX_BASELINE_SHIFT * max(
            word.style.size, rows[-1][0].style.size
        ):
            rows[-1].append(word)
        else:
            rows.append([word])
    return [sorted(row, key=lambda word: word.left) for row in _lower_raised_words(rows)]


_MAX_RAISED_CHARACTERS = 3
_MAX_RAISED_SIZE = 0.95  # times the font size of the row below


def _lower_raised_words(rows: Sequence[list[Word]]) -> list[list[Word]]:
    """Rows with raised words, such as the `st` of `1st` and marks of footnotes, in the row they belong to."""
    found: list[list[Word]] = []
    for row in rows:
        above = found[-1] if found else None
        if above is not None and _is_raised(above, row):
            found[-1] = [*(replace(word, bottom=row[0].bottom) for word in above), *row]
        else:
            found.append(row)
    return found


def _is_raised(above: Sequence[Word], row: Sequence[Word]) -> bool:
    size = median(word.style.size for word in row)
    return all(
        len(word.text) <= _MAX_RAISED_CHARACTERS
        and word.style.size < _MAX_RAISED_SIZE * size
        and 2 * (word.bottom - min(each.top for each in row)) > word.bottom - word.top
        for word in above
    )


def _split_at_gaps(row: Sequence[Word]) -> list[TextLine]:
    """Split a row at wide gaps; fragments that touch are joined into one word."""
    parts: list[list[Word]] = [[row[0]]]
    for word in row[1:]:
        last = parts[-1][-1]
        if word.left - last.right > _MIN_LINE_GAP * max(word.style.size, last.style.size):
            parts.append([word])
        else:
            parts[-1].append(word)
    return [build_line(_join_touching(part)) for part in parts]


_TOUCHING_GAP = 0.1  # times the font size: words closer than this are one word
_LOOSE_GAP = 0.22  # times the font size: widest gap inside a word whose letters are set apart
_LOOSE_SHARE = 0.87  # of the usual gap of its line
_MIN_SPACED_SHARE = 0.8  # of the words of a line
_MAX_SPACED_GAP = 1.5  # times the narrowest gap of a letter-spaced heading: a wider one separates words
_MIN_SPACED_LETTERS = 4  # letters with gaps between them that are a letter-spaced heading
_WORDS_OF_ONE_LETTER = frozenset("aAIавикосуяАВИКОСУЯ&")


def _join_touching(words: Sequence[Word]) -> list[Word]:
    """Words of a line; fragments of one word are joined: they touch, or they are letters set slightly apart."""
    gaps = [right.left - left.right for left, right in pairwise(words)]
    usual = median(gaps) if gaps else 0.0
    letters = sum(len(word.text) == 1 and word.text.isalpha() for word in words)
    spaced = letters >= max(_MIN_SPACED_LETTERS, _MIN_SPACED_SHARE * len(words))
    loose = _MAX_SPACED_GAP * min(gaps) if spaced else _LOOSE_SHARE * usual
    found = [words[0]]
    for word, gap in zip(words[1:], gaps, strict=True):
        last = found[-1]
        stray = (
            len(word.text) == 1
            and word.text.isalpha()
            and last.text[-1:].isalpha()
            and (spaced or (word.text not in _WORDS_OF_ONE_LETTER and gap < _LOOSE_GAP * word.style.size))
        )
        # The box of an italic f reaches into the space beside it, so that a gap there says little.
        touching = gap < (0 if "f" in (last.text[-1:], word.text[:1]) else _TOUCHING_GAP) * word.style.size
        if touching or (stray and gap < loose):
            look = last.style if len(last.text) >= len(word.text) else word.style
            found[-1] = Word(
                last.text + word.text,
                last.left,
                min(last.top, word.top),
                max(last.right, word.right),
                max(last.bottom, word.bottom),
                look,
            )
        else:
            found.append(word)
    return found


LineRow = list[TextLine]

_BIN_POINTS = 2.0
_MIN_COLUMN_ROWS = 5  # rows on each side of a gutter between text columns
_MIN_COLUMN_SHARE = 0.16  # of the page width: a narrower column is part of a table
_MIN_WIDTH_RATIO = 0.5  # width of the narrower of two columns relative to the wider
_MIN_FILL_RATIO = 0.55  # of the column width: the median row of a text column spans at least this
_MIN_ROW_LETTERS = 16  # in the median row of a text column: table cells have fewer
_TABLE_ROW_SHARE = 0.9  # of the rows of a table have text on both sides of the gap
_MAX_SPLIT_DEPTH = 4


@dataclass(frozen=True, slots=True)
class _Gutter:
    x: float
    first: int
    last: int


def reading_order(lines: Sequence[TextLine], width: float, depth: int = 0) -> list[list[LineRow]]:
    """Blocks of rows in reading order: left column before right, recursively; rows of a block are consecutive."""
    rows = group_rows(lines)
    gutter = _find_gutter(rows, width) if depth < _MAX_SPLIT_DEPTH else None
    if gutter is None:
        return [rows] if rows else []
    above, beside, below = rows[: gutter.first], rows[gutter.first : gutter.last], rows[gutter.last :]
    found: list[list[LineRow]] = []
    for part in (
        _flatten(above),
        [line for line in _flatten(beside) if line.center_x < gutter.x],
        [line for line in _flatten(beside) if line.center_x >= gutter.x],
        _flatten(below),
    ):
        found.extend(reading_order(part, width, depth + 1) if part else [])
    return found


def _flatten(rows: Sequence[LineRow]) -> list[TextLine]:
    return [line for row in rows for line in row]


def _find_gutter(rows: Sequence[LineRow], width: float) -> _Gutter | None:
    """The gap between two text columns that spans most rows; None for a single column."""
    if len(rows) < _MIN_COLUMN_ROWS:
        return None
    covered, left = _coverage(rows)
    best: tuple[int, _Gutter] | None = None
    for at in _find_valleys(covered):
        for first, last in _free_runs(covered[:, at]):
            gutter = _Gutter(left + (at + 0.5) * _BIN_POINTS, first, last)
            worth = last - first
            if (best is None or worth > best[0]) and _are_columns(rows[first:last], gutter.x, width):
                best = worth, gutter
    return None if best is None else best[1]


def _coverage(rows: Sequence[LineRow]) -> tuple[npt.NDArray[np.bool_], float]:
    """Which horizontal bins of each row hold text, and the left edge."""
    left = min(line.left for row in rows for line in row)
    right = max(line.right for row in rows for line in row)
    covered = np.zeros((len(rows), max(int((right - left) / _BIN_POINTS) + 1, 1)), np.bool_)
    for at, row in enumerate(rows):
        for line in row:
            covered[at, int((line.left - left) / _BIN_POINTS) : int((line.right - left) / _BIN_POINTS) + 1] = True
    return covered, left


def _find_valleys(covered: npt.NDArray[np.bool_]) -> list[int]:
    """Middle bins of the ranges in which at most half as many rows have text as at a peak on each side."""
    counts = covered.sum(axis=0)
    before = np.maximum.accumulate(counts)
    behind = np.maximum.accumulate(counts[::-1])[::-1]
    low = np.flatnonzero(counts <= 0.5 * np.minimum(before, behind))
    if low.size == 0:
        return []
    found: list[int] = []
    for stretch in np.split(low, np.flatnonzero(np.diff(low) > 1) + 1):
        depths = counts[stretch]
        lowest = np.flatnonzero(depths == depths.min())
        found.append(int(stretch[lowest[len(lowest) // 2]]))
    return found


def _free_runs(taken: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """The up to three longest ranges of consecutive rows without text in a bin, longest first."""
    edges = np.flatnonzero(np.diff(np.concatenate(([True], taken, [True]))))
    runs = [(int(first), int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]
    return sorted(runs, key=lambda run: run[0] - run[1])[:3]


def _are_columns(rows: Sequence[LineRow], x: float, width: float) -> bool:
    """Whether both sides of a gap are columns of text, and not cells of a table."""
    left = [[line for line in row if line.center_x < x] for row in rows]
    right = [[line for line in row if line.center_x >= x] for row in rows]
    sides = [[row for row in side if row] for side in (left, right)]
    if min(map(len, sides)) < _MIN_COLUMN_ROWS:
        return False
    widths = [_total_width(side) for side in sides]
    if min(widths) < _MIN_COLUMN_SHARE * width or _are_table_cells(rows, sides):
        return False
    return _is_balanced(widths) and all(_is_text(side, width) for side in sides)


def _is_text(side: Sequence[LineRow], width: float) -> bool:
    """Whether one side is text: its median row spans most of the width, or it splits into columns itself."""
    return _fill_ratio(side) >= _MIN_FILL_RATIO or (
        _total_width(side) > 2 * _MIN_COLUMN_SHARE * width and _find_gutter(side, width) is not None
    )


def _are_table_cells(rows: Sequence[LineRow], sides: Sequence[Sequence[LineRow]]) -> bool:
    """Whether this is a table: nearly every row has text on both sides of the gap, with few letters on one side."""
    both = sum(map(len, sides)) - len(rows)
    return both >= _TABLE_ROW_SHARE * len(rows) and min(map(_median_letters, sides)) < _MIN_ROW_LETTERS


def _median_letters(side: Sequence[LineRow]) -> float:
    """Median number of letters per row of one side."""
    return median(sum(len(word.text) for line in row for word in line.words) for row in side)


def _is_balanced(widths: Sequence[float]) -> bool:
    """Whether the sides have similar widths, or one is about twice as wide: one of three columns beside two."""
    narrow, wide = min(widths), max(widths)
    return any(narrow * count >= _MIN_WIDTH_RATIO * wide for count in (1, 2))


def _total_width(side: Sequence[LineRow]) -> float:
    return max(line.right for row in side for line in row) - min(line.left for row in side for line in row)


def _fill_ratio(side: Sequence[LineRow]) -> float:
    """Share of a column's width that its median row spans."""
    return median(row[-1].right - row[0].left for row in side) / max(_total_width(side), 1.0)
