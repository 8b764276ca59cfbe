"""The health monitor against a plain model that keeps every event and reads the table anew each time."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from contexture.conversation import HealthState
from contexture.resilience import HealthMonitor


def replayed(events, now):
    """The state at `now`, from the events since the beginning, second by second."""
    state, until, count = HealthState.NORMAL, 0, 0
    for second in range(now + 1):
        if state is HealthState.DOWN and second >= until:
            state, until, count = HealthState.DEGRADED, second + 15, 0
        elif state is HealthState.DEGRADED and second >= until:
            state = HealthState.NORMAL
        for time, good in events:
            if time != second or state is HealthState.DOWN:
                continue
            if good:
                state = HealthState.NORMAL
            elif state is HealthState.NORMAL:
                state, until, count = HealthState.DEGRADED, second + 15, 0
            else:
                count, until = count + 1, second + 15
                if count == 5:
                    state, until = HealthState.DOWN, second + 60
    return state


class HealthMachine(RuleBasedStateMachine):
    """Successes, failures and time in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.events: list[tuple[int, bool]] = []
        self.monitor = HealthMonitor(clock=lambda: float(self.now))

    @rule(seconds=st.sampled_from([1, 5, 14, 15, 16, 59, 60, 61, 75]))
    def time_passes(self, seconds):
        """Some seconds go by."""
        self.now += seconds

    @rule()
    def call_succeeds(self):
        """A call is answered."""
        self.monitor.record_success()
        self.events.append((self.now, True))

    @rule(times=st.integers(1, 6))
    def calls_fail(self, times):
        """Calls fail, one after the other."""
        for _ in range(times):
            self.monitor.record_failure()
            self.events.append((self.now, False))

    @invariant()
    def states_agree(self):
        """The monitor says what the table says."""
        assert self.monitor.state() is replayed(self.events, self.now)


TestHealthMachine = HealthMachine.TestCase
TestHealthMachine.__doc__ = "No sequence of events brings the monitor and the table apart."
