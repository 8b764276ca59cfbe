"""Clocks and percentiles, the same for every measurement."""

from __future__ import annotations

import math
import statistics
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import TypeVar

Numbers = dict[str, float]
Progress = Callable[[str, int, int], None]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of each call, and the processor time of one call on average, all threads together."""

    wall: Sequence[float]
    cpu: float = math.nan


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summary(name: str, times: Times) -> Numbers:
    """The median and the 95th percentile, and the processor time where it was taken."""
    numbers = {f"{name}_p50_ms": statistics.median(times.wall), f"{name}_p95_ms": percentile(times.wall, 0.95)}
    return numbers if math.isnan(times.cpu) else {**numbers, f"{name}_cpu_ms": times.cpu}


async def clocked(work: Callable[[], Awaitable[T]]) -> tuple[T, float]:
    """What the work gives, and how many seconds it took."""
    started = perf_counter()
    found = await work()
    return found, perf_counter() - started


async def each(asked: Sequence[str], ask: Callable[[str], Awaitable[object]]) -> Times:
    """How long each question takes, one after the other."""
    busy = process_time()
    wall = [(await clocked(lambda text=text: ask(text)))[1] * 1_000 for text in asked]
    return Times(wall, (process_time() - busy) * 1_000 / len(asked))
