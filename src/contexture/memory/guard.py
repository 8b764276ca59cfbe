"""Wraps any memory service with a circuit breaker, retries and health reporting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Never, TypeVar

from contexture.conversation import Feedback, Memory, Recall, Recalled
from contexture.errors import RequestError, SourceError, SourceUnavailable
from contexture.memory.records import make_memory_id
from contexture.ports import Health, MemoryService
from contexture.resilience.health import CircuitBreaker
from contexture.resilience.retry import Deadline, RetryPolicy, retry
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

    `patience` is the time limit of one call in seconds, retries included.
    """

    health: Health
    breaker: CircuitBreaker
    retries: RetryPolicy = field(default_factory=lambda: RetryPolicy(max_retries=0))
    patience: float = 10.0
    clock: MonotonicClock = time.monotonic


class GuardedMemory:
    """Implements the `MemoryService` port over another service.

    A call counts as one failure after its retries. Only retryable errors count for breaker and health; a refusal by the
    open breaker counts for health only. A `RequestError` counts as a success, because the service answered. Memories
    without an id or idempotency key get an id first, so that a retried write is idempotent. While `broken` is set,
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
        self.close = close
        self.broken = False

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

    def _check_breaker(self) -> None:
        try:
            self._guard.breaker.check()
        except SourceUnavailable:
            self._guard.health.record_failure()
            raise

    def _record_failure(self) -> None:
        self._guard.breaker.record_failure()
        self._guard.health.record_failure()

    def _record_success(self) -> None:
        self._guard.breaker.record_success()
        self._guard.health.record_success()
