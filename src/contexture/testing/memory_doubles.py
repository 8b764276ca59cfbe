"""Doubles around memories: a service that follows a script, and an index that remembers what it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from contexture.conversation import Feedback, Memory, Recall, Recalled
from contexture.ports import Index
from contexture.types import Collection, Filter, Hit, PreparedRecord, Query, Record, Scope


@dataclass(slots=True)
class ScriptedMemory:
    """Recalls these memories, in turn raises these failures first, and notes everything it is asked to do.

    memory = ScriptedMemory(recalls=[Recalled(id="m-1", text="likes tea", score=0.9)])
    """

    recalls: Sequence[Recalled] = ()
    failures: Sequence[Exception | None] = ()
    asked: list[Recall] = field(default_factory=list[Recall])
    remembered: list[Memory] = field(default_factory=list[Memory])
    feedback_given: list[Feedback] = field(default_factory=list[Feedback])
    forgotten: list[str] = field(default_factory=list[str])
    calls: int = 0

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Ids by number, unless a memory has its own."""
        del scope
        self._step()
        first = len(self.remembered)
        self.remembered.extend(memories)
        return [memory.id or f"m-{first + at}" for at, memory in enumerate(memories)]

    async def recall(self, scope: Scope, query: Recall) -> Sequence[Recalled]:
        """The memories of the script at or above the threshold, at most as many as asked for."""
        del scope
        self.asked.append(query)
        self._step()
        return [found for found in self.recalls if found.score >= query.threshold][: query.top_k]

    async def feedback(self, scope: Scope, given: Feedback) -> None:
        """Noted, and of no effect."""
        del scope
        self._step()
        self.feedback_given.append(given)

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Noted; every id counts."""
        del scope
        self._step()
        self.forgotten.extend(ids)
        return len(ids)

    def _step(self) -> None:
        at, self.calls = self.calls, self.calls + 1
        failure = self.failures[at] if at < len(self.failures) else None
        if failure is not None:
            raise failure


@dataclass(slots=True)
class RecordingIndex:
    """Another index, and every scope and filter with which it was read."""

    index: Index
    searches: list[tuple[Scope, Query]] = field(default_factory=list[tuple[Scope, Query]])
    reads: list[tuple[Scope, tuple[str, ...]]] = field(default_factory=list[tuple[Scope, tuple[str, ...]]])
    scrolls: list[tuple[Scope, Filter | None]] = field(default_factory=list[tuple[Scope, Filter | None]])
    writes: list[tuple[Scope, tuple[PreparedRecord, ...]]] = field(
        default_factory=list[tuple[Scope, tuple[PreparedRecord, ...]]]
    )

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Make the collection."""
        await self.index.create(scope, collection)

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant, by name."""
        return await self.index.collections(scope)

    async def upsert(
        self, scope: Scope, collection: str, records: Sequence[PreparedRecord], *, unchanged: Sequence[Record] = ()
    ) -> int:
        """Write all of them or none."""
        self.writes.append((scope, tuple(records)))
        return await self.index.upsert(scope, collection, records, unchanged=unchanged)

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove those the scope may see."""
        return await self.index.delete(scope, collection, ids)

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Those that exist and that the scope may see."""
        self.reads.append((scope, tuple(ids)))
        return await self.index.get(scope, collection, ids)

    async def scroll(
        self, scope: Scope, collection: str, *, where: Filter | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """Records in id order."""
        self.scrolls.append((scope, where))
        return await self.index.scroll(scope, collection, where=where, after=after, limit=limit)

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The best passages."""
        self.searches.append((scope, query))
        return await self.index.search(scope, query)

    async def version(self, scope: Scope, collection: str) -> int:
        """A number that changes with every write."""
        return await self.index.version(scope, collection)

    async def close(self) -> None:
        """Flush and release."""
        await self.index.close()
