"""Running heads, feet and page numbers: what repeats on page after page at the same height."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from contexture.adapters.documents.pdf.words import Line

_EDGE = 0.13  # of a page's height, at the top and at the bottom
_TIMES = 3  # pages on which the same words make a running head
_BAND = 3.0  # points: lines of one height
_SHARE = 0.5  # of the outermost lines of one height that repeat and thereby condemn the others
_NUMBER = re.compile(r"\d+|\b[ivxlcdm]+\b", re.IGNORECASE)
_ALONE = re.compile(r"[-–—|\s]*(?:page|стр\.?|страница)?\s*#(?:\s*(?:/|of|из)\s*#)?[-–—|\s]*", re.IGNORECASE)
_LONGEST = 160

Mark = tuple[bool, int]
Times = Counter[tuple[Mark, str]]


def furniture(pages: Sequence[tuple[float, Sequence[Line]]]) -> list[set[int]]:
    """For every page, given with its height, which of its lines are furniture.

    In a document of two pages what both have at the same place is; on a single page only its number.
    """
    edges = [_edges(lines, height) for height, lines in pages]
    times: Times = Counter()
    outermost: Times = Counter()
    for page in edges:
        for rows in page:
            times.update({(mark, text) for row in rows for _, mark, text in row})
            outermost.update({(mark, text) for row in rows[:1] for _, mark, text in row})
    bands = _bands(outermost)
    enough = max(2, min(_TIMES, len(pages)))
    return [{at for rows in page for at in _furniture(rows, times, bands, enough)} for page in edges]


def is_page_number(line: Line) -> bool:
    """Whether a line says nothing but the number of its page."""
    return _ALONE.fullmatch(_same(line.text)) is not None


Row = list[tuple[int, Mark, str]]
"""Lines side by side: the number of each, its mark, and its words without numbers."""


def _edges(lines: Sequence[Line], height: float) -> tuple[list[Row], list[Row]]:
    """The rows at the top and at the bottom of a page, the outermost first."""
    marked = [(at, mark, _same(line.text)) for at, line in enumerate(lines) if (mark := _mark(line, height))]
    ends: tuple[list[Row], list[Row]] = ([], [])
    for end, top in zip(ends, (True, False), strict=True):
        for each in sorted((each for each in marked if each[1][0] is top), key=lambda each: each[1][1]):
            inner = lines[each[0]].bottom
            if end and abs(lines[end[-1][0][0]].bottom - inner) <= _BAND:
                end[-1].append(each)
            else:
                end.append([each])
    return ends


def _furniture(rows: Sequence[Row], times: Times, bands: frozenset[Mark], enough: int) -> list[int]:
    """The lines of the rows at one end, from the outermost up to the first that is not furniture."""
    found: list[int] = []
    for place, row in enumerate(rows):
        again = [_repeats(mark, text, times, enough) for _, mark, text in row]
        known = any(again) or any(mark in bands for _, mark, _ in row) if place == 0 else all(again)
        if not known:
            break
        found += [at for at, _, _ in row]
    return found


def _repeats(mark: Mark, text: str, times: Times, enough: int) -> bool:
    if _ALONE.fullmatch(text):
        return True
    return sum(times[(mark[0], mark[1] + shift), text] for shift in (-1, 0, 1)) >= enough


def _bands(times: Times) -> frozenset[Mark]:
    """Heights at which so much repeats that whatever stands there is furniture too."""
    all_there: dict[Mark, int] = defaultdict(int)
    again: dict[Mark, int] = defaultdict(int)
    for (mark, _), count in times.items():
        all_there[mark] += count
        again[mark] += count if count >= _TIMES else 0
    return frozenset(mark for mark, count in all_there.items() if count > _TIMES and again[mark] >= _SHARE * count)


def _mark(line: Line, height: float) -> Mark | None:
    """At which end of the page a line stands, and how far from it; None for one in between."""
    if len(line.text) > _LONGEST:
        return None
    if line.bottom <= _EDGE * height:
        return True, round(line.bottom / _BAND)
    if line.top >= (1 - _EDGE) * height:
        return False, round((height - line.bottom) / _BAND)
    return None


def _same(text: str) -> str:
    return " ".join(_NUMBER.sub("#", text).casefold().split())
