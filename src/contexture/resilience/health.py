"""Turns the successes and failures of a client into the three states that a builder understands."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from contexture.conversation import HealthState

Monotonic = Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthOptions:
    """How fast a service falls and how long it is spared.

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

    Only failures that happen while DEGRADED are counted, those of an open breaker included; the one
    that led there is not.
    """

    def __init__(self, options: HealthOptions | None = None, *, clock: Monotonic = time.monotonic) -> None:
        self._options = options or HealthOptions()
        self._clock = clock
        self._state = HealthState.NORMAL
        self._until = 0.0
        self._failures = 0

    def state(self) -> HealthState:
        """The state now; asking moves nothing but time."""
        now = self._clock()
        if self._state is HealthState.DOWN and now >= self._until:
            self._enter(HealthState.DEGRADED, self._until + self._options.degraded_seconds)
        if self._state is HealthState.DEGRADED and now >= self._until:
            self._enter(HealthState.NORMAL, 0.0)
        return self._state

    def succeeded(self) -> None:
        """A call was answered: a degraded service is well again."""
        if self.state() is HealthState.DEGRADED:
            self._enter(HealthState.NORMAL, 0.0)

    def failed(self) -> None:
        """A call failed after its retries, or the open breaker refused it."""
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

    def _enter(self, state: HealthState, until: float) -> None:
        self._state, self._until, self._failures = state, until, 0
