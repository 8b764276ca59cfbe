"""Keeps builds working when a service fails: health state, circuit breaker, retries, deadlines.

The breaker stops calls to a service that keeps failing. Retries have exponential backoff and jitter; a deadline bounds
a whole task.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from contexture.conversation import HealthState
from contexture.errors import SourceError, SourceTimeout, SourceUnavailable

MonotonicClock = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthOptions:
    """Thresholds and windows of `HealthMonitor`.

    HealthOptions(degraded_seconds=15, down_failures=5, down_seconds=60)    # the defaults
    """

    degraded_seconds: float = 15.0
    down_failures: int = 5
    down_seconds: float = 60.0


class HealthMonitor:
    """Implements the `Health` port for one service.

    | state    | event                               | next                       |
    |----------|-------------------------------------|----------------------------|
    | NORMAL   | failure                             | DEGRADED, a window begins  |
    | DEGRADED | success                             | NORMAL                     |
    | DEGRADED | failure                             | the window begins anew     |
    | DEGRADED | failure number `down_failures`      | DOWN for `down_seconds`    |
    | DEGRADED | the window ends                     | NORMAL                     |
    | DOWN     | success or failure of an older call | DOWN                       |
    | DOWN     | the time is over                    | DEGRADED, a window begins  |
    | DOWN     | a probe succeeds                    | DEGRADED, a window begins  |

    Only failures while DEGRADED are counted, including refusals of an open breaker; the failure that led to
    DEGRADED is not.
    """

    def __init__(self, options: HealthOptions | None = None, *, clock: MonotonicClock = time.monotonic) -> None:
        self._options = options or HealthOptions()
        self._clock = clock
        self._state = HealthState.NORMAL
        self._until = 0.0
        self._failures = 0

    def state(self) -> HealthState:
        """The current state; applies transitions that are due by time."""
        now = self._clock()
        if self._state is HealthState.DOWN and now >= self._until:
            self._enter(HealthState.DEGRADED, self._until + self._options.degraded_seconds)
        if self._state is HealthState.DEGRADED and now >= self._until:
            self._enter(HealthState.NORMAL, 0.0)
        return self._state

    def record_success(self) -> None:
        """Record a successful call: a degraded service becomes normal."""
        if self.state() is HealthState.DEGRADED:
            self._enter(HealthState.NORMAL, 0.0)

    def record_failure(self) -> None:
        """Record a call that failed after its retries, or that the open breaker refused."""
        state, now = self.state(), self._clock()
        if state is HealthState.DOWN:
            return
        if state is HealthState.NORMAL:
            self._enter(HealthState.DEGRADED, now + self._options.degraded_seconds)
            return
        self._failures += 1
        self._until = now + self._options.degraded_seconds
        if self._failures >= self._options.down_failures:
            self._enter(HealthState.DOWN, now + self._options.down_seconds)

    def record_recovery(self) -> None:
        """Record a probe that succeeded: a service that is down is degraded from now on."""
        if self.state() is HealthState.DOWN:
            self._enter(HealthState.DEGRADED, self._clock() + self._options.degraded_seconds)

    def _enter(self, state: HealthState, until: float) -> None:
        self._state, self._until, self._failures = state, until, 0


class CircuitBreaker:
    """Opens after `failures` failures in a row and stays open for `seconds`; then it closes again.

    While open it refuses calls at once, so that callers do not wait for a service that is down. When it closes, the
    failure count restarts at zero.
    """

    def __init__(
        self, name: str, *, failures: int = 3, seconds: float = 15.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._allowed = failures
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._until: float | None = None

    def check(self) -> None:
        """Raise `SourceUnavailable` while the breaker is open; the message says for how long."""
        left = self.seconds_open()
        if left > 0:
            raise SourceUnavailable(f"{self._name} is unavailable: the breaker is open for {math.ceil(left)} s")

    def seconds_open(self) -> float:
        """Seconds until the breaker closes; 0 when it is closed."""
        if self._until is None:
            return 0.0
        left = self._until - self._clock()
        if left > 0:
            return left
        self._until, self._failures = None, 0
        return 0.0

    def record_success(self) -> None:
        """Record a successful call: resets the failure count."""
        self._failures = 0

    def close(self) -> None:
        """Accept calls again, before the time is over: a probe has found the service well."""
        self._until, self._failures = None, 0

    def record_failure(self) -> None:
        """Record a call that failed after its retries; may open the breaker."""
        self._failures += 1
        if self._failures >= self._allowed:
            self._until = self._clock() + self._seconds


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
