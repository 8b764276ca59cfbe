"""Steps of the pipeline on their own: milliseconds, and how good the result is."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from time import perf_counter

from contexture.ledger import Trace
from contexture.pipeline.candidates import drop_near_duplicates
from contexture.pipeline.fence import fence
from contexture.pipeline.knapsack import pack_greedy, pack_optimal
from contexture.pipeline.packing import PackingItem, PackingOption
from contexture.text.simhash import simhash
from contexture.types import Candidate

Numbers = dict[str, float]

CAPACITIES = (500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000)
ROUNDS = 40
_WORDS = [f"word{number}" for number in range(4_000)]


def packing() -> Numbers:
    """Optimal packing of 200 items in four forms: many pools at each capacity, for three kinds of value."""
    numbers: Numbers = {}
    for kind in ("mixed", "close", "proportional"):
        for capacity in CAPACITIES:
            pools = [_pool(kind, seed) for seed in range(ROUNDS)]
            packed = [pack_optimal(pool, capacity) for pool in pools]
            greedy = [pack_greedy(pool, capacity).value for pool in pools]
            times = [_milliseconds(lambda pool=pool, room=capacity: pack_optimal(pool, room)) for pool in pools]
            name = f"pack_{kind}_{capacity}"
            numbers |= _summary(name, times)
            numbers[f"{name}_gap_max"] = max(packing.gap for packing in packed)
            numbers[f"{name}_proven_share"] = statistics.mean(packing.gap == 0.0 for packing in packed)
            numbers[f"{name}_greedy_share"] = statistics.mean(
                value / packing.value for value, packing in zip(greedy, packed, strict=True)
            )
    return numbers


def dedupe() -> Numbers:
    """Near duplicates among 100 candidates with stored hashes: none of them, and a fifth of them."""
    numbers: Numbers = {}
    for name, copies in (("dedupe_100_distinct", 0), ("dedupe_100_fifth_copied", 20)):
        pools = [_candidates(seed, copies) for seed in range(ROUNDS)]
        numbers |= _summary(
            name, [_milliseconds(lambda pool=pool: drop_near_duplicates(pool, Trace())) for pool in pools]
        )
        kept = [len(drop_near_duplicates(pool, Trace())) for pool in pools]
        numbers[f"{name}_kept_mean"] = statistics.mean(kept)
    return numbers


def fencing() -> Numbers:
    """Fencing 10,000 characters without a marker: English, Russian, and one long line."""
    texts = {
        "fence_english_10k": "The quick brown fox jumps over the lazy dog, and the user reads on.\n" * 147,
        "fence_russian_10k": "Быстрая лиса прыгает через ленивую собаку, а читатель читает дальше.\n" * 144,
        "fence_one_line_10k": "The quick brown fox jumps over the lazy dog. " * 222,
    }
    numbers: Numbers = {}
    for name, text in texts.items():
        numbers |= _summary(name, [_milliseconds(lambda text=text: fence(text)) for _ in range(ROUNDS)])
    return numbers


def _pool(kind: str, seed: int) -> list[PackingItem]:
    """Items whose values differ widely, differ little, or follow their length, which is the hardest."""
    draw = random.Random(f"{kind}-{seed}")
    items: list[PackingItem] = []
    for at in range(200):
        size = int(draw.lognormvariate(5, 0.6)) + 20
        score = {"mixed": draw.random(), "close": 0.5 + draw.random() / 2, "proportional": size / 400}[kind]
        items.append(PackingItem(f"i{at}", tuple(_forms(draw, size, score, even=kind == "proportional"))))
    return items


def _forms(draw: random.Random, size: int, score: float, *, even: bool) -> list[PackingOption]:
    lengths = (1.0, draw.uniform(0.3, 0.6), draw.uniform(0.1, 0.25), 0.05)
    worths = lengths if even else (1.0, draw.uniform(0.6, 0.9), draw.uniform(0.3, 0.5), 0.1)
    return [PackingOption(max(1, int(size * part)), score * worth) for part, worth in zip(lengths, worths, strict=True)]


def _candidates(seed: int, copies: int) -> list[Candidate]:
    draw = random.Random(seed)
    texts = [draw.choices(_WORDS, k=150) for _ in range(100 - copies)]
    texts += [[*text[:75], "changed", *text[76:]] for text in texts[:copies]]
    return [_candidate(at, " ".join(words), draw.random()) for at, words in enumerate(texts)]


def _candidate(at: int, text: str, score: float) -> Candidate:
    return Candidate(id=f"c{at}", key=f"c{at}", text=text, score=score, simhash=simhash(text))


def _milliseconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return (perf_counter() - start) * 1e3


def _summary(name: str, times: list[float]) -> Numbers:
    ordered = sorted(times)
    return {f"{name}_p50_ms": statistics.median(ordered), f"{name}_p95_ms": ordered[int(0.95 * (len(ordered) - 1))]}
