"""Times the phases of one build, for its caller and for the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager

from contexture.builders.turn.metrics import Metrics


class Phases:
    """Seconds by phase; kept apart from everything that a replay compares."""

    def __init__(self, metrics: Metrics, state: str) -> None:
        self.seconds: dict[str, float] = {}
        self._timers: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
            "total": metrics.time_total,
            "retrieval": lambda: metrics.time_retrieval(state),
            "salience": metrics.time_salience,
            "ranking": metrics.time_ranking,
            "redaction": metrics.time_redaction,
            "tokenisation": metrics.time_tokenisation,
            "prompt": metrics.time_prompt,
        }

    @contextmanager
    def __call__(self, phase: str) -> Generator[None]:
        """Time what runs inside."""
        start = time.perf_counter()
        with self._timers[phase]():
            yield
        self.seconds[phase] = time.perf_counter() - start
