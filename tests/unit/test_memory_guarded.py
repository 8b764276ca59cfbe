"""A guarded memory service: what counts as a failure, what is tried again, and how its health moves."""

from __future__ import annotations

import asyncio
import random

import pytest

from contexture.conversation import Feedback, HealthState, Memory, Recalled
from contexture.errors import (
    InvalidRequest,
    NotFound,
    RedactionFailed,
    SourceTimeout,
    SourceUnavailable,
    StoreUnwritable,
)
from contexture.memory.guard import GuardedMemory, MemoryGuard
from contexture.resilience import CircuitBreaker, HealthMonitor, RetryPolicy
from contexture.testing.doubles import NOON, ScriptedMemory
from contexture.types import Scope
from support.memory_conformance import asking

SCOPE = Scope.local()
DOWN = SourceUnavailable("gone")


class Watch:
    """A guarded service on a clock that moves by hand."""

    def __init__(self, *failures, retries=0):
        self.time = 0.0
        self.inner = ScriptedMemory(recalls=[Recalled(id="m", text="tea", score=0.9)], failures=failures)
        self.health = HealthMonitor(clock=lambda: self.time)
        self.breaker = CircuitBreaker("memory", clock=lambda: self.time)
        guard = MemoryGuard(
            health=self.health,
            breaker=self.breaker,
            retries=RetryPolicy(max_retries=retries, rng=random.Random(1), sleep=self.sleep),
            clock=lambda: self.time,
        )
        self.memory = GuardedMemory(self.inner, guard)

    async def sleep(self, seconds):
        """Let time pass at once."""
        self.time += seconds

    async def recall(self):
        """The ids recalled, or the failure."""
        try:
            return [found.id for found in await self.memory.recall(SCOPE, asking("tea"))]
        except SourceUnavailable as failure:
            return str(failure)


async def test_a_call_fails_once_after_its_retries():
    """Three attempts that fail are one failure."""
    watch = Watch(DOWN, DOWN, DOWN, retries=2)
    await watch.recall()

    assert watch.inner.calls == 3
    assert watch.health.state() is HealthState.DEGRADED
    assert watch.breaker.seconds_open() == 0


async def test_an_attempt_that_succeeds_later_is_no_failure():
    """Health hears of calls, not of attempts."""
    watch = Watch(DOWN, retries=2)

    assert ["m"] == await watch.recall()
    assert watch.health.state() is HealthState.NORMAL


async def test_refusals_of_the_open_breaker_take_the_service_down():
    """Three failures open the breaker; one of them degraded the service, and three refusals more make five."""
    watch = Watch(DOWN, DOWN, DOWN)
    states = []
    for _ in range(6):
        await watch.recall()
        states.append(watch.health.state())

    assert watch.inner.calls == 3
    assert states == [HealthState.DEGRADED] * 5 + [HealthState.DOWN]


async def test_it_recovers_by_itself():
    """When the breaker has closed again, the next answer makes all well."""
    watch = Watch(DOWN, DOWN, DOWN)
    for _ in range(3):
        await watch.recall()
    watch.time += 14.9
    assert "open for 1 s" in await watch.recall()

    watch.time += 0.1
    assert ["m"] == await watch.recall()
    assert watch.health.state() is HealthState.NORMAL


@pytest.mark.parametrize("failure", [InvalidRequest("bad"), NotFound("none")])
async def test_what_the_caller_can_fix_proves_that_the_service_answers(failure):
    """A refused request ends a degraded time and a row of failures."""
    watch = Watch(DOWN, DOWN, failure, DOWN, DOWN)
    for _ in range(2):
        await watch.recall()
    with pytest.raises(type(failure)):
        await watch.memory.recall(SCOPE, asking("tea"))
    assert watch.health.state() is HealthState.NORMAL

    for _ in range(2):
        await watch.recall()
    assert watch.breaker.seconds_open() == 0


@pytest.mark.parametrize("failure", [StoreUnwritable("full"), RedactionFailed("broken rule")])
async def test_what_waiting_does_not_cure_is_not_counted(failure):
    """A full disk keeps nobody from reading."""
    watch = Watch(failure)
    with pytest.raises(type(failure)):
        await watch.memory.remember(SCOPE, [Memory(text="tea")])

    assert watch.health.state() is HealthState.NORMAL


async def test_a_write_that_is_repeated_is_the_same_write():
    """A memory has an id before the first attempt, and keeps it."""
    watch = Watch(DOWN, retries=1)
    (written,) = await watch.memory.remember(SCOPE, [Memory(text="tea")])

    assert [written] == [memory.id for memory in watch.inner.remembered]
    assert written.startswith("mem-")


async def test_ids_and_keys_that_are_given_stay():
    """Only a memory with neither is given an id."""
    watch = Watch()
    await watch.memory.remember(SCOPE, [Memory(text="a", id="mine"), Memory(text="b", idempotency_key="k")])

    assert ["mine", ""] == [memory.id for memory in watch.inner.remembered]


async def test_feedback_and_forgetting_are_guarded_too():
    """Every call goes the same way."""
    watch = Watch(DOWN, DOWN)
    with pytest.raises(SourceUnavailable):
        await watch.memory.feedback(SCOPE, Feedback(memory_id="m", score=1, time=NOON))
    with pytest.raises(SourceUnavailable):
        await watch.memory.forget(SCOPE, ["m"])
    assert watch.health.state() is HealthState.DEGRADED

    assert await watch.memory.forget(SCOPE, ["m"]) == 1
    await watch.memory.feedback(SCOPE, Feedback(memory_id="m", score=1, time=NOON))
    assert watch.health.state() is HealthState.NORMAL


