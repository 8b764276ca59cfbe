"""Decides whether a cached search answer is still valid after writes.

It is when none of its records changed and no new record can enter it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from contexture.pipeline.scoring import fuse_channels, reciprocal_rank_sum
from contexture.ports import Index, Journal, VectorSpaces
from contexture.types import BM25, And, AnyOf, CollectionChanges, Hit, Query, Record, Scope

if TYPE_CHECKING:
    from contexture.retrieval.encoders import Encoders

RecordFingerprint = tuple[Record, str, str]
"""A record without its text, the hash of its text, and its redaction rules; equal fingerprints give equal hits."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CandidatePool:
    """The candidates an answer was chosen from, with the scores and ranks that a new passage must beat to enter.

    `stored` holds the fingerprints of the records in it. `scores` are, by channel, the scores of the passages that the
    channel proposed. `edges` are, by channel, the best scores seen that the channel did not propose. `ranks` are those
    of each passage in the pool; a pool that is not `full` accepts any passage a channel proposes. `spaces` are the
    vector spaces that existed at the time, None if unknown.
    """

    query: Query
    stored: Mapping[str, RecordFingerprint]
    scores: Mapping[str, Sequence[float]]
    edges: Mapping[str, float]
    ranks: Sequence[Mapping[str, int]]
    full: bool
    spaces: frozenset[str] | None = None

    def lowest_worth(self, new: Mapping[str, Sequence[int]]) -> float:
        """The lowest reciprocal rank sum in the pool once each channel also proposes passages at these sorted ranks.

        New passages push back those ranked behind them, so that the last ones of a channel may no longer be proposed.
        """
        pushed = (
            [rank + bisect_right(new.get(channel, ()), rank) for channel, rank in ranks.items()] for ranks in self.ranks
        )
        return min(
            (reciprocal_rank_sum(rank for rank in ranks if rank <= self.query.k) for ranks in pushed), default=0.0
        )


def keep_best_by_rank(hits: Sequence[Hit], size: int) -> list[Hit]:
    """The best `size` hits by reciprocal rank sum, ties by record id and ordinal, in the order given."""
    if len(hits) <= size:
        return list(hits)
    best = sorted(hits, key=lambda hit: (-reciprocal_rank_sum(hit.ranks.values()), hit.record.id, hit.ordinal))[:size]
    kept = {id(hit) for hit in best}
    return [hit for hit in hits if id(hit) in kept]


def make_pool(
    query: Query, hits: Sequence[Hit], kept: Sequence[Hit], size: int, spaces: frozenset[str] | None = None
) -> CandidatePool:
    """The pool of a search; `hits` has a few passages more than `kept`, which show the scores at its edge."""
    ranked: dict[str, list[float]] = {}
    edges: dict[str, float] = {}
    for hit in hits:
        for channel, score in hit.scores.items():
            if channel in hit.ranks:
                ranked.setdefault(channel, []).append(score)
            else:
                edges[channel] = max(score, edges.get(channel, score))
    return CandidatePool(
        query=query,
        stored={hit.record.id: _record_fingerprint(hit) for hit in hits},
        scores={channel: sorted(scores) for channel, scores in ranked.items()},
        edges=edges,
        ranks=[hit.ranks for hit in kept],
        full=len(hits) >= size,
        spaces=spaces,
    )


