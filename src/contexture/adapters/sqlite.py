"""`SqliteTables`: transactions on a SQLite file, and `Tables`, their protocol.

The file is readable only by its owner, durable at every commit, and safe to use from several threads.
"""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

from contexture.adapters.index.disk_space import check_free_space
from contexture.adapters.private_files import create_private_database
from contexture.adapters.store_damage import check_at_open, sqlite_errors
from contexture.errors import InvalidRequest, SourceUnavailable, StoreUnwritable

T = TypeVar("T")


class Tables(Protocol):
    """The SQL tables of one store; `work` gets a connection inside a transaction."""

    @property
    def exists(self) -> bool:
        """Whether anything may have been written."""
        ...

    async def write(self, work: Callable[[sqlite3.Connection], T], *, grows: bool = False) -> T:
        """Run `work` in a write transaction and return its result once it is durable.

        With `grows` it stores something new, which a nearly full disk refuses with `StoreUnwritable`.
        """
        ...

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` over one snapshot of the tables and return its result."""
        ...

    async def scrub(self) -> None:
        """Remove the copies of deleted rows from the files of the database, as far as it can."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class SqliteTables:
    """Runs transactions on a SQLite file, one at a time, in a thread; each is atomic.

    The file is opened, or created with mode 0600, on first use. `migrations` may only be appended to; a file written
    by a newer version of the package raises `SourceUnavailable`, and a damaged one `StoreDamaged`.
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

    def create(self) -> None:
        """Create the file, migrate its tables to the newest version, and close it."""
        with self._lock, sqlite_errors(self._path):
            self._open_connection()
        self.close()

    async def write(self, work: Callable[[sqlite3.Connection], T], *, grows: bool = False) -> T:
        """Run `work` in a write transaction and return its result once it is on disk.

        Cancelling the caller does not cancel the write. With `grows` it stores something new, which a nearly full disk
        refuses with `StoreUnwritable`.
        """
        if grows:
            check_free_space(self._path.parent)
        return await asyncio.shield(asyncio.to_thread(self._write, work))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` over one snapshot of the file and return its result."""
        return await asyncio.to_thread(self._read, work)

    async def scrub(self) -> None:
        """Move the write-ahead log into the file and empty it; deleted rows are overwritten there."""
        if self.exists:
            await asyncio.to_thread(self._empty_log)

    def close(self) -> None:
        """Close the file, after the running transaction."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock, sqlite_errors(self._path):
            connection = self._open_connection()
            connection.execute("BEGIN IMMEDIATE")
            with connection:  # commits, or rolls back on an exception
                return work(connection)

    def _empty_log(self) -> None:
        with self._lock, sqlite_errors(self._path):
            self._open_connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock, sqlite_errors(self._path):
            connection = self._open_connection()
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.rollback()  # a commit would fail again if `work` met a damaged page

    def _open_connection(self) -> sqlite3.Connection:
        if self._closed:
            raise SourceUnavailable(f"{str(self._path)!r} is closed")
        if self._connection is None:
            check_at_open(self._path)
            _create_database(self._path)
            connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None, timeout=30)
            with ExitStack() as undo:
                undo.callback(connection.close)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA secure_delete = ON")
                _migrate(connection, self._path, self._migrations)
                undo.pop_all()
            self._connection = connection
        return self._connection


def encode_json(value: object, what: str) -> str:
    """Encode a value as JSON; raises `InvalidRequest` naming `what` if it cannot be encoded."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as failure:
        raise InvalidRequest(f"{what} cannot be stored: {failure}") from failure


def decode_json(text: str) -> Any:
    """Decode a stored JSON value; raises `SourceUnavailable` if it is damaged."""
    try:
        return json.loads(text)
    except ValueError as failure:
        raise SourceUnavailable(f"a stored value is damaged: {failure}") from failure


def check_storable(what: str, text: str) -> str:
    """Return the text; raises `InvalidRequest` naming `what` if SQLite cannot store it (lone surrogates)."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRequest(f"{what} {text!r} holds a lone surrogate, which cannot be stored")
    return text


def _create_database(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        create_private_database(path)
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