class Hanging(ScriptedMemory):
    """Never answers."""

    async def recall(self, scope, query):
        """Wait for nothing."""
        await asyncio.Event().wait()


def hanging(clock, patience):
    """A guarded service that never answers."""
    health = HealthMonitor(clock=clock)
    guard = MemoryGuard(health=health, breaker=CircuitBreaker("memory", clock=clock), patience=patience, clock=clock)
    return GuardedMemory(Hanging(), guard), health


async def test_a_service_that_hangs_fails_at_the_deadline():
    """Patience ends, the service is named, and the failure counts."""
    memory, health = hanging(lambda: 0.0, 0.0)

    with pytest.raises(SourceTimeout, match="memory did not answer"):
        await memory.recall(SCOPE, asking("tea"))
    assert health.state() is HealthState.DEGRADED


@pytest.mark.parametrize(("waited", "state"), [(0.1, HealthState.NORMAL), (0.3, HealthState.DEGRADED)])
async def test_a_caller_who_gives_up_after_waiting_has_seen_a_failure(waited, state):
    """A build that stops waiting counts, a visitor who leaves at once does not."""
    time = [0.0]
    memory, health = hanging(lambda: time[0], 10.0)
    task = asyncio.create_task(memory.recall(SCOPE, asking("tea")))
    await asyncio.wait([task], timeout=0)
    time[0] = waited
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert task.cancelled()
    assert health.state() is state


async def test_a_service_that_is_broken_on_purpose_is_not_called_and_counts_as_failing():
    """Breaker and monitor see it as they see any outage; mended, the service is called again."""
    watch = Watch()
    watch.memory.broken = True
    told = await watch.recall()
    watch.memory.broken = False

    assert "simulated outage" in told
    assert (0, HealthState.DEGRADED) == (watch.inner.calls, watch.health.state())
    assert ["m"] == await watch.recall()


class Probed:
    """A guarded service that is probed, on a clock that moves by hand."""

    def __init__(self, *answers: Exception | None) -> None:
        self.time = 0.0
        self.answers = list(answers)
        self.asked: list[float] = []
        self.finished = asyncio.Event()
        self.health = HealthMonitor(clock=lambda: self.time)
        self.breaker = CircuitBreaker("memory", clock=lambda: self.time)
        self.inner = ScriptedMemory(recalls=[Recalled(id="m", text="tea", score=0.9)], failures=[DOWN] * 3)
        guard = MemoryGuard(
            health=self.health,
            breaker=self.breaker,
            clock=lambda: self.time,
            probe=self.probe,
            sleep=self.sleep,
        )
        self.memory = GuardedMemory(self.inner, guard)

    async def sleep(self, seconds: float) -> None:
        """Let time pass at once."""
        self.time += seconds
        await asyncio.sleep(0)

    async def probe(self) -> None:
        """The next scripted sign of life."""
        self.asked.append(self.time)
        answer = self.answers.pop(0)
        if not self.answers:
            self.finished.set()
        if answer is not None:
            raise answer


async def test_a_probe_that_succeeds_closes_the_breaker_before_its_time():
    """The next call is made five seconds after the service is back, not fifteen after the last failure."""
    probed = Probed(None)
    for _ in range(3):
        with pytest.raises(SourceUnavailable):
            await probed.memory.recall(SCOPE, asking("tea"))
    await probed.finished.wait()
    await asyncio.sleep(0)

    assert [5.0] == probed.asked
    assert ["m"] == [found.id for found in await probed.memory.recall(SCOPE, asking("tea"))]


async def test_probes_go_on_until_the_service_answers_and_end_down_through_degraded():
    """A service that is down is degraded first, as after its time."""
    probed = Probed(DOWN, DOWN, None)
    for _ in range(3):
        with pytest.raises(SourceUnavailable):
            await probed.memory.recall(SCOPE, asking("tea"))
    for _ in range(4):
        probed.health.record_failure()
    assert HealthState.DOWN is probed.health.state()
    await probed.finished.wait()
    await asyncio.sleep(0)

    assert [5.0, 10.0, 15.0] == probed.asked
    assert HealthState.DEGRADED is probed.health.state()


async def test_no_probe_outlives_the_service():
    """Closing stops it, whatever the service does."""
    probed = Probed(*[DOWN] * 100)
    for _ in range(3):
        with pytest.raises(SourceUnavailable):
            await probed.memory.recall(SCOPE, asking("tea"))
    await probed.memory.close()
    asked = len(probed.asked)
    await asyncio.sleep(0)

    assert asked == len(probed.asked)


async def test_failed_deliveries_count_neither_for_the_breaker_nor_for_health():
    """A backlog that a service refuses does not take recall down; a delivery that succeeds counts as well."""
    watch = Watch(*[DOWN] * 8)
    for _ in range(8):
        with pytest.raises(SourceUnavailable):
            await watch.memory.deliveries.remember(SCOPE, [Memory(text="tea", idempotency_key="k")])

    assert watch.health.state() is HealthState.NORMAL
    assert watch.breaker.seconds_open() == 0
    watch.health.record_failure()
    await watch.memory.deliveries.remember(SCOPE, [Memory(text="tea", idempotency_key="k")])
    assert watch.health.state() is HealthState.NORMAL
