"""What one record says about named things: its mentions, and which of them a sentence ties."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise

from msgspec.structs import replace

from contexture.graph.names import key_of
from contexture.text.sentences import sentences
from contexture.types import Bond, Extracted, Mention, Span

CHARACTERS = 20_000
"""Of a longer record only this much is read: what it is about is said before."""

_TOGETHER = 8  # mentions of one sentence that are tied to each other
_NEAR = 3  # mentions of each of two neighbouring sentences
_WEAK = 0.25
_LABEL_WORDS = 5
_SAYS_LITTLE = frozenset("and or of the a an in on at by for with to и или в на с по из от к у".split())
_ARTICLES = frozenset("the a an".split())
_BREAKS = re.compile(r"[.;:!?()\[\]«»\"“”]")
_BLANK = "_"


def readable(text: str, hidden: Sequence[Span]) -> str:
    """The text with every hidden stretch blanked, so that offsets stay and nothing hidden is read."""
    pieces: list[str] = []
    done = 0
    for span in hidden:
        pieces += (text[done : span.start], _BLANK * (span.end - span.start))
        done = span.end
    return "".join((*pieces, text[done:]))[:CHARACTERS]


def extracted(record_id: str, digest: str, text: str, found: Sequence[Mention]) -> Extracted:
    """The mentions that have a key, and a bond for each pair of names in one sentence or in two neighbours."""
    named = tuple(mention for mention in found if key_of(mention.name) and _BLANK not in mention.name)
    places = sentences(text)
    inside = [bond for start, end in places for bond in _bonds(text, start, end, named)]
    across = [bond for one, other in pairwise(places) for bond in _neighbours(one, other, named)]
    bonds = (*inside, *across)
    keys = tuple(sorted({key_of(mention.name) for mention in named}))
    return Extracted(record_id=record_id, hash=digest, mentions=named, bonds=bonds, keys=keys)


def without(found: Extracted, hides: Callable[[str], bool]) -> Extracted:
    """The same without the names that must not be shown, and without the words between names that must not."""
    kept = [at for at, mention in enumerate(found.mentions) if not hides(mention.name)]
    if len(kept) == len(found.mentions) and not any(hides(bond.label) for bond in found.bonds):
        return found
    places = {at: place for place, at in enumerate(kept)}
    bonds = (
        replace(bond, head=places[bond.head], tail=places[bond.tail], label="" if hides(bond.label) else bond.label)
        for bond in found.bonds
        if bond.head in places and bond.tail in places
    )
    mentions = tuple(found.mentions[at] for at in kept)
    return replace(found, mentions=mentions, bonds=tuple(bonds), keys=tuple(sorted({key_of(m.name) for m in mentions})))


def _neighbours(one: tuple[int, int], other: tuple[int, int], found: Sequence[Mention]) -> Iterator[Bond]:
    """The names of a sentence with those that only the next one has."""
    first, second = _within(found, *one), _within(found, *other)
    known = {key_of(found[at].name) for at in first}
    for head in first[:_NEAR]:
        for tail in [at for at in second if key_of(found[at].name) not in known][:_NEAR]:
            yield Bond(head, tail, one[0], other[1], weight=_WEAK)


def _within(found: Sequence[Mention], start: int, end: int) -> list[int]:
    return [at for at, mention in enumerate(found) if start <= mention.start and mention.end <= end]


def _bonds(text: str, start: int, end: int, found: Sequence[Mention]) -> Iterator[Bond]:
    here = _within(found, start, end)[:_TOGETHER]
    for head, tail in combinations(here, 2):
        if key_of(found[head].name) != key_of(found[tail].name):
            label = _label(text[found[head].end : found[tail].start]) if tail == head + 1 else ""
            yield Bond(head, tail, start, end, label)


def _label(between: str) -> str:
    """What stands between two names, when it is short and says something."""
    words = between.split()
    if not words or len(words) > _LABEL_WORDS or _BREAKS.search(between) or _BLANK in between:
        return ""
    said = [bare for word in words if (bare := word.strip(",'\u2019—–-"))]
    while said and said[-1].casefold() in _ARTICLES:
        said.pop()
    return " ".join(said) if any(word.casefold() not in _SAYS_LITTLE for word in said) else ""
