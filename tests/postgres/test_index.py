"""Promises of an index in PostgreSQL beyond the contract: several processes, exact answers, who waits for whom."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import resource
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.errors import InvalidRequest, SourceUnavailable
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
from contexture.testing.strategies import filters, record_lists
from contexture.types import PUBLIC, Collection, Equals, FieldType, Filter, Hit, Query, Record, Scope, Vector

pytest.importorskip("psycopg", reason="psycopg is not installed")

from contexture.adapters.index.postgres import search as postgres_search
from contexture.adapters.index.postgres.index import PostgresIndex, PostgresOptions
from contexture.adapters.index.postgres.schema import MIGRATIONS
from contexture.adapters.postgres.migrations import migrate
from contexture.adapters.postgres.pool import PostgresPool

OPTIONS = PostgresOptions(vectors=VECTORS)
ANNA, BORIS = Scope(tenant="local", user="anna"), Scope(tenant="local", user="boris", groups=("sales",))
LAX = [HealthCheck.function_scoped_fixture]
MANY_FILES = 4_096


@pytest.fixture
async def pair(pair: tuple[PostgresIndex, PostgresIndex]) -> tuple[PostgresIndex, PostgresIndex]:
    """Two processes' indexes over one store with a collection."""
    await pair[0].create(ANNA, COLLECTION)
    return pair


def told(hits: Sequence[Hit]) -> list[tuple[Any, ...]]:
    """What matters of hits."""
    return [(hit.record, hit.ordinal, hit.text, dict(hit.scores), dict(hit.ranks), hit.matched) for hit in hits]


async def test_the_vectors_there_are_follow_what_others_write(pair: tuple[PostgresIndex, PostgresIndex]) -> None:
    """Written and removed by another process."""
    one, other = pair
    record = prepare_record(make_record("a"))
    before = await one.spaces(ANNA, NAME)
    await other.upsert(ANNA, NAME, [record])
    with_it = await one.spaces(ANNA, NAME)
    await other.delete(ANNA, NAME, ["a"])

    assert [frozenset(), record.passages[0].vectors.keys(), frozenset()] == [
        before,
        with_it,
        await one.spaces(ANNA, NAME),
    ]
    assert None is await one.spaces(Scope(tenant="elsewhere", user="anna"), NAME)


async def test_an_open_write_of_one_tenant_delays_no_other(pair: tuple[PostgresIndex, PostgresIndex]) -> None:
    """While another process holds a tenant's collection, others write, in the same process too; its own waits."""
    one, other = pair
    strangers = [Scope(tenant=f"t{at}", user="anna") for at in range(3)]
    for scope in strangers:
        await one.create(scope, COLLECTION)
    with other.pool.open_connection() as held:
        held.execute("BEGIN")
        held.execute("UPDATE parts SET version = version WHERE tenant = 'local'")
        waiting = asyncio.create_task(one.upsert(ANNA, NAME, [prepare_record(make_record("a"))]))
        for scope in strangers:
            await one.upsert(scope, NAME, [prepare_record(make_record("b"))])
        found = [record_ids(await one.search(scope, make_query("zebra"))) for scope in (*strangers, ANNA)]
        waits = not waiting.done()
        held.execute("ROLLBACK")
    await waiting

    assert [["b"], ["b"], ["b"], []] == found
    assert waits
    assert ["a"] == record_ids(await other.search(ANNA, make_query("zebra")))


