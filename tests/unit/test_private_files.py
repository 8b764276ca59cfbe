"""The files of a store are readable by their owner alone, also below a folder that others may enter."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from contexture import Settings
from contexture.adapters.keys import ApiKeys
from contexture.conversation import Memory
from contexture.ingestion.blocks.history import ImportHistory, ImportSnapshot
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC, Record, Scope
from support.service import small_engine


def exposed(folder: Path) -> list[str]:
    """Files that others could read: those without a private folder on the way to them."""
    found: list[str] = []
    for path in folder.iterdir():
        if path.stat().st_mode & 0o077:
            found += exposed(path) if path.is_dir() else [path.name]
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store's folder that others may enter, and a umask that gives them every new file."""
    before = os.umask(0o022)
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(0o755)
    yield folder
    os.umask(before)


async def test_nobody_else_reads_the_files_of_a_store(home):
    """Records, search indexes, builds, the outbox, keys and the lock."""
    async with small_engine(Settings(home=home)) as engine:
        await engine.add([Record(id="pump", text="The pump leaks.", acl=(PUBLIC,))])
        await engine.memory.remember(engine.scope, [Memory(text="The pump is red.")])
        await engine.build("pump")
        await engine.outbox.put(engine.scope, Memory(text="later"), Memory(text="too"))
    ApiKeys(home / "keys.sqlite").close()

    assert [] == exposed(home)


@pytest.mark.parametrize("mode", [None, 0o755])
def test_nobody_else_reads_what_imports_remember(home, mode):
    """The beginnings of texts, also in a folder that an earlier version gave to everyone."""
    folder = home / "imports"
    if mode is not None:
        folder.mkdir(mode)
    ImportHistory(folder).write("acme", "notes", ImportSnapshot(root="notes"))

    assert [] == exposed(home)


def test_an_older_file_becomes_private_when_it_is_opened(home):
    """A store of an earlier version, or one that was copied, is as private as a new one."""
    ApiKeys(home / "keys.sqlite").close()
    (home / "keys.sqlite").chmod(0o644)
    ApiKeys(home / "keys.sqlite").add("a", Scope(tenant="acme", user="anna"), now=NOON)

    assert [] == exposed(home)
