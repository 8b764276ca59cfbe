"""Blocks in SQLite: large families, damaged trees, and what happens at the edges of a file."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from contexture.adapters.blocks import sqlite as sqlite_store
from contexture.adapters.blocks.schema import MAX_DEPTH, MIGRATIONS
from contexture.adapters.blocks.sqlite import SqliteBlocks, SqliteConnectionPool
from contexture.adapters.store_migration.migrate import STORE_TABLES
from contexture.blocks.links import extract_links
from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.testing.blocks_tree import block_ids, make_block, make_page
from contexture.testing.doubles import NOON
from contexture.types import Scope
from contexture.workspace import PutResult

ANNA = Scope(tenant="acme", user="anna")
BORIS = Scope(tenant="acme", user="boris")
MANY = 20_000


@pytest.fixture
def path(new_folder: Callable[[], Path]) -> Path:
    """Where the store lives."""
    return new_folder() / "blocks.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteBlocks]:
    """A store in a folder of its own."""
    opened = SqliteBlocks(path, extract_links)
    yield opened
    opened.close()


def work_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What SQLite does on connections opened from now on, an item for every thousand steps of its machine."""
    steps: list[int] = []
    connect = sqlite3.connect

    def counted(*given: object, **more: object) -> sqlite3.Connection:
        connection = connect(*given, **more)  # pyright: ignore[reportArgumentType, reportCallIssue]
        connection.set_progress_handler(lambda: steps.append(1), 1_000)
        return connection

    monkeypatch.setattr(sqlite3, "connect", counted)
    return steps


async def test_a_large_family_is_never_read_whole(store, monkeypatch):
    """Of 20,000 children, most of them hidden, reading a few costs a few steps, wherever they stand."""
    hidden = ("user:anna",)
    family = [make_block(f"k{at:05}", "p", order=at, readers=hidden if at < MANY - 5 else None) for at in range(MANY)]
    await store.put(ANNA, [make_page("p"), *family], now=NOON)
    steps = work_of(monkeypatch)
    first = block_ids(await store.children(BORIS, "p", limit=2))
    below = block_ids(await store.subtree(BORIS, "p", depth=2, limit=3))
    beside = block_ids(await store.siblings(BORIS, "k19997", before=9, after=1))
    middle = block_ids(await store.siblings(ANNA, "k10000", before=1, after=1))

    assert (["k19995", "k19996"], ["k19995", "k19996", "k19997"]) == (first, below)
    assert (["k19995", "k19996", "k19998"], ["k09999", "k10001"]) == (beside, middle)
    assert len(steps) < 20


async def test_a_damaged_tree_never_hangs_a_reader(path, store):
    """A circle that no write can make still ends: upwards, downwards, and when it is deleted."""
    await store.put(ANNA, [make_page("a"), make_block("b", "a"), make_block("c", "b")], now=NOON)
    with sqlite3.connect(path) as damaged:
        damaged.execute("UPDATE blocks SET parent = (SELECT row FROM blocks WHERE id = 'c') WHERE id = 'a'")

    assert MAX_DEPTH == len((await store.ancestors(ANNA, ["c"]))["c"])
    assert 50 == len(await store.subtree(ANNA, "a", depth=10**9, limit=50))
    assert {"a", "b", "c"} == {each.id for each in await store.stale(limit=9)}
    assert PutResult(changed=1) == await store.put(ANNA, [replace(make_page("a"), text="new", parent=None)], now=NOON)
    assert 3 == len(await store.delete(ANNA, ["a"], now=NOON))


async def test_a_tree_has_a_deepest_level(store):
    """Deeper ones are refused, by a write and by a move, also when it is what stands below that would be too deep."""
    line = [make_block(f"n{at}", f"n{at - 1}" if at else None) for at in range(MAX_DEPTH + 1)]
    with pytest.raises(InvalidRequest, match=f"more than {MAX_DEPTH} levels"):
        await store.put(ANNA, line, now=NOON)
    await store.put(ANNA, [*line[:-1], make_page("p"), make_block("a", "p")], now=NOON)
    for deep in (line[-2], line[-3]):
        with pytest.raises(InvalidRequest, match=f"more than {MAX_DEPTH} levels"):
            await store.move(ANNA, "p", parent=deep.id, order=0, now=NOON)
        with pytest.raises(InvalidRequest, match=f"more than {MAX_DEPTH} levels"):
            await store.put(ANNA, [replace(make_page("p"), parent=deep.id)], now=NOON)
    await store.move(ANNA, "p", parent=line[-4].id, order=0, now=NOON)

    assert MAX_DEPTH - 1 == len((await store.ancestors(ANNA, ["a"]))["a"])


async def test_what_was_written_is_there_after_opening_again(path, store):
    """Blocks, links, activity and what searches are to be told."""
    await store.put(ANNA, [make_page("p"), make_block("a", "p", text="((p))")], now=NOON)
    store.close()
    again = SqliteBlocks(path, extract_links)

    assert ["p", "a"] == block_ids(await again.get(ANNA, ["p", "a"]))
    assert ["a"] == [each.source for each in await again.backlinks(ANNA, ["p"], limit=5)]
    assert ["p", "a"] == [each.id for each in await again.stale(limit=5)]
    again.close()


