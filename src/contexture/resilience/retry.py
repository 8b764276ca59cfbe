"""Tries again what may succeed the next time, with growing pauses, and never beyond a deadline."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from contexture.errors import SourceError
from contexture.resilience.deadline import Deadline

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]

_JITTER = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """How often to try again, and how long to pause before.

    The pause before retry n is `base_seconds * 2**n`, more or less by up to half of it, so that many clients
    do not come back at the same moment.
    """

    most: int = 2
    base_seconds: float = 0.15
    dice: random.Random = field(default_factory=random.Random)
    sleep: Sleep = asyncio.sleep

    def pause(self, number: int) -> float:
        """Seconds to wait before retry `number`, counted from 0."""
        return self.base_seconds * 2**number * self.dice.uniform(1 - _JITTER, 1 + _JITTER)


async def retry(attempt: Callable[[], Awaitable[T]], *, retries: Retries, deadline: Deadline, who: str) -> T:
    """What `attempt` gives, if need be on a later try; otherwise its last failure.

    Only a `SourceError` that says so is retried. A pause that would outlast the deadline is not made,
    and an attempt that does is cancelled.
    """
    for number in range(retries.most):
        try:
            return await deadline.wait_for(attempt(), who)
        except SourceError as failure:
            pause = retries.pause(number)
            if not failure.retryable or pause >= deadline.left():
                raise
        await retries.sleep(pause)
    return await deadline.wait_for(attempt(), who)
