"""Vectors and terms that are computed after a record was written.

`VectorBackfill` embeds passages that were written without vectors, in the background and fair by tenant. `reindex`
prepares stored records again, a batch at a time, so that vectors and terms of an older version are replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import structlog
from typing_extensions import TypedDict

from contexture.errors import ContextError, InvalidRequest, Outdated
from contexture.ports import Index, VectorBacklog
from contexture.results import JsonResult
from contexture.retrieval.compute_thread import RequestsInProgress, give_way
from contexture.retrieval.message_context import MessageContexts
from contexture.retrieval.prepare import CutFunction, Preparer
from contexture.types import ReadersScope, Record, Scope, UnembeddedBatch

_BATCH = 32  # passages embedded at a time, about a second: so soon is it another tenant's turn
_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 30.0  # after a failure

EmbedFunction: TypeAlias = Callable[[ReadersScope, Sequence[Record]], Awaitable[None]]
"""Embeds records and writes them; a written record leaves the backlog."""


class VectorBackfill:
    """Works off the backlog of an index, a batch of one tenant after a batch of the next.

    A step may end anywhere: what was not written is computed again. `cuts` say, by collection, what its passages are
    searched by where that is not title and text; `embedders` embed records of collections with vectors of their own.
    """

    def __init__(
        self,
        *,
        backlog: VectorBacklog,
        index: Index,
        preparer: Preparer,
        cuts: Mapping[str, CutFunction],
        embedders: Mapping[str, EmbedFunction],
        requests: RequestsInProgress,
    ) -> None:
        self._backlog = backlog
        self._contexts = MessageContexts(index, preparer.vectors)
        self._preparer = preparer
        self._cuts = dict(cuts)
        self._embedders = dict(embedders)
        self._requests = requests
        self._last_tenant = ""
        self._stepping = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def defer(self) -> None:
        """Let large batches be written without vectors from now on; `finish` or `start` embeds them."""
        self._preparer.defers = True

    def start(self) -> None:
        """Embed in the background from now on, and let large batches be written without vectors."""
        self.defer()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="contexture-vectors")

    async def stop(self) -> None:
        """End the background task; what is left is embedded after the next start."""
        task, self._task = self._task, None
        self._preparer.defers = False
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def finish(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Embed everything that waits; returns how many passages. `progress` is called with those done and in all."""
        done = 0
        while batch := await self.step():
            done += len(batch.passages)
            if progress is not None:
                progress(done, done + batch.waiting - len(batch.passages))
        return done

    async def step(self) -> UnembeddedBatch | None:
        """Embed the next batch and return it; None if nothing waits."""
        async with self._stepping:
            batch = await self._backlog.next_unembedded(after=self._last_tenant, limit=_BATCH)
            if batch is None:
                return None
            self._last_tenant = batch.tenant
            readers = tuple(sorted({name for each in batch.passages for name in each.record.acl}))
            scope = ReadersScope(tenant=batch.tenant, user="vectors", readers=readers)
            if batch.collection in self._embedders:
                await self._embedders[batch.collection](scope, [each.record for each in batch.passages])
            else:
                await self._embed(scope, batch)
            return batch

    async def _embed(self, scope: ReadersScope, batch: UnembeddedBatch) -> None:
        cut = self._cuts.get(batch.collection)
        records = list({each.record.id: each.record for each in batch.passages}.values())
        contexts = {} if cut else await self._contexts.find(scope, batch.collection, records)
        rows = await self._preparer.embed(batch.passages, contexts, cut=cut)
        vectors = {each.number: row for each, row in zip(batch.passages, rows, strict=True)}
        written = await self._backlog.add_vectors(batch, vectors)
        gone = [each for each in batch.passages if each.number not in written]
        if gone:  # replaced or erased meanwhile: the cache must not keep what was computed from them
            await self._preparer.forget_passages(gone, contexts, cut=cut)

    async def _step_behind_others(self) -> UnembeddedBatch | None:
        with self._requests.enter(self._last_tenant, is_long=True) as work:
            done = await self.step()
            if done is not None:
                work.tenant = done.tenant
                await give_way()
        return done

    async def _run(self) -> None:
        log = structlog.get_logger("contexture")
        while True:
            try:
                done = await self._step_behind_others()
            except ContextError as failure:
                log.warning("vectors_failed", reason=str(failure))
                await asyncio.sleep(_PATIENCE_SECONDS)
                continue
            await asyncio.sleep(0 if done else _POLL_SECONDS)


MAX_BATCH = 64

ReindexFunction: TypeAlias = Callable[[Scope, Sequence[Record]], Awaitable[None]]
"""Computes what a collection holds of these records again and writes them, where a `Preparer` cannot."""


class ReindexStepJson(TypedDict):
    """How many records one step prepared again, and where the next one continues; `done` once nothing is left."""

    records: int
    collection: str
    after: str
    done: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ReindexStep(JsonResult):
    """What one step prepared again, and where the next one continues; `done` once nothing is left."""

    records: int
    collection: str
    after: str
    done: bool

    def json_form(self) -> ReindexStepJson:
        """The same as an object."""
        return {"records": self.records, "collection": self.collection, "after": self.after, "done": self.done}


class Reindexer:
    """Prepares the records that a scope may read again, collection by collection, in the order of their ids.

    It runs beside searches and writes: a record that is written meanwhile is left as it was written. `cuts` say, by
    collection, how its records are cut into passages where that is not by sentences and length; `others` do it for
    collections that hold more than the preparer computes.
    """

    def __init__(
        self,
        index: Index,
        preparer: Preparer,
        cuts: Mapping[str, CutFunction] | None = None,
        others: Mapping[str, ReindexFunction] | None = None,
    ) -> None:
        self._index = index
        self._cuts = dict(cuts or {})
        self._preparer = preparer
        self._contexts = MessageContexts(index, preparer.vectors)
        self._others = dict(others or {})

    async def step(self, scope: Scope, *, collection: str = "", after: str = "", limit: int = MAX_BATCH) -> ReindexStep:
        """Prepare the next `limit` records after an id of a collection, or of the next collection if none is left.

        Raises `InvalidRequest` for a limit that is not between 1 and 64.
        """
        if not 1 <= limit <= MAX_BATCH:
            raise InvalidRequest(f"`limit` must lie between 1 and {MAX_BATCH}, not {limit}")
        names = sorted(each.name for each in await self._index.collections(scope))
        for name in (name for name in names if name >= collection):
            start = after if name == collection else ""
            records = await self._index.scroll(scope, name, after=start, limit=limit)
            if records:
                if name in self._others:
                    await self._others[name](scope, records)
                else:
                    await self._prepare_again(scope, name, records)
                return ReindexStep(records=len(records), collection=name, after=records[-1].id, done=False)
        return ReindexStep(records=0, collection="", after="", done=True)

    async def _prepare_again(self, scope: Scope, collection: str, records: Sequence[Record]) -> None:
        cut = self._cuts.get(collection)
        contexts = {} if cut else await self._contexts.find(scope, collection, records)
        prepared = await self._preparer.prepare(records, contexts, cut=cut, embedded=True)
        try:
            await self._index.upsert(scope, collection, prepared, unchanged=records)
        except Outdated:
            for record, item in zip(records, prepared, strict=True):
                with suppress(Outdated):  # written meanwhile, so it is of the current version
                    await self._index.upsert(scope, collection, [item], unchanged=[record])