async def test_nothing_is_made_before_it_is_needed(path, store):
    """A store that is only asked what waits makes no file; the file is private once it is made."""
    assert [] == list(await store.stale(limit=5))
    assert not path.exists()
    assert [] == list(await store.get(ANNA, ["a"]))
    assert 0o600 == path.stat().st_mode & 0o777


async def test_a_closed_store_says_so(store):
    """Reads and writes fail alike."""
    await store.put(ANNA, [make_page("p")], now=NOON)
    await store.get(ANNA, ["p"])
    store.close()
    with pytest.raises(SourceUnavailable):
        await store.get(ANNA, ["p"])
    with pytest.raises(SourceUnavailable):
        await store.put(ANNA, [make_page("q")], now=NOON)


async def test_a_read_that_runs_while_a_store_is_closed_still_answers(path):
    """Its connection is closed behind it."""
    lent = SqliteConnectionPool(path, MIGRATIONS)
    await lent.write(lambda db: db.execute("INSERT INTO classes VALUES (1, 'acme', '[]')"))

    def read(db: sqlite3.Connection) -> int:
        lent.close()
        return db.execute("SELECT count(*) FROM classes").fetchone()[0]

    assert 1 == await lent.read(read)
    with pytest.raises(SourceUnavailable):
        await lent.read(read)


async def test_a_file_that_is_no_database_is_named(path, store):
    """The error says which file is damaged."""
    path.write_text("not a database, however long it may be" * 100)
    with pytest.raises(SourceUnavailable, match=r"blocks\.db"):
        await store.get(ANNA, ["a"])


async def test_reads_do_not_wait_for_each_other(store):
    """Many at a time answer as one after the other."""
    await store.put(ANNA, [make_page("p"), *(make_block(f"b{at}", "p", order=at) for at in range(20))], now=NOON)
    found = await asyncio.gather(*(store.children(ANNA, "p", limit=20) for _ in range(40)))

    assert [block_ids(found[0])] * 40 == [block_ids(each) for each in found]


async def test_reads_that_come_together_fail_alone(path):
    """What one of them raises is for the one who asked."""
    lent = SqliteConnectionPool(path, MIGRATIONS)
    await lent.write(lambda db: db.execute("INSERT INTO classes VALUES (1, 'acme', '[]')"))

    async def count() -> int:
        return await lent.read(lambda db: db.execute("SELECT count(*) FROM classes").fetchone()[0])

    async def fail() -> int:
        return await lent.read(lambda db: db.execute("SELECT count(*) FROM nowhere").fetchone()[0])

    await count()
    found = await asyncio.gather(count(), fail(), count(), return_exceptions=True)
    lent.close()

    assert [1, 1] == [found[0], found[2]]
    assert isinstance(found[1], SourceUnavailable)


async def test_a_short_read_stays_where_it_was_asked_for(store):
    """Changing threads costs more than most reads do."""
    await store.get(ANNA, ["p"])

    assert threading.get_ident() == await store._tables.read(lambda _db: threading.get_ident())


async def test_a_long_read_is_begun_again_in_a_thread(store):
    """So that nobody else waits for it; its answer is the same."""
    await store.get(ANNA, ["p"])
    counting = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000000) SELECT max(n) FROM n"
    threads: list[int] = []

    def read(db: sqlite3.Connection) -> int:
        threads.append(threading.get_ident())
        return db.execute(counting).fetchone()[0]

    assert 1_000_000 == await store._tables.read(read)
    assert 2 == len(set(threads))
    assert [] == await store.get(ANNA, ["p"])  # the connection is as good as before


async def test_a_read_that_waits_for_a_processor_is_not_begun_again(store, monkeypatch):
    """Other threads may compute meanwhile, as those of a bulk write do; begun again, it would wait for them twice."""
    await store.get(ANNA, ["p"])
    ticks = itertools.count()
    monkeypatch.setattr(sqlite_store, "perf_counter", lambda: next(ticks) * 0.01)
    monkeypatch.setattr(sqlite_store, "thread_time", lambda: 0.0)
    counting = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 200) SELECT max(n) FROM n"
    threads: list[int] = []

    def read(db: sqlite3.Connection) -> int:
        threads.append(threading.get_ident())
        return db.execute(counting).fetchone()[0]

    assert 200 == await store._tables.read(read)
    assert [threading.get_ident()] == threads


