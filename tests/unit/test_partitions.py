"""Partitions of the embedded index: loaded when asked, evicted when memory is short, read from SQLite alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from contexture.adapters.index import collection_indexes
from contexture.adapters.index.collection_index import CollectionIndex
from contexture.adapters.index.collection_indexes import CollectionIndexes
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.index.record_store import IndexedPassage, SqliteRecordStore
from contexture.testing.index_records import (
    COLLECTION,
    EAST,
    NAME,
    NORTH,
    VECTORS,
    make_query,
    make_record,
    prepare_record,
    record_ids,
)
from contexture.types import Equals, Scope

TENANTS = [Scope(tenant=f"t{at}", user="anna") for at in range(4)]


async def filled(folder: Path, *, memory_bytes: int = 0) -> EmbeddedIndex:
    """A store in which each tenant has records of its own."""
    index = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=VECTORS, threads=1, memory_bytes=memory_bytes))
    for at, scope in enumerate(TENANTS):
        await index.create(scope, COLLECTION)
        await index.upsert(
            scope,
            NAME,
            [
                prepare_record(
                    make_record(f"{scope.tenant} {number}", "zebra " * (1 + number % 3), payload={"tags": str(at)}),
                    EAST if number % 2 else NORTH,
                )
                for number in range(5 + at)
            ],
        )
    return index


async def answer(index: EmbeddedIndex, scope: Scope) -> list[object]:
    """Everything a few searches say."""
    asked = (make_query("zebra", k=3), make_query(vector=EAST, k=9), make_query("zebra", where=Equals("tags", "2")))
    found = [await index.search(scope, each) for each in asked]
    return [[(hit.record, hit.ordinal, hit.scores, hit.ranks) for hit in each] for each in found]


def loaded_tenants(index: EmbeddedIndex) -> list[str]:
    """The tenants whose partitions are in memory."""
    backend = index._search_backend
    assert isinstance(backend, CollectionIndexes)
    return sorted(one.tenant for one in backend._partitions.values() if one.index is not None)


async def test_evicted_partitions_answer_as_if_they_had_stayed(new_folder: Callable[[], Path]) -> None:
    """With room for no more than one partition, every search loads its own, and no answer changes."""
    roomy, tight = await filled(new_folder()), await filled(new_folder(), memory_bytes=1)
    for number, scope in enumerate([*TENANTS, *reversed(TENANTS)]):
        assert await answer(roomy, scope) == await answer(tight, scope)
        assert [scope.tenant] == loaded_tenants(tight)
        for index in (roomy, tight):
            await index.upsert(scope, NAME, [prepare_record(make_record(f"later {number}", "zebra zebra"))])
            await index.delete(scope, NAME, [f"{scope.tenant} 0"])

    assert 4 == len(loaded_tenants(roomy))
    await roomy.close()
    await tight.close()


async def test_the_partition_that_was_not_asked_for_longest_is_evicted_first(new_folder: Callable[[], Path]) -> None:
    """A search keeps its partition in memory; a write does not, and neither loads another."""
    index = await filled(new_folder())
    assert [] == loaded_tenants(index)
    for scope in (*TENANTS[:3], TENANTS[0]):
        await answer(index, scope)
    backend = index._search_backend
    assert isinstance(backend, CollectionIndexes)
    backend._memory_limit = backend.nbytes
    await index.upsert(TENANTS[1], NAME, [prepare_record(make_record("new", "zebra"))])
    await answer(index, TENANTS[3])

    assert "t3" in loaded_tenants(index)
    assert "t1" not in loaded_tenants(index)
    await index.close()


async def test_what_is_written_while_a_partition_is_loaded_is_found(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records added and removed after the snapshot was read, and before the index is published."""
    index, scope = await filled(new_folder()), TENANTS[0]
    reading, written = threading.Event(), threading.Event()
    read = SqliteRecordStore.iter_partition

    def slowly(self: SqliteRecordStore, *place: str) -> Iterator[IndexedPassage]:
        rows = list(read(self, *place))
        reading.set()
        assert written.wait(60)
        return iter(rows)

    monkeypatch.setattr(SqliteRecordStore, "iter_partition", slowly)
    searching = asyncio.create_task(index.search(scope, make_query("zebra")))
    await asyncio.to_thread(reading.wait, 60)
    await index.upsert(scope, NAME, [prepare_record(make_record("new", "zebra"))])
    await index.delete(scope, NAME, ["t0 1"])
    written.set()

    assert ["new", "t0 0", "t0 2", "t0 3", "t0 4"] == sorted(record_ids(await searching))
    await index.close()


