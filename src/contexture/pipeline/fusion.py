"""Fusion of channels: ranks the passages that each channel proposes, and selects the pool by reciprocal rank.

It runs above the `Index` port: an index calls the function that its query brings along.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from contexture.errors import InvalidRequest
from contexture.types import ChannelCandidates, ChannelRanks, PassageKey, PassageKeyLookup

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