async def test_a_search_overtaken_by_another_process_shows_and_misses_nothing(
    pair: tuple[PostgresIndex, PostgresIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is repeated on the database as it is at one moment."""
    one, other = pair
    mine = [prepare_record(make_record(name, f"zebra {name}")) for name in ("best", "next")]
    await one.upsert(ANNA, NAME, mine)
    load, loop, written = one._open_view, asyncio.get_running_loop(), list[int]()

    def overtaken(view: Any) -> Any:
        if not written:
            change = other.delete(ANNA, NAME, ["best"])
            written.append(asyncio.run_coroutine_threadsafe(change, loop).result(60))
        return load(view)

    monkeypatch.setattr(one, "_open_view", overtaken)
    found = await one.search(ANNA, make_query("zebra best", k=1))
    monkeypatch.undo()

    assert [1] == written
    assert told(await one.search(ANNA, make_query("zebra best", k=1))) == told(found)
    assert ["next"] == record_ids(found)


async def test_a_process_may_have_more_files_open_than_select_can_name(url: str) -> None:
    """A busy service has more than a thousand connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < MANY_FILES:
        pytest.skip(f"this machine lets a process open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MANY_FILES), hard))
    taken = [os.dup(0) for _ in range(1_100)]
    try:
        index = await PostgresIndex.open(url, OPTIONS)
        await index.create(ANNA, COLLECTION)
        await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
        found = record_ids(await index.search(ANNA, make_query("zebra")))
        await index.close()
    finally:
        for number in taken:
            os.close(number)

    assert ["a"] == found


async def test_collections_and_fields_made_elsewhere_are_known(pair: tuple[PostgresIndex, PostgresIndex]) -> None:
    """A collection that another process has made, or given a field, can be used at once."""
    one, other = pair
    await asyncio.gather(
        *(pair[at % 2].create(ANNA, Collection(name="new", fields={f"f{at}": FieldType.KEYWORD})) for at in range(6))
    )
    await one.create(ANNA, Collection(name=NAME, fields={"colour": FieldType.KEYWORD}))
    await other.upsert(ANNA, NAME, [prepare_record(make_record("a", payload={"colour": "red"}))])

    assert ["a"] == record_ids(await one.search(ANNA, make_query("zebra", where=Equals("colour", "red"))))
    assert {"new": {f"f{at}" for at in range(6)}} == {
        each.name: set(each.fields) for each in await one.collections(ANNA) if each.name == "new"
    }


async def test_versions_and_changes_are_those_of_all_processes(pair: tuple[PostgresIndex, PostgresIndex]) -> None:
    """What another process wrote moves the version here, and is told to caches by id, to those who may read it."""
    one, other = pair
    before = await one.version(ANNA, NAME)
    await other.upsert(
        ANNA, NAME, [prepare_record(make_record("a")), prepare_record(make_record("b", acl=("user:boris",)))]
    )
    changed = await one.changes(ANNA, NAME, before)

    assert await one.version(ANNA, NAME) == await other.version(ANNA, NAME) > before
    assert changed is not None
    assert (("a",), 1) == (changed.ids, changed.passages)
    assert None is await one.changes(ANNA, NAME, before - 1)


async def test_hidden_writes_change_nothing_that_a_cache_is_told(pair: tuple[PostgresIndex, PostgresIndex]) -> None:
    """Few or many of them, and what is told of one's own writes when they are many is only that they were."""
    one, _ = pair
    before = await one.version(ANNA, NAME)
    for count in (1, 300):
        await one.upsert(
            ANNA, NAME, [prepare_record(make_record(f"h{at}", acl=("user:boris",))) for at in range(count)]
        )
        changed = await one.changes(ANNA, NAME, before)
        assert changed is not None
        assert ((), 0) == (changed.ids, changed.passages)
    await one.upsert(ANNA, NAME, [prepare_record(make_record(f"r{at}")) for at in range(300)])

    assert None is await one.changes(ANNA, NAME, before)


async def test_writes_from_both_sides_at_once_lose_nothing(pair: tuple[PostgresIndex, PostgresIndex]) -> None:
    """Concurrent writes are all found by both, and the numbers of writes are all different."""
    records = [prepare_record(make_record(f"r{at:02}")) for at in range(40)]
    numbers = await asyncio.gather(*(pair[at % 2].upsert(ANNA, NAME, [each]) for at, each in enumerate(records)))

    assert 40 == len(set(numbers))
    for index in pair:
        assert [f"r{at:02}" for at in range(40)] == record_ids(await index.search(ANNA, make_query("zebra")))


@settings(max_examples=12, suppress_health_check=LAX)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 1), st.booleans(), st.sampled_from("abcd"), st.sampled_from(("zebra", "lynx"))),
        max_size=8,
    )
)
async def test_whoever_writes_all_answer_like_the_embedded_index(
    steps: list[tuple[int, bool, str, str]],
    pair: tuple[PostgresIndex, PostgresIndex],
    new_folder: Callable[[], Path],
) -> None:
    """After writes and removals by either process, both give the embedded index's hits, scores and ranks."""
    tenant = Scope(tenant=new_folder().name, user="anna")
    oracle = await EmbeddedIndex.open(new_folder(), EmbeddedOptions(vectors=VECTORS, threads=1))
    for index in (pair[0], oracle):
        await index.create(tenant, COLLECTION)
    for who, remove, name, text in steps:
        for index in (pair[who], oracle):
            if remove:
                await index.delete(tenant, NAME, [name])
            else:
                await index.upsert(
                    tenant, NAME, [prepare_record(make_record(name, text), EAST if text == "lynx" else NORTH)]
                )
    asked = (make_query("zebra lynx", k=3), make_query(vector=EAST, k=2), make_query("lynx", vector=NORTH))
    found = [[told(await index.search(tenant, each)) for each in asked] for index in (oracle, *pair)]
    await oracle.close()

    assert found[0] == found[1] == found[2]


