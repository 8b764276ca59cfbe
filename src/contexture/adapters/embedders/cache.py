"""Keeps vectors by content, so that no text is embedded twice."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np

from contexture.adapters.embedders.vectors import VectorFile
from contexture.ports import Embedder
from contexture.types import Matrix, Vector, content_hash


@dataclass(frozen=True, slots=True)
class CacheStats:
    """How many texts were answered from the cache and how many were computed."""

    hits: int
    misses: int


class CachedEmbedder:
    """An embedder that remembers, in memory for single queries and in a file for everything.

    Vectors are the inner embedder's, bit for bit, cached or not. A file that cannot be read or
    written costs time, never an answer: `degraded` then says what happened, and `on_degraded`
    is called once with the same sentence.
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
        """Why the file is not used, or nothing while it is."""
        return self._file.degraded

    def stats(self) -> CacheStats:
        """Hits and misses since this object was made."""
        with self._lock:
            return CacheStats(self._hits, self._misses)

    def close(self) -> None:
        """Release the file; the embedder goes on without it."""
        self._file.close()

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines as the inner embedder maps them."""
        return self._inner.calibrate(cosine)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """One row per text, in order; each distinct text is computed at most once.

        A single text is a query: it is remembered in memory only, so that no search waits for a disk.
        """
        keys = [content_hash(text) for text in texts]
        batch = len(keys) != 1
        known = await asyncio.to_thread(self._file.read, set(keys)) if batch else self._from_memory(keys)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            rows = await (self._inner.embed(list(missing.values())) if batch else self._shared(keys[0], texts[0]))
            computed = dict(zip(missing, rows, strict=True))
            if batch:
                await asyncio.to_thread(self._file.write, computed)
            known |= computed
        self._remember(keys, known, misses=sum(key in missing for key in keys))
        return np.stack([known[key] for key in keys]) if keys else np.empty((0, self.dimensions), np.float32)

    async def _shared(self, key: str, text: str) -> Matrix:
        """The row of a query; searches that ask for it at the same moment share its computation."""
        place = (asyncio.get_running_loop(), key)
        running = self._running.get(place)
        if running is None:
            running = self._running[place] = asyncio.ensure_future(self._inner.embed([text]))
            running.add_done_callback(lambda _: self._running.pop(place, None))
        return await asyncio.shield(running)  # whoever gives up leaves it to the others

    def _from_memory(self, keys: list[str]) -> dict[str, Vector]:
        """The vector of a single query, if it was asked lately."""
        with self._lock:
            if keys[0] not in self._recent:
                return {}
            self._recent.move_to_end(keys[0])
            return {keys[0]: self._recent[keys[0]]}

    def _remember(self, keys: list[str], known: dict[str, Vector], *, misses: int) -> None:
        with self._lock:
            self._misses += misses
            self._hits += len(keys) - misses
            # A batch is an ingestion: keeping it would push out the queries that come again.
            if len(keys) == 1:
                self._recent[keys[0]] = known[keys[0]].copy()
                while len(self._recent) > self._queries:
                    self._recent.popitem(last=False)
