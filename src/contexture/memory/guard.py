"""Wraps any memory service with a circuit breaker, retries and health reporting."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Never, TypeVar

from contexture.conversation import Feedback, HealthState, Memory, Recall, Recalled
from contexture.errors import RequestError, SourceError, SourceUnavailable
from contexture.memory.records import make_memory_id
from contexture.ports import Health, MemoryService, MemoryWriter
from contexture.resilience import CircuitBreaker, Deadline, RetryPolicy, Sleep, retry
from contexture.types import Scope

T = TypeVar("T")
MonotonicClock = Callable[[], float]

_SLOW_SECONDS = 0.25  # a call cancelled after this time counts as a failure: the service was too slow


async def _close_nothing() -> None:
    """Default `close`: an in-process service has nothing to close."""


async def _raise_unavailable() -> Never:
    """Fails like an unavailable service, while `GuardedMemory.broken` is set."""
    raise SourceUnavailable("the memory service does not answer: this is a simulated outage")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryGuard:
    """Breaker, health and retries around a service.

    `patience` is the time limit of one call in seconds, retries included. `probe` asks the service for a sign of life
    every `probe_seconds` while the breaker is open or the service is down; None probes never.
    """

    health: Health
    breaker: CircuitBreaker
    retries: RetryPolicy = field(default_factory=lambda: RetryPolicy(max_retries=0))
    patience: float = 10.0
    clock: MonotonicClock = time.monotonic
    probe: Callable[[], Awaitable[None]] | None = None
    probe_seconds: float = 5.0
    sleep: Sleep = asyncio.sleep


class GuardedMemory:
    """Implements the `MemoryService` port over another service.

    A call counts as one failure after its retries. Only retryable errors count for breaker and health; a refusal by the
    open breaker counts for health only. A `RequestError` counts as a success, because the service answered. Memories
    without an id or idempotency key get an id first, so that a retried write is idempotent. A failure starts probes if
    it opens the breaker or takes the service down; a probe that succeeds closes the breaker and ends the state DOWN.
    `refusal` is why the service refuses us, such as an invalid key, until it answers again. While `broken` is set,
    every call fails as if the service were unavailable, to demonstrate degradation.
    """

    def __init__(
        self,
        service: MemoryService,
        guard: MemoryGuard,
        *,
        name: str = "memory",
        close: Callable[[], Awaitable[None]] = _close_nothing,
    ) -> None:
        self._service = service
        self._guard = guard
        self._name = name
        self._close = close
        self._probes: asyncio.Task[None] | None = None
        self.broken = False
        self.refusal = ""

    @property
    def seconds_open(self) -> float:
        """For how many seconds the breaker still rejects calls."""
        return self._guard.breaker.seconds_open()

    async def close(self) -> None:
        """Stop probing and close the service."""
        if self._probes is not None:
            self._probes.cancel()
            await asyncio.gather(self._probes, return_exceptions=True)
        await self._close()

    @property
    def deliveries(self) -> MemoryWriter:
        """The service for a queue that tries again by itself.

        Failures count neither for the breaker nor for health, so that a backlog does not take recall down.
        """
        return _Deliveries(self._deliver)

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Store all memories or none; returns their ids in order."""
        named = [each if each.id or each.idempotency_key else replace(each, id=make_memory_id()) for each in memories]
        return await self._call(lambda: self._service.remember(scope, named))

    async def recall(self, scope: Scope, query: Recall) -> Sequence[Recalled]:
        """The best memories at or above the threshold."""
        return await self._call(lambda: self._service.recall(scope, query))

    async def feedback(self, scope: Scope, given: Feedback) -> None:
        """Rank one memory slightly higher or lower."""
        await self._call(lambda: self._service.feedback(scope, given))

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Remove the memories the scope may read; returns how many."""
        return await self._call(lambda: self._service.forget(scope, ids))

    async def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        guard = self._guard
        self._check_breaker()
        started = guard.clock()
        try:
            deadline = Deadline(guard.patience, clock=guard.clock)
            answer = await retry(
                _raise_unavailable if self.broken else work, retries=guard.retries, deadline=deadline, who=self._name
            )
        except SourceError as failure:
            if failure.retryable:
                self._record_failure()
            else:
                self.refusal = str(failure)
            raise
        except RequestError:
            self._record_success()
            raise
        except asyncio.CancelledError:
            if guard.clock() - started >= _SLOW_SECONDS:
                self._record_failure()
            raise
        self._record_success()
        return answer

    async def _deliver(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        self._guard.breaker.check()
        deadline = Deadline(self._guard.patience, clock=self._guard.clock)
        sent = _raise_unavailable() if self.broken else self._service.remember(scope, memories)
        try:
            ids = await deadline.wait_for(sent, self._name)
        except SourceError as failure:
            if not failure.retryable:
                self.refusal = str(failure)
            raise
        self._record_success()
        return ids

    def _check_breaker(self) -> None:
        try:
            self._guard.breaker.check()
        except SourceUnavailable:
            self._guard.health.record_failure()
            self._start_probes()
            raise

    def _record_failure(self) -> None:
        self._guard.breaker.record_failure()
        self._guard.health.record_failure()
        self._start_probes()

    def _start_probes(self) -> None:
        if self._guard.probe is not None and self._is_shut() and (self._probes is None or self._probes.done()):
            self._probes = asyncio.create_task(self._probe_until_well(self._guard.probe), name="contexture-probe")

    async def _probe_until_well(self, probe: Callable[[], Awaitable[None]]) -> None:
        guard = self._guard
        while self._is_shut():
            await guard.sleep(guard.probe_seconds)
            with suppress(SourceError):
                await Deadline(guard.probe_seconds, clock=guard.clock).wait_for(probe(), self._name)
                guard.breaker.close()
                guard.health.record_recovery()

    def _is_shut(self) -> bool:
        return self._guard.breaker.seconds_open() > 0 or self._guard.health.state() is HealthState.DOWN

    def _record_success(self) -> None:
        self.refusal = ""
        self._guard.breaker.record_success()
        self._guard.health.record_success()


class _Deliveries:
    """Writes through a guard that do not count as failures."""

    def __init__(self, deliver: Callable[[Scope, Sequence[Memory]], Awaitable[Sequence[str]]]) -> None:
        self._deliver = deliver

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Store all memories or none; returns their ids in order."""
        return await self._deliver(scope, memories)
