"""The pieces of a page that become a row of vectors each: what they say, and where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from contexture.documents import Box, Page, Region, RegionKind

WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
TARGET = 500
"""Characters of neighbouring text that share a row; about what an embedder reads at once."""
MOST_ROWS = 48


_CAPTION = re.compile(
    r"\W*(?:figure|fig|table|chart|diagram|exhibit|рисунок|рис|таблица|табл|график|диаграмма|схема)\.?\s*\d",
    re.IGNORECASE,
)


class Piece(NamedTuple):
    """What one row of a page stands for."""

    text: str
    box: Box


def pieces(page: Page) -> list[Piece]:
    """One piece of all headings, then one per table, picture, caption and few hundred characters of text.

    A page has at most `2 * MOST_ROWS` of them; the longer its text is, the longer they are.
    """
    regions = [region for region in page.regions if region.text.strip()]
    if not regions:
        return [Piece(text, WHOLE) for text in _parts(page.text, TARGET)]
    target = max(TARGET, sum(len(region.text) for region in regions) // MOST_ROWS)
    headings = [region for region in regions if region.kind is RegionKind.HEADING]
    found = [piece for run in _runs(regions, target) for piece in _cut(run, target)]
    together = list(_cut(headings, target))[:1] if len(headings) > 1 else []
    return [*together, *found][: 2 * MOST_ROWS]


def union(boxes: Iterable[Box]) -> Box:
    """The smallest box around all of them."""
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


def _runs(regions: Sequence[Region], target: int) -> Iterator[Sequence[Region]]:
    """Tables, pictures and captions alone; headings and text together, as long as they fit the target."""
    run: list[Region] = []
    for region in regions:
        apart = region.kind in {RegionKind.TABLE, RegionKind.PICTURE} or bool(_CAPTION.match(region.text))
        full = sum(len(each.text) for each in run) + len(region.text) > target
        if run and (apart or full or region.kind is RegionKind.HEADING):
            yield run
            run = []
        if apart:
            yield [region]
        else:
            run.append(region)
    if run:
        yield run


def _cut(run: Sequence[Region], target: int) -> Iterator[Piece]:
    """A run as a piece; a table or text that is too long for one row as several that look at the same place."""
    whole = _joined(run)
    head = whole.text.split("\n", 1)[0] if run[0].kind is RegionKind.TABLE else ""
    for number, text in enumerate(_parts(whole.text, 2 * target)):
        yield Piece(f"{head}\n{text}" if head and number else text, whole.box)


def _joined(regions: Sequence[Region]) -> Piece:
    return Piece("\n".join(region.text.strip() for region in regions), union(region.box for region in regions))


def _parts(text: str, target: int) -> Iterator[str]:
    """A text in parts of about `target` characters, cut between lines, else between words."""
    part = ""
    for line in text.split("\n"):
        for words in _words(line, target):
            if part and len(part) + len(words) > target:
                yield part
                part = ""
            part = f"{part}\n{words}".strip()
    if part:
        yield part


def _words(line: str, target: int) -> Iterator[str]:
    """A line, or its parts where it is longer than the target."""
    while len(line) > target:
        at = line.rfind(" ", 1, target)
        at = at if at > 0 else target
        yield line[:at].strip()
        line = line[at:].strip()
    yield line
