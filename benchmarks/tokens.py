"""How fast tokens are counted, and how fast a text is cut to a limit."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from time import perf_counter

from benchmarks.embedding import ENGLISH, RUSSIAN

from contexture.adapters.token_counters import counter_for

Numbers = dict[str, float]

CHARACTERS = 10_000
ROUNDS = 40


def token_counting() -> Numbers:
    """Microseconds for 10,000 characters, for a prefix of 2,000 tokens of a megabyte, and for the first count."""
    numbers: Numbers = {}
    for name in ("o200k_base", "cl100k_base", "estimate-claude"):
        counter = counter_for(name)
        numbers[f"{name}_first_count_us"] = _microseconds(lambda count=counter.count: count("warm"), 1)
        for language, words in (("english", ENGLISH), ("russian", RUSSIAN)):
            text = _text(words, CHARACTERS)
            long = _text(words, 1_000_000)
            count = _microseconds(lambda count=counter.count, text=text: count(text))
            prefix = _microseconds(lambda cut=counter.prefix, text=long: cut(text, 2_000))
            numbers[f"{name}_{language}_10k_us"] = count
            numbers[f"{name}_{language}_prefix_2000_us"] = prefix
    return numbers


def _microseconds(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    times: list[float] = []
    for _ in range(rounds):
        started = perf_counter()
        work()
        times.append(perf_counter() - started)
    return statistics.median(times) * 1e6


def _text(words: list[str], characters: int) -> str:
    draw = random.Random(characters)
    return " ".join(draw.choices(words, k=characters // 4))[:characters]
