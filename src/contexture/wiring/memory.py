"""The memory service, in process or behind a URL, and what watches over it."""

from __future__ import annotations

from contexture.adapters.memory.http import RemoteMemory
from contexture.adapters.tokens.models import counter_for
from contexture.config import Settings
from contexture.memory.guarded import Guard, GuardedMemory
from contexture.memory.service import LocalMemory
from contexture.ports import Clock, Health, Index
from contexture.resilience.breaker import Breaker
from contexture.resilience.health import HealthMonitor, HealthOptions
from contexture.resilience.retry import Retries
from contexture.retrieval.prepare import Preparer
from contexture.retrieval.search import HybridSearch
from contexture.wiring.core import COUNTED

_AS_LONG_AS_IT_TAKES = 3_600.0  # seconds: a large batch is embedded here, and a build has its own deadline


def memory_health(settings: Settings) -> HealthMonitor:
    """What turns the memory client's successes and failures into a state."""
    return HealthMonitor(
        HealthOptions(
            degraded_seconds=settings.degraded_seconds,
            down_failures=settings.down_failures,
            down_seconds=settings.down_seconds,
        )
    )


def memory_service(
    settings: Settings, store: Index, preparer: Preparer, search: HybridSearch, *, clock: Clock, health: Health
) -> GuardedMemory:
    """The memory service that the settings name, guarded; close it when the engine closes."""
    breaker = Breaker("the memory service", failures=settings.breaker_failures, seconds=settings.breaker_seconds)
    if not settings.memory_url:
        guard = Guard(health=health, breaker=breaker, patience=_AS_LONG_AS_IT_TAKES)
        return GuardedMemory(local_memory(store, preparer, search, clock=clock), guard)
    remote = RemoteMemory(settings.memory_url, api_key=settings.memory_api_key, timeout=settings.memory_timeout_seconds)
    retries = Retries(most=settings.memory_max_retries, base_seconds=settings.memory_retry_base_ms / 1_000)
    guard = Guard(health=health, breaker=breaker, retries=retries, patience=settings.memory_timeout_seconds)
    return GuardedMemory(remote, guard, close=remote.close)


def local_memory(store: Index, preparer: Preparer, search: HybridSearch, *, clock: Clock) -> LocalMemory:
    """The memory service over this process's own index."""
    counters = [counter_for(name) for name in COUNTED]
    return LocalMemory(index=store, preparer=preparer, search=search, clock=clock, counters=counters)
