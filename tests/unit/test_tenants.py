"""Collections of tenants beyond what every index promises: stores from before, parts, services, moves."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from contexture.adapters.index.collection_registry import CollectionRegistry, collection_columns
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.index.filters import BUILT_IN
from contexture.adapters.store_migration._folder import FolderStore
from contexture.adapters.store_migration.migrate import compare_stores, migrate_store
from contexture.errors import BrokenPromise, StoreUnwritable, UnknownCollection
from contexture.retrieval import prepare as made_module
from contexture.retrieval.prepare import EnsuredCollection
from contexture.testing.index_records import (
    COLLECTION,
    NAME,
    VECTORS,
    make_query,
    make_record,
    prepare_record,
    record_ids,
)
from contexture.types import Collection, Equals, FieldType, Range, Scope

OPTIONS = EmbeddedOptions(vectors=VECTORS, threads=1)
ANNA, BORIS = Scope(tenant="acme", user="anna"), Scope(tenant="globex", user="boris")
CARL = Scope(tenant="initech", user="carl")
BEFORE = """
    CREATE TABLE collections (name TEXT PRIMARY KEY, fields TEXT NOT NULL) WITHOUT ROWID;
    INSERT OR REPLACE INTO collections SELECT name, fields FROM declared;
    DROP TABLE declared;
    DROP TABLE unembedded;
    PRAGMA user_version = 2;
"""
"""Turns a store into one from before collections belonged to tenants."""


BEFORE_ID_SPACES = """
    CREATE TABLE before (
        row INTEGER PRIMARY KEY, collection TEXT NOT NULL, tenant TEXT NOT NULL, id TEXT NOT NULL,
        class INTEGER NOT NULL REFERENCES classes, hash TEXT NOT NULL, header BLOB NOT NULL, text TEXT NOT NULL,
        rules TEXT NOT NULL, redactions BLOB NOT NULL, UNIQUE (collection, tenant, id)
    );
    INSERT INTO before SELECT row, collection, tenant, id, class, hash, header, text, rules, redactions FROM records;
    DROP TABLE records;
    ALTER TABLE before RENAME TO records;
    PRAGMA user_version = 4;
"""
"""Turns a store into one from before private records had ids of their own."""


async def two_types(folder: Path) -> None:
    """A store in which two tenants mean different things by one field."""
    index = await EmbeddedIndex.open(folder, OPTIONS)
    for scope, kind, value in ((ANNA, FieldType.KEYWORD, "high"), (BORIS, FieldType.NUMBER, 5)):
        await index.create(scope, Collection(name=NAME, fields={"grade": kind}))
        await index.upsert(scope, NAME, [prepare_record(make_record(scope.user, payload={"grade": value}))])
    await index.close()


async def graded(folder: Path) -> list[list[str]]:
    """Who has a grade, as each tenant asks for it."""
    index = await EmbeddedIndex.open(folder, OPTIONS)
    asked = ((ANNA, Equals("grade", "high")), (BORIS, Range(field="grade", gt=4)))
    found = [record_ids(await index.search(scope, make_query("zebra", where=where))) for scope, where in asked]
    await index.close()
    return found


async def read_all(index: EmbeddedIndex, name: str) -> list[str]:
    """The texts that a user of Anna's tenant reads."""
    return [record.text for record in await index.scroll(Scope(tenant=ANNA.tenant, user=name), NAME)]


async def write(index: EmbeddedIndex, name: str, text: str, *readers: str) -> None:
    """Write a record under the id that everybody uses."""
    record = make_record("a", text, acl=readers)
    await index.upsert(Scope(tenant=ANNA.tenant, user=name), NAME, [prepare_record(record)])


async def test_private_records_of_an_earlier_store_get_ids_of_their_own(tmp_path: Path) -> None:
    """What was private is read by its owner as before, and no longer refuses the writes of others."""
    index = await EmbeddedIndex.open(tmp_path, OPTIONS)
    await index.create(ANNA, COLLECTION)
    await write(index, "anna", "zebra of anna", "user:anna")
    await index.close()
    with closing(sqlite3.connect(tmp_path / "truth.sqlite")) as db:
        db.executescript(BEFORE_ID_SPACES)
    index = await EmbeddedIndex.open(tmp_path, OPTIONS)
    await write(index, "boris", "zebra for all", "public")
    found = [await read_all(index, name) for name in ("anna", "boris")]
    await index.close()

    assert [["zebra of anna"], ["zebra for all"]] == found


