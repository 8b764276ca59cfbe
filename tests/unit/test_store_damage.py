"""Damaged databases: what is noticed, what is said, and what comes back."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from contexture import Settings
from contexture.adapters.keys import ApiKeys
from contexture.adapters.private_files import create_private_database
from contexture.adapters.sqlite import SqliteTables
from contexture.adapters.store_backup import back_up
from contexture.adapters.store_damage import check_at_open, find_damage, find_lost_writes
from contexture.cli.main import app
from contexture.conversation import Memory
from contexture.errors import StoreDamaged
from contexture.types import PUBLIC, Record, Scope
from contexture.wiring import delete_derived_files, salvage_store
from contexture.workspace import Block, BlockType
from support.damage import (
    FRAME,
    PAGE,
    cut_in_half,
    overwrite_bytes,
    overwrite_leaf_page,
    remove_every_byte,
    zero_first_page,
    zero_header,
)
from support.service import small_engine

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
RECORDS = 240
DAMAGES = {
    "page": overwrite_leaf_page,
    "cut": cut_in_half,
    "header": zero_header,
    "first page": zero_first_page,
    "every byte": remove_every_byte,
}
WAYS_BACK = r"contexture restore FILE --force.*contexture salvage FOLDER"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store with records, a memory, a block and a key, closed."""
    home = tmp_path_factory.mktemp("sound") / "home"
    asyncio.run(_fill(home))
    keys = ApiKeys(home / "keys.sqlite")
    keys.add("mine", Scope.local(), now=NOW)
    keys.close()
    return home


async def _fill(home):
    async with small_engine(Settings(home=home)) as engine:
        await engine.add(
            [Record(id=f"r{n:04d}", text=f"Pump {n} leaks. " * 6, acl=("group:ops",)) for n in range(RECORDS)],
            scope=Scope(tenant="acme", user="anna", groups=("ops",)),
        )
        await engine.add([Record(id="p", text="Everyone may read about pumps.", acl=(PUBLIC,))])
        await engine.memory.remember(engine.scope, [Memory(text="Anna likes tea.", time=NOW)])
        await engine.workspace.put(engine.scope, [Block(id="b", type=BlockType.PAGE, text="A page")], now=NOW)
        await engine.build("pump")


@pytest.fixture
def home(sound, tmp_path):
    """A copy of it to damage."""
    return shutil.copytree(sound, tmp_path / "home")


