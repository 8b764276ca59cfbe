"""Hits of a search: candidates of all channels, fused as the query says, then read and scored by every channel."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from contexture.adapters.index import codec
from contexture.adapters.index.record_store import PassageRow
from contexture.adapters.index.scoring import LexicalScores, bm25_scores
from contexture.adapters.index.search_ports import ScopedSearcher
from contexture.types import BM25, ChannelCandidates, ChannelRanks, ChannelScores, Hit, Query, Record, Span


def collect_hits(
    view: ScopedSearcher,
    query: Query,
    load_passages: Callable[[Sequence[int]], Sequence[PassageRow]],
    find_shadowed: Callable[[Sequence[int]], AbstractSet[int]] = lambda _: frozenset(),
) -> tuple[list[Hit], bool]:
    """Hits, ordered by record id and ordinal, and whether all chosen passages could be read.

    `load_passages` leaves out passages that were removed or hidden meanwhile; the next best ones, whose places they
    took, are then missing. Passages that `find_shadowed` returns are left out too.
    """
    weights = view.weigh_terms(list(dict.fromkeys(query.terms)))
    proposed = view.find_candidates(weights, query.vectors, query.k)
    ranks = query.fuse(ChannelCandidates(query.k, proposed, view.passage_keys))
    found = load_passages(sorted(ranks))
    shadowed = find_shadowed([row.pid for row in found])
    rows = [row for row in found if row.pid not in shadowed]
    columns: dict[str, Mapping[int, float]] = {}
    lexical: LexicalScores | None = None
    if weights.terms:
        lexical = bm25_scores(rows, weights)
        columns[BM25] = lexical.scores
    for name, vector in query.vectors.items():
        missing = [row.pid for row in rows if row.pid not in proposed[name]]
        columns[name] = {**proposed[name], **(view.similarities(name, vector, missing) if missing else {})}
    return _build_hits(rows, columns, ranks, lexical), len(found) == len(ranks)


def _build_hits(
    rows: Sequence[PassageRow], columns: ChannelScores, ranks: ChannelRanks, lexical: LexicalScores | None
) -> list[Hit]:
    """The passages as hits, ordered by record id and ordinal, each with its score on every channel."""
    ordered = sorted(rows, key=lambda row: (row.record_id, row.ordinal))
    heads = {row.record_id: row.header for row in ordered}
    records = {id_: codec.unpack_header(header, id_, "") for id_, header in heads.items()}
    return [_build_hit(row, records[row.record_id], columns, ranks[row.pid], lexical) for row in ordered]


def _build_hit(
    row: PassageRow,
    head: tuple[Record, tuple[Span, ...]],
    columns: ChannelScores,
    ranks: Mapping[str, int],
    lexical: LexicalScores | None,
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
        matched=0 if lexical is None else lexical.matched[row.pid],
        term_scores=lexical.by_term(row.pid) if lexical is not None and record.session else None,
    )
