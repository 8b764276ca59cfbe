"""What was acknowledged survives: killed writers, broken engines, full disks, second processes."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from contexture.adapters.index import disk_space
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.index.record_store import SqliteRecordStore
from contexture.adapters.index.schema import MIGRATIONS
from contexture.adapters.store_damage import sqlite_errors
from contexture.errors import SourceUnavailable, StoreLocked, StoreUnwritable
from contexture.testing.index_records import EAST, NAME, VECTORS, make_query, make_record, prepare_record, record_ids
from contexture.types import Collection, Scope
from support.workbench import opened

pytestmark = [pytest.mark.integration, pytest.mark.slow]

WRITER = Path(__file__).with_name("writer.py")
LOCAL = Scope.local()
OPTIONS = EmbeddedOptions(vectors=VECTORS, threads=1)


def killed_after(folder: Path, acknowledgements: int, first: int, flush_every: int) -> list[str]:
    """Run the writer, kill it at its n-th acknowledgement, and return everything it had acknowledged."""
    command = [sys.executable, str(WRITER), str(folder), str(first), str(flush_every)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline().strip() for _ in range(acknowledgements)]
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read().split()
    assert process.returncode == -signal.SIGKILL
    return [line for line in said if line]


async def check_survivors(folder: Path, said: list[str]) -> None:
    """Every acknowledged write is there by `get`, by words and by vector, and every acknowledged removal holds."""
    state = {line[1:]: line[0] for line in said}
    last = said[-1][1:]
    async with opened(folder) as index:
        # Writes after the last acknowledgement may have happened or not, so only acknowledged ones are judged.
        found = {record.id: record for record in await index.get(LOCAL, NAME, list(state))}
        by_words = set(record_ids(await index.search(LOCAL, make_query("zebra", k=10_000))))
        by_vector = set(record_ids(await index.search(LOCAL, make_query(vector=EAST, k=10_000))))
        stored = set(record_ids(await index.scroll(LOCAL, NAME, limit=10_000)))
    for name, mark in state.items():
        if mark == "-" or (name in unsettled(last) and name not in found):
            continue
        assert name in found
        assert name in by_words
        assert name in by_vector
        assert mark != "*" or "rewritten" in found[name].text
    assert all(name not in found for name, mark in state.items() if mark == "-")
    assert by_words == by_vector == stored


def unsettled(last: str) -> set[str]:
    """Ids that an unacknowledged write right after `last` may have removed."""
    number = int(last[1:])
    return {f"r{number - 3}", f"r{number - 2}"}


@pytest.mark.parametrize("seed", range(4))
async def test_what_a_killed_writer_acknowledged_is_there(seed: int, new_folder: Callable[[], Path]) -> None:
    """Killed at any point, twice in a row, a store has every acknowledged write and finds it again."""
    chance, folder = random.Random(seed), new_folder()
    said = killed_after(folder, chance.randint(1, 25), 0, chance.choice((6, 1_000)))
    said += killed_after(folder, chance.randint(1, 40), 1_000, chance.choice((9, 1_000)))

    await check_survivors(folder, said)


def test_a_second_process_is_told_who_holds_the_store(new_folder: Callable[[], Path]) -> None:
    """Opening a store that another process holds names that process."""
    folder = new_folder()
    command = [sys.executable, str(WRITER), str(folder), "0", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(StoreLocked, match=rf"pid {process.pid}\b"):
            EmbeddedIndex(folder, OPTIONS)
        process.kill()


async def test_one_process_opens_a_store_once(new_folder: Callable[[], Path]) -> None:
    """The lock holds within a process too, and is free again after closing."""
    folder = new_folder()
    async with opened(folder):
        with pytest.raises(StoreLocked, match="is open in this process already"):
            await EmbeddedIndex.open(folder, OPTIONS)
    async with opened(folder):
        pass


async def test_a_closed_store_says_so(new_folder: Callable[[], Path]) -> None:
    """After `close` every call fails clearly, and closing again does nothing."""
    async with opened(new_folder()) as index:
        await index.close()
        await index.close()
        calls = (
            index.collections(LOCAL),
            index.upsert(LOCAL, NAME, []),
            index.delete(LOCAL, NAME, []),
            index.get(LOCAL, NAME, []),
            index.scroll(LOCAL, NAME),
            index.search(LOCAL, make_query("zebra")),
            index.version(LOCAL, NAME),
        )
        for call in calls:
            with pytest.raises(SourceUnavailable, match="closed"):
                await call


async def test_the_version_survives_reopening(new_folder: Callable[[], Path]) -> None:
    """A store with other contents never has the version of an earlier one."""
    folder, seen = new_folder(), list[int]()
    for name in "abc":
        async with opened(folder) as index:
            await index.upsert(LOCAL, NAME, [prepare_record(make_record(name))])
        async with opened(folder) as index:
            seen.append(await index.version(LOCAL, NAME))

    assert sorted(set(seen)) == seen


def test_a_path_that_cannot_be_a_store_is_refused(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the way, a lock that cannot be made and one that cannot be written are all named."""
    folder = new_folder()
    (folder / "file").write_text("in the way")
    (folder / "lock").mkdir()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreUnwritable, match="cannot create"):
        EmbeddedIndex(folder / "file", OPTIONS)
    with pytest.raises(StoreUnwritable, match="cannot write"):
        EmbeddedIndex(folder, OPTIONS)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreUnwritable, match="No space left"):
        EmbeddedIndex(new_folder(), OPTIONS)


