"""From proposed passages to hits: ranks per channel, the pool, and what each hit carries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from contexture.adapters.index import codec
from contexture.adapters.index.truth import Row
from contexture.types import Hit, Query

_K = 60

Scores = Mapping[str, Mapping[int, float]]


def hits_of(rows: Sequence[Row], columns: Scores, proposed: Scores, query: Query) -> list[Hit]:
    """The pool, in the order of record ids and ordinals, each passage with its score on every channel.

    A channel ranks its best `query.k` proposals. The pool holds those with the highest reciprocal
    rank over all channels; a passage that made no channel's best is not in it.
    """
    ranks: dict[int, dict[str, int]] = {}
    for channel, best in proposed.items():
        for pid, rank in _ranks(rows, columns[channel], best, query.k).items():
            ranks.setdefault(pid, {})[channel] = rank
    ranked = [row for row in rows if row.pid in ranks]
    if query.pool is not None and len(ranked) > query.pool:
        worth = {pid: math.fsum(1 / (_K + rank) for rank in each.values()) for pid, each in ranks.items()}
        ranked = sorted(ranked, key=lambda row: (-worth[row.pid], *_place(row)))[: query.pool]
    return [_hit(row, columns, ranks[row.pid]) for row in sorted(ranked, key=_place)]


def _ranks(rows: Sequence[Row], scores: Mapping[int, float], best: Mapping[int, float], k: int) -> dict[int, int]:
    """Ranks 1 to `k` of a channel's proposals, by score, ties by record id and ordinal."""
    proposals = sorted((-scores[row.pid], *_place(row), row.pid) for row in rows if row.pid in best)
    return {pid: rank for rank, (*_, pid) in enumerate(proposals[:k], start=1)}


def _place(row: Row) -> tuple[str, int]:
    return row.record_id, row.ordinal


def _hit(row: Row, columns: Scores, ranks: Mapping[str, int]) -> Hit:
    record, title_redactions = codec.unpack_header(row.header, row.record_id, "")
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
    )