def unit(numbers: tuple[int, ...]) -> Vector:
    """A unit vector; the null vector stays what it is."""
    vector = np.array(numbers, np.float32)
    return vector / max(float(np.linalg.norm(vector)), 1.0)


READERS = st.sampled_from([(PUBLIC,), ("user:anna",), ("user:boris",), ("group:sales", "user:anna"), ("group:none",)])
DIRECTIONS = st.tuples(*[st.integers(-3, 3)] * 4).map(unit)
SIZES = st.integers(1, 5)
TEXTS = st.lists(st.sampled_from(("zebra", "lynx", "walrus", "zebra lynx")), min_size=1, max_size=3).map("\n".join)


@settings(max_examples=40, suppress_health_check=LAX)
@given(
    data=st.data(),
    records=record_lists(max_size=12),
    where=st.none() | filters(),
    exact_scan=st.sampled_from([0, 1 << 14]),
)
async def test_generated_stores_are_searched_like_the_embedded_one(
    data: st.DataObject,
    records: list[Record],
    where: Filter | None,
    exact_scan: int,
    pair: tuple[PostgresIndex, PostgresIndex],
    new_folder: Callable[[], Path],
) -> None:
    """Readers, filters, words, vectors and limits: the same hits, scores and ranks, with and without a prefilter."""
    tenant = new_folder().name
    anna, boris = (Scope(tenant=tenant, user=each.user, groups=each.groups) for each in (ANNA, BORIS))
    oracle = await EmbeddedIndex.open(new_folder(), EmbeddedOptions(vectors=VECTORS, threads=1))
    prepared = [
        prepare_record(replace(each, text=data.draw(TEXTS), acl=data.draw(READERS)), data.draw(st.none() | DIRECTIONS))
        for each in records
    ]
    asked: list[Query] = [
        make_query(
            data.draw(TEXTS), vector=data.draw(st.none() | DIRECTIONS), where=where, k=data.draw(st.integers(1, 5))
        )
        for _ in range(3)
    ]
    found: list[list[list[tuple[Any, ...]]]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres_search, "_FULL_SCAN_LIMIT", exact_scan)
        for index in (oracle, pair[0]):
            for scope in (anna, boris):
                await index.create(scope, COLLECTION)
            await index.upsert(anna, NAME, prepared)
            found.append([told(await index.search(scope, each)) for scope in (anna, boris) for each in asked])
    await oracle.close()

    assert found[0] == found[1]


