"""Promises of an index in PostgreSQL beyond the contract: several processes, long lists, what follows what."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import resource
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contexture.adapters.index import collection_index
from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.adapters.index.search_ports import ScopedSearcher
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
from contexture.types import Collection, Equals, FieldType, Query, Scope

pytest.importorskip("psycopg", reason="psycopg is not installed")

from contexture.adapters.index.postgres import index as postgres_index
from contexture.adapters.index.postgres.index import PostgresIndex
from contexture.adapters.index.postgres.listener import WriteListener
from contexture.adapters.index.postgres.schema import MIGRATIONS
from contexture.adapters.postgres.migrations import migrate
from contexture.adapters.postgres.pool import PostgresPool

OPTIONS = EmbeddedOptions(vectors=VECTORS, threads=1)
ANNA = Scope(tenant="local", user="anna")
LAX = [HealthCheck.function_scoped_fixture]
MANY_FILES = 4_096


@pytest.fixture
async def pair(pair: tuple[PostgresIndex, PostgresIndex]) -> tuple[PostgresIndex, PostgresIndex]:
    """Two processes' indexes over one store with a collection."""
    await pair[0].create(ANNA, COLLECTION)
    return pair


async def test_the_vectors_there_are_follow_what_others_write(pair: tuple[PostgresIndex, PostgresIndex]) -> None:
    """They are told without asking the database, as of when it was last asked for a version."""
    one, other = pair
    record = prepare_record(make_record("a"))
    await other.upsert(ANNA, NAME, [prepare_record(make_record("b"), vector=None)])
    await one.search(ANNA, make_query("zebra"))
    before = await one.spaces(ANNA, NAME)
    await other.upsert(ANNA, NAME, [record])
    await one.version(ANNA, NAME)

    assert frozenset() == before
    assert record.passages[0].vectors.keys() == await one.spaces(ANNA, NAME)
    assert None is await one.spaces(Scope(tenant="elsewhere", user="anna"), NAME)


