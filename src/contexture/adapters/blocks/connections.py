"""Connections to one SQLite file: one that writes, and as many that read as there are readers at a time."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from contexture.adapters.index.truth import store_errors
from contexture.adapters.sessions.database import Database
from contexture.errors import SourceUnavailable

T = TypeVar("T")

_MAPPED = 1 << 30
_CACHED = 65_536  # KiB: a large load touches every index at random


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
        """What `work` returns, over one state of the file."""
        if not self._made:
            await self._writer.read(_nothing)  # makes the file and its tables
            self._made = True
        return await asyncio.to_thread(self._reading, work)

    def close(self) -> None:
        """Release the file; connections in use are closed by whoever uses them."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        self._writer.close()

    def _reading(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with store_errors(self._path), self._lent() as connection:
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


def _nothing(_db: sqlite3.Connection) -> None:
    """Only opens the file."""
