"""Cuts a text into searchable passages along its own seams."""

from __future__ import annotations

import re

from contexture.text.sentences import sentences

Offsets = tuple[int, int]

_VISIBLE = re.compile(r"\S")
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=#{1,6}\s)")


def passages(text: str, *, target: int = 600) -> tuple[tuple[Offsets, tuple[Offsets, ...]], ...]:
    """Passages of about `target` characters with the sentences in each, in order, never overlapping.

    Whole sentences stay together; a paragraph's end is preferred as a seam once half the target is
    reached; a sentence longer than twice the target is cut at white space. Passages cover every
    character that is not white space.
    """
    pieces = [part for found in sentences(text) for part in _bounded(text, found, 2 * target)]
    groups: list[list[Offsets]] = []
    for piece in pieces:
        if groups and _belongs(text, groups[-1], piece, target):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return tuple(((group[0][0], group[-1][1]), tuple(group)) for group in groups)


def _belongs(text: str, group: list[Offsets], piece: Offsets, target: int) -> bool:
    """Whether the next piece still fits the passage; a small overshoot beats a stray tail."""
    start, end = group[0][0], group[-1][1]
    size = end - start
    if piece[1] - start > target + target // 4 or size >= target:
        return False
    if text.startswith("#", piece[0]):
        return size < target // 4  # a heading belongs to what follows it
    return size < target // 2 or _PARAGRAPH.search(text, end, piece[0] + 1) is None


def _bounded(text: str, piece: Offsets, limit: int) -> list[Offsets]:
    """The piece, cut at white space where it is longer than `limit`."""
    start, end = piece
    parts: list[Offsets] = []
    while end - start > limit:
        cut = text.rfind(" ", start + limit // 2, start + limit)
        cut = cut if cut > start else start + limit
        parts.append((start, cut))
        rest = _VISIBLE.search(text, cut, end)
        start = rest.start() if rest else end
    return [*parts, (start, end)] if end > start else parts
