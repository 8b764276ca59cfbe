"""Which records were written lately, by who may read them: caches learn what a write may have changed."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from contexture.types import Scope

SIZE = 4_096
"""Writes remembered of each set of readers."""

MOST = 64 * SIZE
"""Writes remembered of all of them together."""

Touched = tuple[str, tuple[str, ...]]
"""A record id, and who may read it, or could before."""

_Key = tuple[str, str, tuple[str, ...]]
"""A tenant, a collection, and a set of readers."""


@dataclass(slots=True)
class _Track:
    """The last writes that one set of readers can tell; `lost` is the newest one that is no longer remembered."""

    writes: deque[tuple[int, str]] = field(default_factory=deque[tuple[int, str]])
    lost: int = 0

    def forget(self, keep: int) -> int:
        """Remember no more than so many; returns how many were forgotten."""
        gone = max(0, len(self.writes) - keep)
        for _ in range(gone):
            self.lost = self.writes.popleft()[0]
        return gone

    def since(self, seq: int) -> list[str] | None:
        if self.lost > seq:
            return None
        found: list[str] = []
        for at, record_id in reversed(self.writes):
            if at <= seq:
                break
            found.append(record_id)
        return found


class WriteJournal:
    """Remembers writes in memory; each set of readers has its own, so that no one writer pushes out what others wrote.

    Where very many write, those who wrote longest ago are forgotten first.
    """

    def __init__(self, size: int = SIZE, most: int = MOST) -> None:
        self._size = size
        self._most = most
        self._count = 0
        self._recent: OrderedDict[_Key, _Track] = OrderedDict()
        self._of_reader: dict[tuple[str, str, str], dict[_Key, _Track]] = {}
        self._guard = threading.Lock()

    def note(self, tenant: str, collection: str, seq: int, touched: Iterable[Touched]) -> None:
        """A write touched these records."""
        with self._guard:
            for record_id, readers in touched:
                track = self._track((tenant, collection, readers))
                track.writes.append((seq, record_id))
                self._count += 1 - track.forget(self._size)
            while self._count > self._most:
                _, oldest = self._recent.popitem(last=False)
                self._count -= oldest.forget(0)

    def since(self, scope: Scope, collection: str, seq: int) -> Sequence[str] | None:
        """Ids of records touched behind `seq` that the scope may read, or could before; None where nobody knows."""
        found: dict[str, None] = {}
        with self._guard:
            for track in self._readable(scope, collection).values():
                ids = track.since(seq)
                if ids is None:
                    return None
                found |= dict.fromkeys(ids)
        return sorted(found)

    def _track(self, key: _Key) -> _Track:
        """The track of a set of readers, which are the last to have written."""
        track = self._recent.get(key) or self._quiet(key)
        self._recent[key] = track
        self._recent.move_to_end(key)
        return track

    def _quiet(self, key: _Key) -> _Track:
        """The track of readers of whom nothing is remembered."""
        tenant, collection, readers = key
        mine = [self._of_reader.setdefault((tenant, collection, reader), {}) for reader in readers]
        track = next((each[key] for each in mine if key in each), None) or _Track()
        for each in mine:
            each[key] = track
        return track

    def _readable(self, scope: Scope, collection: str) -> dict[_Key, _Track]:
        """The tracks that a scope may know of; however many others there are."""
        found: dict[_Key, _Track] = {}
        for reader in scope.principals:
            found |= self._of_reader.get((scope.tenant, collection, reader), {})
        return found
