"""SQLite is the truth: whatever happens to the engine beside it, the next opening or the next write mends it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from contexture.adapters.index import collection_index, collection_indexes
from contexture.adapters.index.collection_indexes import CollectionIndexes
from contexture.adapters.index.edge_shard import EdgeShard, edge_errors
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.errors import SourceUnavailable
from contexture.testing.index_records import (
    COLLECTION,
    EAST,
    NAME,
    VECTORS,
    make_query,
    make_record,
    prepare_record,
    record_ids,
)
from contexture.types import Collection, Equals, FieldType, Scope
from support.workbench import opened

pytestmark = pytest.mark.integration

LOCAL = Scope.local()
OPTIONS = EmbeddedOptions(vectors=VECTORS, threads=1)


def spoil(path: Path, how: str) -> None:
    """Do to an engine's folder what disks, people and tidy-up scripts do."""
    files = sorted(each for each in path.rglob("*") if each.is_file())
    if how == "deleted":
        shutil.rmtree(path)
    elif how == "emptied":
        for each in files:
            each.unlink()
    elif how == "garbage":
        for each in files:
            each.write_bytes(b"garbage" * 100)
    elif how == "a file":
        shutil.rmtree(path)
        path.write_text("not a folder")
    else:
        for each in files:
            if each.match(how):
                each.write_bytes(each.read_bytes()[: each.stat().st_size // 2])


@pytest.mark.parametrize("how", ["deleted", "emptied", "garbage", "a file", "*.json", "tq_vectors/*", "deleted/*"])
async def test_a_spoilt_engine_heals(how: str, new_folder: Callable[[], Path]) -> None:
    """Whatever happens to the engine's folder, the next opening fills it again from SQLite."""
    folder = new_folder()
    async with opened(folder) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record(f"r{number}", "zebra")) for number in range(20)])
        await index.delete(LOCAL, NAME, ["r3"])
    spoil(folder / "index" / NAME, how)

    async with opened(folder) as index:
        expected = sorted(f"r{number}" for number in range(20) if number != 3)
        assert expected == record_ids(await index.search(LOCAL, make_query("zebra")))
        assert expected == record_ids(await index.search(LOCAL, make_query(vector=EAST)))


async def test_an_engine_that_lost_passages_heals(new_folder: Callable[[], Path]) -> None:
    """An engine that opens but holds less than SQLite is built anew."""
    folder = new_folder()
    async with opened(folder) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("a", "zebra"))])
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("b", "zebra"))])
        index._search_backend.collection_index(NAME).shard.apply((), [1])

    async with opened(folder) as index:
        assert ["a", "b"] == record_ids(await index.search(LOCAL, make_query("zebra")))


async def test_an_engine_that_fails_is_built_anew(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the engine cannot follow a committed write, it is filled again and the write is still acknowledged."""
    async with opened(new_folder()) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("a", "zebra"))])

        def broken(*_: object) -> None:
            raise SourceUnavailable("the search engine failed to update")

        monkeypatch.setattr(index._search_backend.collection_index(NAME).shard, "apply", broken)
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("b", "zebra"))])

        assert ["a", "b"] == record_ids(await index.search(LOCAL, make_query("zebra")))


async def test_an_interrupted_rebuild_starts_again(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuild that was cut short is not taken for a whole index at the next opening."""
    folder = new_folder()
    async with opened(folder) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record(f"r{number}", "zebra")) for number in range(5)])
    shutil.rmtree(folder / "index")

    class Interrupted(BaseException):
        """The process was told to stop."""

    def cut_short(*_: object) -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        patched.setattr(CollectionIndexes, "_replay", cut_short)
        with pytest.raises(Interrupted):
            await asyncio.to_thread(EmbeddedIndex, folder, OPTIONS)

    async with opened(folder) as index:
        assert 5 == len(record_ids(await index.search(LOCAL, make_query("zebra"))))


