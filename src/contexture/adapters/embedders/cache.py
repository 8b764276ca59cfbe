"""`CachedEmbedder`, which embeds no text twice, and its SQLite file of vectors by embedder and content hash.

A file that cannot be read or written is closed and reported in `degraded`; embedding continues without it.
"""

import asyncio
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Lock

import numpy as np

from contexture.adapters.private_files import create_private_file
from contexture.ports import Embedder
from contexture.types import Matrix, Vector, content_hash


@dataclass(frozen=True, slots=True)
class EmbeddingCacheStats:
    """Number of texts answered from the cache, and of texts computed."""

    hits: int
    misses: int


class CachedEmbedder:
    """Embedder with a cache: in memory for single queries, in a file for batches.

    Cached vectors equal the inner embedder's bit for bit. If the file cannot be read or written, texts are computed
    again: `degraded` says what happened, and `on_degraded` is called once with the same message.
    """

    def __init__(
        self,
        inner: Embedder,
        path: Path,
        *,
        queries: int = 1_024,
        on_degraded: Callable[[str], None] | None = None,
    ) -> None:
        self._inner = inner
        self._file = VectorFile(path, inner.name, inner.dimensions, on_degraded)
        self._queries = queries
        self._recent: OrderedDict[str, Vector] = OrderedDict()
        self._running: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Future[Matrix]] = {}
        self._lock = Lock()
        self._hits = self._misses = 0

    @property
    def name(self) -> str:
        """The inner embedder's name."""
        return self._inner.name

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        return self._inner.dimensions

    @property
    def degraded(self) -> str:
        """Why the cache file is not used; empty while it is."""
        return self._file.degraded

    def stats(self) -> EmbeddingCacheStats:
        """Hits and misses since this object was made."""
        with self._lock:
            return EmbeddingCacheStats(self._hits, self._misses)

    def close(self) -> None:
        """Close the cache file; the embedder continues without it."""
        self._file.close()

    def calibrate(self, cosine: Vector) -> Vector:
        """Map cosines to similarities with the inner embedder."""
        return self._inner.calibrate(cosine)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One row per text, in order; each distinct text is computed at most once.

        A single text is a query: it is cached in memory only, so that no search waits for the disk.
        """
        keys = [content_hash(text) for text in texts]
        batch = len(keys) != 1
        known = await asyncio.to_thread(self._file.read, set(keys)) if batch else self._find_recent(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            rows = await (
                self._inner.embed(list(missing.values())) if batch else self._embed_query_once(keys[0], texts[0])
            )
            computed = dict(zip(missing, rows, strict=True))
            if batch:
                await asyncio.to_thread(self._file.write, computed)
            known |= computed
        self._remember(keys, known, misses=sum(key in missing for key in keys))
        return np.stack([known[key] for key in keys]) if keys else np.empty((0, self.dimensions), np.float32)

    async def forget(self, texts: Sequence[str]) -> None:
        """Remove the stored vectors of these texts, in memory and in the file."""
        keys = [content_hash(text) for text in texts]
        with self._lock:
            for key in keys:
                self._recent.pop(key, None)
        await asyncio.to_thread(self._file.delete, keys)

    async def _embed_query_once(self, key: str, text: str) -> Matrix:
        """Vector of a query; concurrent searches for the same text share one computation."""
        place = (asyncio.get_running_loop(), key)
        running = self._running.get(place)
        if running is None:
            running = self._running[place] = asyncio.ensure_future(self._inner.embed([text]))
            running.add_done_callback(lambda _: self._running.pop(place, None))
        return await asyncio.shield(running)  # a cancelled caller does not cancel it for the others

    def _find_recent(self, keys: list[str]) -> dict[str, Vector]:
        """Vector of a single query, if it is in the memory cache."""
        with self._lock:
            if keys[0] not in self._recent:
                return {}
            self._recent.move_to_end(keys[0])
            return {keys[0]: self._recent[keys[0]]}

    def _remember(self, keys: list[str], known: dict[str, Vector], *, misses: int) -> None:
        with self._lock:
            self._misses += misses
            self._hits += len(keys) - misses
            # A batch is an ingestion: caching it in memory would evict repeated queries.
            if len(keys) == 1:
                self._recent[keys[0]] = known[keys[0]].copy()
                while len(self._recent) > self._queries:
                    self._recent.popitem(last=False)


KEYS_PER_QUERY = 500
BUSY_MILLISECONDS = 2_000
UNIT_LENGTH_TOLERANCE = 1e-3

VECTOR_SCHEMA = """
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
        """Stored vectors by key; missing keys are left out."""
        found: dict[str, Vector] = {}
        with self._lock:
            try:
                for some in _batches(keys):
                    found |= self._read(some)
            except (sqlite3.Error, OSError) as failure:
                self._give_up(failure)
        return found

    def write(self, vectors: Mapping[str, Vector]) -> None:
        """Store these vectors in one transaction."""
        rows = [(self._embedder, bytes.fromhex(key), vector.tobytes()) for key, vector in vectors.items()]
        with self._lock:
            try:
                if connection := self._open():
                    with connection:
                        connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            except (sqlite3.Error, OSError) as failure:
                self._give_up(failure)

    def delete(self, keys: Collection[str]) -> None:
        """Delete the vectors with these keys, and every copy of them in the file."""
        rows = [(self._embedder, bytes.fromhex(key)) for key in keys]
        with self._lock:
            try:
                if connection := self._open():
                    connection.execute("PRAGMA secure_delete = ON")
                    with connection:
                        connection.executemany("DELETE FROM vectors WHERE embedder = ? AND hash = ?", rows)
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except (sqlite3.Error, OSError) as failure:
                self._give_up(failure)

    def close(self) -> None:
        """Close the file; nothing is found or written afterwards."""
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
            pairs = [(bytes(key).hex(), self._decode_vector(blob)) for key, blob in rows]
        return {key: vector for key, vector in pairs if vector is not None}

    def _decode_vector(self, blob: bytes) -> Vector | None:
        if len(blob) != self._dimensions * np.dtype(np.float32).itemsize:
            return None
        vector = np.frombuffer(blob, np.float32)
        return vector if abs(float(np.linalg.norm(vector)) - 1.0) < UNIT_LENGTH_TOLERANCE else None

    def _open(self) -> sqlite3.Connection | None:
        if self._closed or self._connection is not None:
            return self._connection
        self._path.parent.mkdir(parents=True, exist_ok=True)
        create_private_file(self._path)
        self._connection = sqlite3.connect(self._path, check_same_thread=False)
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        self._connection.execute("PRAGMA journal_mode = WAL")
        # A cache may lose its last writes in a power failure, but must not slow down ingestion.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute(VECTOR_SCHEMA)
        return self._connection

    def _give_up(self, failure: Exception) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.degraded = f"the vector cache {self._path} is not used: {failure}"
        if self._on_degraded is not None:
            self._on_degraded(self.degraded)


def _batches(keys: Collection[str]) -> Iterator[list[str]]:
    rest = iter(keys)
    while some := list(islice(rest, KEYS_PER_QUERY)):
        yield some