async def test_many_ties_and_many_that_fail_a_filter_are_all_counted(
    pair: tuple[PostgresIndex, PostgresIndex], new_folder: Callable[[], Path]
) -> None:
    """More passages tie than a search first asks for, and the few that pass a filter are far behind others."""
    one, _ = pair
    oracle = await EmbeddedIndex.open(new_folder(), EmbeddedOptions(vectors=VECTORS, threads=1))
    rows = [
        prepare_record(make_record(f"r{at:03}", "zebra " * (1 + at % 2), payload={"tags": str(at // 290)}), EAST)
        for at in range(300)
    ]
    asked = [
        make_query("zebra", vector=EAST, k=2),
        make_query("zebra", vector=EAST, k=2, where=Equals("tags", "1")),
        make_query("zebra", vector=NORTH, k=2, where=Equals("tags", "2")),
        make_query("zebra", vector=EAST, k=2, where=Equals("tags", "0")),
    ]
    found: list[list[list[tuple[Any, ...]]]] = []
    for index in (oracle, one):
        await index.create(ANNA, COLLECTION)
        await index.upsert(ANNA, NAME, rows)
        found.append([told(await index.search(ANNA, each)) for each in asked])
    await oracle.close()

    assert found[0] == found[1]


async def test_a_collection_that_outgrew_the_limit_is_searched_in_a_graph(url: str) -> None:
    """Nothing that the scope may not read, or that fails the filter, comes out; who may read little is told exactly."""
    index = await PostgresIndex.open(url, PostgresOptions(vectors=VECTORS, exact_limit=20))
    await index.create(ANNA, COLLECTION)
    draw = np.random.default_rng(0)
    rows = [
        prepare_record(
            make_record(f"r{at:02}", acl=("user:boris",) if at % 4 == 0 else (PUBLIC,), payload={"tags": str(at % 3)}),
            unit(tuple(draw.integers(-9, 9, 4).tolist())),
        )
        for at in range(80)
    ]
    await index.upsert(ANNA, NAME, rows)
    before = await index.search(ANNA, make_query(vector=EAST, k=5))
    await index.optimize()
    with index.pool.connection() as db:
        graphs = db.execute("SELECT count(*) FROM graphs").fetchone()
    after = await index.search(ANNA, make_query(vector=EAST, k=5))
    filtered = await index.search(ANNA, make_query(vector=EAST, k=5, where=Equals("tags", "1")))
    await index.upsert(ANNA, NAME, [prepare_record(make_record("new"), EAST)])
    found = record_ids(await index.search(ANNA, make_query(vector=EAST, k=1)))
    await index.close()

    assert (1,) == graphs
    assert told(before) == told(after)
    assert {("1", (PUBLIC,))} == {(hit.record.payload["tags"], hit.record.acl) for hit in filtered}
    assert ["new"] == found


async def test_passages_without_vectors_get_them_from_one_process(pair: tuple[PostgresIndex, PostgresIndex]) -> None:
    """They are found by words at once and by vectors later; another process is not given the same ones to embed."""
    one, other = pair
    boris = Scope(tenant="other", user="boris")
    await one.create(boris, COLLECTION)
    waiting = [
        replace_unembedded(make_record("a", "zebra\nlynx")),
        replace_unembedded(make_record("b", acl=("user:boris",))),
    ]
    await one.upsert(ANNA, NAME, waiting)
    await one.upsert(boris, NAME, [replace_unembedded(make_record("c"))])
    counts = [await each.count_unembedded(scope, NAME) for each in pair for scope in (ANNA, boris)]
    found = record_ids(await other.search(ANNA, make_query("zebra", vector=EAST)))
    first = await one.next_unembedded(after="", limit=10)
    second = await other.next_unembedded(after="local", limit=10)
    third = await other.next_unembedded(after="", limit=10)
    assert first is not None
    assert second is not None
    await one.delete(BORIS, NAME, ["b"])
    written = await one.add_vectors(first, {each.number: {"dense": EAST} for each in first.passages})
    by_vector = await other.search(ANNA, make_query(vector=EAST))

    assert [2, 1, 2, 1] == counts
    assert ["a"] == found
    assert (("local", 3, 4), ("other", 1)) == (
        (first.tenant, len(first.passages), first.waiting),
        (second.tenant, len(second.passages)),
    )
    assert None is third
    assert {each.number for each in first.passages if each.record.id == "a"} == written
    assert [("a", 0), ("a", 1)] == [(hit.record.id, hit.ordinal) for hit in by_vector]
    assert [0, 1] == [await each.count_unembedded(scope, NAME) for each, scope in zip(pair, (ANNA, boris), strict=True)]


def replace_unembedded(record: Record) -> Any:
    """The record as it is written when its vectors come later."""
    return dataclasses.replace(prepare_record(record, None), unembedded=True)


async def test_readers_may_be_many(pair: tuple[PostgresIndex, PostgresIndex]) -> None:
    """A list of readers longer than an index of the database takes is kept, and found again."""
    many = tuple(f"group:{'g' * 40}{at}" for at in range(300))
    member = Scope(tenant="local", user="x", groups=(many[7].removeprefix("group:"),))
    await pair[0].upsert(
        ANNA, NAME, [prepare_record(make_record("a", acl=many)), prepare_record(make_record("b", acl=many))]
    )

    assert ["a", "b"] == record_ids(await pair[1].search(member, make_query("zebra")))


async def test_an_id_that_is_too_long_is_refused(pair: tuple[PostgresIndex, PostgresIndex]) -> None:
    """The caller is told, and nothing of the write is stored."""
    endless = "".join(chr(0x4E00 + at * 7 % 20_000) for at in range(4_000))
    with pytest.raises(InvalidRequest, match="too long"):
        await pair[0].upsert(ANNA, NAME, [prepare_record(make_record("a")), prepare_record(make_record(endless))])

    assert [] == record_ids(await pair[1].search(ANNA, make_query("zebra")))


def test_migrations_run_once_however_many_come(url: str) -> None:
    """Processes that open an empty database at the same time all find it made."""
    pools = [PostgresPool(url) for _ in range(4)]
    threads = [threading.Thread(target=migrate, args=(pool, pool.schema, MIGRATIONS)) for pool in pools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with pools[0].transaction() as db:
        rows = db.execute("SELECT version FROM migrations").fetchall(), db.execute("SELECT one FROM store").fetchall()
    for pool in pools:
        pool.close()

    assert ([(len(MIGRATIONS),)], [(True,)]) == rows


def test_a_newer_schema_is_refused(url: str) -> None:
    """A package that is too old says so instead of guessing."""
    pool = PostgresPool(url)
    migrate(pool, pool.schema, (*MIGRATIONS, "SELECT 1"))
    with pytest.raises(SourceUnavailable, match="upgrade contexture"):
        migrate(pool, pool.schema, MIGRATIONS)
    pool.close()


async def test_a_schema_from_long_ago_is_refused(url: str) -> None:
    """The error says how to move."""
    index = await PostgresIndex.open(url, OPTIONS)
    with index.pool.transaction() as db:
        db.execute("UPDATE migrations SET version = 3")
    await index.close()
    with pytest.raises(SourceUnavailable, match="contexture migrate"):
        await PostgresIndex.open(url, OPTIONS)


async def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    """The error says where it was looked for."""
    with pytest.raises(SourceUnavailable, match=r"PostgreSQL at 127\.0\.0\.1/app") as caught:
        await PostgresIndex.open("postgres://anna:hunter2@127.0.0.1:1/app", OPTIONS)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["Public", "a;b", "", "x" * 60])
def test_a_schema_has_a_plain_name(name: str) -> None:
    """What could be read as anything else in a statement is refused."""
    with pytest.raises(InvalidRequest, match="schema"):
        PostgresPool(f"postgres://localhost/app?schema={name}")
