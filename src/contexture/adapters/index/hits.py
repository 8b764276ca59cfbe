"""Hits from the candidates of all channels: ranking, rank fusion and assembly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from contexture.adapters.index import codec
from contexture.adapters.index.record_store import PassageRow
from contexture.types import Hit, Record, Span

_RRF_K = 60

PassageKey = tuple[str, int]
PassageKeyLookup = Callable[[Sequence[int]], Mapping[int, PassageKey]]
ChannelScores = Mapping[str, Mapping[int, float]]
ChannelRanks = Mapping[int, Mapping[str, int]]


def fuse_channels(proposed: ChannelScores, k: int, pool: int | None, places: PassageKeyLookup) -> ChannelRanks:
    """Reciprocal rank fusion: the best `pool` passages over all channels, each with its rank per channel.

    Ties are broken by record id and ordinal, looked up only for passages that tie.
    """
    ranks: dict[int, dict[str, int]] = {}
    for channel, ranked in _rank_channels(proposed, places).items():
        for rank, pid in enumerate(ranked[:k], start=1):
            ranks.setdefault(pid, {})[channel] = rank
    if pool is None or len(ranks) <= pool:
        return ranks
    worth = {pid: math.fsum([1 / (_RRF_K + rank) for rank in each.values()]) for pid, each in ranks.items()}
    return {pid: ranks[pid] for pid in _take_best(worth, pool, places)}


def build_hits(
    rows: Sequence[PassageRow], columns: ChannelScores, ranks: ChannelRanks, matched: Mapping[int, int]
) -> list[Hit]:
    """The passages as hits, ordered by record id and ordinal, each with its score on every channel."""
    ordered = sorted(rows, key=lambda row: (row.record_id, row.ordinal))
    heads = {row.record_id: row.header for row in ordered}
    records = {id_: codec.unpack_header(header, id_, "") for id_, header in heads.items()}
    return [
        _build_hit(row, records[row.record_id], columns, ranks[row.pid], matched.get(row.pid, 0)) for row in ordered
    ]


def _rank_channels(proposed: ChannelScores, places: PassageKeyLookup) -> dict[str, list[int]]:
    """By channel, its candidates, best first."""
    ties = {channel: _find_ties(best) for channel, best in proposed.items()}
    tied = sorted({pid for each in ties.values() for pid in each})
    place: Mapping[int, PassageKey] = places(tied) if tied else {}
    return {
        channel: sorted(best, key=lambda pid: (-best[pid], place.get(pid, ("", 0))))
        if ties[channel]
        else sorted(best, key=best.__getitem__, reverse=True)
        for channel, best in proposed.items()
    }


def _find_ties(best: Mapping[int, float]) -> list[int]:
    """Candidates that share their score with another."""
    if len(set(best.values())) == len(best):
        return []
    counts = Counter(best.values())
    return [pid for pid, score in best.items() if counts[score] > 1]


def _take_best(worth: Mapping[int, float], pool: int, places: PassageKeyLookup) -> list[int]:
    """The best `pool` passages; ties at the cut are broken by record id and ordinal."""
    edge = sorted(worth.values(), reverse=True)[pool - 1]
    inside = [pid for pid, value in worth.items() if value > edge]
    tied = [pid for pid, value in worth.items() if value == edge]
    if len(inside) + len(tied) > pool:
        place = places(tied)
        tied = sorted(tied, key=lambda pid: place.get(pid, ("", 0)))[: pool - len(inside)]
    return inside + tied


def _build_hit(
    row: PassageRow,
    head: tuple[Record, tuple[Span, ...]],
    columns: ChannelScores,
    ranks: Mapping[str, int],
    matched: int,
) -> Hit:
    record, title_redactions = head
    return Hit(
        record=record,
        hash=row.hash,
        ordinal=row.ordinal,
        text=row.text,
        passage=codec.facts_to_passage(row.facts),
        title_redactions=title_redactions,
        rules=row.rules,
        scores={channel: column[row.pid] for channel, column in columns.items() if row.pid in column},
        ranks=ranks,
        matched=matched,
    )