async def test_parts_that_are_filled_anew_while_following_take_nothing_twice(
    pair: tuple[PostgresIndex, PostgresIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large removal wears a part out, so that it is read again, with what was written behind it."""
    monkeypatch.setattr(postgres_index, "_MAX_PASSAGES_IN_MEMORY", 4)
    monkeypatch.setattr(collection_index, "_MIN_REMOVED_TO_COMPACT", 0)
    one, other = pair
    await one.upsert(ANNA, NAME, [prepare_record(make_record(f"r{at}"), vector=NORTH) for at in range(8)])
    await other.search(ANNA, make_query("zebra"))
    other._listener.stop()  # so that it follows both writes at once
    await one.delete(ANNA, NAME, [f"r{at}" for at in range(6)])
    await one.upsert(
        ANNA, NAME, [prepare_record(make_record("best"), vector=EAST), prepare_record(make_record("next"), vector=EAST)]
    )
    first = record_ids(await other.search(ANNA, make_query(vector=EAST, k=1)))
    await one.delete(ANNA, NAME, ["best"])
    then = [record_ids(await each.search(ANNA, make_query(vector=EAST, k=1))) for each in (one, other)]
    slots = len(other._search_backend.collection_index(ANNA.tenant, NAME))

    assert ["best"] == first
    assert [["next"], ["next"]] == then
    assert 3 == slots


async def test_a_part_filled_anew_by_ones_own_write_does_not_take_a_later_one_twice(
    pair: tuple[PostgresIndex, PostgresIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process writes between a write that wears the part out and following it."""
    monkeypatch.setattr(postgres_index, "_MAX_PASSAGES_IN_MEMORY", 1)
    monkeypatch.setattr(collection_index, "_MIN_REMOVED_TO_COMPACT", 0)
    one, other = pair
    one._listener.stop()
    herd = [prepare_record(make_record(f"r{at}"), vector=NORTH) for at in range(4)]
    for _ in range(2):
        await one.upsert(ANNA, NAME, herd)
    catch_up = one._catch_up

    def late(mine: postgres_index.StoreChange | None = None) -> None:
        if mine is not None:
            other._upsert(ANNA, NAME, [prepare_record(make_record("late"), vector=EAST)])
        catch_up(mine)

    monkeypatch.setattr(one, "_catch_up", late)
    await one.upsert(ANNA, NAME, herd)
    slots = len(one._search_backend.collection_index(ANNA.tenant, NAME))

    assert len(herd) + 1 == slots


async def test_a_search_overtaken_by_another_process_shows_and_misses_nothing(
    pair: tuple[PostgresIndex, PostgresIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is repeated on the database as it is at one moment."""
    one, other = pair
    boris = Scope(tenant="local", user="boris")
    await one.upsert(
        ANNA, NAME, [prepare_record(make_record("mine", text="zebra and much else besides", acl=("user:anna",)))]
    )
    sight, written = one._open_view, list[str]()

    def overtaken(asked: Query, access: ScopeAccess) -> ScopedSearcher:
        if not written:
            written.append("secret")
            other._upsert(boris, NAME, [prepare_record(make_record("secret", acl=("user:boris",)))])
            one._catch_up()
        return sight(asked, access)

    monkeypatch.setattr(one, "_open_view", overtaken)

    assert ["mine"] == record_ids(await one.search(ANNA, make_query("zebra", k=1)))
    assert ["secret"] == written


async def test_a_process_may_have_more_files_open_than_select_can_name(
    url: str, new_folder: Callable[[], Path]
) -> None:
    """A busy service has more than a thousand connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < MANY_FILES:
        pytest.skip(f"this machine lets a process open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MANY_FILES), hard))
    taken = [os.dup(0) for _ in range(1_100)]
    try:
        index = await PostgresIndex.open(url, new_folder(), OPTIONS)
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
    await one.create(ANNA, Collection(name=NAME, fields={"colour": FieldType.KEYWORD}))
    await other.upsert(ANNA, NAME, [prepare_record(make_record("a", payload={"colour": "red"}))])
    await other.create(ANNA, Collection(name="other"))

    assert ["a"] == record_ids(await one.search(ANNA, make_query("zebra", where=Equals("colour", "red"))))
    assert ["other", NAME] == [each.name for each in await one.collections(ANNA)]


async def test_a_field_that_comes_between_a_write_and_its_following_is_filtered_by(
    pair: tuple[PostgresIndex, PostgresIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made of many records while the database wrote them is made again for the fields there are now."""
    one, other = pair
    follow = one._catch_up

    def later(mine: object = None) -> None:
        if mine is not None:
            other._create(ANNA, Collection(name=NAME, fields={"colour": FieldType.KEYWORD}))
        follow(mine)

    monkeypatch.setattr(one, "_catch_up", later)
    colours = ["red", "blue", "blue", "blue", "blue"]
    rows = [prepare_record(make_record(f"r{at:02}", payload={"colour": colours[at % 5]})) for at in range(60)]
    await one.upsert(ANNA, NAME, rows)

    assert 12 == len(record_ids(await one.search(ANNA, make_query("zebra", where=Equals("colour", "red")))))


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
    oracle = await EmbeddedIndex.open(new_folder(), OPTIONS)
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
    found = [
        [
            [(hit.record, hit.ordinal, hit.scores, hit.ranks) for hit in await index.search(tenant, each)]
            for each in asked
        ]
        for index in (oracle, *pair)
    ]
    await oracle.close()

    assert found[0] == found[1] == found[2]


async def test_a_process_that_was_away_too_long_builds_anew(pair: tuple[PostgresIndex, PostgresIndex]) -> None:
    """When writes it has not seen are told no more, it reads everything again, and caches hold nothing from before."""
    one, other = pair
    await one.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    before = await other.version(ANNA, NAME)
    other._listener.stop()
    await one.upsert(ANNA, NAME, [prepare_record(make_record("b"))])
    await one.delete(ANNA, NAME, ["a"])
    with one.pool.transaction() as db:
        db.execute("UPDATE counter SET forgotten = seq")
        db.execute("DELETE FROM writes")

    assert ["b"] == record_ids(await other.search(ANNA, make_query("zebra")))
    assert None is await other.changes(ANNA, NAME, before)
    other._listener = WriteListener(other.pool, lambda: None)
    other._listener.start()


async def test_a_folder_of_another_store_is_not_believed(
    new_url: Callable[[], str], new_folder: Callable[[], Path]
) -> None:
    """Parts that were built from one database are thrown away over another."""
    folder, first, second = new_folder(), new_url(), new_url()
    for place, name in ((first, "a"), (second, "b")):
        index = await PostgresIndex.open(place, folder, OPTIONS)
        await index.create(ANNA, COLLECTION)
        await index.upsert(ANNA, NAME, [prepare_record(make_record(name))])
        await index.close()
    index = await PostgresIndex.open(first, folder, OPTIONS)
    found = record_ids(await index.search(ANNA, make_query("zebra")))
    await index.close()

    assert ["a"] == found


async def test_the_parts_of_a_process_can_be_lost(url: str, new_folder: Callable[[], Path]) -> None:
    """They are read again: reopened, with its folder or without it, a store gives the same answers."""
    folder = new_folder()
    answers: list[list[str]] = []
    for step in ("write", "reopen", "lose", "reopen"):
        if step == "lose":
            shutil.rmtree(folder / "0")
        index = await PostgresIndex.open(url, folder, OPTIONS)
        if step == "write":
            await index.create(ANNA, COLLECTION)
            await index.upsert(ANNA, NAME, [prepare_record(make_record(name)) for name in "abc"])
            await index.delete(ANNA, NAME, ["b"])
        answers.append(record_ids(await index.search(ANNA, make_query("zebra", vector=EAST))))
        await index.close()

    assert [["a", "c"]] * 4 == answers


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
        rows = db.execute("SELECT version FROM migrations").fetchall(), db.execute("SELECT seq FROM counter").fetchall()
    for pool in pools:
        pool.close()

    assert ([(len(MIGRATIONS),)], [(0,)]) == rows


def test_a_newer_schema_is_refused(url: str) -> None:
    """A package that is too old says so instead of guessing."""
    pool = PostgresPool(url)
    migrate(pool, pool.schema, (*MIGRATIONS, "SELECT 1"))
    with pytest.raises(SourceUnavailable, match="upgrade contexture"):
        migrate(pool, pool.schema, MIGRATIONS)
    pool.close()


async def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    """The error says where it was looked for."""
    with pytest.raises(SourceUnavailable, match=r"PostgreSQL at 127\.0\.0\.1/app") as caught:
        await PostgresIndex.open("postgres://anna:hunter2@127.0.0.1:1/app", tmp_path, OPTIONS)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["Public", "a;b", "", "x" * 60])
def test_a_schema_has_a_plain_name(name: str) -> None:
    """What could be read as anything else in a statement is refused."""
    with pytest.raises(InvalidRequest, match="schema"):
        PostgresPool(f"postgres://localhost/app?schema={name}")


async def test_a_snapshot_outlasts_what_a_write_may_not(pair: tuple[PostgresIndex, PostgresIndex]) -> None:
    """Parts may take longer to build than a write may stand still."""
    with pair[0].pool.open_connection() as connection:
        limit = connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()
    with pair[0]._read_session(), pair[0]._caught_up_snapshot(), pair[0].pool.connection() as connection:
        inside = connection.execute("SHOW idle_in_transaction_session_timeout").fetchone()

    assert (("1min",), ("0",)) == (limit, inside)


async def test_following_that_was_cut_short_is_made_good(
    pair: tuple[PostgresIndex, PostgresIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that ends between two parts leaves a process that answers rightly as soon as it can ask again."""
    one, other = pair
    other._listener.stop()
    await one.create(ANNA, Collection(name="aside"))
    await one.upsert(ANNA, "aside", [prepare_record(make_record("a"), NORTH)])
    await one.search(ANNA, make_query("zebra"))
    await other.search(ANNA, make_query("zebra"))
    await one.upsert(ANNA, "aside", [prepare_record(make_record("b"), EAST)])
    await one.upsert(ANNA, NAME, [prepare_record(make_record("c"))])
    read, broken = other._postgres_store.passages_between, [NAME]

    def between(seq: int, until: int, tenant: str, collection: str) -> object:
        if collection in broken:
            raise SourceUnavailable("gone")
        return read(seq, until, tenant, collection)

    monkeypatch.setattr(other._postgres_store, "passages_between", between)
    with pytest.raises(SourceUnavailable):
        await other.search(ANNA, make_query("zebra"))
    broken.clear()
    aside = dataclasses.replace(make_query("zebra", vector=EAST), collection="aside")
    found = [[record_ids(await index.search(ANNA, each)) for each in (make_query("zebra"), aside)] for index in pair]
    await one.delete(ANNA, "aside", ["b"])
    nearest = dataclasses.replace(make_query(vector=EAST, k=1), collection="aside")
    left = [record_ids(await index.search(ANNA, nearest)) for index in pair]
    other._listener = WriteListener(other.pool, lambda: None)
    other._listener.start()

    assert [[["c"], ["a", "b"]]] * 2 == found
    assert [["a"], ["a"]] == left
