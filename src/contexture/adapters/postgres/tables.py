"""The tables of one small store in PostgreSQL, with the face that a small SQLite file has."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from contexture.adapters.postgres.dialect import escaped, escaped_list, lists_in, translated, unescaped
from contexture.adapters.postgres.migrating import migrate
from contexture.adapters.postgres.pool import Connection, Pool
from contexture.errors import SourceUnavailable

T = TypeVar("T")
Given: TypeAlias = "Mapping[str, Any] | Sequence[Any]"


class PostgresTables:
    """Runs transactions off the event loop; each is committed whole or not at all.

    Writes of one store come one after another, whichever process they come from; reads see one state and never wait.
    """

    exists = True

    def __init__(self, pool: Pool, part: str, migrations: tuple[str, ...]) -> None:
        self._pool = pool
        self._schema = f"{pool.schema}_{part}"
        self._migrations = migrations
        self._guard = threading.Lock()
        self._made = False
        self._closed = False

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, once what it wrote is safe; a caller that goes away does not undo it."""
        lock = f"SELECT pg_advisory_xact_lock({zlib.crc32(self._schema.encode())})"
        return await asyncio.shield(asyncio.to_thread(self.run, work, lock))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, over one state of the tables."""
        return await asyncio.to_thread(self.run, work, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")

    def run(self, work: Callable[[sqlite3.Connection], T], first: str = "") -> T:
        """What `work` returns; `first` is said before it begins."""
        if self._closed:
            raise SourceUnavailable(f"the store in {self._pool.name} is closed")
        self._make()
        with self._pool.transaction(f"; {first}; SET LOCAL search_path TO {self._schema}") as connection:
            return work(cast("sqlite3.Connection", Spoken(connection)))  # it has what the stores use of one

    def close(self) -> None:
        """Take no more; the pool is closed by whoever made it."""
        self._closed = True

    def _make(self) -> None:
        with self._guard:
            if not self._made:
                migrate(self._pool, self._schema, self._migrations)
                self._made = True


class Spoken:
    """A connection that takes statements written for SQLite."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, given: Given = ()) -> Rows:
        """Run one statement."""
        return Rows(self._connection.execute(translated(statement), _given(statement, given)))

    def executemany(self, statement: str, rows: Iterable[Given]) -> None:
        """Run one statement for each row."""
        every = [_given(statement, row) for row in rows]
        if every:
            with self._connection.cursor() as cursor:
                cursor.executemany(translated(statement), every)


class Rows:
    """What a statement found."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows; none of a statement that gives none."""
        return [_taken(row) for row in self._cursor.fetchall()] if self._cursor.description else []

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row."""
        row = self._cursor.fetchone()
        return None if row is None else _taken(row)


def _given(statement: str, given: Given) -> Given:
    """Parameters as PostgreSQL takes them; those that a statement numbers are named."""
    lists = lists_in(statement)
    if isinstance(given, Mapping):
        return {name: _value(value, listed=name in lists) for name, value in given.items()}
    values = [_value(value, listed=at in lists) for at, value in enumerate(given)]
    return {f"p{at}": value for at, value in enumerate(values, 1)} if "?1" in statement else values


def _value(value: Any, *, listed: bool) -> Any:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return value
    return escaped_list(value) if listed else escaped(value)


def _taken(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(unescaped(value) if isinstance(value, str) else value for value in row)
