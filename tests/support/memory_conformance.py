"""The contract of a memory service as a test class: subclass it, give a `memory` fixture, inherit the checks.

The service's clock stands at `NOON`. Every check writes as a tenant of its own.

class TestMyMemory(MemoryConformance):
    @pytest.fixture
    async def memory(self):
        return MyMemory(...)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import uuid4

import pytest

from contexture.conversation import Feedback, Memory, MemoryKind, Recall
from contexture.errors import InvalidRequest, NotFound
from contexture.ports import Index, MemoryService
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC, Collection, Filter, Hit, PreparedRecord, Query, Record, Scope

TEA = "Anna drinks jasmine tea in the morning"


def asking(query: str, *, threshold: float = 0.3, top_k: int = 8) -> Recall:
    """A question at noon."""
    return Recall(query=query, now=NOON, threshold=threshold, top_k=top_k)


class MemoryConformance:
    """What every memory service promises."""

    @pytest.fixture
    def scope(self) -> Scope:
        """A user in a tenant that no other check uses."""
        return Scope(tenant=f"tenant-{uuid4().hex[:12]}", user="anna", groups=("crew",))

    async def test_what_is_remembered_is_recalled_whole(self, memory: MemoryService, scope: Scope) -> None:
        """A memory comes back with its id, text, time, metadata and a piece of its own text."""
        (written,) = await memory.remember(
            scope, [Memory(text=TEA, time=NOON, tags=("taste",), session_id="s-1", metadata={"source": "chat"})]
        )
        (found,) = await memory.recall(scope, asking("which tea does Anna drink?"))

        assert (found.id, found.text, found.time, found.label) == (written, TEA, NOON, "chat")
        assert found.metadata["source"] == "chat"
        assert found.metadata["session_id"] == "s-1"
        assert 0.3 <= found.score <= 1
        assert found.pieces
        assert found.text[found.pieces[0].start : found.pieces[0].end]

    async def test_what_is_unrelated_is_not_recalled(self, memory: MemoryService, scope: Scope) -> None:
        """Nothing found is an answer."""
        await memory.remember(scope, [Memory(text=TEA)])

        assert not await memory.recall(scope, asking("quarterly revenue forecast spreadsheet", threshold=0.5))

    async def test_ids_come_in_order_and_top_k_binds(self, memory: MemoryService, scope: Scope) -> None:
        """A batch has an id for each memory, and recall gives no more than asked for, best first."""
        written = await memory.remember(scope, [Memory(text=f"{TEA}, day {number}") for number in range(5)])
        found = await memory.recall(scope, asking("jasmine tea", top_k=3))

        assert len(set(written)) == 5
        assert len(found) == 3
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert {each.id for each in found} <= set(written)

    async def test_a_batch_is_stored_whole_or_not_at_all(self, memory: MemoryService, scope: Scope) -> None:
        """One memory that cannot be stored keeps the others out."""
        with pytest.raises(InvalidRequest, match="memories"):
            await memory.remember(scope, [Memory(text=TEA), Memory(text="more tea", importance=7)])

        assert not await memory.recall(scope, asking("jasmine tea"))

    async def test_an_idempotency_key_is_one_memory(self, memory: MemoryService, scope: Scope) -> None:
        """The same key gives the same id, also within a batch, and stores nothing twice."""
        once = Memory(text=TEA, idempotency_key="k-1")
        first = await memory.remember(scope, [once, replace(once, text=f"{TEA} again")])
        again = await memory.remember(scope, [replace(once, id="another")])

        assert [*first, *again] == [first[0]] * 3
        assert [each.text for each in await memory.recall(scope, asking("jasmine tea"))] == [TEA]

    async def test_racing_writes_with_one_key_are_one_memory(self, memory: MemoryService, scope: Scope) -> None:
        """Whoever comes first, all are told the same id."""
        told = await asyncio.gather(
            *(memory.remember(scope, [Memory(text=f"{TEA} {at}", idempotency_key="race")]) for at in range(8))
        )

        assert len({each for ids in told for each in ids}) == 1
        assert len(await memory.recall(scope, asking("jasmine tea"))) == 1

    async def test_a_key_belongs_to_its_namespace(self, memory: MemoryService, scope: Scope) -> None:
        """The same key elsewhere is another memory."""
        once = Memory(text=TEA, idempotency_key="k-1")
        (here,) = await memory.remember(scope, [once])
        (there,) = await memory.remember(scope, [replace(once, namespace="notes")])

        assert here != there

    async def test_memories_are_private_unless_readers_say_otherwise(self, memory: MemoryService, scope: Scope) -> None:
        """Another user of the tenant recalls what is public or shared with a group of theirs, and nothing else."""
        await memory.remember(
            scope,
            [
                Memory(text="tea for me alone"),
                Memory(text="tea for the crew", readers=("group:crew",)),
                Memory(text="tea for everyone", readers=(PUBLIC,)),
            ],
        )
        boris = Scope(tenant=scope.tenant, user="boris")
        mate = Scope(tenant=scope.tenant, user="clara", groups=("crew",))

        assert {"tea for everyone"} == {each.text for each in await memory.recall(boris, asking("tea"))}
        assert {"tea for everyone", "tea for the crew"} == {
            each.text for each in await memory.recall(mate, asking("tea"))
        }

    async def test_other_tenants_have_nothing(self, memory: MemoryService, scope: Scope) -> None:
        """Public means the tenant, never beyond it; a memory there can be neither rated nor removed."""
        (written,) = await memory.remember(scope, [Memory(text=TEA, readers=(PUBLIC,))])
        stranger = Scope(tenant=f"{scope.tenant}-other", user=scope.user)

        assert not await memory.recall(stranger, asking("jasmine tea"))
        assert await memory.forget(stranger, [written]) == 0
        with pytest.raises(NotFound):
            await memory.feedback(stranger, Feedback(memory_id=written, score=1, time=NOON))

    async def test_namespaces_and_universes_are_apart(self, memory: MemoryService, scope: Scope) -> None:
        """A question sees the namespace and the universe it names."""
        await memory.remember(
            scope,
            [Memory(text="tea one"), Memory(text="tea two", namespace="notes"), Memory(text="tea three", universe="u")],
        )

        async def texts(query: Recall) -> set[str]:
            return {each.text for each in await memory.recall(scope, query)}

        assert {"tea one"} == await texts(asking("tea"))
        assert {"tea two"} == await texts(replace(asking("tea"), namespace="notes"))
        assert {"tea three"} == await texts(replace(asking("tea"), universe="u"))

    async def test_sessions_personas_tags_and_kinds_filter(self, memory: MemoryService, scope: Scope) -> None:
        """What a filter names binds; a session or persona that is only hinted at does not."""
        fact = Memory(text="tea fact", kind=MemoryKind.SEMANTIC, tags=("a", "b"), session_id="s-1", persona_id="p-1")
        await memory.remember(scope, [fact, Memory(text="tea event", session_id="s-2", tags=("c",))])
        plain = asking("tea")

        async def texts(query: Recall) -> set[str]:
            return {each.text for each in await memory.recall(scope, query)}

        for filtered in (
            replace(plain, sessions=("s-1", "s-9")),
            replace(plain, personas=("p-1",)),
            replace(plain, tags=("b", "z")),
            replace(plain, kinds=(MemoryKind.SEMANTIC,)),
        ):
            assert {"tea fact"} == await texts(filtered)
        assert {"tea fact", "tea event"} == await texts(replace(plain, session_id="s-1", persona_id="p-1"))

    async def test_expired_memories_are_gone(self, memory: MemoryService, scope: Scope) -> None:
        """A memory lives as long as its time to live says, to the second, and is then neither found nor counted."""
        (written,) = await memory.remember(scope, [Memory(text=TEA, ttl_seconds=90.5)])
        alive = replace(asking("jasmine tea"), now=NOON + timedelta(seconds=90))
        late = replace(asking("jasmine tea"), now=NOON + timedelta(seconds=91))

        assert [written] == [each.id for each in await memory.recall(scope, alive)]
        assert not await memory.recall(scope, late)

    async def test_forgetting_counts_what_there_was(self, memory: MemoryService, scope: Scope) -> None:
        """A forgotten memory is not recalled, its key is free again, and forgetting it twice counts once."""
        once = Memory(text=TEA, id="mine", idempotency_key="k")
        (written,) = await memory.remember(scope, [once])

        assert await memory.forget(scope, [written, "no such memory"]) == 1
        assert await memory.forget(scope, [written]) == 0
        assert not await memory.recall(scope, asking("jasmine tea"))
        assert list(await memory.remember(scope, [replace(once, id="new")])) == ["new"]

    async def test_feedback_moves_the_ranking_a_little(self, memory: MemoryService, scope: Scope) -> None:
        """Of two alike, the one found useful comes first, by no more than a tenth, however often it is said."""
        left, right = await memory.remember(scope, [Memory(text=TEA, id="a"), Memory(text=TEA, id="b")])
        before = {each.id: each.score for each in await memory.recall(scope, asking("tea"))}
        for second in range(5):
            moment = NOON + timedelta(seconds=second)
            await memory.feedback(scope, Feedback(memory_id=right, score=1, time=moment))
            await memory.feedback(scope, Feedback(memory_id=left, score=-1, time=moment))
        after = {each.id: each.score for each in await memory.recall(scope, asking("tea"))}

        assert list(after) == [right, left]
        assert 0 < after[right] - after[left] <= 0.1 + 1e-6
        assert all(abs(after[each] - before[each]) <= 0.05 + 1e-6 for each in (left, right))

    async def test_feedback_on_nothing_is_not_found(self, memory: MemoryService, scope: Scope) -> None:
        """An unknown memory and a score out of range are refused."""
        (written,) = await memory.remember(scope, [Memory(text=TEA)])

        with pytest.raises(NotFound):
            await memory.feedback(scope, Feedback(memory_id="unknown", score=1, time=NOON))
        with pytest.raises(InvalidRequest):
            await memory.feedback(scope, Feedback(memory_id=written, score=1.5, time=NOON))

    async def test_what_was_recalled_is_not_remembered_again(self, memory: MemoryService, scope: Scope) -> None:
        """A text that repeats or only quotes a memory it was shown has that memory's id; one that says more is new."""
        (first,) = await memory.remember(scope, [Memory(text=TEA)])
        echo, quote, more = await memory.remember(
            scope,
            [
                Memory(text=f"{TEA}!", injected=(first,)),
                Memory(text="drinks jasmine tea", injected=(first,)),
                Memory(text=f"{TEA}, and since June she prefers coffee from Ethiopia", injected=(first,)),
            ],
        )

        assert (echo, quote) == (first, first)
        assert more != first

    @pytest.mark.parametrize(
        "bad",
        [
            Memory(text="  "),
            Memory(text="x", namespace=""),
            Memory(text="x", importance=-0.1),
            Memory(text="x", importance=float("nan")),
            Memory(text="x", ttl_seconds=0),
            Memory(text="x", ttl_seconds=float("inf")),
            Memory(text="x", readers=("anna",)),
        ],
    )
    async def test_bad_memories_are_refused(self, memory: MemoryService, scope: Scope, bad: Memory) -> None:
        """The caller is told what to fix."""
        with pytest.raises(InvalidRequest):
            await memory.remember(scope, [bad])

    async def test_asking_for_nothing_finds_nothing(self, memory: MemoryService, scope: Scope) -> None:
        """No memories wanted, no words to look for, or no memories given: no answer, and no error."""
        await memory.remember(scope, [Memory(text=TEA)])

        assert not await memory.recall(scope, asking("tea", top_k=0))
        assert not await memory.recall(scope, asking(" \n"))
        assert not await memory.remember(scope, [])


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
