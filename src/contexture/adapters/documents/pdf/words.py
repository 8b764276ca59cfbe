"""Words with their place and look: what every way of reading a page starts from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """How a word is set: its size in points, bold or not, all letters of one width or not."""

    size: float
    bold: bool = False
    mono: bool = False


@dataclass(slots=True)
class Word:
    """A word; the page's upper left corner is 0, 0 and `bottom` is near its baseline."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    look: Look


@dataclass(slots=True)
class Line:
    """Words of one line that no wide gap parts, left to right."""

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
    def middle(self) -> float:
        """Half way between its ends."""
        return (self.left + self.right) / 2

    @property
    def bold(self) -> bool:
        """Whether every word is bold."""
        return all(word.look.bold for word in self.words)

    @property
    def mono(self) -> bool:
        """Whether every word has letters of one width."""
        return all(word.look.mono for word in self.words)


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle on a page, in points."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """From left to right."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """From top to bottom."""
        return self.bottom - self.top

    def holds(self, line: Line | Word) -> bool:
        """Whether the middle of a line lies inside."""
        x, y = (line.left + line.right) / 2, (line.top + line.bottom) / 2
        return self.left <= x <= self.right and self.top <= y <= self.bottom


@dataclass(slots=True)
class Sheet:
    """What stands on one page: its words, the lines drawn on it, and its pictures."""

    number: int
    width: float
    height: float
    words: list[Word]
    rules: list[Area]
    pictures: list[Area]
