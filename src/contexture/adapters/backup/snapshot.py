"""Several SQLite files as they were at one moment, while others go on writing to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from contexture.errors import SourceUnavailable

_PATIENCE = 30.0  # seconds: a write that takes longer than this is not going to end
_STEP = 2_048  # pages copied between two reports

Copied = Callable[[int, int], None]
"""Told how many pages of a file are copied, and how many there are."""


@contextmanager
def frozen(paths: Sequence[Path]) -> Generator[Mapping[Path, sqlite3.Connection]]:
    """A connection to each file, all of which see the same moment: what a crash would have left then.

    Writers wait while the connections are opened, which takes milliseconds, and not while they are used.
    """
    with ExitStack() as opened:
        try:
            readers = {path: opened.enter_context(closing(_connected(path))) for path in paths}
            with ExitStack() as held:
                for path in paths:
                    held.enter_context(_held(path))
                for reader in readers.values():
                    reader.execute("BEGIN")
                    reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            yield readers
        except sqlite3.Error as failure:
            raise SourceUnavailable(f"the store cannot be read: {failure}") from failure


def copied(source: sqlite3.Connection, target: Path, progress: Copied) -> Mapping[str, int]:
    """Write what a connection sees into a new file, and say how many rows each table has."""
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        source.backup(copy, pages=_STEP, progress=lambda _, left, whole: progress(whole - left, whole))
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, with nothing beside it
        return rows_of(copy)


def rows_of(file: sqlite3.Connection) -> Mapping[str, int]:
    """How many rows each table has."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    names = [str(row[0]) for row in file.execute(query)]
    return {name: _count(file, name) for name in names}


def _count(file: sqlite3.Connection, table: str) -> int:
    quoted = table.replace('"', '""')
    return int(file.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()[0])  # noqa: S608 - a table's own name


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=_PATIENCE)


@contextmanager
def _held(path: Path) -> Generator[None]:
    """Nobody writes to the file while this lasts."""
    with closing(_connected(path)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            holder.execute("ROLLBACK")
