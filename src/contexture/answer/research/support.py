"""Whether each sentence of an answer rests on the sources it names: its words, its figures and its names."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from contexture.answer.commands.figures import digits
from contexture.answer.research.markers import before_stops, numbers_in, without_markers
from contexture.text.passages import passages
from contexture.text.sentences import sentences
from contexture.text.terms import term_id, terms, words

ENOUGH = 0.5
"""Share of a sentence's words that its sources must hold."""

ALIKE = 0.6
"""Calibrated similarity at which a source supports a sentence in other words, or in another language."""

_NAME = re.compile(r"(?<![.!?…:\n«\"'“(]\s)(?<=\s)[A-ZА-ЯЁ][\w’'-]+")
_PLACEHOLDER = re.compile(r"<[A-Z][A-Z0-9_]*_\d+>")
_COMPARED = 16  # passages of the sources that are compared by meaning
_CYRILLIC = re.compile(r"[\u0400-\u04ff]")

Alike = Callable[[str, Sequence[str]], Awaitable[float]]
"""How similar a sentence is to the most similar of some texts, from 0 to 1."""


class Lack(StrEnum):
    """What a sentence lacks."""

    MARKER = "no_marker"
    WORDS = "not_in_source"
    FIGURE = "figure_not_in_source"
    NAME = "name_not_in_source"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsupported:
    """A sentence of the answer, at characters `start` to `end`, that its sources do not bear out.

    `missing` are the figures or names that they do not have.
    """

    sentence: str
    start: int
    end: int
    lack: Lack
    missing: tuple[str, ...] = ()


async def unsupported(
    answer: str, sources: Mapping[int, str], *, question: str = "", alike: Alike | None = None
) -> tuple[Unsupported, ...]:
    """Every sentence that names no source, or says what the sources it names do not; headings claim nothing."""
    found: list[Unsupported] = []
    moved = before_stops(answer)
    for start, end in sentences(moved):
        sentence = moved[start:end]
        said = without_markers(sentence).strip()
        if not _claims(said):
            continue
        texts = [sources[number] for number in numbers_in(sentence) if number in sources]
        lack, missing = await _lack(said, texts, question, alike)
        if lack is not None:
            shown = " ".join(answer[start:end].split())
            found.append(Unsupported(sentence=shown, start=start, end=end, lack=lack, missing=missing))
    return tuple(found)


def share(sentence: str, sources: Sequence[str]) -> float:
    """The share of a sentence's words that stand in its sources, by their stems."""
    said = set(terms(sentence))
    held = set[int]().union(*(terms(source) for source in sources))
    return len(said & held) / len(said) if said else 1.0


def _claims(said: str) -> bool:
    """Whether a sentence says anything: a heading, and a line that announces a list, do not."""
    return bool(terms(said)) and not said.startswith("#") and not said.endswith((":", "："))


async def _lack(
    said: str, texts: Sequence[str], question: str, alike: Alike | None
) -> tuple[Lack | None, tuple[str, ...]]:
    if not texts:
        return Lack.MARKER, ()
    if strange := _figures(said, texts):
        return Lack.FIGURE, strange
    if strange := _names(said, [*texts, question]):
        return Lack.NAME, strange
    if share(said, texts) >= ENOUGH or await _similar(said, texts, alike):
        return None, ()
    return Lack.WORDS, ()


def _figures(said: str, texts: Sequence[str]) -> tuple[str, ...]:
    held = frozenset[str]().union(*map(digits, texts))
    return tuple(sorted(digits(said) - held))


def _names(said: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Names inside a sentence that no text has; one in a script that the texts are not written in cannot be told."""
    named = [name for name in _NAME.findall(_PLACEHOLDER.sub(" ", said)) if term_id(name.lower()) is not None]
    if not named:
        return ()
    joined = "\n".join(texts)
    held = set(terms(joined))
    cyrillic = _CYRILLIC.search(joined) is not None
    return tuple(
        name
        for name in dict.fromkeys(named)
        if (cyrillic or not _CYRILLIC.search(name)) and not _held(name, held, joined)
    )


def _held(name: str, held: set[int], joined: str) -> bool:
    return name in joined or all(found is None or found in held for found in map(term_id, words(name)))


async def _similar(said: str, texts: Sequence[str], alike: Alike | None) -> bool:
    if alike is None:
        return False
    pieces = [text[start:end] for text in texts for (start, end), _ in passages(text)]
    return bool(pieces) and await alike(said, pieces[:_COMPARED]) >= ALIKE
