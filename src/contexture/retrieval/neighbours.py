"""Records in order lend each other relevance: the answer to a question often stands one line further."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from contexture.types import Hit

Place = tuple[str, int, int]


def lifts(hits: Sequence[Hit], scores: Sequence[float], shares: Sequence[float]) -> list[float]:
    """What each hit gains from its best neighbour: its share of that neighbour's score.

    Neighbours are passages next to each other in one record, and records next to each other in
    one session. Records without a session and records of a single passage gain nothing.
    """
    keys = [_place(hit) for hit in hits]
    crowded = {name for name, count in Counter(name for name, *_ in keys).items() if count > 1}
    places: dict[Place, float] = defaultdict(float)
    for key, score in zip(keys, scores, strict=True):
        places[key] = max(places[key], score)
    return [
        share * max(places.get(near, 0.0) for near in _near(hit, key)) if key[0] in crowded else 0.0
        for hit, key, share in zip(hits, keys, shares, strict=True)
    ]


def _place(hit: Hit) -> Place:
    """Where a hit stands: in its session, or in its record."""
    record = hit.record
    if record.session and record.position is not None:
        return (f"session {record.session}", record.position, hit.ordinal)
    return (f"record {record.id}", 0, hit.ordinal)


def _near(hit: Hit, place: Place) -> tuple[Place, ...]:
    name, position, ordinal = place
    inside = ((name, position, ordinal - 1), (name, position, ordinal + 1))
    if hit.record.session and hit.record.position is not None:
        return (*inside, (name, position - 1, 0), (name, position + 1, 0))
    return inside