@pytest.mark.parametrize("name", ["truth.sqlite", "blocks.db", "keys.sqlite"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_any_kind_is_found(home, name, damage):
    """A sound database has none; afterwards the way back is named, and a backup fails."""
    path = home / name
    assert find_damage(path) == ""
    if damage == "page" and name != "truth.sqlite":
        overwrite_bytes(path, path.stat().st_size // PAGE // 2 * PAGE, b"\xa5" * PAGE)
    else:
        DAMAGES[damage](path)

    assert find_damage(path)
    with pytest.raises(StoreDamaged, match=rf"{name}' is damaged .*{WAYS_BACK}"):
        back_up(home, home.parent / "new.tar", now=NOW)
    assert ["home"] == [each.name for each in home.parent.iterdir()]


def test_an_emptied_database_is_not_taken_for_a_new_one(home):
    """SQLite would: the keys would be gone, and a service without keys admits every local caller."""
    (home / "keys.sqlite").write_bytes(b"")

    with pytest.raises(StoreDamaged, match=rf"keys\.sqlite' is damaged \(it is empty.*{WAYS_BACK}"):
        ApiKeys(home / "keys.sqlite")
    assert 0 == (home / "keys.sqlite").stat().st_size


def test_a_new_database_appears_with_its_header(tmp_path):
    """So that a crash right after leaves no empty file, and nothing else."""
    create_private_database(tmp_path / "new.sqlite")

    assert ["new.sqlite"] == [each.name for each in tmp_path.iterdir()]
    assert find_damage(tmp_path / "new.sqlite") == ""


def test_a_changed_text_is_found_where_sqlite_sees_nothing(home):
    """SQLite has no checksums, so records are compared with their hashes."""
    data = (home / "truth.sqlite").read_bytes()
    overwrite_bytes(home / "truth.sqlite", data.index(b"Pump 17 leaks."), b"Pump 99 leaks.")

    assert find_damage(home / "truth.sqlite", quick=True) == ""
    assert find_damage(home / "truth.sqlite") == "record 'r0017' is not what was stored"
    with pytest.raises(StoreDamaged, match="r0017"):
        back_up(home, home.parent / "new.tar", now=NOW)


def test_a_damaged_cache_can_be_created_again(home):
    """Nobody needs a backup for it: the sentence names `contexture rebuild`, which does it."""
    (home / "graph.sqlite").write_bytes(b"nonsense" * 1_000)
    with pytest.raises(StoreDamaged, match=r"the cache .*graph\.sqlite' is damaged .*contexture rebuild"):
        back_up(home, home.parent / "new.tar", now=NOW)
    done = delete_derived_files(Settings(home=home))

    assert "graph.sqlite" in done
    back_up(home, home.parent / "new.tar", now=NOW)


def test_a_damaged_sql_index_is_built_again_from_its_table(home):
    """Rows that an index misses are no loss."""
    with closing(sqlite3.connect(home / "truth.sqlite", isolation_level=None)) as db:
        root = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'passages_seq'").fetchone()[0]
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = 'CREATE INDEX passages_seq ON passages (ordinal)' "
                   "WHERE name = 'passages_seq'")  # fmt: skip
    with closing(sqlite3.connect(home / "truth.sqlite", isolation_level=None)) as db:
        db.execute("REINDEX passages_seq")
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = 'CREATE INDEX passages_seq ON passages (seq)' "
                   "WHERE name = 'passages_seq'")  # fmt: skip
    assert root
    assert find_damage(home / "truth.sqlite")
    done = delete_derived_files(Settings(home=home))

    assert "truth.sqlite" in done
    assert find_damage(home / "truth.sqlite") == ""


# --- the write-ahead log ---
@pytest.fixture
def log(tmp_path):
    """A database with ten committed writes in its log, as a killed process leaves it."""
    path = tmp_path / "live.db"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    db.execute("CREATE TABLE t (n, filler)")
    for number in range(10):
        db.execute("INSERT INTO t VALUES (?, ?)", (number, "x" * 3_000))
    (tmp_path / "dead").mkdir()
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(f"{path}{suffix}", tmp_path / "dead" / f"dead.db{suffix}")
    db.close()
    return tmp_path / "dead" / "dead.db"


def wal_of(path):
    """The log of a database."""
    return path.with_name(f"{path.name}-wal")


@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("place", [40, 32 + 2 * FRAME + 100, 0, 17], ids=["first", "third", "header", "salt"])
def test_a_damaged_log_is_found_before_sqlite_drops_what_follows(log, place, with_index):
    """Opening would lose committed writes without a word."""
    if not with_index:
        log.with_name("dead.db-shm").unlink()
    assert find_lost_writes(log) == ""
    overwrite_bytes(wal_of(log), place, b"\xa5\xa5")

    assert "of committed writes in its write-ahead log cannot be read" in find_lost_writes(log)
    with pytest.raises(StoreDamaged, match=WAYS_BACK):
        SqliteTables(log, ()).create()
    assert wal_of(log).exists()


def test_the_last_write_is_missed_when_the_index_of_the_log_counts_it(log):
    """A killed process leaves the number of committed frames behind."""
    size = wal_of(log).stat().st_size
    overwrite_bytes(wal_of(log), size - 100, b"\xa5")

    assert find_lost_writes(log).startswith("1 frames of committed writes")


@pytest.mark.parametrize("left", ["half a frame", "a frame without checksum", "nothing"])
def test_what_a_crash_leaves_is_no_damage(log, left):
    """A write that was not finished was not acknowledged; SQLite drops it, and all others are there."""
    log.with_name("dead.db-shm").unlink()
    data = wal_of(log).read_bytes()
    torn = {"half a frame": data[-FRAME : -FRAME // 2], "a frame without checksum": data[-FRAME:-50] + bytes(50)}
    wal_of(log).write_bytes(data + torn.get(left, b""))

    assert find_damage(log) == ""
    with closing(sqlite3.connect(log)) as db:
        assert db.execute("SELECT count(*) FROM t").fetchone() == (10,)


def test_a_check_leaves_the_locks_of_its_process_alone(log):
    """While a write is under way here, another process cannot write, however often the database is checked."""
    script = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN IMMEDIATE')"
    with closing(sqlite3.connect(log, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        assert ["", ""] == [find_lost_writes(log) for _ in range(2)]
        other = subprocess.run([sys.executable, "-c", script, str(log)], capture_output=True, text=True, check=False)

    assert "database is locked" in other.stderr


def test_frames_of_an_earlier_use_of_the_log_are_no_damage(tmp_path):
    """After a checkpoint the log is written from its beginning, over older frames."""
    path = tmp_path / "live.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (n, filler)")
        for number in range(10):
            db.execute("INSERT INTO t VALUES (?, ?)", (number, "x" * 3_000))
        db.execute("PRAGMA wal_checkpoint(RESTART)")
        db.execute("INSERT INTO t VALUES (99, '')")

        assert wal_of(path).stat().st_size > 32 + 5 * FRAME
        assert find_lost_writes(path) == ""
        check_at_open(path)


# --- the ways back ---
@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "every byte"])
async def test_what_can_be_read_is_in_the_salvaged_store(home, damage, tmp_path):
    """Records keep their readers, are found again, and nothing in the damaged store changes."""
    DAMAGES[damage](home / "truth.sqlite")
    before = (home / "truth.sqlite").read_bytes()
    report = await asyncio.to_thread(salvage_store, Settings(home=home), tmp_path / "new")
    ops = Scope(tenant="acme", user="boris", groups=("ops",))
    async with small_engine(Settings(home=tmp_path / "new")) as engine:
        ids = [each.id for each in await engine.index.scroll(ops, "documents", limit=1_000)]
        found = await engine.search(f"pump {int(ids[-1][1:])}", scope=ops)
        hidden = await engine.index.collections(Scope(tenant="acme", user="boris"))
        seen = await engine.index.scroll(Scope(tenant="acme", user="boris"), "documents", limit=9)

    least = {"page": RECORDS * 0.9, "cut": 1, "header": RECORDS, "first page": RECORDS}[damage]
    assert len(ids) >= least
    assert found.found
    assert ([], True) == (list(seen), bool(hidden))
    assert report.records >= least
    assert before == (home / "truth.sqlite").read_bytes()
    assert (damage in ("page", "cut")) == any(name.startswith("truth.sqlite") for name in report.incomplete)
    assert find_damage(tmp_path / "new" / "truth.sqlite") == ""
    assert (tmp_path / "new" / "builds").is_dir()


def test_salvage_says_that_an_emptied_database_gave_nothing(home, tmp_path):
    """The other databases are in the new store."""
    remove_every_byte(home / "truth.sqlite")
    report = salvage_store(Settings(home=home), tmp_path / "new")

    assert any(name.startswith("truth.sqlite") for name in report.incomplete)
    assert find_damage(tmp_path / "new" / "blocks.db") == ""


def test_deleted_records_do_not_come_back(home, tmp_path):
    """Salvage reads tables, not what is left on free pages."""
    with closing(sqlite3.connect(home / "truth.sqlite")) as db, db:
        db.execute("DELETE FROM records WHERE id = 'r0005'")
    zero_header(home / "truth.sqlite")
    salvage_store(Settings(home=home), tmp_path / "new")

    assert b"Pump 5 leaks." not in (tmp_path / "new" / "truth.sqlite").read_bytes()


async def test_a_record_that_lost_its_passages_is_prepared_again(home, tmp_path):
    """Its text is whole, so everything computed from it can be computed again."""
    with closing(sqlite3.connect(home / "truth.sqlite")) as db, db:
        db.execute("DELETE FROM vectors WHERE pid IN (SELECT pid FROM passages LIMIT 3)")
    report = await asyncio.to_thread(salvage_store, Settings(home=home), tmp_path / "new")

    assert 1 <= report.prepared <= 3
    assert report.incomplete == []


def test_the_commands_name_the_damage_and_bring_the_store_back(home, tmp_path):
    """Every command answers in one line; `doctor` fails; `salvage` and `rebuild` say what they did."""
    run = CliRunner()
    overwrite_leaf_page(home / "truth.sqlite")
    for words in (["search", "pump"], ["backup", str(tmp_path / "x.tar")], ["rebuild"], ["build", "query", "pump"]):
        result = run.invoke(app, [*words, "--home", str(home)])
        assert (3, 1) == (result.exit_code, len(result.stderr.strip().splitlines())), result.output
        assert "contexture salvage FOLDER" in result.stderr
    doctor = run.invoke(app, ["doctor", "--home", str(home), "--json"])
    saved = run.invoke(app, ["salvage", str(tmp_path / "new"), "--home", str(home)])
    rebuilt = run.invoke(app, ["rebuild", "--home", str(tmp_path / "new")])
    found = run.invoke(app, ["search", "pump", "--home", str(tmp_path / "new"), "--json"])
    again = run.invoke(app, ["salvage", str(tmp_path / "new"), "--home", str(home)])

    assert doctor.exit_code == 1
    assert "truth.sqlite' is damaged" in doctor.stdout
    assert saved.exit_code == 0, saved.output
    assert "parts of truth.sqlite: " in saved.stderr
    assert (0, "built again: nothing was there to build\n") == (rebuilt.exit_code, rebuilt.stdout)
    assert found.exit_code == 0
    assert (2, True) == (again.exit_code, "is not empty" in again.stderr)
