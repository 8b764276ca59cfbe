"""Collections of tenants in a database: followed by every process, brought over from stores of before, moved."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="psycopg is not installed")

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.adapters.index.postgres.index import PostgresIndex
from contexture.adapters.store_migration.migrate import migrate_store, open_migration_store
from contexture.errors import InvalidRequest, UnknownCollection
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
BEFORE_ID_SPACES = """
    ALTER TABLE records DROP COLUMN space;
    ALTER TABLE records ADD UNIQUE (collection, tenant, id);
    UPDATE migrations SET version = 3;
"""
"""Turns a store into one from before private records had ids of their own."""
BEFORE = """
    CREATE TABLE collections (name TEXT PRIMARY KEY, fields TEXT NOT NULL, seq BIGINT NOT NULL);
    INSERT INTO collections SELECT DISTINCT ON (name) name, fields, seq FROM declared;
    DROP TABLE declared;
    ALTER TABLE records DROP COLUMN space;
    ALTER TABLE records ADD UNIQUE (collection, tenant, id);
    UPDATE migrations SET version = 2;
"""
"""Turns a store into one from before collections belonged to tenants."""


async def test_what_a_tenant_declares_in_one_process_is_its_own_in_every_other(
    pair: tuple[PostgresIndex, PostgresIndex],
) -> None:
    """Two types of one field, declared in two processes, filter in both; a third tenant has nothing in either."""
    one, other = pair
    await one.create(ANNA, Collection(name=NAME, fields={"grade": FieldType.KEYWORD}))
    await other.create(BORIS, Collection(name=NAME, fields={"grade": FieldType.NUMBER}))
    await other.upsert(ANNA, NAME, [prepare_record(make_record("anna", payload={"grade": "high"}))])
    await one.upsert(BORIS, NAME, [prepare_record(make_record("boris", payload={"grade": 5}))])
    asked = ((ANNA, Equals("grade", "high")), (BORIS, Range(field="grade", gt=4)))

    for index in pair:
        found = [record_ids(await index.search(scope, make_query("zebra", where=where))) for scope, where in asked]
        assert [["anna"], ["boris"]] == found
        assert [] == await index.collections(CARL)
        assert [NAME] == await index.names()
        assert None is await index.spaces(CARL, NAME)
        with pytest.raises(UnknownCollection, match="none yet"):
            await index.search(CARL, make_query("zebra"))
        with pytest.raises(InvalidRequest, match="holds a keyword"):
            await index.create(ANNA, Collection(name=NAME, fields={"grade": FieldType.NUMBER}))


async def test_private_records_of_an_earlier_store_get_ids_of_their_own(
    url: str, new_folder: Callable[[], Path]
) -> None:
    """What was private is read by its owner as before, and no longer refuses the writes of others."""
    folder, names = new_folder(), ('anna "the boss" \\', "Анна", "🦓")
    index = await PostgresIndex.open(url, folder, OPTIONS)
    scopes = [Scope(tenant="acme", user=name) for name in names]
    await index.create(scopes[0], COLLECTION)
    for at, scope in enumerate(scopes):
        await index.upsert(scope, NAME, [prepare_record(make_record(f"r{at}", acl=(f"user:{scope.user}",)))])
    with index.pool.transaction() as db:
        db.execute(BEFORE_ID_SPACES.encode())
    await index.close()
    index = await PostgresIndex.open(url, folder, OPTIONS)
    dora = Scope(tenant="acme", user="dora")
    await index.upsert(dora, NAME, [prepare_record(make_record(f"r{at}", "zebra for all")) for at in range(3)])
    found = [[record.text for record in await index.scroll(scope, NAME)] for scope in scopes]
    await index.close()

    assert [["zebra for all" if at != mine else "zebra" for at in range(3)] for mine in range(3)] == found


async def test_a_store_from_before_has_its_collections_for_those_who_have_something_there(
    url: str, new_folder: Callable[[], Path]
) -> None:
    """They keep the fields that all shared, filters find what was stored, and nobody else knows of it."""
    folder = new_folder()
    index = await PostgresIndex.open(url, folder, OPTIONS)
    for scope in (ANNA, CARL):
        await index.create(scope, COLLECTION)
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a", payload={"tags": "red"}))])
    with index.pool.transaction() as db:
        db.execute(BEFORE.encode())
    await index.close()
    index = await PostgresIndex.open(url, folder, OPTIONS)
    listed = [[(each.name, dict(each.fields)) for each in await index.collections(scope)] for scope in (ANNA, CARL)]
    found = record_ids(await index.search(ANNA, make_query("zebra", where=Equals("tags", "red"))))
    await index.create(CARL, Collection(name=NAME, fields={"tags": FieldType.NUMBER}))
    await index.close()

    assert [[(NAME, dict(COLLECTION.fields))], []] == listed
    assert ["a"] == found


async def test_a_move_carries_what_each_tenant_declared(url: str, new_folder: Callable[[], Path]) -> None:
    """There and back again, both types of a field are there, each for its tenant."""
    here, back = new_folder(), new_folder()
    index = await EmbeddedIndex.open(here, OPTIONS)
    await index.create(ANNA, Collection(name=NAME, fields={"grade": FieldType.KEYWORD}))
    await index.create(BORIS, Collection(name=NAME, fields={"grade": FieldType.NUMBER}))
    await index.upsert(BORIS, NAME, [prepare_record(make_record("boris", payload={"grade": 5}))])
    await index.close()
    for source, target in ((str(here), url), (url, str(back))):
        with (
            closing(open_migration_store(source, existing=True)) as first,
            closing(open_migration_store(target, existing=False)) as second,
        ):
            migrate_store(first, second)
            declared = [store.records.list_collections() for store in (first, second)]

        assert declared[0] == declared[1]
        assert 2 == len(declared[0])
    index = await EmbeddedIndex.open(back, OPTIONS)
    found = record_ids(await index.search(BORIS, make_query("zebra", where=Range(field="grade", gt=4))))
    await index.close()

    assert ["boris"] == found
