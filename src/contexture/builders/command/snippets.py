"""The few words of an article that a command shows."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.text.terms import terms

LONGEST = 240
"""Characters of a snippet."""

_MARK = "…"
_GAP = 40  # a cut moves back to the last blank within so many characters


def snippet(text: str, sentences: Sequence[tuple[int, int]], query: str, limit: int = LONGEST) -> str:
    """At most `limit` characters of a passage on one line, from the sentence on that says most about the query.

    A snippet that does not reach the end of the passage ends after a word, and with `…`.
    """
    return cut(text[_start(text, sentences, set(terms(query)), limit) :], limit)


def cut(text: str, limit: int) -> str:
    """The text on one line, cut after a word where it is longer than `limit`."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    head = line[: limit - len(_MARK)]
    gap = len(head) if line[len(head)] == " " else head.rfind(" ")
    return (head[:gap] if gap > len(head) - _GAP else head).rstrip() + _MARK


def _start(text: str, sentences: Sequence[tuple[int, int]], wanted: set[int], limit: int) -> int:
    """Where the sentence begins from which on the most of the query's terms stand within the limit; the first wins."""
    if len(text) <= limit or not wanted:
        return 0
    found = [set(terms(text[start:end])) & wanted for start, end in sentences]
    best, most = 0, -1
    for at, (start, _) in enumerate(sentences):
        within = [held for (_, end), held in zip(sentences[at:], found[at:], strict=True) if end - start <= limit]
        held = len(set[int]().union(found[at], *within))
        if held > most:
            best, most = start, held
    return best
