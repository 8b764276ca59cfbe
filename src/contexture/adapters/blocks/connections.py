"""Connections to one SQLite file: one that writes, and as many that read as there are readers at a time."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from contexture.adapters.index.truth import store_errors
from contexture.adapters.sessions.database import Database
from contexture.errors import SourceUnavailable

T = TypeVar("T")

_MAPPED = 1 << 30
_CACHED = 65_536  # KiB: a large load touches every index at random
_PATIENT = 30  # seconds that a read in a thread waits for a file that another process holds
_BRIEF = 0.005  # seconds that a read may take where it is asked for
_STEPS = 1_000  # of SQLite's machine between two looks at the clock
_GIVEN_UP = (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY)


class _TooLong(Exception):
    """A read took longer than it was given, or would have had to wait."""


class Connections:
    """Reads never wait for a write: each sees the file as the last finished write left it."""

    def __init__(self, path: Path, migrations: tuple[str, ...]) -> None:
        self._path = path
        self._writer = Database(path, migrations)
        self._guard = threading.Lock()
        self._idle: dict[int, list[sqlite3.Connection]] = {0: [], _PATIENT: []}  # by how long they wait
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

        It is read here and now, for to change threads costs more than most reads do. One that turns out long, or has to
        wait for another process, is begun again in a thread, so that nobody else waits for it.
        """
        if not self._made:
            await self._writer.read(_nothing)  # makes the file and its tables
            self._made = True
        await asyncio.sleep(0)  # what takes a thread of its own begins before
        with suppress(_TooLong):
            return self._briefly(work)
        return await asyncio.to_thread(self._reading, work, _PATIENT)

    def close(self) -> None:
        """Release the file; connections in use are closed by whoever uses them."""
        with self._guard:
            self._closed = True
            idle = [connection for each in self._idle.values() for connection in each]
        for connection in idle:
            connection.close()
        self._writer.close()

    def _briefly(self, work: Callable[[sqlite3.Connection], T]) -> T:
        end = perf_counter() + _BRIEF

        def limited(connection: sqlite3.Connection) -> T:
            connection.set_progress_handler(lambda: perf_counter() > end, _STEPS)
            return work(connection)

        try:
            return self._reading(limited, 0)
        except SourceUnavailable as failure:
            code = getattr(failure.__cause__, "sqlite_errorcode", 0)  # Python's own errors have none
            if code & 0xFF not in _GIVEN_UP:
                raise
        raise _TooLong

    def _reading(self, work: Callable[[sqlite3.Connection], T], patience: int) -> T:
        with store_errors(self._path), self._lent(patience) as connection:
            connection.execute("BEGIN")
            with connection:
                return work(connection)

    @contextmanager
    def _lent(self, patience: int) -> Generator[sqlite3.Connection]:
        idle = self._idle[patience]
        with self._guard:
            if self._closed:
                raise SourceUnavailable(f"{str(self._path)!r} is closed")
            connection = idle.pop() if idle else None
        if connection is None:
            connection = self._opened(patience)
        with ExitStack() as undo:
            # What fails may leave a query open, which would go on seeing the file as it was.
            undo.callback(connection.close)
            yield connection
            with self._guard:
                if not self._closed:
                    idle.append(connection)
                    undo.pop_all()

    def _opened(self, patience: int) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None, timeout=patience)
        connection.execute("PRAGMA query_only = ON")
        connection.execute(f"PRAGMA mmap_size = {_MAPPED}")
        return connection


def _nothing(_db: sqlite3.Connection) -> None:
    """Only opens the file."""
