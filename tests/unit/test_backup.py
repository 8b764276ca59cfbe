"""`contexture backup` and `contexture restore`."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import sqlite3
import stat
import tarfile
from contextlib import closing
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from contexture import Settings
from contexture.adapters.index.lock import StoreLock
from contexture.adapters.keys import ApiKeys
from contexture.adapters.store_backup import MANIFEST_FILE, back_up, open_snapshots, restore_backup, verify_archive
from contexture.cli.main import app
from contexture.conversation import Memory
from contexture.errors import InvalidRequest, NotFound, StoreLocked, StoreUnwritable
from contexture.types import PUBLIC, Record, Scope
from contexture.workspace import Block, BlockType
from support.service import small_engine

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
PICTURE = b"\xff\xd8 a picture"


def record(number):
    """A record about a pump."""
    return Record(id=f"r{number:04d}", text=f"Pump {number} leaks.", acl=(PUBLIC,))


@pytest.fixture
async def home(new_folder):
    """A store with a record, a memory, a picture and a key."""
    folder = new_folder() / "home"
    async with small_engine(Settings(home=folder)) as engine:
        await engine.add([record(1)])
        await engine.memory.remember(engine.scope, [Memory(text="Anna likes tea.", time=NOW)])
        await engine.workspace.put(engine.scope, [Block(id="b", type=BlockType.PAGE, text="A page")], now=NOW)
        await engine.build("pump")
    (folder / "pages" / "abc").mkdir(parents=True)
    (folder / "pages" / "abc" / "x_page_001.jpg").write_bytes(PICTURE)
    keys = ApiKeys(folder / "keys.sqlite")
    keys.add("mine", Scope.local(), now=NOW)
    keys.close()
    return folder


@pytest.fixture
def saved(home, tmp_path):
    """A backup of it."""
    back_up(home, tmp_path / "store.tar", now=NOW)
    return tmp_path / "store.tar"


async def found(home, question="pump"):
    """The ids of the passages that a store finds."""
    async with small_engine(Settings(home=home)) as engine:
        return [each.record_id for each in (await engine.search(question)).found]


async def test_a_restored_store_holds_what_was_saved(saved, home, new_folder):
    """Records are found, memories recalled, pictures and keys are there, builds can be explained."""
    elsewhere = new_folder() / "home"
    made = restore_backup(saved, elsewhere, force=False)
    keys = ApiKeys(elsewhere / "keys.sqlite")
    names = [key.name for key in keys.list()]
    keys.close()

    assert await found(elsewhere) == ["r0001"]
    assert (elsewhere / "pages" / "abc" / "x_page_001.jpg").read_bytes() == PICTURE
    assert names == ["mine"]
    assert {path.name for path in (home / "builds").iterdir()} == {
        path.name for path in (elsewhere / "builds").iterdir()
    }
    assert made.files["truth.sqlite"].rows["records"] == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in elsewhere.rglob("*") if path.suffix == ".jpg"} == {0o600}


async def test_a_backup_is_readable_by_its_owner_alone(saved):
    """It holds everything, so nobody else may read it."""
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600


async def test_a_store_is_saved_while_it_is_written(new_folder, tmp_path):
    """What was acknowledged before is in the backup, whatever is written meanwhile, and it opens and searches."""
    home, elsewhere = new_folder(), new_folder()
    async with small_engine(Settings(home=home)) as engine:
        await engine.add([record(n) for n in range(20)])
        stop = asyncio.Event()

        async def write():
            number = 100
            while not stop.is_set():
                await engine.add([record(number)])
                number += 1
            return number

        writing = asyncio.create_task(write())
        await asyncio.to_thread(back_up, home, tmp_path / "live.tar", now=NOW)
        stop.set()
        last = await writing
    restore_backup(tmp_path / "live.tar", elsewhere, force=False)
    async with small_engine(Settings(home=elsewhere)) as engine:
        ids = [each.id for each in await engine.index.scroll(engine.scope, "documents", limit=10_000)]

    assert [f"r{n:04d}" for n in range(20)] == ids[:20]
    assert ids[20:] == [f"r{n:04d}" for n in range(100, 100 + len(ids) - 20)]  # no gaps: one moment of the writing
    assert last > 100


def test_all_databases_are_of_one_moment(new_folder):
    """What is written after that moment is seen in none of them, and nobody is kept from writing it."""
    folder = new_folder()
    paths = [folder / "a.db", folder / "b.db"]
    for path in paths:
        with closing(sqlite3.connect(path, isolation_level=None)) as file:
            file.execute("PRAGMA journal_mode = WAL")
            file.execute("CREATE TABLE t (n)")
    with open_snapshots(paths) as readers:
        for path in paths:
            with closing(sqlite3.connect(path, isolation_level=None)) as file:
                file.execute("INSERT INTO t VALUES (1)")
        seen = [reader.execute("SELECT count(*) FROM t").fetchone()[0] for reader in readers.values()]

    assert seen == [0, 0]


async def test_a_folder_that_holds_something_is_kept_unless_forced(saved, home):
    """What is there is named; with force it is replaced, whatever it was."""
    (home / "own.txt").write_text("mine")
    with pytest.raises(InvalidRequest, match=r"contains 'blocks\.db'; .* --force"):
        restore_backup(saved, home, force=False)
    async with small_engine(Settings(home=home)) as engine:
        await engine.add([record(2)])
    restore_backup(saved, home, force=True)

    assert not (home / "own.txt").exists()
    assert not (home / ".restoring").exists()
    assert await found(home) == ["r0001"]


def test_a_store_in_use_is_not_replaced(saved, home):
    """Restoring under a running process is refused, and nothing is lost."""
    held = StoreLock(home)
    try:
        with pytest.raises(StoreLocked):
            restore_backup(saved, home, force=True)
    finally:
        held.release()

    assert (home / "truth.sqlite").is_file()


@pytest.mark.parametrize("name", ["truth.sqlite", "keys.sqlite", "pages/abc/x_page_001.jpg", MANIFEST_FILE])
def test_a_damaged_backup_is_refused_before_anything_is_touched(saved, home, name):
    """One byte of any file that changed is found out."""
    with tarfile.open(saved) as archive:
        place = archive.getmember(name).offset_data
    data = bytearray(saved.read_bytes())
    data[place] ^= 0xFF
    saved.write_bytes(data)
    with pytest.raises(InvalidRequest, match="is not a backup, or is damaged"):
        restore_backup(saved, home, force=True)

    assert (home / "truth.sqlite").is_file()


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ({"rows": {"records": 7}}, "the number of rows of 'truth.sqlite' differs"),
        ({"content": b"no database"}, "the database 'truth.sqlite' cannot be read"),
    ],
    ids=["rows", "content"],
)
def test_a_database_that_is_not_what_it_says_is_refused(tmp_path, new_folder, file, told):
    """Right hashes are not enough: each database is opened and its rows are counted, and the folder stays empty."""
    content = file.get("content") or _database(tmp_path)
    digest = hashlib.sha256(content).hexdigest()
    filed = {"size": len(content), "sha256": digest, "rows": file.get("rows", {})}
    told_by = {"format": 1, "version": "0", "created": NOW.isoformat(), "files": {"truth.sqlite": filed}}
    with tarfile.open(tmp_path / "odd.tar", "w") as archive:
        for name, data in (("truth.sqlite", content), (MANIFEST_FILE, json.dumps(told_by).encode())):
            about = tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    home = new_folder()
    with pytest.raises(InvalidRequest, match=told):
        restore_backup(tmp_path / "odd.tar", home, force=False)

    assert ["lock"] == [path.name for path in home.iterdir()]


def _database(folder):
    with closing(sqlite3.connect(folder / "small.db")) as file:
        file.execute("CREATE TABLE records (n)")
    return (folder / "small.db").read_bytes()


@pytest.mark.parametrize("content", [b"", b"no tar at all" * 100], ids=["empty", "text"])
def test_other_files_are_no_backups(tmp_path, content):
    """A file of another kind is refused."""
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(InvalidRequest, match="is not a backup, or is damaged"):
        verify_archive(tmp_path / "x.tar")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "pages/../../evil"])
def test_a_backup_cannot_write_outside_the_folder(tmp_path, new_folder, name):
    """A name that leads out of the store is refused, though the manifest lists it."""
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        for each, data in ((name, b"x"), (MANIFEST_FILE, _manifest(name))):
            about = tarfile.TarInfo(each)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    with pytest.raises(InvalidRequest, match="is not a file of a store"):
        restore_backup(tmp_path / "evil.tar", new_folder(), force=True)


def test_a_backup_of_another_format_is_refused(tmp_path):
    """A later version's backup says which format it has."""
    with tarfile.open(tmp_path / "new.tar", "w") as archive:
        data = _manifest(None, form=2)
        about = tarfile.TarInfo(MANIFEST_FILE)
        about.size = len(data)
        archive.addfile(about, io.BytesIO(data))
    with pytest.raises(InvalidRequest, match="has format 2; this version reads 1"):
        verify_archive(tmp_path / "new.tar")


