"""Breaker, retries and deadlines, with clocks and pauses that take no time."""

from __future__ import annotations

import asyncio
import random

import pytest

from contexture.errors import InvalidRequest, SourceTimeout, SourceUnavailable, StoreUnwritable
from contexture.resilience import CircuitBreaker, Deadline, RetryPolicy, retry


class Hand:
    """A clock moved by hand, and a pause that moves it."""

    def __init__(self) -> None:
        self.time = 50.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        """The time on it."""
        return self.time

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.pauses.append(seconds)
        self.time += seconds


@pytest.fixture
def hand():
    """A clock at some moment."""
    return Hand()


class Script:
    """Raises or returns what it is told to, call by call."""

    def __init__(self, *outcomes) -> None:
        self.outcomes = list(outcomes)
        self.calls = 0

    async def __call__(self):
        """The next outcome."""
        outcome = self.outcomes[self.calls]
        self.calls += 1
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def policy(hand, most=2):
    """Retries on this clock."""
    return RetryPolicy(max_retries=most, rng=random.Random(7), sleep=hand.sleep)


class TestBreaker:
    """A breaker opens after failures in a row and closes by itself."""

    def test_it_opens_after_three_failures_in_a_row(self, hand):
        """Two are let through; the third opens it for fifteen seconds, and it says for how long."""
        breaker = CircuitBreaker("memory", clock=hand)
        breaker.record_failure()
        breaker.record_failure()
        breaker.check()
        breaker.record_failure()
        hand.time += 4.2

        with pytest.raises(SourceUnavailable, match="open for 11 s"):
            breaker.check()

    def test_it_closes_after_fifteen_seconds_and_counts_from_zero(self, hand):
        """Time alone closes it; three more failures are needed to open it again."""
        breaker = CircuitBreaker("memory", clock=hand)
        for _ in range(3):
            breaker.record_failure()
        hand.time += 15
        breaker.check()
        breaker.record_failure()
        breaker.record_failure()
        breaker.check()
        breaker.record_failure()

        assert breaker.seconds_open() == 15

    def test_a_success_forgets_the_failures_before_it(self, hand):
        """Failures count only in a row."""
        breaker = CircuitBreaker("memory", failures=2, clock=hand)
        breaker.record_failure()
        breaker.record_success()
        breaker.record_failure()

        assert breaker.seconds_open() == 0


class TestRetry:
    """What may succeed the next time is tried again."""

    async def test_it_tries_twice_more(self, hand):
        """Three attempts in all, and the last failure surfaces."""
        script = Script(*(SourceUnavailable(f"no {number}") for number in range(3)))

        with pytest.raises(SourceUnavailable, match="no 2"):
            await retry(script, retries=policy(hand), deadline=Deadline(10, clock=hand), who="it")
        assert script.calls == 3

    async def test_a_later_success_is_a_success(self, hand):
        """The first answer that comes is the answer."""
        script = Script(SourceUnavailable("no"), "yes")

        assert "yes" == await retry(script, retries=policy(hand), deadline=Deadline(10, clock=hand), who="it")

    async def test_pauses_double_and_vary_by_half(self, hand):
        """150 ms, then 300 ms, each more or less by up to half; equal dice give equal pauses."""
        script = Script(*(SourceUnavailable("no") for _ in range(3)))
        with pytest.raises(SourceUnavailable):
            await retry(script, retries=policy(hand), deadline=Deadline(10, clock=hand), who="it")
        dice = random.Random(7)

        assert hand.pauses == [0.15 * dice.uniform(0.5, 1.5), 0.3 * dice.uniform(0.5, 1.5)]

    @pytest.mark.parametrize("failure", [InvalidRequest("bad"), StoreUnwritable("full"), ValueError("bug")])
    async def test_what_will_not_change_is_not_tried_again(self, hand, failure):
        """Bad requests, full disks and bugs surface at once."""
        script = Script(failure)

        with pytest.raises(type(failure)):
            await retry(script, retries=policy(hand), deadline=Deadline(10, clock=hand), who="it")

    async def test_no_pause_goes_beyond_the_deadline(self, hand):
        """When the pause would outlast the deadline, the failure surfaces instead."""
        script = Script(SourceUnavailable("no"), "too late")

        with pytest.raises(SourceUnavailable, match="no"):
            await retry(script, retries=policy(hand), deadline=Deadline(0.05, clock=hand), who="it")
        assert hand.pauses == []


class TestDeadline:
    """A deadline is one moment for everything."""

    def test_what_is_left_shrinks_and_stops_at_zero(self, hand):
        """Time that passed is gone."""
        deadline = Deadline(5, clock=hand)
        hand.time += 4
        assert (deadline.seconds_left(), deadline.is_expired) == (1, False)

        hand.time += 4
        assert (deadline.seconds_left(), deadline.is_expired) == (0, True)

    async def test_work_that_hangs_is_cut_off(self, hand):
        """Past the deadline, work is cancelled and its owner named."""
        deadline = Deadline(1, clock=hand)
        hand.time += 2

        with pytest.raises(SourceTimeout, match="the oracle did not answer within 1 s"):
            await deadline.wait_for(asyncio.Event().wait(), "the oracle")

    async def test_a_timeout_of_the_work_itself_is_left_alone(self, hand):
        """Only our own deadline is called one."""

        async def impatient():
            raise TimeoutError("mine")

        with pytest.raises(TimeoutError, match="mine"):
            await Deadline(1, clock=hand).wait_for(impatient(), "it")
