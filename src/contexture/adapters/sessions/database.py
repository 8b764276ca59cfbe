"""A small SQLite file of one process: private to its owner, durable at every commit, safe between threads."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

from contexture.adapters.index.truth import store_errors
from contexture.errors import InvalidRequest, SourceUnavailable, StoreUnwritable

T = TypeVar("T")


class Tables(Protocol):
    """The tables of one small store; `work` is given a connection inside a transaction."""

    @property
    def exists(self) -> bool:
        """Whether anything may have been written."""
        ...

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, once what it wrote is safe."""
        ...

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, over one state of the tables."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


class Database:
    """Runs one transaction at a time, off the event loop; each is committed whole or not at all.

    The file is opened, and made with mode 0600, when it is first used. `migrations` is a list that only ever grows; a
    file written by a newer version of the package is refused.
    """

    def __init__(self, path: Path, migrations: tuple[str, ...]) -> None:
        self._path = path
        self._migrations = migrations
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    @property
    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self._path.exists()

    def make(self) -> None:
        """Make the file, and bring its tables to the newest version; then release it."""
        with self._lock, store_errors(self._path):
            self._opened()
        self.close()

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, once what it wrote is on the disk.

        A caller that goes away while it waits does not undo the write.
        """
        return await asyncio.shield(asyncio.to_thread(self._transaction, work, "IMMEDIATE"))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, over one state of the file."""
        return await asyncio.to_thread(self._transaction, work, "DEFERRED")

    def close(self) -> None:
        """Release the file, after the transaction that is running."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    def _transaction(self, work: Callable[[sqlite3.Connection], T], kind: str) -> T:
        with self._lock, store_errors(self._path):
            connection = self._opened()
            connection.execute(f"BEGIN {kind}")
            with connection:  # commits, or rolls back what failed
                return work(connection)

    def _opened(self) -> sqlite3.Connection:
        if self._closed:
            raise SourceUnavailable(f"{str(self._path)!r} is closed")
        if self._connection is None:
            _make_private(self._path)
            connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None, timeout=30)
            with ExitStack() as undo:
                undo.callback(connection.close)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                _migrate(connection, self._path, self._migrations)
                undo.pop_all()
            self._connection = connection
        return self._connection


def packed(value: object, what: str) -> str:
    """The value as JSON; `what` is named when it cannot be written as such."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as failure:
        raise InvalidRequest(f"{what} cannot be stored: {failure}") from failure


def unpacked(text: str) -> Any:
    """The value that was packed."""
    try:
        return json.loads(text)
    except ValueError as failure:
        raise SourceUnavailable(f"a stored value is damaged: {failure}") from failure


def storable(what: str, text: str) -> str:
    """The same text, once it is sure that SQLite can hold it."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRequest(f"{what} {text!r} holds a lone surrogate, which cannot be stored")
    return text


def _make_private(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as failure:
        raise StoreUnwritable(f"cannot write {str(path)!r}: {failure.strerror}") from failure


def _migrate(connection: sqlite3.Connection, path: Path, migrations: tuple[str, ...]) -> None:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(migrations):
        raise SourceUnavailable(
            f"{str(path)!r} has schema {version} but this version of contexture knows {len(migrations)}; "
            "upgrade contexture"
        )
    for number, script in enumerate(migrations[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")
