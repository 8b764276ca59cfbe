"""Which rows are headings, and of what level: by their size against the size of the body."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from contexture.adapters.documents.pdf.words import Line

_LARGER = 1.15  # times the body: what is larger is a heading
_LONGEST = 180
_LEVELS = 6
_LEAST = 2  # letters
_RARE = 0.25  # of the letters: what is set larger than the body more often than this is no heading
_NUMBERED = re.compile(r"(\d+(?:\.\d+)*)\.?\s+\S")
_LETTERS = re.compile(r"[^\W\d_]")
_PARTS = frozenset("chapter part section appendix глава часть раздел приложение".split())
_ENDS = (".", ",", ";", ":", "!")


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of the body, and the larger ones that headings have, largest first."""

    body: float
    heads: tuple[float, ...] = ()

    def level(self, row: Sequence[Line]) -> int:
        """The level of a row that is a heading, from 1; 0 for any other."""
        text = " ".join(line.text for line in row)
        size = max(row, key=lambda line: len(line.text)).size
        if len(text) > _LONGEST or len(_LETTERS.findall(text)) < _LEAST or _typed(row):
            return 0
        if size in self.heads:
            return min(self.heads.index(size) + 1, _LEVELS)
        return min(len(self.heads) + 1, _LEVELS) if self._bold(row, text) else 0

    def _bold(self, row: Sequence[Line], text: str) -> bool:
        """Body-sized headings are bold, numbered or short, and are no sentence."""
        alone = len(row) == 1 or (len(row) == 2 and _is_number(row[0].text))  # noqa: PLR2004 - a number and its title
        full = row[0].size >= 0.95 * self.body
        return (
            alone
            and all(line.bold for line in row)
            and full
            and len(text) <= _LONGEST // 2
            and not text.endswith(_ENDS)
        )


def _typed(row: Sequence[Line]) -> bool:
    """Whether most of a row has letters of one width, as listings and the names of functions have."""
    letters = sum(len(word.text) for line in row for word in line.words)
    typed = sum(len(word.text) for line in row for word in line.words if word.look.mono)
    return 2 * typed >= letters


def sizes_of(lines: Iterable[Line]) -> Sizes:
    """The sizes of a document: the body is what most letters are set in."""
    letters: Counter[float] = Counter()
    for line in lines:
        letters[line.size] += len(line.text)
    if not letters:
        return Sizes(10.0)
    body = max(letters, key=lambda size: (letters[size], -size))
    all_of_them = letters.total()
    larger = [size for size, count in letters.items() if size >= _LARGER * body and count <= _RARE * all_of_them]
    return Sizes(body, tuple(sorted(larger, reverse=True)))


def _is_number(text: str) -> bool:
    return not _LETTERS.search(text) or text.split(maxsplit=1)[0].casefold() in _PARTS


def numbered_level(text: str) -> int:
    """How many parts the number of a heading has; 0 for one without."""
    found = _NUMBERED.match(text)
    return found[1].count(".") + 1 if found else 0
