"""Connections to one SQLite file: one that writes, and as many that read as there are readers at a time."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from contexture.adapters.index.truth import store_errors
from contexture.adapters.sessions.database import Database
from contexture.errors import SourceUnavailable

T = TypeVar("T")
Work: TypeAlias = Callable[[sqlite3.Connection], Any]

_MAPPED = 1 << 30
_CACHED = 65_536  # KiB: a large load touches every index at random


class _Asked(NamedTuple):
    """A read that waits, and what it gives: one value, or None where it must be done by itself."""

    work: Work
    answer: asyncio.Future[tuple[Any] | None]


class Connections:
    """Reads never wait for a write: each sees the file as the last finished write left it."""

    def __init__(self, path: Path, migrations: tuple[str, ...]) -> None:
        self._path = path
        self._writer = Database(path, migrations)
        self._guard = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._waiting: dict[asyncio.AbstractEventLoop, list[_Asked]] = {}
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

        What is asked for before the event loop looks again is read by one thread, in one go: to change threads costs
        more than most reads do.
        """
        if not self._made:
            await self._writer.read(_nothing)  # makes the file and its tables
            self._made = True
        asked = _Asked(work, asyncio.get_running_loop().create_future())
        self._gathered().append(asked)
        given = await asked.answer
        if given is not None:
            return given[0]
        return await asyncio.to_thread(self._reading, work)  # by itself, so that only what fails fails

    def close(self) -> None:
        """Release the file; connections in use are closed by whoever uses them."""
        with self._guard:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        self._writer.close()

    def _gathered(self) -> list[_Asked]:
        """The reads that wait for the next look of this event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._waiting:
            asked = self._waiting[loop] = []
            loop.create_task(self._answers(loop, asked)).add_done_callback(partial(_give, asked))
        return self._waiting[loop]

    async def _answers(self, loop: asyncio.AbstractEventLoop, asked: Sequence[_Asked]) -> list[Any]:
        del self._waiting[loop]
        return await asyncio.to_thread(self._reading, lambda db: [each.work(db) for each in asked])

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


def _give(asked: Sequence[_Asked], done: asyncio.Future[list[Any]]) -> None:
    """Pass answers on to those who still wait for them."""
    answers = [None for _ in asked] if done.cancelled() or done.exception() else [(each,) for each in done.result()]
    for each, answer in zip(asked, answers, strict=True):
        if not each.answer.done():
            each.answer.set_result(answer)


def _nothing(_db: sqlite3.Connection) -> None:
    """Only opens the file."""
