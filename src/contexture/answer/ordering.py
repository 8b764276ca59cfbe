"""One thing at a time for each session, and sessions beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager


class Ordering:
    """Lets the holders of one key in one after the other, in the order in which they came."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, key: Hashable) -> AsyncGenerator[None]:
        """Hold the key; others with the same one wait."""
        lock, holders = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, holders + 1
        try:
            async with lock:
                yield
        finally:
            lock, holders = self._locks.pop(key)
            if holders > 1:  # a key nobody holds or waits for is forgotten
                self._locks[key] = lock, holders - 1