def _manifest(name, form=1):
    digest = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
    files = {name: {"size": 1, "sha256": digest}} if name else {}
    return json.dumps({"format": form, "version": "0", "created": NOW.isoformat(), "files": files}).encode()


def test_nothing_is_left_behind_by_a_backup_that_fails(home, tmp_path):
    """A name that is taken, a store that is not there, and drafts of failed backups: all leave nothing new."""
    (tmp_path / "taken.tar").write_text("mine")
    with pytest.raises(InvalidRequest, match="exists already"):
        back_up(home, tmp_path / "taken.tar", now=NOW)
    with pytest.raises(NotFound, match="there is no store in"):
        back_up(tmp_path / "nowhere", tmp_path / "new.tar", now=NOW)
    (home / "broken.db").write_bytes(b"this is no database, and longer than a page of one" * 100)
    with pytest.raises(Exception, match=r"broken\.db' is damaged \(file is not a database\)"):
        back_up(home, tmp_path / "new.tar", now=NOW)

    assert ["taken.tar"] == sorted(path.name for path in tmp_path.iterdir())


def test_files_that_cannot_be_read_or_written_are_named(home, tmp_path):
    """A folder that is not there is an answer, not a crash."""
    with pytest.raises(StoreUnwritable, match=r"cannot write .*No such file or directory"):
        back_up(home, tmp_path / "nowhere" / "a.tar", now=NOW)
    with pytest.raises(InvalidRequest, match=r"cannot read .*No such file or directory"):
        restore_backup(tmp_path / "none.tar", home, force=True)


