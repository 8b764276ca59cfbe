"""The memory service in process: remembers into an index, recalls by hybrid search."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from msgspec.structs import replace

from contexture.conversation import Feedback, Memory, Recall, Recalled
from contexture.errors import InvalidRequest, NotFound, Outdated, SourceError, SourceUnavailable
from contexture.ledger import Trace
from contexture.memory.facts import with_stored_facts
from contexture.memory.plan import planned, wanted
from contexture.memory.records import ALIAS, MEMORIES, alive, aware, check, keys_of
from contexture.memory.relevance import Rated, rated
from contexture.memory.sweep import Sweep
from contexture.ports import Clock, Index, TokenCounter
from contexture.retrieval.facts import with_facts
from contexture.retrieval.made import Made
from contexture.retrieval.prepare import Preparer, mended
from contexture.retrieval.search import HybridSearch
from contexture.types import And, AnyOf, Equals, Filter, Not, Prepared, Range, Record, Scope

MOST = 100
"""Memories that one recall may ask for."""

_NAME = MEMORIES.name
_PASSAGES = 4  # looked at for each memory wanted: a long one has several that match
_TOP_K = 8  # fewer are not worth a smaller search
_SWEEP = 500
_TRIES = 5


class LocalMemory:
    """Implements the `MemoryService` port over one index; writes take turns, recalls do not wait.

    Everything that a build needs to know of a memory is computed when it is written. Writes remove, a few at
    a time, the memories of their scope that have expired.
    """

    def __init__(
        self,
        *,
        index: Index,
        preparer: Preparer,
        search: HybridSearch,
        clock: Clock,
        counters: Sequence[TokenCounter] = (),
    ) -> None:
        self._index = index
        self._preparer = preparer
        self._search = search
        self._clock = clock
        self._counters = tuple(counters)
        self._sweep = Sweep(index)
        self._writing = asyncio.Lock()
        self._made = Made(index, MEMORIES)

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Store all of them or none; ids in order. A known idempotency key gives the id it has."""
        check(memories)
        async with self._writing:
            await self._made.by(scope)
            now = self._clock.now()
            stored = await self._get(scope, wanted(memories, scope), now)
            plan = planned(memories, scope, stored, now)
            if plan.fresh:
                await self._index.upsert(scope, _NAME, await self._prepared(plan.fresh))
                with suppress(SourceError):  # what was to be remembered is stored, and the next write tries again
                    await self._delete(scope, await self._sweep.expired(scope, now))
        return plan.ids

    async def recall(self, scope: Scope, query: Recall) -> Sequence[Recalled]:
        """The best `query.top_k` memories at or above the threshold, best first, expired ones left out.

        Without its embedder it answers by words alone; when that finds nothing, it says that it failed.
        """
        _check_recall(query)
        if not query.top_k or not query.query.strip():
            return ()
        if not await self._made.has(scope):
            return ()
        trace = Trace()
        pool = _PASSAGES * max(query.top_k, _TOP_K)
        found = await self._search.search(scope, _NAME, query.query, where=_where(query), pool=pool, trace=trace)
        fitting = [each for each in found if alive(each.hit.record, query.now)]
        best = [memory for memory in rated(fitting, query) if memory.score >= query.threshold][: query.top_k]
        lost = trace.finish(()).degradations
        if lost and not best:
            raise SourceUnavailable(f"memories could not be searched by meaning: {lost[0].reason}")
        return await self._whole(scope, best)

    async def feedback(self, scope: Scope, given: Feedback) -> None:
        """Let one memory rank a little higher or lower from now on; an unknown one is `NotFound`.

        A user's opinion of a memory is the mean of what they said; saying the same at the same time counts once.
        """
        if not -1 <= given.score <= 1:
            raise InvalidRequest(f"`score` must lie between -1 and 1, not {given.score!r}")
        async with self._writing:
            await self._made.by(scope)
            for _ in range(_TRIES):
                with suppress(Outdated):  # another process has replaced or forgotten it meanwhile
                    await self._hear(scope, given)
                    return
            await self._hear(scope, given)

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Remove those the scope may read; returns how many there were."""
        async with self._writing:
            if not await self._made.has(scope):
                return 0
            found = [record for record in await self._index.get(scope, _NAME, ids) if record.kind != ALIAS]
            await self._delete(scope, found)
        now = self._clock.now()
        return len({record.id for record in found if alive(record, now)})

    async def purge(self, scope: Scope) -> int:
        """Remove the expired memories that the scope may read; returns how many there were."""
        gone = 0
        async with self._writing:
            if not await self._made.has(scope):
                return 0
            expired = Range(field="expires", lte=aware(self._clock.now()))
            while found := await self._index.scroll(scope, _NAME, where=expired, limit=_SWEEP):
                await self._delete(scope, found)
                gone += sum(record.kind != ALIAS for record in found)
        return gone

    async def _hear(self, scope: Scope, given: Feedback) -> None:
        record = (await self._get(scope, [given.memory_id], self._clock.now())).get(given.memory_id)
        if record is None or record.kind == ALIAS:
            raise NotFound(f"no memory {given.memory_id!r} can be read here")
        heard = _heard(record, f"user:{scope.user}", given)
        if heard is not record:
            await self._index.upsert(scope, _NAME, await self._prepared([heard]), unchanged=[record])

    async def _get(self, scope: Scope, ids: Sequence[str], now: datetime) -> dict[str, Record]:
        found = await self._index.get(scope, _NAME, ids) if ids else ()
        return {record.id: record for record in found if alive(record, now)}

    async def _prepared(self, records: Sequence[Record]) -> list[Prepared]:
        return [with_facts(item, self._counters) for item in await self._preparer.prepare(records)]

    async def _delete(self, scope: Scope, records: Sequence[Record]) -> None:
        """Remove the records, and the aliases of their keys that do not lead to other memories by now."""
        ids = {record.id for record in records}
        keyed = [record for record in records if record.payload.get("key")]
        aliases = {alias for record in keyed for alias in keys_of(record, scope)}
        found = await self._index.get(scope, _NAME, sorted(aliases - ids)) if aliases - ids else ()
        ids |= {alias.id for alias in found if alias.payload.get("of") in ids}
        if ids:
            await self._index.delete(scope, _NAME, sorted(ids))

    async def _whole(self, scope: Scope, best: Sequence[Rated]) -> tuple[Recalled, ...]:
        stored = await self._index.get(scope, _NAME, [memory.record.id for memory in best]) if best else ()
        texts = {record.id: record for record in stored}
        return tuple(with_stored_facts(memory, texts[memory.record.id]) for memory in best if memory.record.id in texts)


def _check_recall(query: Recall) -> None:
    if not 0 <= query.top_k <= MOST:
        raise InvalidRequest(f"`top_k` must lie between 0 and {MOST}, not {query.top_k}")
    if not (0 <= query.threshold <= 1 and math.isfinite(query.threshold)):
        raise InvalidRequest(f"`threshold` must lie between 0 and 1, not {query.threshold!r}")


def _where(query: Recall) -> Filter:
    """What the index must hold to: nothing else is ever fetched.

    Expiry is cut at the last full minute, so that searches repeated within it are answered from the cache;
    the rest of the minute is left to the caller.
    """
    minute = aware(query.now).replace(second=0, microsecond=0)
    chosen: dict[str, Sequence[str]] = {
        "session": query.sessions,
        "persona": query.personas,
        "tags": query.tags,
        "kind": [str(kind) for kind in query.kinds],
    }
    return And(
        (
            Equals("namespace", mended(query.namespace)),
            Equals("universe", mended(query.universe)),
            Not(Range(field="expires", lte=minute)),
            *(AnyOf(name, tuple(map(mended, values))) for name, values in chosen.items() if values),
        )
    )


def _heard(record: Record, principal: str, given: Feedback) -> Record:
    """The record with one more opinion; the same record when it was heard before."""
    opinions = dict(record.payload.get("feedback", {}))
    mean, count, last = opinions.get(principal, (0.0, 0, ""))
    time = aware(given.time).isoformat()
    if last == time:
        return record
    opinions[principal] = [(mean * count + given.score) / (count + 1), count + 1, time]
    return replace(record, payload={**record.payload, "feedback": opinions})
