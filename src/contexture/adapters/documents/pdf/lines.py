"""Words gathered into lines, and lines into rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from contexture.adapters.documents.pdf.words import Line, Word

_ROW = 0.4  # of the size: baselines that differ by less share a row
_WIDE = 0.9  # of the size: a wider gap parts two lines of one row


def lines_of(words: Sequence[Word]) -> list[Line]:
    """The lines of a page, from top to bottom and then from left to right."""
    found: list[Line] = []
    for row in _rows(words):
        found.extend(_split(row))
    return found


def rows_of(lines: Iterable[Line]) -> list[list[Line]]:
    """Lines that stand side by side, each row from left to right, rows from top to bottom."""
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: (line.bottom, line.left)):
        if rows and line.bottom - rows[-1][0].bottom < _ROW * max(line.size, rows[-1][0].size):
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: line.left) for row in rows]


def line_of(words: Sequence[Word]) -> Line:
    """One line of words that stand side by side."""
    return Line(
        words=list(words),
        left=min(word.left for word in words),
        top=min(word.top for word in words),
        right=max(word.right for word in words),
        bottom=median(word.bottom for word in words),
        size=_size(words),
    )


def _size(words: Sequence[Word]) -> float:
    """The size in which most letters of a line are set."""
    letters: dict[float, int] = {}
    for word in words:
        letters[word.look.size] = letters.get(word.look.size, 0) + len(word.text)
    return max(letters, key=lambda size: (letters[size], size))


def _rows(words: Sequence[Word]) -> list[list[Word]]:
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda word: word.bottom):
        if rows and word.bottom - rows[-1][0].bottom < _ROW * max(word.look.size, rows[-1][0].look.size):
            rows[-1].append(word)
        else:
            rows.append([word])
    return [sorted(row, key=lambda word: word.left) for row in rows]


def _split(row: Sequence[Word]) -> list[Line]:
    """A row cut at its wide gaps; pieces that touch are one word set in two faces."""
    parts: list[list[Word]] = [[row[0]]]
    for word in row[1:]:
        last = parts[-1][-1]
        if word.left - last.right > _WIDE * max(word.look.size, last.look.size):
            parts.append([word])
        else:
            parts[-1].append(word)
    return [line_of(_joined(part)) for part in parts]


def _joined(words: Sequence[Word]) -> list[Word]:
    found = [words[0]]
    for word in words[1:]:
        last = found[-1]
        if word.left - last.right < 0.1 * word.look.size:
            look = last.look if len(last.text) >= len(word.text) else word.look
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