class CacheValidity:
    """Decides whether cached answers are valid after writes, using the journal of the index.

    Only records that the scope may read count, so that a changed answer reveals nothing about others. A changed record
    that is in the answer, or could enter or leave it, invalidates it at once. Other writes only change the weights of
    the question's terms, which depend on the number of records: an answer stays valid until the share of changed
    records that the scope may read exceeds `lag`.
    """

    def __init__(
        self,
        *,
        index: Index,
        journal: Journal,
        encoders: Encoders,
        floor: float,
        lag: float,
        spaces: VectorSpaces | None = None,
    ) -> None:
        self._index = index
        self._journal = journal
        self._spaces = spaces
        self._encoders = encoders
        self._floor = floor
        self._lag = lag

    async def is_valid(self, scope: Scope, pool: CandidatePool, *, since: int, held: int) -> bool:
        """Whether an answer computed at version `since`, and last found valid at version `held`, is still valid."""
        collection = pool.query.collection
        behind = await self._journal.changes(scope, collection, since)
        if behind is None or len(behind.ids) > self._lag * behind.passages:
            return False
        new = behind if since == held else await self._journal.changes(scope, collection, held)
        if new is None:
            return False
        if not new.ids:
            return True
        return await self._covers_vector_spaces(scope, pool) and self._is_unaffected(
            pool, new, await self._search_changed_records(scope, pool, new)
        )

    async def _covers_vector_spaces(self, scope: Scope, pool: CandidatePool) -> bool:
        """Whether the answer was searched in every vector space that exists now."""
        if pool.spaces is None or self._spaces is None:
            return True
        now = await self._spaces.spaces(scope, pool.query.collection)
        return now is not None and now <= pool.spaces

    def _is_unaffected(self, pool: CandidatePool, new: CollectionChanges, hits: Sequence[Hit]) -> bool:
        """Whether every changed record of the pool is equal to before, and no other record can enter.

        When the BM25 channel is full, further changed records may share a term, and the term's weight is unknown.
        """
        if sum(BM25 in hit.ranks for hit in hits) >= pool.query.k:
            return False
        found = {hit.record.id for hit in hits}
        if any(id_ in pool.stored and id_ not in found for id_ in new.ids):
            return False
        if any(pool.stored.get(hit.record.id, _record_fingerprint(hit)) != _record_fingerprint(hit) for hit in hits):
            return False
        return not self._may_enter(pool, [hit for hit in hits if hit.record.id not in pool.stored], new.passages)

    async def _search_changed_records(self, scope: Scope, pool: CandidatePool, new: CollectionChanges) -> Sequence[Hit]:
        """Hits among the changed records that pass the question's filter and the scope, with current scores."""
        only = AnyOf("id", new.ids)
        where = only if pool.query.where is None else And((pool.query.where, only))
        return await self._index.search(scope, replace(pool.query, where=where, fuse=fuse_channels))

    def _may_enter(self, pool: CandidatePool, new: Sequence[Hit], passages: int) -> bool:
        """Whether one of these passages could be in the answer if it were computed now."""
        drift = _bm25_drift(new, passages)
        proposed = [(hit, ranks) for hit in new if (ranks := self._possible_ranks(pool, hit, drift))]
        if not pool.full:
            return any(bool(hit.record.session) or self._matches(hit) for hit, _ in proposed)
        channels = {channel for _, ranks in proposed for channel in ranks}
        least = pool.lowest_worth(
            {each: sorted(ranks[each] for _, ranks in proposed if each in ranks) for each in channels}
        )
        return any(reciprocal_rank_sum(ranks.values()) >= least for _, ranks in proposed)

    def _possible_ranks(self, pool: CandidatePool, hit: Hit, drift: float) -> dict[str, int]:
        """By channel that may propose a passage, the best rank it can have there.

        A channel that did not propose a better passage does not propose this one. In other channels it ranks behind the
        better passages of the pool, and possibly behind further ones.
        """
        scores = {channel: score * drift if channel == BM25 else score for channel, score in hit.scores.items()}
        ranks = {
            channel: self._possible_rank(pool, channel, score)
            for channel, score in scores.items()
            if channel in hit.ranks and score >= pool.edges.get(channel, score)
        }
        return {channel: rank for channel, rank in ranks.items() if rank <= pool.query.k}

    @staticmethod
    def _possible_rank(pool: CandidatePool, channel: str, score: float) -> int:
        better = pool.scores.get(channel, ())
        return 1 + len(better) - bisect_right(better, score)

    def _matches(self, hit: Hit) -> bool:
        (similar,) = self._encoders.similarities([hit.scores])
        return hit.scores.get(BM25, 0.0) > 0 or (similar is not None and similar.calibrated >= self._floor)


def _record_fingerprint(hit: Hit) -> RecordFingerprint:
    return (hit.record, hit.hash, hit.rules)


def _bm25_drift(hits: Sequence[Hit], passages: int) -> float:
    """The factor by which the pool's older BM25 scores may be too high compared with the new passages.

    Each new passage with a term of the question lowers that term's IDF, most of all for a term that was rare before.
    """
    sharing = sum(hit.scores.get(BM25, 0.0) > 0 for hit in hits)
    return _idf(1, passages) / _idf(1 + sharing, passages)


def _idf(frequency: int, passages: int) -> float:
    """The BM25 weight of a term that occurs in `frequency` of `passages` passages."""
    return math.log(1 + (max(passages - frequency, 0) + 0.5) / (frequency + 0.5))
