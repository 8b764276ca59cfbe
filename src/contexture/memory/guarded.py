"""Any memory service, with a breaker before it, retries around it, and its health reported."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Never, TypeVar

from contexture.conversation import Feedback, Memory, Recall, Recalled
from contexture.errors import RequestError, SourceError, SourceUnavailable
from contexture.memory.records import new_id
from contexture.ports import Health, MemoryService
from contexture.resilience.breaker import Breaker
from contexture.resilience.deadline import Deadline
from contexture.resilience.retry import Retries, retry
from contexture.types import Scope

T = TypeVar("T")
Monotonic = Callable[[], float]

_GAVE_UP = 0.25  # seconds after which a caller who stops waiting has found the service too slow


async def _nothing() -> None:
    """A service in process has nothing to close."""


async def _unanswered() -> Never:
    """A call to a service that was broken on purpose."""
    raise SourceUnavailable("the memory service does not answer: it was broken on purpose")


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """What watches over a service: `patience` is what one call may take in seconds, its retries included."""

    health: Health
    breaker: Breaker
    retries: Retries = field(default_factory=lambda: Retries(most=0))
    patience: float = 10.0
    clock: Monotonic = time.monotonic


class GuardedMemory:
    """Implements the `MemoryService` port over another service.

    A call fails once, after its retries; only a failure that waiting may cure counts for breaker and health, and
    so does a refusal of the open breaker for health. What the caller can fix proves that the service answers.
    Memories without an id are given one first, so that a repeated write is the same write. While `broken` is set
    every call fails as if nobody had answered, for those who want to see what follows.
    """

    def __init__(
        self,
        service: MemoryService,
        guard: Guard,
        *,
        name: str = "memory",
        close: Callable[[], Awaitable[None]] = _nothing,
    ) -> None:
        self._service = service
        self._guard = guard
        self._name = name
        self.close = close
        self.broken = False

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Store all of them or none; ids in order."""
        named = [each if each.id or each.idempotency_key else replace(each, id=new_id()) for each in memories]
        return await self._call(lambda: self._service.remember(scope, named))

    async def recall(self, scope: Scope, query: Recall) -> Sequence[Recalled]:
        """The best memories at or above the threshold."""
        return await self._call(lambda: self._service.recall(scope, query))

    async def feedback(self, scope: Scope, given: Feedback) -> None:
        """Let one memory rank a little higher or lower."""
        await self._call(lambda: self._service.feedback(scope, given))

    async def forget(self, scope: Scope, ids: Sequence[str]) -> int:
        """Remove those the scope may read."""
        return await self._call(lambda: self._service.forget(scope, ids))

    async def _call(self, work: Callable[[], Awaitable[T]]) -> T:
        guard = self._guard
        self._check()
        started = guard.clock()
        try:
            deadline = Deadline(guard.patience, clock=guard.clock)
            answer = await retry(
                _unanswered if self.broken else work, retries=guard.retries, deadline=deadline, who=self._name
            )
        except SourceError as failure:
            if failure.retryable:
                self._failed()
            raise
        except RequestError:
            self._answered()
            raise
        except asyncio.CancelledError:
            if guard.clock() - started >= _GAVE_UP:
                self._failed()
            raise
        self._answered()
        return answer

    def _check(self) -> None:
        try:
            self._guard.breaker.check()
        except SourceUnavailable:
            self._guard.health.failed()
            raise

    def _failed(self) -> None:
        self._guard.breaker.failed()
        self._guard.health.failed()

    def _answered(self) -> None:
        self._guard.breaker.succeeded()
        self._guard.health.succeeded()
