"""A moment after which nobody waits any more, shared by everything that one task does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from contexture.errors import SourceTimeout

T = TypeVar("T")


class Deadline:
    """Ends `seconds` after it was made.

    deadline = Deadline(10.0)
    found = await deadline.wait_for(memory.recall(scope, query), "memory")
    """

    def __init__(self, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end = clock() + seconds

    def left(self) -> float:
        """Seconds that remain; never below 0."""
        return max(0.0, self._end - self._clock())

    @property
    def expired(self) -> bool:
        """Whether nothing remains."""
        return self.left() <= 0

    async def wait_for(self, work: Awaitable[T], who: str) -> T:
        """What `work` gives in time; otherwise it is cancelled and `who` has timed out."""
        limit = asyncio.timeout(self.left())
        try:
            async with limit:
                return await work
        except TimeoutError as failure:
            if not limit.expired():  # the work's own timeout, which is a failure like any other
                raise
            raise SourceTimeout(f"{who} did not answer within {self._seconds:g} s") from failure
