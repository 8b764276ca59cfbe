"""Connections to one SQLite file: one that writes, and as many that read as there are readers at a time."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from contexture.adapters.index.truth import store_errors
from contexture.adapters.sessions.database import Database
from contexture.errors import SourceUnavailable

T = TypeVar("T")

_MAPPED = 1 << 30
_CACHED = 65_536  # KiB: a large load touches every index at random
_BRIEF = 0.005  # seconds that a read may take where it is asked for
_STEPS = 1_000  # of SQLite's machine between two looks at the clock


class _TooLong(Exception):
    """A read took longer than it was given."""


class Connections:
    """Reads never wait for a write: each sees the file as the last finished write left it."""

    def __init__(self, path: Path, migrations: tuple[str, ...]) -> None:
        self._path = path
        self._writer = Database(path, migrations)
        self._guard = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._made = False
        self._closed = False

    @property
    def exists(self) -> bool:
        """Whether anything was ever written."""
        return self._writer.exists

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, once what it wrote is on the disk; all of it or nothing."""

        def roomy(db: sqlite3.Connection) -> T:
            db.execute(f"PRAGMA cache_size = -{_CACHED}")
            return work(db)

        return await self._writer.write(roomy)

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, over one state of the file.

        It is read here and now, for to change threads costs more than most reads do. One that turns out long is begun
        again in a thread, so that nobody else waits for it.
        """
        if not self._made:
            await self._writer.read(_nothing)  # makes the file and its tables
            self._made = True
        await asyncio.sleep(0)  # what takes a thread of its own begins before
        try:
            return self._reading(work, within=_BRIEF)
        except _TooLong:
            return await asyncio.to_thread(self._reading, work)

    def close(self) -> None:
        """Release the file; connections in use are closed by whoever uses them."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        self._writer.close()

    def _reading(self, work: Callable[[sqlite3.Connection], T], within: float = math.inf) -> T:
        """What `work` returns; it is given up when it takes longer than `within` seconds."""
        with store_errors(self._path), self._lent() as connection, _limited(connection, within):
            connection.execute("BEGIN")
            with connection:
                return work(connection)

    @contextmanager
    def _lent(self) -> Generator[sqlite3.Connection]:
        with self._guard:
            if self._closed:
                raise SourceUnavailable(f"{str(self._path)!r} is closed")
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._opened()
        try:
            yield connection
        finally:
            with self._guard:
                keep = not self._closed
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None, timeout=30)
        connection.execute("PRAGMA query_only = ON")
        connection.execute(f"PRAGMA mmap_size = {_MAPPED}")
        return connection


@contextmanager
def _limited(connection: sqlite3.Connection, seconds: float) -> Generator[None]:
    end = perf_counter() + seconds
    connection.set_progress_handler(None if seconds == math.inf else lambda: perf_counter() > end, _STEPS)
    try:
        yield
    except sqlite3.OperationalError as failure:
        if getattr(failure, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:  # Python's own errors have none
            raise _TooLong from failure
        raise


def _nothing(_db: sqlite3.Connection) -> None:
    """Only opens the file."""
