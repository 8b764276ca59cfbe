"""Scores of candidates, and fusion of channels by rank and by score.

Fusion runs above the `Index` port: an index calls the function that its query brings along.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from contexture.errors import InvalidRequest
from contexture.types import ChannelCandidates, ChannelRanks, PassageKey, PassageKeyLookup

NEUTRAL_SIGNAL = 0.5
"""Value of a signal when nothing is known; it neither raises nor lowers a score."""

RELEVANCE = "relevance"
"""Signal: how well a candidate answers the question by itself, comparable between kinds."""

DECAY_DAYS = 30.0
RELEVANCE_SHARE = 0.7
RECENCY_SHARE = 0.3
LOSS_PER_STEP = 0.1

COMPOSITE_WEIGHTS: Mapping[str, float] = MappingProxyType(
    {"semantic": 0.35, "structural": 0.25, "recency": 0.15, "type_match": 0.15, "affinity": 0.10}
)
TYPE_HINTS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {"todo": ("task", 0.9), "kanban_card": ("task", 0.9), "page": ("summary", 0.8)}
)
"""By kind: the word in a query that asks for it, and the signal value of a match."""

_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CompositeScore:
    """A score and the contribution of each signal; the parts sum to the score."""

    score: float
    parts: Mapping[str, float]


def age_days(time: datetime, now: datetime) -> float:
    """Days from `time` to `now`; 0 for a future time. A time without a zone counts as UTC."""
    return max(0.0, (_with_timezone(now) - _with_timezone(time)).total_seconds() / _DAY_SECONDS)


def recency(time: datetime | None, now: datetime) -> float:
    """`exp(-age/30)` in days: 1 today, .37 after a month, .14 after two; .5 without a time."""
    return NEUTRAL_SIGNAL if time is None else math.exp(-age_days(time, now) / DECAY_DAYS)


def linear_decay(time: datetime | None, now: datetime) -> float:
    """`1 - age/30` in days, never below 0; .5 without a time."""
    return NEUTRAL_SIGNAL if time is None else max(0.0, 1.0 - age_days(time, now) / DECAY_DAYS)


def structural_proximity(distance: int | None) -> float:
    """`1 - distance/10` for steps in the block tree, never below 0; .5 when there is no focus."""
    return NEUTRAL_SIGNAL if distance is None else max(0.0, 1.0 - LOSS_PER_STEP * distance)


def type_match(kind: str, query: str) -> float:
    """How well a kind of record matches the words of a query; .5 when they do not ask for a kind."""
    word, value = TYPE_HINTS.get(kind, ("", NEUTRAL_SIGNAL))
    return value if word in query else NEUTRAL_SIGNAL


def salience(relevance: float, recency: float) -> float:
    """70 % relevance, 30 % recency."""
    return RELEVANCE_SHARE * relevance + RECENCY_SHARE * recency


def composite_score(signals: Mapping[str, float], weights: Mapping[str, float] = COMPOSITE_WEIGHTS) -> CompositeScore:
    """The weighted sum of the signals that `weights` names, with each part; a missing signal adds 0."""
    parts = {name: weight * signals.get(name, 0.0) for name, weight in weights.items()}
    return CompositeScore(score=math.fsum(parts.values()), parts=parts)


def _with_timezone(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def weighted_means(signals: Sequence[Mapping[str, float]], weights: Mapping[str, float]) -> list[float]:
    """The weighted mean of the signals that `weights` names, for each mapping of signals.

    A missing signal counts as 0, so that a match in one channel never beats an equally good match
    in all of them. Without any weight the result is 0.
    """
    total = math.fsum(weights.values())
    if not total:
        return [0.0] * len(signals)
    pairs = list(weights.items())
    return [math.fsum([weight * each.get(name, 0.0) for name, weight in pairs]) / total for each in signals]


RRF_K = 60
"""Constant of reciprocal rank fusion: a rank is worth `1 / (RRF_K + rank)`."""


def reciprocal_rank_sum(ranks: Iterable[int]) -> float:
    """The sum of `1 / (RRF_K + rank)`; does not depend on the order of the ranks."""
    return math.fsum([1 / (RRF_K + rank) for rank in ranks])


def fuse_channels(found: ChannelCandidates, *, pool: int | None = None) -> ChannelRanks:
    """The best `pool` passages by reciprocal rank over all channels, or all of them, each with its rank per channel.

    Each channel ranks its best `k` passages. Ties are broken by record id and ordinal, looked up only for passages that
    tie. Raises `InvalidRequest` when `pool` is below 1.
    """
    if pool is not None and pool < 1:
        raise InvalidRequest(f"the pool must hold at least 1 passage, not {pool}")
    ranks: dict[int, dict[str, int]] = {}
    for channel, ranked in _rank_channels(found).items():
        for rank, passage in enumerate(ranked[: found.k], start=1):
            ranks.setdefault(passage, {})[channel] = rank
    if pool is None or len(ranks) <= pool:
        return ranks
    worth = {passage: reciprocal_rank_sum(each.values()) for passage, each in ranks.items()}
    return {passage: ranks[passage] for passage in _take_best(worth, pool, found.passage_keys)}


def _rank_channels(found: ChannelCandidates) -> dict[str, list[int]]:
    """By channel, its candidates, best first."""
    ties = {channel: _find_ties(scores) for channel, scores in found.scores.items()}
    tied = sorted({passage for each in ties.values() for passage in each})
    keys: Mapping[int, PassageKey] = found.passage_keys(tied) if tied else {}
    return {
        channel: sorted(scores, key=lambda passage: (-scores[passage], keys.get(passage, ("", 0))))
        if ties[channel]
        else sorted(scores, key=scores.__getitem__, reverse=True)
        for channel, scores in found.scores.items()
    }


def _find_ties(scores: Mapping[int, float]) -> list[int]:
    """Candidates that share their score with another."""
    if len(set(scores.values())) == len(scores):
        return []
    counts = Counter(scores.values())
    return [passage for passage, score in scores.items() if counts[score] > 1]


def _take_best(worth: Mapping[int, float], pool: int, passage_keys: PassageKeyLookup) -> list[int]:
    """The best `pool` passages; ties at the cut are broken by record id and ordinal."""
    edge = sorted(worth.values(), reverse=True)[pool - 1]
    inside = [passage for passage, value in worth.items() if value > edge]
    tied = [passage for passage, value in worth.items() if value == edge]
    if len(inside) + len(tied) > pool:
        keys = passage_keys(tied)
        tied = sorted(tied, key=lambda passage: keys.get(passage, ("", 0)))[: pool - len(inside)]
    return inside + tied
