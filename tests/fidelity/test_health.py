"""Every row of the health table, with a clock that only moves when told to."""

from __future__ import annotations

import pytest

from contexture.conversation import HealthState
from contexture.resilience import HealthMonitor, HealthOptions

NORMAL, DEGRADED, DOWN = HealthState.NORMAL, HealthState.DEGRADED, HealthState.DOWN


class Hand:
    """A monotonic clock moved by hand."""

    def __init__(self) -> None:
        self.time = 1_000.0

    def __call__(self) -> float:
        """The time on it."""
        return self.time


@pytest.fixture
def hand():
    """A clock at some moment."""
    return Hand()


@pytest.fixture
def monitor(hand):
    """A monitor with the default settings."""
    return HealthMonitor(clock=hand)


def fail(monitor, times=1):
    """Report failures."""
    for _ in range(times):
        monitor.record_failure()


def test_normal_without_issues_stays_normal(monitor, hand):
    """NORMAL, no issues: NORMAL, for ever."""
    monitor.record_success()
    hand.time += 1e9

    assert monitor.state() is NORMAL


def test_a_failure_degrades_for_fifteen_seconds(monitor, hand):
    """NORMAL and an error: DEGRADED for 15 s, then NORMAL when nothing else fails."""
    fail(monitor)
    hand.time += 14.999
    assert monitor.state() is DEGRADED

    hand.time += 0.001
    assert monitor.state() is NORMAL


def test_a_success_ends_the_degraded_window(monitor):
    """DEGRADED and a success: NORMAL at once."""
    fail(monitor)
    monitor.record_success()

    assert monitor.state() is NORMAL


def test_five_failures_while_degraded_take_it_down(monitor, hand):
    """DEGRADED and 5 failures: DOWN for 60 s; the failure that led to DEGRADED is not one of the five."""
    fail(monitor, 1 + 4)
    assert monitor.state() is DEGRADED

    fail(monitor)
    hand.time += 59.999
    assert monitor.state() is DOWN


def test_down_ends_in_a_degraded_window(monitor, hand):
    """DOWN after 60 s: DEGRADED for 15 s, then NORMAL when nothing fails."""
    fail(monitor, 6)
    hand.time += 60
    assert monitor.state() is DEGRADED

    hand.time += 14.999
    assert monitor.state() is DEGRADED

    hand.time += 0.001
    assert monitor.state() is NORMAL


def test_nobody_has_to_look_for_time_to_pass(monitor, hand):
    """A monitor that was not asked for hours says what it would have said."""
    fail(monitor, 6)
    hand.time += 10_000

    assert monitor.state() is NORMAL


def test_success_and_failure_of_older_calls_do_not_move_down(monitor, hand):
    """DOWN is left by time alone: calls that were under way neither shorten nor lengthen it."""
    fail(monitor, 6)
    monitor.record_success()
    assert monitor.state() is DOWN

    hand.time += 59
    fail(monitor)
    hand.time += 1
    assert monitor.state() is DEGRADED


def test_the_count_starts_again_with_each_degraded_time(monitor, hand):
    """Failures of an earlier DEGRADED time are forgotten: five more are needed."""
    fail(monitor, 5)
    monitor.record_success()
    fail(monitor, 5)
    assert monitor.state() is DEGRADED

    fail(monitor)
    hand.time += 60
    fail(monitor, 4)
    assert monitor.state() is DEGRADED

    fail(monitor)
    assert monitor.state() is DOWN


def test_a_further_failure_begins_the_window_anew(monitor, hand):
    """A DEGRADED window ends only 15 s after its last failure."""
    fail(monitor)
    hand.time += 14
    fail(monitor)
    hand.time += 14
    assert monitor.state() is DEGRADED

    hand.time += 1
    assert monitor.state() is NORMAL


def test_every_number_is_a_setting(hand):
    """Windows and counts are those that are given."""
    monitor = HealthMonitor(HealthOptions(degraded_seconds=2, down_failures=1, down_seconds=3), clock=hand)
    fail(monitor, 2)
    assert monitor.state() is DOWN

    hand.time += 3
    assert monitor.state() is DEGRADED

    hand.time += 2
    assert monitor.state() is NORMAL
