"""Answers to searches, remembered with the version of what they were computed from."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """A result, the version it was computed from, and the newest version at which it was found to hold."""

    result: T
    version: int
    held: int


class ResultCache(Generic[T]):
    """A bounded memory of results; whoever asks decides whether a result still holds, and says so."""

    def __init__(self, size: int = 2_048) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, Kept[T]] = OrderedDict()
        self._guard = threading.Lock()
        self._hits = 0
        self._misses = 0

    def find(self, key: Hashable) -> Kept[T] | None:
        """What is remembered under this key, however old."""
        with self._guard:
            return self._entries.get(key)

    def hit(self, key: Hashable, kept: Kept[T], version: int) -> None:
        """Note that what was found under this key holds at this version, and was given as an answer.

        Something else may be remembered there by now: nothing is said of that.
        """
        with self._guard:
            self._hits += 1
            now = self._entries.get(key)
            if now is not None and now.result is kept.result:
                self._entries[key] = now if now.held >= version else replace(now, held=version)
                self._entries.move_to_end(key)

    def miss(self) -> None:
        """Note that nothing remembered could answer."""
        with self._guard:
            self._misses += 1

    def put(self, key: Hashable, version: int, result: T) -> None:
        """Remember a result, unless there is one that holds at a newer version; the least recently used makes room."""
        if self._size <= 0:
            return
        with self._guard:
            now = self._entries.get(key)
            if now is not None and now.held > version:
                return
            self._entries[key] = Kept(result, version, version)
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def stats(self) -> CacheStats:
        """Hits and misses so far."""
        with self._guard:
            return CacheStats(self._hits, self._misses)
