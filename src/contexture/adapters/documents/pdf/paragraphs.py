"""Rows of one block as headings, paragraphs, lists, listings and tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from contexture.adapters.documents.pdf.headings import Sizes
from contexture.adapters.documents.pdf.tables import Table, aligned, area_of, table_of
from contexture.adapters.documents.pdf.words import Area, Line
from contexture.documents import RegionKind

Row = list[Line]

_LOOSE = 1.32  # times the usual distance of lines: a larger one parts paragraphs
_FARTHEST = 2.6  # sizes: no two lines of a paragraph are farther apart
_INDENT = 0.8  # of the size
_TYPED = 0.8  # of the letters: a listing has hardly any others
_BULLET = re.compile(r"[•◦▪‣●○■□–—*·\ue000-\uf8ff-]\s+(?=\S)")
_ITEM = re.compile(r"(?:\d{1,3}|[a-z])[.)]\s+\S")
_HYPHEN = re.compile(r"(?:\x02|(?<=[^\W\d_])-)$")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a page in Markdown, where it stands, and the level of a heading."""

    kind: RegionKind
    text: str
    area: Area
    level: int = 0
    plain: str = ""


def pieces_of(rows: Sequence[Row], sizes: Sizes) -> list[Piece]:
    """A block's pieces in order."""
    found: list[Piece] = []
    waiting: list[Row] = []
    pitch = _pitch(rows)
    at = 0
    while at < len(rows):
        level = sizes.level(rows[at])
        count = 0 if level else aligned(rows[at:])
        if level or count:
            found += _text_pieces(waiting, pitch)
            waiting = []
        if level:
            count = _heading_rows(rows[at:], level, sizes, pitch)
            found.append(_heading(rows[at : at + count], level))
        elif count:
            found.append(table_piece(table_of(rows[at : at + count])))
        else:
            waiting.append(rows[at])
        at += max(count, 1)
    return found + _text_pieces(waiting, pitch)


def table_piece(table: Table) -> Piece:
    """A table as a piece."""
    return Piece(RegionKind.TABLE, table.markdown, table.area)


def _heading_rows(rows: Sequence[Row], level: int, sizes: Sizes, pitch: float) -> int:
    """How many rows one heading takes."""
    count = 1
    while count < len(rows) and sizes.level(rows[count]) == level and rows[count][0].size == rows[0][0].size:
        if rows[count][0].bottom - rows[count - 1][0].bottom > 1.6 * max(pitch, rows[0][0].size):
            break
        count += 1
    return count


def _heading(rows: Sequence[Row], level: int) -> Piece:
    title = _joined([_text(row) for row in rows])
    return Piece(RegionKind.HEADING, f"{'#' * level} {title}", _area(rows), level, title)


def _text_pieces(rows: Sequence[Row], pitch: float) -> list[Piece]:
    found: list[Piece] = []
    for part in _parts(rows, pitch):
        if _typed(part[0]):
            text = "\n".join(f"    {_spaced(row)}" for row in part)
        else:
            text = _bulleted(_joined([_text(row) for row in part]))
        if text.strip():
            found.append(Piece(RegionKind.TEXT, text, _area(part)))
    return found


def _parts(rows: Sequence[Row], pitch: float) -> list[list[Row]]:
    """Rows cut where a paragraph, an item or a listing starts."""
    if not rows:
        return []
    left = min(row[0].left for row in rows)
    parts: list[list[Row]] = [[rows[0]]]
    for row, below in zip(rows[1:], [*rows[2:], None], strict=False):
        if _starts(row, parts[-1], pitch) or _indented(row, parts[-1], below, left):
            parts.append([row])
        else:
            parts[-1].append(row)
    return parts


def _starts(row: Row, part: Sequence[Row], pitch: float) -> bool:
    """Whether a row starts something new: far below, set otherwise, an item, or behind the items."""
    above = part[-1]
    if _typed(row) != _typed(above) or row[0].bottom - above[0].bottom > _LOOSE * pitch:
        return True
    if _typed(row):
        return False
    return _item(row) or (_item(part[0]) and row[0].left <= part[0][0].left + 1)


def _indented(row: Row, part: Sequence[Row], below: Row | None, left: float) -> bool:
    """Whether a row is set in, and neither the one above nor the one below is."""
    step = _INDENT * row[0].size
    if row[0].left - left <= step or part[-1][0].left - left > step or _typed(row) or _item(part[0]):
        return False
    return below is None or below[0].left - left <= step


def _item(row: Row) -> bool:
    text = _text(row)
    return bool(_BULLET.match(text) or _ITEM.match(text))


def _typed(row: Row) -> bool:
    """Whether a row belongs to a listing."""
    letters = sum(len(word.text) for line in row for word in line.words)
    return sum(len(word.text) for line in row for word in line.words if word.look.mono) >= _TYPED * letters


def _text(row: Row) -> str:
    return " ".join(line.text for line in row)


def _pitch(rows: Sequence[Row]) -> float:
    steps = [
        below[0].bottom - above[0].bottom for above, below in pairwise(rows)
        if below[0].bottom > above[0].bottom
    ]  # fmt: skip
    size = median(row[0].size for row in rows) if rows else 10.0
    tight = sorted(step for step in steps if step <= _FARTHEST * size)
    return max(tight[len(tight) // 3] if tight else 1.2 * size, size)


def _joined(texts: Sequence[str]) -> str:
    """Lines as one text; a word that a line end cut in two is whole again."""
    found = ""
    for text in texts:
        if found and _HYPHEN.search(found) and text[:1].islower():
            found = found[:-1] + text
        else:
            found = f"{found.replace(chr(2), '-')} {text}" if found else text
    return found.replace("\x02", "-")


def _bulleted(text: str) -> str:
    return _BULLET.sub("- ", text, count=1)


def _spaced(row: Row) -> str:
    return "  ".join(line.text for line in row).replace("\x02", "-")


def _area(rows: Sequence[Row]) -> Area:
    return area_of([line for row in rows for line in row])
