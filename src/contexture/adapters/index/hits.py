"""From what the channels propose to hits: ranks per channel, the pool, and what each hit carries."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from contexture.adapters.index import codec
from contexture.adapters.index.truth import Row
from contexture.types import Hit, Record, Span

_K = 60

Place = tuple[str, int]
Places = Callable[[Sequence[int]], Mapping[int, Place]]
Scores = Mapping[str, Mapping[int, float]]
Ranks = Mapping[int, Mapping[str, int]]


def pooled(proposed: Scores, k: int, pool: int | None, places: Places) -> Ranks:
    """The passages with the highest reciprocal rank over all channels, each with its ranks.

    A channel ranks its best `k` proposals by score. `places` gives record id and ordinal, which break ties; it is
    asked only about passages that tie.
    """
    ranks: dict[int, dict[str, int]] = {}
    for channel, ranked in _rankings(proposed, places).items():
        for rank, pid in enumerate(ranked[:k], start=1):
            ranks.setdefault(pid, {})[channel] = rank
    if pool is None or len(ranks) <= pool:
        return ranks
    worth = {pid: math.fsum([1 / (_K + rank) for rank in each.values()]) for pid, each in ranks.items()}
    return {pid: ranks[pid] for pid in _highest(worth, pool, places)}


def hits_of(rows: Sequence[Row], columns: Scores, ranks: Ranks, matched: Mapping[int, int]) -> list[Hit]:
    """The passages as hits, in the order of record ids and ordinals, each with its score on every channel."""
    ordered = sorted(rows, key=lambda row: (row.record_id, row.ordinal))
    heads = {row.record_id: row.header for row in ordered}
    records = {id_: codec.unpack_header(header, id_, "") for id_, header in heads.items()}
    return [_hit(row, records[row.record_id], columns, ranks[row.pid], matched.get(row.pid, 0)) for row in ordered]


def _rankings(proposed: Scores, places: Places) -> dict[str, list[int]]:
    """Each channel's proposals, best first."""
    ties = {channel: _tied(best) for channel, best in proposed.items()}
    tied = sorted({pid for each in ties.values() for pid in each})
    place: Mapping[int, Place] = places(tied) if tied else {}
    return {
        channel: sorted(best, key=lambda pid: (-best[pid], place.get(pid, ("", 0))))
        if ties[channel]
        else sorted(best, key=best.__getitem__, reverse=True)
        for channel, best in proposed.items()
    }


def _tied(best: Mapping[int, float]) -> list[int]:
    """The proposals that share their score with another."""
    if len(set(best.values())) == len(best):
        return []
    counts = Counter(best.values())
    return [pid for pid, score in best.items() if counts[score] > 1]


def _highest(worth: Mapping[int, float], pool: int, places: Places) -> list[int]:
    """The best `pool`; those that tie at the edge are taken by their places."""
    edge = sorted(worth.values(), reverse=True)[pool - 1]
    inside = [pid for pid, value in worth.items() if value > edge]
    tied = [pid for pid, value in worth.items() if value == edge]
    if len(inside) + len(tied) > pool:
        place = places(tied)
        tied = sorted(tied, key=lambda pid: place.get(pid, ("", 0)))[: pool - len(inside)]
    return inside + tied


def _hit(
    row: Row, head: tuple[Record, tuple[Span, ...]], columns: Scores, ranks: Mapping[str, int], matched: int
) -> Hit:
    record, title_redactions = head
    return Hit(
        record=record,
        hash=row.hash,
        ordinal=row.ordinal,
        text=row.text,
        passage=codec.to_passage(row.facts),
        title_redactions=title_redactions,
        rules=row.rules,
        scores={channel: column[row.pid] for channel, column in columns.items() if row.pid in column},
        ranks=ranks,
        matched=matched,
    )
