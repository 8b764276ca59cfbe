"""One order out of several rankings: by rank, which needs no scale, or by score, which keeps distances."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

Scores = dict[str, float]


def rrf(rankings: Sequence[Sequence[str]], *, k: int = 60, weights: Sequence[float] | None = None) -> Scores:
    """Reciprocal rank fusion: each ranking gives `weight / (k + rank)` to its ids, ranks from 1.

    The result is in fused order, ties by id. An id that a ranking repeats counts once, at its best rank.
    """
    shares: dict[str, list[float]] = {}
    for ranking, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        for rank, name in enumerate(dict.fromkeys(ranking), start=1):
            shares.setdefault(name, []).append(weight / (k + rank))
    return _ordered({name: math.fsum(parts) for name, parts in shares.items()})


def minmax(values: Sequence[float]) -> list[float]:
    """The values stretched to the range from 0 to 1.

    Values that are all equal carry no order: they become 1.0 when positive, because something
    was found, and 0.0 otherwise.
    """
    if not values:
        return []
    low, high = min(values), max(values)
    if low == high:
        return [1.0 if high > 0 else 0.0] * len(values)
    return [(value - low) / (high - low) for value in values]


def blend(signals: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """The weighted mean of the signals that `weights` names.

    A missing signal counts as 0, so that being found by one channel never beats being found
    by all of them equally well. Without any weight the blend is 0.
    """
    return blends([signals], weights)[0]


def blends(signals: Sequence[Mapping[str, float]], weights: Mapping[str, float]) -> list[float]:
    """The `blend` of each."""
    total = math.fsum(weights.values())
    if not total:
        return [0.0] * len(signals)
    pairs = list(weights.items())
    return [math.fsum([weight * each.get(name, 0.0) for name, weight in pairs]) / total for each in signals]


def fuse_scores(
    channels: Mapping[str, Mapping[str, float]],
    weights: Mapping[str, float],
    *,
    stretch: Collection[str] = ("bm25",),
) -> Scores:
    """Blend each channel's scores (channel, then id) into one score per id, in fused order.

    Channels named in `stretch` have no fixed scale and are min-max scaled over the pool, an id
    they did not find counting as 0; all others (cosines, calibrated similarities) enter as they are.
    """
    pool = sorted({name for scores in channels.values() for name in scores})
    columns = {channel: _column(scores, pool, channel in stretch) for channel, scores in channels.items()}
    return _ordered(
        {
            name: blend({channel: column[at] for channel, column in columns.items()}, weights)
            for at, name in enumerate(pool)
        }
    )


def _column(scores: Mapping[str, float], pool: Sequence[str], stretched: bool) -> list[float]:  # noqa: FBT001 - private, named at its one call
    column = [scores.get(name, 0.0) for name in pool]
    return minmax(column) if stretched else column


def _ordered(scores: Scores) -> Scores:
    return dict(sorted(scores.items(), key=lambda entry: (-entry[1], entry[0])))
