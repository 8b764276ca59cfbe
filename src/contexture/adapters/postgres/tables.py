"""Tables of one small store in PostgreSQL, with the interface of the SQLite stores."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from contexture.adapters.postgres.dialect import (
    TranslatedStatement,
    escape_json_list,
    escape_nul,
    translate_statement,
    unescape_nul,
)
from contexture.adapters.postgres.migrations import migrate
from contexture.adapters.postgres.pool import Connection, PostgresPool
from contexture.errors import SourceUnavailable

T = TypeVar("T")
Parameters: TypeAlias = "Mapping[str, Any] | Sequence[Any]"


class PostgresTables:
    """Runs transactions off the event loop; each is committed as a whole or rolled back.

    Writes to one store are serialised across processes; reads see one snapshot and never wait.
    """

    exists = True

    def __init__(self, pool: PostgresPool, part: str, migrations: tuple[str, ...]) -> None:
        self._pool = pool
        self._schema = f"{pool.schema}_{part}"
        self._migrations = migrations
        self._guard = threading.Lock()
        self._migrated = False
        self._closed = False

    async def write(self, work: Callable[[sqlite3.Connection], T], *, grows: bool = False) -> T:
        """Run `work` in a write transaction and return its result after the commit; cancellation does not undo it."""
        del grows  # the disk is the server's
        lock = f"SELECT pg_advisory_xact_lock({zlib.crc32(self._schema.encode())})"
        return await asyncio.shield(asyncio.to_thread(self.run, work, lock))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in a read-only transaction over one snapshot and return its result."""
        return await asyncio.to_thread(self.run, work, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    def run(self, work: Callable[[sqlite3.Connection], T], first: str = "") -> T:
        """Run `work` in a transaction and return its result; the SQL statement `first` is executed before it."""
        if self._closed:
            raise SourceUnavailable(f"the store in {self._pool.name} is closed")
        self._ensure_migrated()
        with self._pool.transaction(f"; {first}; SET LOCAL search_path TO {self._schema}") as connection:
            # It has the methods of a `sqlite3.Connection` that the stores use.
            return work(cast("sqlite3.Connection", SqliteDialectConnection(connection)))

    async def scrub(self) -> None:
        """Do nothing: the database removes the copies of deleted rows when it vacuums."""

    def close(self) -> None:
        """Refuse further transactions; the pool is closed by its owner."""
        self._closed = True

    def _ensure_migrated(self) -> None:
        with self._guard:
            if not self._migrated:
                migrate(self._pool, self._schema, self._migrations)
                self._migrated = True


class SqliteDialectConnection:
    """Connection that takes statements written for SQLite."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, given: Parameters = ()) -> SqliteDialectCursor:
        """Run one statement."""
        translated = translate_statement(statement)
        return SqliteDialectCursor(self._connection.execute(translated.text, _convert_parameters(translated, given)))

    def executemany(self, statement: str, rows: Iterable[Parameters]) -> None:
        """Run one statement for each row."""
        translated = translate_statement(statement)
        every = [_convert_parameters(translated, row) for row in rows]
        if every:
            with self._connection.cursor() as cursor:
                cursor.executemany(translated.text, every)


class SqliteDialectCursor:
    """Rows of one statement, with NUL characters unescaped."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows; empty for a statement that returns none."""
        return [_unescape_row(row) for row in self._cursor.fetchall()] if self._cursor.description else []

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row; None after the last."""
        row = self._cursor.fetchone()
        return None if row is None else _unescape_row(row)


def _convert_parameters(statement: TranslatedStatement, given: Parameters) -> Parameters:
    """Parameters for PostgreSQL."""
    if isinstance(given, Mapping):
        return {name: _convert_value(value, listed=name in statement.lists) for name, value in given.items()}
    return [_convert_value(value, listed=at in statement.lists) for at, value in enumerate(given)]


def _convert_value(value: Any, *, listed: bool) -> Any:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return value
    return escape_json_list(value) if listed else escape_nul(value)


def _unescape_row(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(unescape_nul(value) if isinstance(value, str) else value for value in row)
