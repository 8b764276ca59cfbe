"""Metrics for rankings and selections with known answers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

Offsets = tuple[int, int]


def ndcg(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Discounted gain of the first `k`, as a share of the best possible."""
    gain = sum(1 / math.log2(rank + 2) for rank, found in enumerate(ranking[:k]) if found in gold)
    best = sum(1 / math.log2(rank + 2) for rank in range(min(k, len(gold))))
    return gain / best if best else 0.0


def recall(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Share of the gold among the first `k`."""
    return len(set(ranking[:k]) & set(gold)) / len(gold) if gold else 0.0


def reciprocal_rank(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """One over the rank of the first gold among the first `k`; 0 when there is none."""
    return next((1 / rank for rank, found in enumerate(ranking[:k], start=1) if found in gold), 0.0)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.floor(share * len(ordered)))] if ordered else 0.0


def mean(values: Sequence[float]) -> float:
    """The average; 0 for none."""
    return sum(values) / len(values) if values else 0.0


def merge_spans(spans: Sequence[Offsets]) -> list[Offsets]:
    """The same characters as non-overlapping spans, in order."""
    found: list[Offsets] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > start:
            found.append((start, end))
    return found


def count_characters(spans: Sequence[Offsets]) -> int:
    """The number of characters in non-overlapping spans."""
    return sum(end - start for start, end in spans)


def count_overlap(left: Sequence[Offsets], right: Sequence[Offsets]) -> int:
    """The number of characters in both lists of non-overlapping spans."""
    return sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a in left for b in right)