async def test_a_disk_that_is_nearly_full_takes_no_writes(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored is found and can be removed, and nothing is half written."""
    folder = new_folder()
    async with opened(folder) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("a")), prepare_record(make_record("b"))])
    monkeypatch.setattr(disk_space, "disk_usage", lambda _: SimpleNamespace(free=disk_space.MIN_FREE_BYTES - 1))
    async with opened(folder) as index:
        with pytest.raises(StoreUnwritable, match="64 MB left"):
            await index.upsert(LOCAL, NAME, [prepare_record(make_record("c"))])
        with pytest.raises(StoreUnwritable, match="64 MB left"):
            await index.create(LOCAL, Collection(name="other"))

        assert 1 == await index.delete(LOCAL, NAME, ["b"])
        assert ["a"] == [record.id for record in await index.scroll(LOCAL, NAME)]
        assert [NAME] == [each.name for each in await index.collections(LOCAL)]


def test_other_failures_of_sqlite_are_not_blamed_on_the_disk(tmp_path: Path) -> None:
    """A statement that fails for another reason is a failing store."""
    database = sqlite3.connect(":memory:")
    with pytest.raises(SourceUnavailable, match="no such table"), sqlite_errors(tmp_path):
        database.execute("SELECT * FROM nowhere")
    database.close()


async def test_a_newer_store_is_refused(new_folder: Callable[[], Path]) -> None:
    """A schema from a later version is left alone, with the advice to upgrade, and the lock is let go."""
    folder = new_folder()
    async with opened(folder):
        pass
    with sqlite3.connect(folder / "truth.sqlite") as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match="upgrade contexture"):
            await EmbeddedIndex.open(folder, OPTIONS)


async def test_a_store_that_is_not_one_is_refused(new_folder: Callable[[], Path]) -> None:
    """A file that SQLite cannot read is reported as damaged, and is not overwritten."""
    folder = new_folder()
    (folder / "truth.sqlite").write_bytes(b"not a database" * 1_000)
    with pytest.raises(SourceUnavailable, match="damaged"):
        await EmbeddedIndex.open(folder, OPTIONS)

    assert (folder / "truth.sqlite").read_bytes().startswith(b"not a database")


UNWRITABLE = """
import json, os, sys
from pathlib import Path
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.errors import ContextError
if os.getuid() == 0:
    os.setuid(65534)
try:
    EmbeddedIndex(Path(sys.argv[1]), EmbeddedOptions(vectors={"dense": 4}))
except ContextError as refusal:
    print(json.dumps([type(refusal).__name__, str(refusal)]))
"""


@pytest.mark.parametrize("inside", ["", "deeper"])
def test_a_read_only_folder_is_refused(inside: str, new_folder: Callable[[], Path]) -> None:
    """A folder that may not be written to is named, whether the store is in it or would be made in it."""
    folder = new_folder()
    folder.parent.chmod(0o755)
    folder.chmod(0o555)
    command = [sys.executable, "-c", UNWRITABLE, str(folder / inside)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    kind, message = json.loads(answer.stdout)

    assert StoreUnwritable.__name__ == kind
    assert str(folder) in message


async def test_a_full_disk_acknowledges_nothing(
    new_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes that do not fit are reported, leave nothing behind, and do not keep smaller ones from working."""
    folder, reader = new_folder(), SqliteRecordStore._connection

    def with_little_room(truth: SqliteRecordStore) -> sqlite3.Connection:
        connection = reader(truth)
        connection.execute("PRAGMA max_page_count = 80")
        return connection

    monkeypatch.setattr(SqliteRecordStore, "_connection", with_little_room)
    large = prepare_record(make_record("large", "zebra " + "filling " * 60_000))
    async with opened(folder) as index:
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("before", "zebra"))])
        for _ in range(8):  # every thread that writes meets the full disk
            with pytest.raises(StoreUnwritable, match="nothing was stored"):
                await index.upsert(LOCAL, NAME, [large])
        await index.upsert(LOCAL, NAME, [prepare_record(make_record("after", "zebra"))])

        assert ["after", "before"] == record_ids(await index.search(LOCAL, make_query("zebra")))
        assert ["after", "before"] == record_ids(await index.scroll(LOCAL, NAME))


SHORT_OF_ROOM = """
import asyncio, json, resource, sys
from pathlib import Path
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.errors import SourceError
from contexture.testing.index_records import COLLECTION, NAME, VECTORS, make_record, prepare_record
from contexture.types import Scope

async def fill(folder):
    index = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=VECTORS, threads=1))
    await index.create(Scope.local(), COLLECTION)
    size = max(each.stat().st_size for each in folder.glob("truth.sqlite*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100_000, resource.RLIM_INFINITY))
    done, refused = [], 0
    for number in range(12):
        try:
            record = make_record(f"r{number}", "zebra " + "filling " * 4_000)
            await index.upsert(Scope.local(), NAME, [prepare_record(record)])
            done.append(f"r{number}")
        except SourceError:
            refused += 1
    print(json.dumps([done, refused]), flush=True)
    await index.close()

asyncio.run(fill(Path(sys.argv[1])))
"""


async def test_no_room_for_any_file_loses_nothing_acknowledged(new_folder: Callable[[], Path]) -> None:
    """With the operating system refusing to let files grow, writes fail as ours, and the store opens again after."""
    folder = new_folder()
    answer = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", SHORT_OF_ROOM, str(folder)], capture_output=True, text=True, check=False
    )
    done, refused = json.loads(answer.stdout)

    assert refused
    async with opened(folder) as index:
        assert set(done) <= set(record_ids(await index.get(LOCAL, NAME, done)))
        assert record_ids(await index.scroll(LOCAL, NAME)) == record_ids(await index.search(LOCAL, make_query("zebra")))
