"""From scored passages to hits: what each channel ranks among its best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contexture.adapters.index import codec
from contexture.adapters.index.truth import Row
from contexture.types import Hit


def hits_of(
    rows: Sequence[Row],
    columns: Mapping[str, Mapping[int, float]],
    proposed: Mapping[str, Mapping[int, float]],
    k: int,
) -> list[Hit]:
    """Every proposed passage with its score on every channel; a channel's ranks go to its best `k`."""
    ranks = {channel: _ranks(rows, columns[channel], best, k) for channel, best in proposed.items()}
    hits = [
        _hit(
            row,
            {channel: column[row.pid] for channel, column in columns.items() if row.pid in column},
            {channel: ranked[row.pid] for channel, ranked in ranks.items() if row.pid in ranked},
        )
        for row in rows
        if any(row.pid in ranked for ranked in ranks.values())
    ]
    return sorted(hits, key=lambda hit: (hit.record.id, hit.ordinal))


def _ranks(rows: Sequence[Row], scores: Mapping[int, float], best: Mapping[int, float], k: int) -> dict[int, int]:
    """Ranks 1 to `k` of a channel's proposals, by score, ties by record id and ordinal."""
    proposals = [(-scores[row.pid], row.record_id, row.ordinal, row.pid) for row in rows if row.pid in best]
    return {pid: rank for rank, (*_, pid) in enumerate(sorted(proposals)[:k], start=1)}


def _hit(row: Row, scores: Mapping[str, float], ranks: Mapping[str, int]) -> Hit:
    record, title_redactions = codec.unpack_header(row.header, row.record_id, "")
    return Hit(
        record=record,
        hash=row.hash,
        ordinal=row.ordinal,
        text=row.text,
        passage=codec.to_passage(row.facts),
        title_redactions=title_redactions,
        rules=row.rules,
        scores=scores,
        ranks=ranks,
    )
