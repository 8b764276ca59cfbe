"""Keeps the search index in step with the block store, across failures and the end of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from msgspec.structs import replace

from contexture.blocks.facts import Reader
from contexture.blocks.records import BLOCKS, record_of
from contexture.errors import RequestError
from contexture.ports import Index
from contexture.retrieval.prepare import Preparer
from contexture.types import Record, Scope
from contexture.workspace import Stale, WritableBlocks

BATCH = 512
"""Blocks whose search records are written in one go."""


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
    nothing, so a process may end between any two steps.
    """

    def __init__(self, *, store: WritableBlocks, index: Index, preparer: Preparer) -> None:
        self._store = store
        self._index = index
        self._preparer = preparer
        self._reader = Reader(preparer.redactor, preparer.counters)
        self._turn = asyncio.Lock()
        self._made = False

    async def catch_up(self, tenant: str = "") -> int:
        """Write what differs, of every tenant; returns how many blocks that were.

        A block that the index refuses keeps no other out: it is not searched, and the refusal is raised at the end if
        it is one of `tenant`'s. An index that fails leaves everything to the next call.
        """
        refused: dict[str, RequestError] = {}
        async with self._turn:
            done = 0
            while found := await self._store.stale(limit=BATCH):
                await self._ready()
                for of, some in groupby(sorted(found, key=_tenant), _tenant):
                    refused |= await self._tried(of, list(some))
                await self._store.settle([await self._read(each) for each in found])
                done += len(found)
        if tenant in refused:
            raise refused[tenant]
        return done

    async def _tried(self, tenant: str, stale: Sequence[Stale]) -> dict[str, RequestError]:
        """Write together, or one by one where one is refused; returns what was said of it."""
        try:
            await self._write(tenant, stale)
        except RequestError as refusal:
            if len(stale) == 1:
                return {tenant: refusal}
            told = [await self._tried(tenant, [each]) for each in stale]
            return {of: each for some in told for of, each in some.items()}
        return {}

    async def _write(self, tenant: str, stale: Sequence[Stale]) -> None:
        readers = tuple(sorted({name for each in stale for name in each.readers}))
        keeper = _Keeper(tenant=tenant, user="keeper", readers=readers)
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

    async def _ready(self) -> None:
        if not self._made:
            await self._index.create(BLOCKS)
            self._made = True


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
