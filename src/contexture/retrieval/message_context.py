"""The messages beside a message: those before it, with which it is embedded a second time, and those at a place."""

import math
from collections.abc import Collection as Some
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from contexture.pipeline.scoring import fuse_channels
from contexture.ports import Index
from contexture.types import And, AnyOf, Equals, Filter, Hit, Or, Query, Range, Record, Scope, Vector

MESSAGES_BEFORE = 2
_MAX_CHARACTERS = 400
_MAX_PASSAGES = 64
_MAX_RUN = 16  # messages read at once; each may have several passages

_Place = tuple[str, int]
_Said = tuple[str, frozenset[str]]
"""A text and who may read it; several may have one position, such as the statements of one message."""


class MessageContexts:
    """Finds what was said before a message of a session, in the same batch or in the index.

    Only messages that everyone who may read the later one may read too are used, so that no vector depends on what its
    reader may not see.
    """

    def __init__(self, index: Index, vectors: Mapping[str, int]) -> None:
        self._index = index
        # Equally similar to everything: the filter alone decides what a search finds.
        self._neutral: dict[str, Vector] = {
            name: np.full(size, 1 / math.sqrt(size), np.float32) for name, size in vectors.items()
        }

    async def find(
        self, scope: Scope, collection: str, records: Sequence[Record], *, without: Some[str] = ()
    ) -> dict[str, str]:
        """By record id, the two messages before it; records without any are left out.

        Messages with an id in `without` are left out too, as if they were not stored.
        """
        placed = [(place, record) for record in records if (place := _place_of(record)) is not None]
        if not placed:
            return {}
        known: dict[_Place, list[_Said]] = {}
        for place, record in placed:
            known.setdefault(place, []).append((record.text, frozenset(record.acl)))
        for session in sorted({session for session, _ in known}):
            positions = [position for name, position in known if name == session]
            before = {at - back for at in positions for back in range(1, MESSAGES_BEFORE + 1)}
            missing = [at for at in before if at >= 0 and (session, at) not in known]
            known = {**await self._load(scope, collection, session, missing, without), **known}
        contexts = {record.id: _join_before(place, record, known) for place, record in placed}
        return {id_: context for id_, context in contexts.items() if context}

    async def find_at(
        self, scope: Scope, collection: str, places: Iterable[_Place], where: Filter, *, field: str = "position"
    ) -> Sequence[Hit]:
        """Passages of the messages at these places of sessions that pass the filter; at most about 64.

        `field` holds the place of a message in its session.
        """
        sessions: dict[str, list[int]] = {}
        for session, position in places:
            sessions.setdefault(session, []).append(position)
        if not sessions:
            return ()
        beside = Or(
            tuple(And((Equals("session", name), AnyOf(field, tuple(at)))) for name, at in sorted(sessions.items()))
        )
        return await self.find_any(scope, collection, And((where, beside)), _MAX_PASSAGES)

    async def find_any(self, scope: Scope, collection: str, where: Filter, most: int) -> Sequence[Hit]:
        """About as many passages of messages that pass the filter, whatever they say."""
        query = Query(collection=collection, vectors=self._neutral, where=where, k=most, fuse=fuse_channels)
        return await self._index.search(scope, query)

    async def find_after(self, scope: Scope, collection: str, records: Sequence[Record]) -> Sequence[Record]:
        """The messages that were embedded after one of these, which are not among the result."""
        placed = {place for record in records if (place := _place_of(record)) is not None}
        found: set[str] = set()
        for session in sorted({session for session, _ in placed}):
            after = {at + step for name, at in placed if name == session for step in range(1, MESSAGES_BEFORE + 1)}
            hits = await self._search(scope, collection, session, [at for at in after if (session, at) not in placed])
            found |= {hit.record.id for hit in hits}
        return await self._index.get(scope, collection, sorted(found - {record.id for record in records}))

    async def _load(
        self, scope: Scope, collection: str, session: str, positions: Sequence[int], without: Some[str]
    ) -> dict[_Place, list[_Said]]:
        found: dict[_Place, list[Hit]] = {}
        for hit in await self._search(scope, collection, session, positions):
            place = _place_of(hit.record)
            if place is not None and hit.record.id not in without:
                found.setdefault(place, []).append(hit)
        for hits in found.values():
            hits.sort(key=lambda hit: (hit.record.id, hit.ordinal))
        return {place: [(hit.text, frozenset(hit.record.acl)) for hit in hits] for place, hits in found.items()}

    async def _search(self, scope: Scope, collection: str, session: str, positions: Sequence[int]) -> list[Hit]:
        """The passages of the messages at these positions of a session."""
        hits: list[Hit] = []
        for first, last in _split_runs(positions):
            where = And((Equals("session", session), Range(field="position", gte=first, lte=last)))
            hits += await self.find_any(scope, collection, where, _MAX_PASSAGES)
        return hits


def _split_runs(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive positions."""
    ordered = sorted(positions)
    first = 0
    for at, position in enumerate(ordered):
        following = ordered[at + 1] if at + 1 < len(ordered) else None
        if following != position + 1 or at - first + 1 >= _MAX_RUN:
            yield ordered[first], position
            first = at + 1


def _place_of(record: Record) -> _Place | None:
    return (record.session, record.position) if record.session and record.position is not None else None


def _join_before(place: _Place, record: Record, known: Mapping[_Place, Sequence[_Said]]) -> str:
    session, position = place
    readers = frozenset(record.acl)
    before = [known.get((session, position - back), ()) for back in range(MESSAGES_BEFORE, 0, -1)]
    texts = [" ".join(text for text, allowed in said if readers <= allowed) for said in before]
    return "\n".join(text[-_MAX_CHARACTERS:] for text in texts if text)
