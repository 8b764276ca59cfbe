"""What was recalled into a prompt and comes back as an answer is not remembered a second time."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.text.terms import term_id, words
from contexture.types import Record

QUOTED = 0.9
"""Share of a text's words that must stand in runs of the memories shown to it for it to say nothing new."""

_RUN = 3
_TURNS = frozenset("no not never none t без не нет ни никогда".split())  # one such word makes another statement

_FRAMES = frozenset(
    "well hello hi dear said told mentioned remember recall earlier previously "
    "ну привет итак сказали говорили упоминали помню ранее".split()
)
"""Words around a quotation that say nothing of their own."""


def repeats(text: str, shown: Sequence[Record]) -> str | None:
    """The id of the memory that `text` only repeats, out of those it was written with; None when it says more.

    A word is repeated when it belongs to a run of three that stands in one of the memories, or when the whole
    text does. Nearly all words must be, over all memories together, and those that are not must mean nothing by
    themselves: one new name, number or negation makes another statement, however much was heard before.
    The memory that holds most of the text is the one it repeats.
    """
    spoken = words(text)
    if not spoken:
        return None
    places = {record.id: _repeated(spoken, words(record.text)) for record in shown}
    known = set[int]().union(*places.values())
    fresh = [word for at, word in enumerate(spoken) if at not in known]
    if len(known) < QUOTED * len(spoken) or any(map(_says, fresh)):
        return None
    return max(places, key=lambda record_id: len(places[record_id]))


def _says(word: str) -> bool:
    """Whether a word that was not heard makes a text say something else."""
    return word in _TURNS or (term_id(word) is not None and word not in _FRAMES)


def _repeated(spoken: Sequence[str], heard: Sequence[str]) -> set[int]:
    """The places of words that are spoken in the company in which they were heard."""
    size = min(_RUN, len(spoken))
    runs = {tuple(heard[at : at + size]) for at in range(len(heard) - size + 1)}
    starts = [at for at in range(len(spoken) - size + 1) if tuple(spoken[at : at + size]) in runs]
    return {at + step for at in starts for step in range(size)}
