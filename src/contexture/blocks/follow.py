"""Keeps the search index in step with the block store, across failures and the end of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from msgspec.structs import replace

from contexture.blocks.facts import Reader
from contexture.blocks.records import BLOCKS, record_of
from contexture.errors import RequestError
from contexture.ports import Index
from contexture.retrieval.made import Made
from contexture.retrieval.prepare import Preparer
from contexture.types import Record, Scope
from contexture.workspace import Stale, WritableBlocks

BATCH = 512
"""Blocks whose search records are written in one go."""

_Refused: TypeAlias = dict[tuple[str, str], RequestError]
"""What the index said of blocks that it refuses, by tenant and id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Keeper(Scope):
    """Whoever reads any block of a batch: search records are written for all readers, not for the one who writes."""

    readers: tuple[str, ...]

    @property
    def principals(self) -> tuple[str, ...]:
        """Everyone who may read, or could read, one of the blocks."""
        return self.readers


class Follower:
    """Brings the index up to the store; one at a time, so that an older record never follows a newer one.

    The store names the blocks that may differ until it is told that they are written. Writing one twice changes
    nothing, so a process may end between any two steps. Other processes may follow the same store: whoever has written
    is told by the store what was altered meanwhile, and writes that again, so the last to write sees what is true.
    """

    def __init__(self, *, store: WritableBlocks, index: Index, preparer: Preparer) -> None:
        self._store = store
        self._index = index
        self._preparer = preparer
        self._reader = Reader(preparer.redactor, preparer.counters)
        self._turn = asyncio.Lock()
        self._running: asyncio.Task[tuple[int, _Refused]] | None = None
        self._made = Made(index, BLOCKS)

    async def catch_up(self, tenant: str = "") -> int:
        """Write what differs, of every tenant; returns how many blocks that were.

        A block that the index refuses keeps no other out: it is not searched, and the refusal is raised at the end if
        it is one of `tenant`'s. An index that fails leaves everything to the next call. A caller that goes away does
        not end what it began, and nobody else begins before that has ended.
        """
        await self._turn.acquire()
        self._running = asyncio.create_task(self._follow(), name="contexture-follow")
        self._running.add_done_callback(self._ended)
        done, refused = await asyncio.shield(self._running)
        for (of, _), refusal in refused.items():
            if of == tenant:
                raise refusal
        return done

    async def finish(self) -> None:
        """Wait until what was begun has ended, so that nothing it needs is closed before."""
        async with self._turn:
            return

    def _ended(self, turn: asyncio.Task[tuple[int, _Refused]]) -> None:
        self._turn.release()
        if not turn.cancelled():
            turn.exception()  # without a caller nobody hears of it, and what failed waits for the next one

    async def _follow(self) -> tuple[int, _Refused]:
        """Write all that waits; returns how many blocks that were, and what the index refuses."""
        done = 0
        refused: _Refused = {}
        while found := await self._store.stale(limit=BATCH):
            done += len(found)
            while found:
                for each in found:
                    refused.pop((each.tenant, each.id), None)  # it may have been refused for what it was before
                for of, some in groupby(sorted(found, key=_tenant), _tenant):
                    refused |= await self._tried(of, list(some))
                found = await self._store.settle([await self._read(each) for each in found])
        return done, refused

    async def _tried(self, tenant: str, stale: Sequence[Stale]) -> _Refused:
        """Write together, or one by one where one is refused; returns what was said of it."""
        try:
            await self._write(tenant, stale)
        except RequestError as refusal:
            if len(stale) == 1:
                return {(tenant, stale[0].id): refusal}
            told = [await self._tried(tenant, [each]) for each in stale]
            return {key: each for some in told for key, each in some.items()}
        return {}

    async def _write(self, tenant: str, stale: Sequence[Stale]) -> None:
        readers = tuple(sorted({name for each in stale for name in each.readers}))
        keeper = _Keeper(tenant=tenant, user="keeper", readers=readers)
        await self._made.by(keeper)
        records = {each.id: record_of(each) for each in stale}
        kept = [record for record in records.values() if record is not None]
        known = {record.id: record for record in await self._index.get(keeper, BLOCKS.name, list(records))}
        gone = [name for name in known if records[name] is None]
        fresh = [record for record in kept if not _same(known.get(record.id), record)]
        if gone:
            await self._index.delete(keeper, BLOCKS.name, gone)
        if fresh:
            await self._index.upsert(keeper, BLOCKS.name, await self._preparer.prepare(fresh))

    async def _read(self, stale: Stale) -> Stale:
        """The block with its facts; what else the event loop has to do comes between two blocks."""
        await asyncio.sleep(0)
        return replace(stale, facts=self._reader.facts(stale))


def _tenant(stale: Stale) -> str:
    return stale.tenant


def _same(known: Record | None, record: Record) -> bool:
    """Whether the index holds this already; the language is found out when it is written."""
    if known is None:
        return False
    return (known.text, known.title, known.kind, known.time, set(known.acl), dict(known.payload)) == (
        record.text,
        record.title,
        record.kind,
        record.time,
        set(record.acl),
        dict(record.payload),
    )