async def test_what_a_long_read_left_open_shows_nobody_the_past(path):
    """While it waits for a thread, others read what was written meanwhile."""
    lent = SqliteConnectionPool(path, MIGRATIONS)
    await lent.write(lambda db: db.execute("INSERT INTO classes VALUES (1, 'acme', '[]'), (2, 'acme', '[1]')"))
    counting = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000000) SELECT max(n) FROM n"
    tries: list[int] = []
    tried = asyncio.Event()

    def read(db: sqlite3.Connection) -> int:
        tries.append(threading.get_ident())
        tried.set()
        classes = db.execute("SELECT class FROM classes")
        return next(classes)[0] + db.execute(counting).fetchone()[0]

    def count(db: sqlite3.Connection) -> int:
        return db.execute("SELECT count(*) FROM classes").fetchone()[0]

    before, busy = await lent.read(count), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        threads.submit(busy.wait, 60)
        long = asyncio.create_task(lent.read(read))
        await tried.wait()
        with sqlite3.connect(path) as other:
            other.execute("INSERT INTO classes VALUES (3, 'acme', '[2]')")
        found = await lent.read(count)
        busy.set()
        whole = await long
    lent.close()

    assert (2, 3, 1_000_001, 2) == (before, found, whole, len(set(tries)))


async def test_a_file_that_another_process_holds_stops_nobody_else(path):
    """Its reader waits in a thread."""
    lent = SqliteConnectionPool(path, MIGRATIONS)
    await lent.write(lambda db: db.execute("INSERT INTO classes VALUES (1, 'acme', '[]')"))
    threads: list[int] = []

    def read(db: sqlite3.Connection) -> int:
        threads.append(threading.get_ident())
        if len(threads) == 1:
            held = sqlite3.OperationalError("database is locked")
            held.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise held
        return db.execute("SELECT count(*) FROM classes").fetchone()[0]

    assert 1 == await lent.read(read)
    assert threading.get_ident() == threads[0] != threads[1]
    lent.close()


async def test_blocks_of_before_there_were_facts_wait_for_them(path):
    """A store of an older version is brought up to date by whoever settles what waits."""
    old = SqliteConnectionPool(path, MIGRATIONS[:1])
    await old.write(lambda db: db.execute("INSERT INTO classes VALUES (1, 'acme', '[\"public\"]')"))
    await old.write(
        lambda db: db.execute(
            "INSERT INTO blocks (tenant, id, position, type, text, properties, class, author, created, modified, done)"
            " VALUES ('acme', 'a', 0, 'paragraph', 'old', '{}', 1, 'anna', 0, 0, 0)"
        )
    )
    old.close()
    store = SqliteBlocks(path, extract_links)
    waiting = await store.stale(limit=9)
    store.close()

    assert [("a", "old")] == [(each.id, each.block and each.block.text) for each in waiting]


async def test_a_text_that_is_no_text_is_named(path, store):
    """What SQLite can read and Python cannot is a failure of the store like any other."""
    await store.put(ANNA, [make_page("p")], now=NOON)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE blocks SET text = CAST(x'ff' AS TEXT)")

    with pytest.raises(SourceUnavailable, match=r"blocks\.db"):
        await store.get(ANNA, ["p"])


async def test_damaged_facts_are_as_good_as_none(path, store):
    """They can be computed again."""
    await store.put(ANNA, [make_page("p")], now=NOON)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE blocks SET facts = x'00'")

    assert {} == await store.facts(ANNA, ["p"])
    assert [None] == [each.facts for each in await store.stale(limit=9)]


async def test_times_beyond_the_calendar_stand_at_its_end(store):
    """A zone may push a time over the edge; it is stored all the same."""
    late = datetime.fromisoformat("9999-12-31T23:59:59-14:00")
    early = datetime.fromisoformat("0001-01-01T00:00:00+14:00")
    await store.put(ANNA, [replace(make_page("p"), created=early, modified=late)], now=NOON)
    (found,) = await store.get(ANNA, ["p"])

    assert (1, 9999) == (found.created.year, found.modified.year)
    assert UTC == found.modified.tzinfo


async def test_a_principal_is_compared_whole(store):
    """A user whose name goes on behind a NUL is not the user before it."""
    await store.put(ANNA, [make_page("p", readers=("user:anna",))], now=NOON)
    disguised = Scope(tenant="acme", user="anna\0x")

    assert [] == list(await store.get(disguised, ["p"]))
    assert [] == list(await store.get(ANNA, ["p\0x"]))
    assert 0 == len(await store.delete(disguised, ["p"], now=NOON))


async def test_names_that_cannot_be_stored_are_refused(store):
    """A lone surrogate in a tenant or a user is an error of the request."""
    for scope in (Scope(tenant="\ud800", user="anna"), Scope(tenant="acme", user="\ud800")):
        with pytest.raises(InvalidRequest):
            await store.put(scope, [make_page("p")], now=NOON)
        with pytest.raises(InvalidRequest):
            await store.get(scope, ["p"])


def test_a_migration_copies_every_column_of_blocks():
    """A column or table that is forgotten, such as that of managers, would give rights away."""
    db = sqlite3.connect(":memory:")
    for statements in MIGRATIONS:
        db.executescript(statements)
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    stored = {
        table: {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
        for table in tables
        if not table.startswith("sqlite_")
    }
    db.close()

    assert stored == {spec.name: set(spec.columns) for spec in STORE_TABLES["blocks"]}
