"""Finds memories that have lived their time, a few at a time, so that they leave the disk without anybody's order."""

from __future__ import annotations

from datetime import datetime, timedelta

from contexture.memory.records import MEMORIES, alive
from contexture.ports import Index
from contexture.types import Record, Scope

SWEPT = 512
"""Records looked at in one go; it takes some milliseconds."""

EVERY = timedelta(minutes=1)
"""How long a scope is left alone after it was looked at."""

_SCOPES = 1_024


class Sweep:
    """Goes round and round through the memories of each scope, in the order of their ids."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._places: dict[Scope, tuple[datetime, str]] = {}

    async def expired(self, scope: Scope, now: datetime) -> list[Record]:
        """The expired ones among the next few that the scope may read; none when it was looked at just now."""
        last, after = self._places.get(scope, (None, ""))
        if last is not None and timedelta() <= now - last < EVERY:
            return []
        seen = await self._index.scroll(scope, MEMORIES.name, after=after, limit=SWEPT)
        self._places.pop(scope, None)
        self._places[scope] = (now, seen[-1].id if len(seen) == SWEPT else "")
        if len(self._places) > _SCOPES:  # the scope looked at longest ago starts again
            self._places.pop(next(iter(self._places)))
        return [record for record in seen if not alive(record, now)]
