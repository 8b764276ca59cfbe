"""Stops calling a service that keeps failing, for a while."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from contexture.errors import SourceUnavailable


class Breaker:
    """Opens after `failures` failures in a row and stays open for `seconds`; then it is closed again.

    Open, it refuses at once, so that nobody waits for a service that is known to be gone. Closed
    again, it counts from zero.
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
        """Raise `SourceUnavailable`, which says for how long, while the breaker is open."""
        left = self.open_for()
        if left > 0:
            raise SourceUnavailable(f"{self._name} is unavailable: the breaker is open for {math.ceil(left)} s")

    def open_for(self) -> float:
        """Seconds until calls are let through again; 0 when they are."""
        if self._until is None:
            return 0.0
        left = self._until - self._clock()
        if left > 0:
            return left
        self._until, self._failures = None, 0
        return 0.0

    def succeeded(self) -> None:
        """A call was answered: the failures before it no longer count."""
        self._failures = 0

    def failed(self) -> None:
        """A call failed after its retries."""
        self._failures += 1
        if self._failures >= self._allowed:
            self._until = self._clock() + self._seconds
