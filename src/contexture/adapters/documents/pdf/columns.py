"""Lines in reading order: columns one after the other, whatever spans them before or behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from contexture.adapters.documents.pdf.lines import rows_of
from contexture.adapters.documents.pdf.words import Line

Row = list[Line]

_BIN = 2.0  # points
_LEAST = 5  # rows on each side that make columns
_NARROWEST = 0.16  # of the page: what is narrower is a column of a table
_ALIKE = 0.5  # the narrower of two columns against the wider
_FILL = 0.55  # of its column: how far the usual line of a text goes
_LETTERS = 16  # in the usual row of a column: cells of tables have fewer
_TOGETHER = 0.9  # of the rows of a table have something in both of two columns
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class _Gutter:
    x: float
    first: int
    last: int


def reading_order(lines: Sequence[Line], width: float, depth: int = 0) -> list[list[Row]]:
    """Blocks of rows as a reader takes them; the rows of a block stand below each other."""
    rows = rows_of(lines)
    gutter = _gutter(rows, width) if depth < _DEEPEST else None
    if gutter is None:
        return [rows] if rows else []
    above, beside, below = rows[: gutter.first], rows[gutter.first : gutter.last], rows[gutter.last :]
    found: list[list[Row]] = []
    for part in (
        _flat(above),
        [line for line in _flat(beside) if line.middle < gutter.x],
        [line for line in _flat(beside) if line.middle >= gutter.x],
        _flat(below),
    ):
        found.extend(reading_order(part, width, depth + 1) if part else [])
    return found


def _flat(rows: Sequence[Row]) -> list[Line]:
    return [line for row in rows for line in row]


def _gutter(rows: Sequence[Row], width: float) -> _Gutter | None:
    """The gap between two columns that goes on for most rows; None where a page has one column."""
    if len(rows) < _LEAST:
        return None
    covered, left = _covered(rows)
    best: tuple[int, _Gutter] | None = None
    for at in _valleys(covered):
        for first, last in _runs(covered[:, at]):
            gutter = _Gutter(left + (at + 0.5) * _BIN, first, last)
            worth = last - first
            if (best is None or worth > best[0]) and _columns(rows[first:last], gutter.x, width):
                best = worth, gutter
    return None if best is None else best[1]


def _covered(rows: Sequence[Row]) -> tuple[npt.NDArray[np.bool_], float]:
    """Which stretches of each row are taken."""
    left = min(line.left for row in rows for line in row)
    right = max(line.right for row in rows for line in row)
    covered = np.zeros((len(rows), max(int((right - left) / _BIN) + 1, 1)), np.bool_)
    for at, row in enumerate(rows):
        for line in row:
            covered[at, int((line.left - left) / _BIN) : int((line.right - left) / _BIN) + 1] = True
    return covered, left


def _valleys(covered: npt.NDArray[np.bool_]) -> list[int]:
    """Where at most half as many rows are taken as somewhere on either side: the middle of each such stretch."""
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


def _runs(taken: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Stretches of rows that leave a place free, longest first."""
    edges = np.flatnonzero(np.diff(np.concatenate(([True], taken, [True]))))
    runs = [(int(first), int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]
    return sorted(runs, key=lambda run: run[0] - run[1])[:3]


def _columns(rows: Sequence[Row], x: float, width: float) -> bool:
    """Whether both sides of a gap are columns of text, and not cells of a table."""
    left = [[line for line in row if line.middle < x] for row in rows]
    right = [[line for line in row if line.middle >= x] for row in rows]
    sides = [[row for row in side if row] for side in (left, right)]
    if min(map(len, sides)) < _LEAST:
        return False
    widths = [_extent(side) for side in sides]
    if min(widths) < _NARROWEST * width or _cells(rows, sides):
        return False
    return _balanced(widths) and all(_is_text(side, width) for side in sides)


def _is_text(side: Sequence[Row], width: float) -> bool:
    """Whether the usual row goes most of the way, or there are columns again."""
    return _fill(side) >= _FILL or (_extent(side) > 2 * _NARROWEST * width and _gutter(side, width) is not None)


def _cells(rows: Sequence[Row], sides: Sequence[Sequence[Row]]) -> bool:
    """Whether nearly every row goes on behind the gap, with few letters on one side: a table."""
    both = sum(map(len, sides)) - len(rows)
    return both >= _TOGETHER * len(rows) and min(map(_letters, sides)) < _LETTERS


def _letters(side: Sequence[Row]) -> float:
    """How many letters the usual row of one side has."""
    return median(sum(len(word.text) for line in row for word in line.words) for row in side)


def _balanced(widths: Sequence[float]) -> bool:
    """Two columns are about as wide as each other; three leave one on one side and two on the other."""
    narrow, wide = min(widths), max(widths)
    return any(narrow * count >= _ALIKE * wide for count in (1, 2))


def _extent(side: Sequence[Row]) -> float:
    return max(line.right for row in side for line in row) - min(line.left for row in side for line in row)


def _fill(side: Sequence[Row]) -> float:
    """How much of a column its usual row takes."""
    return median(row[-1].right - row[0].left for row in side) / max(_extent(side), 1.0)