async def test_a_failure_while_waiting_writes_are_applied_ends_the_load(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search that waits does not wait forever, and the next one finds the write."""
    index, scope = await filled(new_folder()), TENANTS[0]
    reading, written = threading.Event(), threading.Event()
    read = SqliteRecordStore.iter_partition

    def slowly(self: SqliteRecordStore, *place: str) -> Iterator[IndexedPassage]:
        rows = list(read(self, *place))
        reading.set()
        assert written.wait(60)
        return iter(rows)

    def broken(self: CollectionIndex, added: object, removed: object) -> None:
        raise MemoryError

    monkeypatch.setattr(SqliteRecordStore, "iter_partition", slowly)
    searching = asyncio.create_task(index.search(scope, make_query("zebra")))
    await asyncio.to_thread(reading.wait, 60)
    await index.upsert(scope, NAME, [prepare_record(make_record("new", "zebra"))])
    with monkeypatch.context() as breaking:
        breaking.setattr(CollectionIndex, "apply", broken)
        written.set()
        with suppress(MemoryError):  # or the search loads again by itself
            await asyncio.wait_for(searching, 30)

    assert "new" in record_ids(await index.search(scope, make_query("zebra", k=9)))
    await index.close()


async def test_a_search_that_is_cancelled_leaves_the_load_to_others(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits longer gets the answer, and the partition is read once."""
    index, scope = await filled(new_folder()), TENANTS[0]
    reading, going_on, reads = threading.Event(), threading.Event(), list[str]()
    read = SqliteRecordStore.iter_partition

    def slowly(self: SqliteRecordStore, collection: str, tenant: str) -> Iterator[IndexedPassage]:
        reads.append(tenant)
        reading.set()
        assert going_on.wait(60)
        return read(self, collection, tenant)

    monkeypatch.setattr(SqliteRecordStore, "iter_partition", slowly)
    hasty, patient = (asyncio.create_task(index.search(scope, make_query("zebra"))) for _ in range(2))
    await asyncio.to_thread(reading.wait, 60)
    hasty.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hasty
    going_on.set()

    assert 5 == len(await patient)
    assert ["t0"] == reads
    await index.close()


async def test_a_large_partition_keeps_small_ones_from_nothing(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is being read, others are loaded and answer."""
    monkeypatch.setattr(collection_indexes, "_LARGE_PASSAGES", 7)
    index, large, small = await filled(new_folder()), TENANTS[3], TENANTS[0]
    going_on, read = threading.Event(), SqliteRecordStore.iter_partition

    def slowly(self: SqliteRecordStore, collection: str, tenant: str) -> Iterator[IndexedPassage]:
        assert tenant != large.tenant or going_on.wait(60)
        return read(self, collection, tenant)

    monkeypatch.setattr(SqliteRecordStore, "iter_partition", slowly)
    searching = asyncio.create_task(index.search(large, make_query("zebra")))

    assert 5 == len(await index.search(small, make_query("zebra")))
    assert not searching.done()
    going_on.set()
    assert 8 == len(await searching)
    await index.close()


async def test_warming_loads_the_largest_partitions(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few of them, so that a store of many tenants is ready as soon as one of few."""
    monkeypatch.setattr(collection_indexes, "_WARMED_PARTITIONS", 2)
    index = await filled(new_folder())
    await index.warm()

    assert ["t2", "t3"] == loaded_tenants(index)
    await index.close()


async def test_a_partition_that_is_too_large_says_what_to_use(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its searches go on, and the health check names it."""
    monkeypatch.setattr(collection_indexes, "MAX_PARTITION_PASSAGES", 7)
    index = await filled(new_folder())
    assert 5 == len(await index.search(TENANTS[0], make_query("zebra")))
    assert "" == await index.check_health()
    assert 8 == len(await index.search(TENANTS[3], make_query("zebra")))

    assert f"collection {NAME!r} of tenant 't3' has 8 passages" in await index.check_health()
    assert "PostgreSQL or Qdrant" in await index.check_health()
    await index.close()


async def test_a_store_that_goes_to_a_server_and_back_counts_its_terms(new_folder: Callable[[], Path]) -> None:
    """What a search index on a server needs is made when it is needed, follows writes, and is dropped after."""
    folder, scope = new_folder(), TENANTS[0]
    index = await filled(folder)
    await index.close()
    with closing(SqliteRecordStore(folder / "truth.sqlite", for_server=True)) as store:
        classes = store.load_access_classes(NAME, scope.tenant)
        (zebra,) = make_query("zebra").terms
        before = store.document_frequencies([zebra], classes)
        store.delete(scope, NAME, ["t0 1"])
        after = store.document_frequencies([zebra], classes)
        removed = len(store.removed_since(0, NAME))
    with closing(SqliteRecordStore(folder / "truth.sqlite")) as store:
        assert [] == store.removed_since(0, NAME)
    with closing(SqliteRecordStore(folder / "truth.sqlite", for_server=True)) as store:
        again = store.document_frequencies([zebra], classes)

    assert ({zebra: 5}, {zebra: 4}, {zebra: 4}, 1) == (before, after, again, removed)
