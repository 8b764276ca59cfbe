"""Answers to searches, remembered until something is written where they looked."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CacheStats:
    """How often the cache could answer."""

    hits: int
    misses: int

    @property
    def rate(self) -> float:
        """Share of look-ups that hit; 0 before the first."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else 0.0


class ResultCache(Generic[T]):
    """A bounded memory of results, each valid for one version of what it was computed from."""

    def __init__(self, size: int = 2_048) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, tuple[int, T]] = OrderedDict()
        self._guard = threading.Lock()
        self._hits = 0
        self._misses = 0

    def get(self, key: Hashable, version: int) -> T | None:
        """The result stored under this key, if nothing was written since."""
        with self._guard:
            found = self._entries.get(key)
            if found is None or found[0] != version:
                self._misses += 1
                return None
            self._entries.move_to_end(key)
            self._hits += 1
            return found[1]

    def put(self, key: Hashable, version: int, result: T) -> None:
        """Remember a result; the least recently used one makes room."""
        if self._size <= 0:
            return
        with self._guard:
            self._entries[key] = (version, result)
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def stats(self) -> CacheStats:
        """Hits and misses so far."""
        return CacheStats(self._hits, self._misses)
