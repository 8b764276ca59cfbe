"""A file of vectors by embedder and content hash, which may fail without taking anyone along."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from threading import Lock

import numpy as np

from contexture.types import Vector

KEYS_PER_QUERY = 500
BUSY_MILLISECONDS = 2_000
LENGTH_TOLERANCE = 1e-3

SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
  embedder TEXT NOT NULL, hash BLOB NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (embedder, hash)
) WITHOUT ROWID
"""


class VectorFile:
    """Unit vectors of one embedder in an SQLite file that several threads and processes may share.

    The first failure closes the file: from then on nothing is found, nothing is written, and
    `degraded` says why. A stored vector of the wrong size or length is not found.
    """

    def __init__(
        self, path: Path, embedder: str, dimensions: int, on_degraded: Callable[[str], None] | None = None
    ) -> None:
        self._path = path
        self._embedder = embedder
        self._dimensions = dimensions
        self._on_degraded = on_degraded
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self.degraded = ""

    def read(self, keys: Collection[str]) -> dict[str, Vector]:
        """The vectors that are there, by their key."""
        found: dict[str, Vector] = {}
        with self._lock:
            try:
                for some in _portions(keys):
                    found |= self._read(some)
            except (sqlite3.Error, OSError) as failure:
                self._give_up(failure)
        return found

    def write(self, vectors: Mapping[str, Vector]) -> None:
        """Keep these vectors, all or none."""
        rows = [(self._embedder, bytes.fromhex(key), vector.tobytes()) for key, vector in vectors.items()]
        with self._lock:
            try:
                if connection := self._open():
                    with connection:
                        connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            except (sqlite3.Error, OSError) as failure:
                self._give_up(failure)

    def close(self) -> None:
        """Release the file; nothing is found or written afterwards."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _read(self, keys: list[str]) -> dict[str, Vector]:
        connection = self._open()
        if connection is None:
            return {}
        marks = ",".join("?" * len(keys))
        query = f"SELECT hash, vector FROM vectors WHERE embedder = ? AND hash IN ({marks})"  # noqa: S608 - only question marks
        with closing(connection.execute(query, [self._embedder, *map(bytes.fromhex, keys)])) as rows:
            pairs = [(bytes(key).hex(), self._vector(blob)) for key, blob in rows]
        return {key: vector for key, vector in pairs if vector is not None}

    def _vector(self, blob: bytes) -> Vector | None:
        if len(blob) != self._dimensions * np.dtype(np.float32).itemsize:
            return None
        vector = np.frombuffer(blob, np.float32)
        return vector if abs(float(np.linalg.norm(vector)) - 1.0) < LENGTH_TOLERANCE else None

    def _open(self) -> sqlite3.Connection | None:
        if self._closed or self._connection is not None:
            return self._connection
        self._path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_RDONLY | os.O_CREAT, 0o600))  # SQLite gives its side files the same mode
        self._connection = sqlite3.connect(self._path, check_same_thread=False)
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        self._connection.execute("PRAGMA journal_mode = WAL")
        # A cache may lose its last writes with the power; it may not slow an ingestion down.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute(SCHEMA)
        return self._connection

    def _give_up(self, failure: Exception) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.degraded = f"the vector cache {self._path} is not used: {failure}"
        if self._on_degraded is not None:
            self._on_degraded(self.degraded)


def _portions(keys: Collection[str]) -> Iterator[list[str]]:
    rest = iter(keys)
    while some := list(islice(rest, KEYS_PER_QUERY)):
        yield some
