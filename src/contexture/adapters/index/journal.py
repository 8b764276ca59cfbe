"""Journal of recent writes by set of readers, from which caches learn which records changed."""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from contexture.types import Scope

MAX_WRITES_PER_READERS = 4_096
"""Writes kept per set of readers."""

MAX_WRITES = 64 * MAX_WRITES_PER_READERS
"""Writes kept over all sets of readers."""

TouchedRecord = tuple[str, tuple[str, ...]]
"""A record id, and its readers after or before the write."""

_Key = tuple[str, str, tuple[str, ...]]
"""A tenant, a collection, and a set of readers."""


@dataclass(eq=False, slots=True)
class _Track:
    """The last writes to records of one set of readers.

    `last_forgotten` is the sequence number of the newest write that is no longer kept.
    """

    writes: deque[tuple[int, str]] = field(default_factory=deque[tuple[int, str]])
    last_forgotten: int = 0

    def trim(self, keep: int) -> int:
        """Drop all but the newest `keep` writes; returns how many were dropped."""
        gone = max(0, len(self.writes) - keep)
        for _ in range(gone):
            self.last_forgotten = self.writes.popleft()[0]
        return gone

    def since(self, seq: int) -> list[str] | None:
        if self.last_forgotten > seq:
            return None
        found: list[str] = []
        for at, record_id in reversed(self.writes):
            if at <= seq:
                break
            found.append(record_id)
        return found


class WriteJournal:
    """In-memory journal of recent writes, with a separate limit per set of readers.

    So a busy writer does not push out the writes of others. Over `most` writes in total, the sets of readers with the
    oldest last write are dropped first.
    """

    def __init__(self, size: int = MAX_WRITES_PER_READERS, most: int = MAX_WRITES) -> None:
        self._size = size
        self._most = most
        self._count = 0
        self._tracks: dict[_Key, _Track] = {}
        self._recent: OrderedDict[_Track, None] = OrderedDict()  # those with writes, longest unwritten first
        self._tracks_by_reader: dict[tuple[str, str, str], set[_Track]] = {}
        self._guard = threading.Lock()

    def record_write(self, tenant: str, collection: str, seq: int, touched: Iterable[TouchedRecord]) -> None:
        """Record that the write `seq` touched these records."""
        with self._guard:
            for record_id, readers in touched:
                track = self._touch_track((tenant, collection, readers))
                track.writes.append((seq, record_id))
                self._count += 1 - track.trim(self._size)
            while self._count > self._most:
                oldest, _ = self._recent.popitem(last=False)
                self._count -= oldest.trim(0)

    def touched_since(self, scope: Scope, collection: str, seq: int) -> Sequence[str] | None:
        """Ids of records touched after `seq` that the scope may read or could read before; None when unknown."""
        found: dict[str, None] = {}
        with self._guard:
            for track in self._readable_tracks(scope, collection):
                ids = track.since(seq)
                if ids is None:
                    return None
                found |= dict.fromkeys(ids)
        return sorted(found)

    def _touch_track(self, key: _Key) -> _Track:
        """The track of a set of readers, created if missing and marked as most recently written."""
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = _Track()
            tenant, collection, readers = key
            for reader in readers:  # by the track, not by its key: hashing that reads all readers
                self._tracks_by_reader.setdefault((tenant, collection, reader), set()).add(track)
        self._recent[track] = None
        self._recent.move_to_end(track)
        return track

    def _readable_tracks(self, scope: Scope, collection: str) -> set[_Track]:
        """The tracks that a scope may read; cost does not depend on the number of other tracks."""
        known = (self._tracks_by_reader.get((scope.tenant, collection, reader)) for reader in scope.principals)
        return set[_Track]().union(*filter(None, known))
