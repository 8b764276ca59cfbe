"""Where a page stands in its document: the headings that are open for most of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_LONGEST = 120
_DEEPEST = 6


@dataclass(frozen=True, slots=True)
class Section:
    """The open headings from the outermost to the innermost, and the innermost alone."""

    path: str | None
    heading: str | None


class Outline:
    """Follows the headings of a document from page to page."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []

    def page(self, pieces: Sequence[tuple[int, str]]) -> Section:
        """The section of the next page, given its pieces as level (0 for text) and text.

        It is the one that most of the page's letters belong to; the first of two that have as many.
        """
        letters: dict[tuple[str, ...], int] = {}
        for level, text in pieces:
            if level:
                self._enter(level, text)
            path = tuple(name for _, name in self._open)
            letters[path] = letters.get(path, 0) + len(text)
        if not letters:
            letters[tuple(name for _, name in self._open)] = 0
        best = max(letters, key=lambda path: letters[path])
        return Section(" > ".join(best), best[-1]) if best else Section(None, None)

    def _enter(self, level: int, text: str) -> None:
        while self._open and self._open[-1][0] >= level:
            self._open.pop()
        self._open.append((level, " ".join(text.split())[:_LONGEST]))
        del self._open[_DEEPEST:]
