"""`VectorBackfill`: embeds passages that were written without vectors, in the background and fair by tenant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import structlog

from contexture.errors import ContextError
from contexture.ports import Index, VectorBacklog
from contexture.retrieval.message_context import MessageContexts
from contexture.retrieval.prepare import CutFunction, Preparer
from contexture.types import ReadersScope, Record, UnembeddedBatch

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
    ) -> None:
        self._backlog = backlog
        self._contexts = MessageContexts(index, preparer.vectors)
        self._preparer = preparer
        self._cuts = dict(cuts)
        self._embedders = dict(embedders)
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

    async def _run(self) -> None:
        log = structlog.get_logger("contexture")
        while True:
            try:
                done = await self.step()
            except ContextError as failure:
                log.warning("vectors_failed", reason=str(failure))
                await asyncio.sleep(_PATIENCE_SECONDS)
                continue
            await asyncio.sleep(0 if done else _POLL_SECONDS)
