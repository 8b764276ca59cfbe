"""Which records were written lately, by who may read them: caches learn what a write may have changed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from contexture.types import Scope

SIZE = 4_096
"""Writes remembered of each set of readers."""

Touched = tuple[str, tuple[str, ...]]
"""A record id, and who may read it, or could before."""


@dataclass(slots=True)
class _Track:
    """The last writes that one set of readers can tell; `lost` is the newest one that is no longer remembered."""

    writes: deque[tuple[int, str]] = field(default_factory=deque[tuple[int, str]])
    lost: int = 0

    def note(self, seq: int, record_id: str, size: int) -> None:
        self.writes.append((seq, record_id))
        while len(self.writes) > size:
            self.lost = self.writes.popleft()[0]

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
    """Remembers writes in memory; each set of readers has its own, so that no one's memory is pushed out by others."""

    def __init__(self, size: int = SIZE) -> None:
        self._size = size
        self._tracks: dict[tuple[str, str], dict[tuple[str, ...], _Track]] = {}
        self._guard = threading.Lock()

    def note(self, tenant: str, collection: str, seq: int, touched: Iterable[Touched]) -> None:
        """A write touched these records."""
        with self._guard:
            tracks = self._tracks.setdefault((tenant, collection), {})
            for record_id, readers in touched:
                tracks.setdefault(readers, _Track()).note(seq, record_id, self._size)

    def since(self, scope: Scope, collection: str, seq: int) -> Sequence[str] | None:
        """Ids of records touched behind `seq` that the scope may read, or could before; None where nobody knows."""
        mine = set(scope.principals)
        found: dict[str, None] = {}
        with self._guard:
            for readers, track in self._tracks.get((scope.tenant, collection), {}).items():
                if mine.isdisjoint(readers):
                    continue
                ids = track.since(seq)
                if ids is None:
                    return None
                found |= dict.fromkeys(ids)
        return sorted(found)
