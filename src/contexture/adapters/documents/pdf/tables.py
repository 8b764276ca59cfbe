"""Tables: rows whose pieces align, or that rules frame, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from contexture.adapters.documents.pdf.lines import line_of, rows_of
from contexture.adapters.documents.pdf.words import Area, Line, Word

_NEAR = 3.0  # points: edges that are nearer are one
_ROWS = 3  # that align make a table without rules
_MOST_COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Table:
    """A table and where it stands."""

    area: Area
    cells: tuple[tuple[str, ...], ...]

    @property
    def markdown(self) -> str:
        """The table with its first row as the head."""
        head, *rest = (f"| {' | '.join(_escaped(cell) for cell in row)} |" for row in self.cells)
        return "\n".join([head, f"|{' --- |' * len(self.cells[0])}", *rest])


def ruled(rules: Sequence[Area], words: Sequence[Word]) -> list[Table]:
    """The tables that rules frame: at least two columns and two rows of cells with something in them."""
    found: list[Table] = []
    for frame in _frames(rules):
        upright = [rule for rule in frame if rule.height > rule.width]
        flat = [rule for rule in frame if rule.width >= rule.height]
        across = _edges([rule.left for rule in upright] + [x for rule in flat for x in (rule.left, rule.right)])
        down = _edges([rule.top for rule in flat] + [y for rule in upright for y in (rule.top, rule.bottom)])
        table = _grid(across, down, words) if upright and len(across) > 2 and len(down) > 2 else None  # noqa: PLR2004 - two cells
        if table is not None:
            found.append(table)
    return found


def aligned(rows: Sequence[Sequence[Line]]) -> int:
    """How many of the first rows make a table without rules; 0 when they do not.

    Every row but those that carry on a cell has a piece in the first column, and each piece starts, ends or is
    centred where one of the head's does.
    """
    if not rows or len(rows[0]) < 2:  # noqa: PLR2004 - a table has two columns
        return 0
    columns = [(line.left, line.right) for line in rows[0]]
    full = last = 0
    for at, row in enumerate(rows):
        places = [_column(line, columns) for line in row]
        if None in places or len(set(places)) != len(places):
            break
        if len(row) == 1 and places[0] == 0:
            break
        columns = [_grown(column, [line for line, place in zip(row, places, strict=True) if place == number])
                   for number, column in enumerate(columns)]  # fmt: skip
        if len(row) > 1:
            full, last = full + 1, at + 1
    return last if full >= _ROWS else 0


def table_of(rows: Sequence[Sequence[Line]]) -> Table:
    """The table that aligned rows make; a row without a first cell carries on the one above."""
    columns = [(line.left, line.right) for line in rows[0]]
    cells: list[list[str]] = []
    for row in rows:
        places = [_column(line, columns) or 0 for line in row]
        texts = [""] * len(columns)
        for line, place in zip(row, places, strict=True):
            texts[place] = f"{texts[place]} {line.text}".strip()
            columns[place] = _grown(columns[place], [line])
        if not texts[0] and cells:
            cells[-1] = [f"{above} {text}".strip() for above, text in zip(cells[-1], texts, strict=True)]
        else:
            cells.append(texts)
    return Table(area_of([line for row in rows for line in row]), tuple(map(tuple, cells)))


def area_of(lines: Sequence[Line]) -> Area:
    """The rectangle that some lines fill."""
    return Area(
        min(line.left for line in lines),
        min(line.top for line in lines),
        max(line.right for line in lines),
        max(line.bottom for line in lines),
    )


def _column(line: Line, columns: Sequence[tuple[float, float]]) -> int | None:
    """The only column that a piece stands in; None when it stands in several or outside of all."""
    touching = [at for at, (left, right) in enumerate(columns) if line.left < right and line.right > left]
    if not touching:
        near = [at for at, (left, _) in enumerate(columns) if abs(line.left - left) <= _NEAR]
        return near[0] if near else None
    return touching[0] if len(touching) == 1 else None


def _grown(column: tuple[float, float], lines: Sequence[Line]) -> tuple[float, float]:
    left, right = column
    return min([left, *(line.left for line in lines)]), max([right, *(line.right for line in lines)])


def _frames(rules: Sequence[Area]) -> list[list[Area]]:
    """Rules that touch each other, group by group."""
    groups: list[tuple[Area, list[Area]]] = []
    for rule in sorted(rules, key=lambda rule: (rule.top, rule.left))[:2_000]:
        wide = Area(rule.left - _NEAR, rule.top - _NEAR, rule.right + _NEAR, rule.bottom + _NEAR)
        touching = [group for group in groups if _touch(group[0], wide)]
        merged = [rule, *(each for _, group in touching for each in group)]
        box = wide
        for other, _ in touching:
            box = Area(
                min(box.left, other.left), min(box.top, other.top),
                max(box.right, other.right), max(box.bottom, other.bottom),
            )  # fmt: skip
        groups = [group for group in groups if group not in touching] + [(box, merged)]
    return [group for _, group in groups]


def _touch(one: Area, other: Area) -> bool:
    across = one.left <= other.right and other.left <= one.right
    return across and one.top <= other.bottom and other.top <= one.bottom


def _edges(places: Sequence[float]) -> list[float]:
    edges: list[float] = []
    for place in sorted(places):
        if not edges or place - edges[-1] > _NEAR:
            edges.append(place)
    return edges


def _grid(across: Sequence[float], down: Sequence[float], words: Sequence[Word]) -> Table | None:
    if len(across) > _MOST_COLUMNS:
        return None
    area = Area(across[0], down[0], across[-1], down[-1])
    inside = [word for word in words if area.holds(word)]
    cells = [
        tuple(_cell(Area(left, top, right, bottom), inside) for left, right in pairwise(across))
        for top, bottom in pairwise(down)
    ]
    full = [row for row in cells if any(row)]
    if len(full) < 2 or sum(bool(cell) for row in full for cell in row) < len(full):  # noqa: PLR2004 - head and a row
        return None
    return Table(area, tuple(full))


def _cell(area: Area, words: Sequence[Word]) -> str:
    inside = [word for word in words if area.holds(word)]
    rows = rows_of([line_of([word]) for word in inside])
    return " ".join(line.text for row in rows for line in row)


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\x02", "-")