async def test_another_layout_is_another_engine(new_folder: Callable[[], Path]) -> None:
    """A store opened with another set of vectors still answers by words, and by the vectors it has."""
    folder = new_folder()
    async with opened(folder) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("a", "zebra"))])
    async with opened(folder, EmbeddedOptions(vectors={"another": 8}, threads=1)) as index:
        assert ["a"] == record_ids(await index.search(LOCAL, make_query("zebra")))
    async with opened(folder) as index:
        assert ["a"] == record_ids(await index.search(LOCAL, make_query(vector=EAST)))


async def test_fields_added_before_a_crash_are_indexed(new_folder: Callable[[], Path]) -> None:
    """A field that SQLite knows and the engine does not is indexed at the next opening."""
    folder = new_folder()
    async with opened(folder) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("a", "zebra", payload={"colour": "red"}))])
        grown = Collection(name=NAME, fields={**COLLECTION.fields, "colour": FieldType.KEYWORD})
        index._sqlite_store.declare(LOCAL.tenant, grown)

    async with opened(folder) as index:
        assert ["a"] == record_ids(await index.search(LOCAL, make_query("zebra", where=Equals("colour", "red"))))


async def test_writes_are_flushed_now_and_then(new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """After many changes the engine is made durable, and removals it knows are forgotten."""
    monkeypatch.setattr(collection_indexes, "_FLUSH_AFTER_CHANGES", 2)
    async with opened(new_folder()) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record(name)) for name in "abc"])
        await index.delete(LOCAL, NAME, ["a", "b"])

        assert str(index._record_store.seq) == index._record_store.meta("flushed")
        assert [] == index._sqlite_store.removed_since(0, NAME)


async def test_an_engine_that_cannot_be_rebuilt_is_tried_again(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until a rebuild succeeds searches say so, and the next write tries again."""

    def broken(*_: object) -> None:
        raise SourceUnavailable("the search engine failed")

    async with opened(new_folder()) as index:
        with monkeypatch.context() as patched:
            patched.setattr(EdgeShard, "apply", broken)
            with pytest.raises(SourceUnavailable):
                await index.upsert(LOCAL, NAME, [prepare_record(make_record("a"))])
        with pytest.raises(SourceUnavailable, match="being rebuilt"):
            await index.search(LOCAL, make_query("zebra"))
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("b"))])

        assert ["a", "b"] == record_ids(await index.search(LOCAL, make_query("zebra")))


def test_a_panic_of_the_engine_is_ours_and_a_signal_is_not() -> None:
    """What the engine raises is mapped; what is not the engine's passes through."""

    class PanicException(BaseException):
        """What a Rust panic looks like here."""

    with pytest.raises(SourceUnavailable, match="failed to search"), edge_errors("search"):
        raise PanicException
    with pytest.raises(KeyboardInterrupt), edge_errors("search"):
        raise KeyboardInterrupt


async def test_what_was_removed_is_swept_out_of_memory(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once more passages are gone than left, memory holds only those left, and answers do not change."""
    monkeypatch.setattr(collection_index, "_MIN_REMOVED_TO_COMPACT", 2)
    async with opened(new_folder()) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record(f"r{number}", "zebra")) for number in range(10)])
        await index.delete(LOCAL, NAME, [f"r{number}" for number in range(8)])
        scanner = index._search_backend.collection_index(NAME).scanner

        assert scanner is not None
        assert (2, 0) == (len(scanner.pids), scanner.removed)
        assert ["r8", "r9"] == record_ids(
            await index.search(LOCAL, make_query(vector=EAST, where=Equals("kind", "document")))
        )


async def test_a_graph_is_left_when_exact_search_is_asked_for(new_folder: Callable[[], Path]) -> None:
    """A store that walked a graph compares every vector again as soon as the limit allows it."""
    folder = new_folder()
    async with opened(folder, EmbeddedOptions(vectors=VECTORS, threads=1, exact_limit=0)) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record(f"r{number}", "zebra")) for number in range(5)])
        await index.optimize()
        assert index._search_backend.collection_index(NAME).scanner is None
        walked = record_ids(await index.search(LOCAL, make_query("zebra", vector=EAST)))
    async with opened(folder) as index:
        assert index._search_backend.collection_index(NAME).scanner is not None
        assert walked == record_ids(await index.search(LOCAL, make_query("zebra", vector=EAST)))