async def test_records_of_one_id_move_to_another_store(tmp_path: Path) -> None:
    """Each arrives for its readers, also when they are there already."""
    source, target = tmp_path / "source", tmp_path / "target"
    index = await EmbeddedIndex.open(source, OPTIONS)
    await index.create(ANNA, COLLECTION)
    for name in ("anna", "boris"):
        await write(index, name, f"zebra of {name}", f"user:{name}")
    await write(index, "dora", "zebra for anna", "user:anna")
    await write(index, "carl", "zebra for all", "public")
    await index.close()
    stores = FolderStore(source), FolderStore(target)
    counts = [migrate_store(*stores).records for _ in range(2)]
    for store in stores:
        store.close()
    index = await EmbeddedIndex.open(target, OPTIONS)
    found = [await read_all(index, name) for name in ("anna", "boris", "carl")]
    await index.delete(Scope(tenant=ANNA.tenant, user="anna"), NAME, ["a"])
    next_one = await read_all(index, "anna")
    await index.close()

    assert [4, 4] == counts
    assert [["zebra of anna"], ["zebra of boris"], ["zebra for all"]] == found
    assert ["zebra for anna"] == next_one


async def test_a_store_from_before_has_its_collections_for_those_who_have_something_there(tmp_path: Path) -> None:
    """They keep the fields that all shared, filters find what was stored, and nobody else knows of it."""
    index = await EmbeddedIndex.open(tmp_path, OPTIONS)
    for scope in (ANNA, BORIS, CARL):
        await index.create(scope, COLLECTION)
    await index.create(CARL, Collection(name="empty"))
    for scope in (ANNA, BORIS):
        await index.upsert(scope, NAME, [prepare_record(make_record(scope.user, payload={"tags": "red", "rating": 2}))])
    await index.delete(BORIS, NAME, ["boris"])
    await index.close()
    with closing(sqlite3.connect(tmp_path / "truth.sqlite")) as db:
        db.executescript(BEFORE)
    index = await EmbeddedIndex.open(tmp_path, OPTIONS)
    listed = [[each.name for each in await index.collections(scope)] for scope in (ANNA, BORIS, CARL)]
    fields = [dict(each.fields) for each in await index.collections(ANNA)]
    found = [
        record_ids(await index.search(ANNA, make_query("zebra", where=where)))
        for where in (Equals("tags", "red"), Range(field="rating", gt=1), Range(field="rating", gt=2))
    ]
    with pytest.raises(UnknownCollection):
        await index.search(CARL, make_query("zebra"))
    await index.create(CARL, Collection(name="empty", fields={"tags": FieldType.NUMBER}))
    await index.close()

    assert [[NAME], [NAME], []] == listed
    assert [dict(COLLECTION.fields)] == fields
    assert [["anna"], ["anna"], []] == found


async def test_two_types_of_one_field_outlast_reopening(tmp_path: Path) -> None:
    """Read again from the truth, or from what finds, each tenant's filters mean what they meant."""
    await two_types(tmp_path)

    assert [["anna"], ["boris"]] == await graded(tmp_path) == await graded(tmp_path)


async def test_tenants_have_indexes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant's search reads the passages of that tenant only, and a write of another tenant reads none."""
    index = await EmbeddedIndex.open(tmp_path, OPTIONS)
    for scope in (ANNA, BORIS):
        await index.create(scope, COLLECTION)
        await index.upsert(scope, NAME, [prepare_record(make_record(scope.tenant))])
    read, loaded = index._sqlite_store.iter_partition, list[tuple[str, str]]()
    monkeypatch.setattr(index._sqlite_store, "iter_partition", lambda *place: loaded.append(place) or read(*place))

    assert [ANNA.tenant] == record_ids(await index.search(ANNA, make_query("zebra")))
    await index.upsert(BORIS, NAME, [prepare_record(make_record("later"))])

    assert [(NAME, ANNA.tenant)] == loaded
    assert [NAME] == await index.names()
    await index.close()


