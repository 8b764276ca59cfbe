"""Retries with exponential backoff and jitter, and a deadline that bounds a whole task."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from contexture.errors import SourceError, SourceTimeout

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

_JITTER_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """Number of retries and the backoff before each.

    The pause before retry n is `base_seconds * 2**n` plus or minus up to half of it, so that many clients do not
    retry at the same moment.
    """

    max_retries: int = 2
    base_seconds: float = 0.15
    rng: random.Random = field(default_factory=random.Random)
    sleep: Sleep = asyncio.sleep

    def pause_seconds(self, number: int) -> float:
        """Seconds to wait before retry `number`, counted from 0."""
        return self.base_seconds * 2**number * self.rng.uniform(1 - _JITTER_SHARE, 1 + _JITTER_SHARE)


async def retry(attempt: Callable[[], Awaitable[T]], *, retries: RetryPolicy, deadline: Deadline, who: str) -> T:
    """The result of `attempt`, after retries if needed; raises its last failure when all fail.

    Only a `SourceError` with `retryable` set is retried. When the next pause would outlast the deadline, the failure is
    raised at once; an attempt that outlasts it is cancelled and raises `SourceTimeout`.
    """
    for number in range(retries.max_retries):
        try:
            return await deadline.wait_for(attempt(), who)
        except SourceError as failure:
            pause = retries.pause_seconds(number)
            if not failure.retryable or pause >= deadline.seconds_left():
                raise
        await retries.sleep(pause)
    return await deadline.wait_for(attempt(), who)


class Deadline:
    """A deadline `seconds` after its creation, less the seconds that are `spent` already.

    deadline = Deadline(10.0)
    found = await deadline.wait_for(memory.recall(scope, query), "memory")
    """

    def __init__(self, seconds: float, *, spent: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = seconds
        self._end = clock() + seconds - spent

    def seconds_left(self) -> float:
        """Seconds that remain; never below 0."""
        return max(0.0, self._end - self._clock())

    @property
    def is_expired(self) -> bool:
        """Whether no time remains."""
        return self.seconds_left() <= 0

    async def wait_for(self, work: Awaitable[T], who: str) -> T:
        """The result of `work`; cancels it at the deadline and raises `SourceTimeout`, which names `who`."""
        limit = asyncio.timeout(self.seconds_left())
        try:
            async with limit:
                return await work
        except TimeoutError as failure:
            if not limit.expired():  # the work's own timeout, not ours
                raise
            raise SourceTimeout(f"{who} did not answer within {self._seconds:g} s") from failure
