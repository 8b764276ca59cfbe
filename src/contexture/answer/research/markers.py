"""The markers in an answer that name its sources: read, and taken out where they point nowhere."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

# Blanks are counted and runs are taken whole, so that no text, however odd, takes more than one look at each letter.
_GAP = r"\s{0,3}"
_WORD = rf"(?:(?:documents?|docs?\.?|sources?|документы?|источники?){_GAP})?[#№]?{_GAP}"
_ONE = rf"{_WORD}\d{{1,4}}(?:{_GAP}[-–]{_GAP}\d{{1,4}})?"
_TAIL = rf"(?::[^\[\]\n]{{0,300}}|,?{_GAP}(?:pages?|pp?\.|стр\.?|страницы?){_GAP}[\d\s,–-]{{1,40}})?"
# A bracket before a parenthesis is a link.
_MARKER = re.compile(
    rf"(?<!\s)\s*+\[{_GAP}(?P<names>{_ONE}(?:{_GAP}(?:[,;&]|and|и){_GAP}{_ONE}){{0,50}}){_GAP}{_TAIL}{_GAP}\](?!\()",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(\d{1,4})(?:\s*[-–]\s*(\d{1,4}))?")
_BEHIND = re.compile(rf"(?<![.!?…])([.!?…]++)((?:{_GAP}\[[^\[\]\n]{{1,320}}\])+)")
_WIDEST = 50  # sources that a range such as [1-50] may name


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovedMarker:
    """A marker, or the part of one, that pointed nowhere: as it stood there, and the numbers it named."""

    marker: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Marked:
    """A text whose every marker points somewhere, and what was taken out of it."""

    text: str
    removed: tuple[RemovedMarker, ...]


def cleaned(text: str, known: Container[int]) -> Marked:
    """The text without the markers that name no known source; one that names some of them keeps those."""
    removed: list[RemovedMarker] = []

    def keep(found: re.Match[str]) -> str:
        numbers = _numbers(found["names"])
        valid = [number for number in numbers if number in known]
        if len(valid) == len(numbers):
            return found[0]
        lost = tuple(number for number in numbers if number not in known)
        removed.append(RemovedMarker(marker=found[0].strip(), numbers=lost))
        space = found[0][: len(found[0]) - len(found[0].lstrip())]
        return f"{space}[{', '.join(map(str, valid))}]" if valid else ""

    return Marked(text=_MARKER.sub(keep, text).strip(), removed=tuple(removed))


def numbers_in(text: str) -> tuple[int, ...]:
    """The numbers that the markers of a text name, each once, in order."""
    return tuple(dict.fromkeys(number for found in _MARKER.finditer(text) for number in _numbers(found["names"])))


def without_markers(text: str) -> str:
    """The text without any marker."""
    return _MARKER.sub("", text)


def before_stops(text: str) -> str:
    """The text with markers behind a full stop moved before it: they belong to the sentence that it ends.

    Nothing is added or lost, so that offsets of sentences are those of the text given.
    """
    return _BEHIND.sub(lambda found: f"{found[2]}{found[1]}" if _MARKER.match(found[2]) else found[0], text)


def _numbers(names: str) -> list[int]:
    found: dict[int, None] = {}
    for first, last in _NUMBER.findall(names):
        start, end = int(first), int(last or first)
        run = range(start, end + 1) if start <= end <= start + _WIDEST else (start, end)
        found.update(dict.fromkeys(run))
    return list(found)
