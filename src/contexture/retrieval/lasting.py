"""Whether a remembered answer outlasts a write: it does when nothing of it was touched and nothing new can enter it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from contexture.ports import Index, Journal, Spaces
from contexture.retrieval.encoders import Encoders
from contexture.types import And, AnyOf, Changes, Hit, Query, Record, Scope

BM25 = "bm25"

Stored = tuple[Record, str, str]
"""A record without its text, the hash of its text, and the rules that scanned it: equal ones give equal hits."""

_RANK = 60  # reciprocal ranks are 1 / (60 + rank), as in the index


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pool:
    """What an answer was chosen from, and how hard it is to get in.

    `scores` are those of the passages that a channel proposed. `edges` are the best scores that were not enough to be
    proposed by a channel, as far as the pool shows. `ranks` are those of each passage inside; a pool that is not full
    takes whatever a channel proposes. `spaces` are the vectors that there were to be found, None where that is unknown.
    """

    query: Query
    stored: Mapping[str, Stored]
    scores: Mapping[str, Sequence[float]]
    edges: Mapping[str, float]
    ranks: Sequence[Mapping[str, int]]
    full: bool
    spaces: frozenset[str] | None = None

    def least(self, new: Mapping[str, Sequence[int]]) -> float:
        """The lowest reciprocal rank inside once each channel also proposes passages of these ranks, in order.

        They push what stands behind them back, so that the last that a channel proposed may fall out of it.
        """
        pushed = (
            [rank + bisect_right(new.get(channel, ()), rank) for channel, rank in ranks.items()] for ranks in self.ranks
        )
        return min((_worth(rank for rank in ranks if rank <= self.query.k) for ranks in pushed), default=0.0)


def inside(hits: Sequence[Hit], size: int) -> list[Hit]:
    """The best `size` by reciprocal rank, ties by record id and ordinal, in the order given."""
    if len(hits) <= size:
        return list(hits)
    best = sorted(hits, key=lambda hit: (-_worth(hit.ranks.values()), hit.record.id, hit.ordinal))[:size]
    kept = {id(hit) for hit in best}
    return [hit for hit in hits if id(hit) in kept]


def pool_of(
    query: Query, hits: Sequence[Hit], kept: Sequence[Hit], size: int, spaces: frozenset[str] | None = None
) -> Pool:
    """The pool of `size` that was kept of a search, as seen from a few passages more: they show where its edge is."""
    ranked: dict[str, list[float]] = {}
    edges: dict[str, float] = {}
    for hit in hits:
        for channel, score in hit.scores.items():
            if channel in hit.ranks:
                ranked.setdefault(channel, []).append(score)
            else:
                edges[channel] = max(score, edges.get(channel, score))
    return Pool(
        query=query,
        stored={hit.record.id: _stored(hit) for hit in hits},
        scores={channel: sorted(scores) for channel, scores in ranked.items()},
        edges=edges,
        ranks=[hit.ranks for hit in kept],
        full=len(hits) >= size,
        spaces=spaces,
    )


class Lasting:
    """Decides whether answers hold after writes, by what the journal of an index says was written.

    Only records that the scope may read count, so that nobody learns of the others by an answer that changes. A record
    that may have entered the answer, was in it, or left it, ends it at once. What is left is the weight of the
    question's terms, which depends on how many records there are: an answer may be older than the last write by at
    most the share `lag` of the records that the scope may read.
    """

    def __init__(
        self,
        *,
        index: Index,
        journal: Journal,
        encoders: Encoders,
        floor: float,
        lag: float,
        spaces: Spaces | None = None,
    ) -> None:
        self._index = index
        self._journal = journal
        self._spaces = spaces
        self._encoders = encoders
        self._floor = floor
        self._lag = lag

    async def holds(self, scope: Scope, pool: Pool, *, since: int, held: int) -> bool:
        """Whether an answer computed at version `since`, and found to hold at `held`, still does."""
        collection = pool.query.collection
        behind = await self._journal.changes(scope, collection, since)
        if behind is None or len(behind.ids) > self._lag * behind.passages:
            return False
        new = behind if since == held else await self._journal.changes(scope, collection, held)
        if new is None:
            return False
        if not new.ids:
            return True
        return await self._asked_for(scope, pool) and self._unmoved(pool, new, await self._written(scope, pool, new))

    async def _asked_for(self, scope: Scope, pool: Pool) -> bool:
        """Whether an answer looked for every kind of vector that there is now."""
        if pool.spaces is None or self._spaces is None:
            return True
        now = await self._spaces.spaces(scope, pool.query.collection)
        return now is not None and now <= pool.spaces

    def _unmoved(self, pool: Pool, new: Changes, hits: Sequence[Hit]) -> bool:
        """Whether each record in the pool was written as it was, and no other gets in."""
        found = {hit.record.id for hit in hits}
        if any(id_ in pool.stored and id_ not in found for id_ in new.ids):
            return False
        if any(pool.stored.get(hit.record.id, _stored(hit)) != _stored(hit) for hit in hits):
            return False
        return not self._enter(pool, [hit for hit in hits if hit.record.id not in pool.stored], new.passages)

    async def _written(self, scope: Scope, pool: Pool, new: Changes) -> Sequence[Hit]:
        """What was written, as far as the question's filter and the scope let it be found, with its scores now."""
        only = AnyOf("id", new.ids)
        where = only if pool.query.where is None else And((pool.query.where, only))
        return await self._index.search(scope, replace(pool.query, where=where, pool=None))

    def _enter(self, pool: Pool, new: Sequence[Hit], passages: int) -> bool:
        """Whether one of these passages might be in the answer, were it computed now."""
        drift = _drift(new, passages)
        proposed = [(hit, ranks) for hit in new if (ranks := self._ranks(pool, hit, drift))]
        if not pool.full:
            return any(bool(hit.record.session) or self._matches(hit) for hit, _ in proposed)
        channels = {channel for _, ranks in proposed for channel in ranks}
        least = pool.least({each: sorted(ranks[each] for _, ranks in proposed if each in ranks) for each in channels})
        return any(_worth(ranks.values()) >= least for _, ranks in proposed)

    def _ranks(self, pool: Pool, hit: Hit, drift: float) -> dict[str, int]:
        """By channel that may propose a passage, the best rank that it may have there.

        A channel that left a better passage out does not propose it. In the others it stands behind the better ones of
        the pool, which may not be all there are.
        """
        scores = {channel: score * drift if channel == BM25 else score for channel, score in hit.scores.items()}
        ranks = {
            channel: self._rank(pool, channel, score)
            for channel, score in scores.items()
            if channel in hit.ranks and score >= pool.edges.get(channel, score)
        }
        return {channel: rank for channel, rank in ranks.items() if rank <= pool.query.k}

    @staticmethod
    def _rank(pool: Pool, channel: str, score: float) -> int:
        better = pool.scores.get(channel, ())
        return 1 + len(better) - bisect_right(better, score)

    def _matches(self, hit: Hit) -> bool:
        (similar,) = self._encoders.similarities([hit.scores])
        return hit.scores.get(BM25, 0.0) > 0 or (similar is not None and similar.calibrated >= self._floor)


def _stored(hit: Hit) -> Stored:
    return (hit.record, hit.hash, hit.rules)


def _drift(hits: Sequence[Hit], passages: int) -> float:
    """How much higher the pool's BM25 scores may be for being older than what was written.

    Each written passage with a term of the question makes that term lighter, most of all one that was rare before.
    """
    sharing = sum(hit.scores.get(BM25, 0.0) > 0 for hit in hits)
    return _weight(1, passages) / _weight(1 + sharing, passages)


def _weight(frequency: int, passages: int) -> float:
    """BM25's weight of a term that so many passages have."""
    return math.log(1 + (max(passages - frequency, 0) + 0.5) / (frequency + 0.5))


def _worth(ranks: Iterable[int]) -> float:
    return math.fsum([1 / (_RANK + rank) for rank in ranks])
