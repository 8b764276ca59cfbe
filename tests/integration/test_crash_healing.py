"""SQLite is the truth: search indexes are read from it, whatever an earlier version or a crash left beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from contexture.adapters.index import collection_index
from contexture.adapters.index.collection_index import CollectionIndex
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.errors import SourceUnavailable
from contexture.testing.index_records import (
    COLLECTION,
    EAST,
    NAME,
    make_query,
    make_record,
    prepare_record,
    record_ids,
)
from contexture.types import Collection, Equals, FieldType, Scope
from support.workbench import opened

pytestmark = pytest.mark.integration

LOCAL = Scope.local()


@pytest.mark.parametrize("left", ["folder", "file"])
async def test_search_files_of_earlier_versions_are_removed(left: str, new_folder: Callable[[], Path]) -> None:
    """They hold words of titles, and nothing reads them any more."""
    folder = new_folder()
    async with opened(folder) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("a", "zebra"))])
    if left == "folder":
        (folder / "index" / NAME / "segments").mkdir(parents=True)
        (folder / "index" / NAME / "segments" / "payload.dat").write_bytes(b"zebra")
    else:
        (folder / "index").write_text("not a folder")

    async with opened(folder) as index:
        assert ["a"] == record_ids(await index.search(LOCAL, make_query("zebra")))
    assert not (folder / "index" / NAME).exists()


async def test_a_copy_of_the_database_alone_is_a_store(new_folder: Callable[[], Path]) -> None:
    """Nothing but the file of the records is needed, even while the store is open."""
    folder, copied = new_folder(), new_folder()
    async with opened(folder) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record(f"r{number}", "zebra")) for number in range(20)])
        await index.delete(LOCAL, NAME, ["r3"])
        for file in folder.glob("truth.sqlite*"):
            shutil.copy(file, copied)

    async with opened(copied) as index:
        expected = sorted(f"r{number}" for number in range(20) if number != 3)
        assert expected == record_ids(await index.search(LOCAL, make_query("zebra")))
        assert expected == record_ids(await index.search(LOCAL, make_query(vector=EAST)))


async def test_a_write_that_memory_does_not_suffice_for_is_acknowledged(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is committed, so the index is read again from the records by the next search."""

    def fail(*_: object) -> None:
        raise MemoryError

    async with opened(new_folder()) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("a", "zebra"))])
        await index.search(LOCAL, make_query("zebra"))
        with monkeypatch.context() as patched:
            patched.setattr(CollectionIndex, "apply", fail)
            await index.upsert(LOCAL, NAME, [prepare_record(make_record("b", "zebra"))])

        assert ["a", "b"] == record_ids(await index.search(LOCAL, make_query("zebra")))


async def test_an_index_that_could_not_be_loaded_is_tried_again(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches say why until it can be read; writes go on meanwhile."""

    def fail(*_: object) -> None:
        raise SourceUnavailable("the disk is away")

    async with opened(new_folder()) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("a", "zebra"))])
        with monkeypatch.context() as patched:
            patched.setattr(CollectionIndex, "fill", fail)
            with pytest.raises(SourceUnavailable, match="the disk is away"):
                await index.search(LOCAL, make_query("zebra"))
            await index.upsert(LOCAL, NAME, [prepare_record(make_record("b", "zebra"))])

        assert ["a", "b"] == record_ids(await index.search(LOCAL, make_query("zebra")))


async def test_another_set_of_vectors_is_another_index(new_folder: Callable[[], Path]) -> None:
    """A store opened with another set of vectors still answers by words, and by the vectors it has."""
    folder = new_folder()
    async with opened(folder) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("a", "zebra"))])
    async with opened(folder, EmbeddedOptions(vectors={"another": 8}, threads=1)) as index:
        assert ["a"] == record_ids(await index.search(LOCAL, make_query("zebra")))
    async with opened(folder) as index:
        assert ["a"] == record_ids(await index.search(LOCAL, make_query(vector=EAST)))


async def test_fields_added_before_a_crash_are_indexed(new_folder: Callable[[], Path]) -> None:
    """A field that SQLite knows is known at the next opening."""
    folder = new_folder()
    async with opened(folder) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("a", "zebra", payload={"colour": "red"}))])
        grown = Collection(name=NAME, fields={**COLLECTION.fields, "colour": FieldType.KEYWORD})
        index._sqlite_store.declare(LOCAL.tenant, grown)

    async with opened(folder) as index:
        assert ["a"] == record_ids(await index.search(LOCAL, make_query("zebra", where=Equals("colour", "red"))))


async def test_what_was_removed_is_swept_out_of_memory(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once more passages are gone than left, memory holds only those left, and answers do not change."""
    monkeypatch.setattr(collection_index, "_MIN_REMOVED_TO_COMPACT", 2)
    async with opened(new_folder()) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record(f"r{number}", "zebra")) for number in range(10)])
        await index.search(LOCAL, make_query("zebra"))
        await index.delete(LOCAL, NAME, [f"r{number}" for number in range(8)])
        part = swept_index(index)

        assert (2, 0) == (len(part.pids), part.removed)
        assert ["r8", "r9"] == record_ids(
            await index.search(LOCAL, make_query(vector=EAST, where=Equals("kind", "document")))
        )


def swept_index(index: EmbeddedIndex) -> CollectionIndex:
    """The index of the partition, once a load that is under way has replaced it."""
    backend = index._search_backend
    loading = backend._find(LOCAL.tenant, NAME).loading
    return loading.result(60) if loading is not None else backend.collection_index(LOCAL.tenant, NAME)