async def test_a_field_that_is_declared_late_outlasts_a_crash(new_folder: Callable[[], Path]) -> None:
    """What was stored before it is found by it, although the store was not closed since."""
    here, there = new_folder(), new_folder()
    index = await EmbeddedIndex.open(here, OPTIONS)
    await index.create(ANNA, Collection(name=NAME))
    await index.upsert(
        ANNA, NAME, [prepare_record(make_record(f"r{at}", payload={"grade": at % 5})) for at in range(20)]
    )
    await index.close()
    index = await EmbeddedIndex.open(here, OPTIONS)
    await index.create(ANNA, Collection(name=NAME, fields={"grade": FieldType.NUMBER}))
    shutil.copytree(here, there, dirs_exist_ok=True)
    await index.close()
    index = await EmbeddedIndex.open(there, OPTIONS)
    found = record_ids(await index.search(ANNA, make_query("zebra", where=Equals("grade", 3))))
    await index.close()

    assert ["r13", "r18", "r3", "r8"] == sorted(found)


async def test_a_move_carries_what_each_tenant_declared(new_folder: Callable[[], Path]) -> None:
    """In the target both types of a field are there, each for its tenant; one that is missing is named."""
    here, there = new_folder(), new_folder()
    await two_types(here)
    with closing(FolderStore(here)) as source, closing(FolderStore(there)) as target:
        migrate_store(source, target)
        again = migrate_store(source, target)
        declared = [store.records.list_collections() for store in (source, target)]
        source.records.declare("initech", Collection(name=NAME))
        with pytest.raises(BrokenPromise, match=NAME):
            compare_stores(source, target, 0, lambda *_: None)

    assert 2 == again.known_records
    assert declared[0] == declared[1]
    assert [["anna"], ["boris"]] == await graded(there)


class Ledger:
    """An index that counts how often collections are made and listed, and can refuse to write."""

    def __init__(self, *, writable: bool = True) -> None:
        self.known = CollectionRegistry()
        self.made: list[str] = []
        self.listed: list[str] = []
        self.writable = writable

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Make it, and count that."""
        if not self.writable:
            raise StoreUnwritable("this store only reads")
        self.made.append(scope.tenant)
        self.known.add(scope.tenant, collection)

    async def collections(self, scope: Scope) -> list[Collection]:
        """Every collection of the tenant, and count that."""
        self.listed.append(scope.tenant)
        return self.known.list_for(scope.tenant)


async def test_a_service_makes_its_collection_once_for_each_tenant() -> None:
    """After the first time nothing is asked of the index."""
    index = Ledger()
    made = EnsuredCollection(index, COLLECTION)
    for scope in (ANNA, BORIS, ANNA, BORIS):
        await made.ensure(scope)

    assert [True, True] == [await made.exists(ANNA), await made.exists(BORIS)]
    assert (["acme", "globex"], []) == (index.made, index.listed)


async def test_a_service_asks_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that was put back to a time when the tenant had nothing has its collection again."""
    index, now = Ledger(), [1_000.0]
    monkeypatch.setattr(made_module, "monotonic", lambda: now[0])
    made = EnsuredCollection(index, COLLECTION)
    await made.ensure(ANNA)
    now[0] += 30
    await made.ensure(ANNA)
    soon = len(index.made)
    now[0] += 31
    await made.ensure(ANNA)

    assert (1, 2) == (soon, len(index.made))


async def test_who_only_reads_is_answered_where_nothing_can_be_written() -> None:
    """A tenant without the collection has nothing there, and one that has it reads on; who writes is told."""
    index = Ledger(writable=False)
    index.known.add("acme", Collection(name=NAME))
    made = EnsuredCollection(index, COLLECTION)
    with pytest.raises(StoreUnwritable):
        await made.ensure(ANNA)

    assert [True, False] == [await made.exists(ANNA), await made.exists(BORIS)]
    index.writable = True
    assert [True, True] == [await made.exists(ANNA), await made.exists(BORIS)]


def test_what_a_field_is_called_tells_its_type_and_no_built_in_one() -> None:
    """Two types of one field have two columns, whatever the name; those of built-in fields keep their names."""
    kinds = tuple(FieldType)
    columns = [
        collection_columns(Collection(name="c", fields={name: kind}))
        for name in ("a", "a.flag", "time_")
        for kind in kinds
    ]
    names = [name for each in columns for name in each]

    assert len(names) == len(set(names))
    assert not BUILT_IN.keys() & set(names)