def test_pages_that_live_elsewhere_are_mentioned(home, tmp_path):
    """Whoever keeps pages in ChromaDB is told that they are not in the backup."""
    env = {"CONTEXTURE_PAGES_INDEX": "chroma:elsewhere"}
    result = CliRunner().invoke(app, ["backup", str(tmp_path / "a.tar"), "--home", str(home)], env=env)

    assert "the backup does not contain the index of pages in 'chroma:elsewhere'" in result.stderr


def test_the_commands_say_what_they_did(home, tmp_path):
    """Both count files, rows and bytes, and agree."""
    runner = CliRunner()
    saved = runner.invoke(app, ["backup", str(tmp_path / "a.tar"), "--home", str(home), "--json"])
    back = runner.invoke(app, ["restore", str(tmp_path / "a.tar"), "--home", str(tmp_path / "new"), "--json"])
    told = runner.invoke(app, ["backup", str(tmp_path / "b.tar"), "--home", str(tmp_path / "new")])
    refused = runner.invoke(app, ["restore", str(tmp_path / "a.tar"), "--home", str(tmp_path / "new")])

    assert json.loads(saved.stdout) == json.loads(back.stdout)
    assert "all hashes match" in told.stdout
    assert refused.exit_code == 2
    assert "--force" in refused.stderr


def test_a_store_elsewhere_is_saved_there(home, tmp_path):
    """With the address of a service the commands say where to run them."""
    env = {"CONTEXTURE_URL": "http://127.0.0.1:9"}
    result = CliRunner().invoke(app, ["backup", str(tmp_path / "a.tar"), "--home", str(home)], env=env)

    assert result.exit_code == 2
    assert "run this on the machine of http://127.0.0.1:9" in result.stderr
