"""What was recalled into a prompt and comes back as an answer is not remembered a second time."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.text.simhash import shingles
from contexture.text.terms import words
from contexture.types import Record

QUOTED = 0.9
"""Share of a text's three-word runs that must stand in the memories shown to it for it to say nothing new."""


def repeats(text: str, shown: Sequence[Record]) -> str | None:
    """The id of the memory that `text` only repeats, out of those it was written with; None when it says more.

    A text repeats them when it stands in one of them word for word, or when nearly all of its three-word
    runs do, in one or spread over several; the one that holds most of it is then named.
    """
    spoken = words(text)
    runs = shingles(text)
    best, held, covered = "", 0, frozenset[int]()
    for record in shown:
        if f" {' '.join(spoken)} " in f" {' '.join(words(record.text))} ":
            return record.id
        common = runs & shingles(record.text)
        covered |= common
        if len(common) > held:
            best, held = record.id, len(common)
    return best if runs and len(covered) >= QUOTED * len(runs) else None
