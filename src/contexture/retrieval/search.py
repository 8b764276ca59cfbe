"""Hybrid search.

Each channel proposes passages, reciprocal ranks select the pool, and the signals of `ranking` order it.
`ResultCache` caches answers with the index version they were computed from.
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from contexture.errors import InvalidRequest, SourceError, UnknownCollection
from contexture.ledger import Trace
from contexture.pipeline.scoring import fuse_channels
from contexture.ports import Index, Journal, Reranker, VectorBacklog, VectorSpaces
from contexture.retrieval._cache_validity import CacheValidity, CandidatePool, keep_best_by_rank, make_pool
from contexture.retrieval._time_ranges import DateRange, find_time_range
from contexture.retrieval.encoders import Encoders
from contexture.retrieval.ranking import SEMANTIC, RankedQuestion, RankingModel, load_ranking_model, rank_hits
from contexture.text.language import detect_language
from contexture.text.terms import question_terms
from contexture.text.unicode import repair_text
from contexture.types import BM25, Filter, Hit, Query, Scope, Vector

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SearchCacheStats:
    """Hits and misses of the cache."""

    hits: int
    misses: int

    @property
    def rate(self) -> float:
        """Share of look-ups that hit; 0 before the first."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else 0.0


@dataclass(frozen=True, slots=True)
class CachedResult(Generic[T]):
    """A result, the version it was computed from, and the newest version at which it was found to be valid."""

    result: T
    version: int
    held: int


class ResultCache(Generic[T]):
    """A bounded LRU cache of results; the caller decides whether a result is still valid and records hit or miss."""

    def __init__(self, size: int = 2_048) -> None:
        self._size = size
        self._entries: OrderedDict[Hashable, CachedResult[T]] = OrderedDict()
        self._guard = threading.Lock()
        self._hits = 0
        self._misses = 0

    def find(self, key: Hashable) -> CachedResult[T] | None:
        """The cached result under this key, however old, or None."""
        with self._guard:
            return self._entries.get(key)

    def record_hit(self, key: Hashable, kept: CachedResult[T], version: int) -> None:
        """Count a hit, and mark the result found under this key as valid at this version.

        If the key holds another result by now, that one is not marked.
        """
        with self._guard:
            self._hits += 1
            now = self._entries.get(key)
            if now is not None and now.result is kept.result:
                self._entries[key] = now if now.held >= version else replace(now, held=version)
                self._entries.move_to_end(key)

    def record_miss(self) -> None:
        """Count a miss."""
        with self._guard:
            self._misses += 1

    def put(self, key: Hashable, version: int, result: T) -> None:
        """Cache a result unless one valid at a newer version is cached; evicts the least recently used."""
        if self._size <= 0:
            return
        with self._guard:
            now = self._entries.get(key)
            if now is not None and now.held > version:
                return
            self._entries[key] = CachedResult(result, version, version)
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def stats(self) -> SearchCacheStats:
        """Hits and misses so far."""
        with self._guard:
            return SearchCacheStats(self._hits, self._misses)


_MAX_QUESTION_CHARS = 8_192

DEFAULT_POOL = 50
"""How many passages a search ranks unless it is told otherwise."""

UNEMBEDDED = "vectors"
"""The source of the degradation that says how many passages of the collection have no vectors yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions:
    """Weights and limits of hybrid search.

    `floor` is the calibrated similarity from which a passage that shares no term with the question still matches.
    `ranking` are the weights of the ranking signals. `lag` is the share of the records that may change before a cached
    answer is recomputed because the weights of its terms have changed. A search in one of the `optional` collections
    finds nothing while the tenant does not have it, instead of raising `UnknownCollection`.
    """

    ranking: RankingModel = field(default_factory=load_ranking_model)
    floor: float = 0.3
    channel_k: int = 32
    pool: int = DEFAULT_POOL
    rerank_top: int = 20
    rerank_weight: float = 0.5
    lag: float = 0.01
    optional: frozenset[str] = frozenset()


class FoundPassage(Struct, frozen=True, kw_only=True, eq=False):
    """A passage that matches, its final score and every signal behind it."""

    hit: Hit
    score: float
    signals: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CachedSearch:
    """A cached answer and the candidate pool it was chosen from."""

    found: tuple[FoundPassage, ...]
    pool: CandidatePool


class HybridSearch:
    """Searches one index for passages; equal questions give equal answers until something is written.

    With a `journal`, a cached answer stays valid after writes that can only change the weights of its question's terms;
    see `cache_validity.CacheValidity` and `SearchOptions.lag`. With `spaces`, a question is embedded only for the
    vector spaces that the collection has. With a `backlog`, an answer says how many passages have no vector yet.
    """

    def __init__(
        self,
        *,
        index: Index,
        encoders: Encoders,
        options: SearchOptions | None = None,
        cache: ResultCache[CachedSearch] | None = None,
        reranker: Reranker | None = None,
        journal: Journal | None = None,
        spaces: VectorSpaces | None = None,
        backlog: VectorBacklog | None = None,
    ) -> None:
        self._index = index
        self._backlog = backlog
        self._spaces = spaces
        self._encoders = encoders
        self._options = options or SearchOptions()
        self._cache = cache or ResultCache()
        self._reranker = reranker
        self._validity = None if journal is None else self._make_validity(journal)

    def _make_validity(self, journal: Journal) -> CacheValidity:
        options = self._options
        return CacheValidity(
            index=self._index,
            journal=journal,
            spaces=self._spaces,
            encoders=self._encoders,
            floor=options.floor,
            lag=options.lag,
        )

    async def search(
        self,
        scope: Scope,
        collection: str,
        question: str,
        *,
        trace: Trace,
        where: Filter | None = None,
        pool: int | None = None,
        related: str = "",
        now: datetime | None = None,
    ) -> tuple[FoundPassage, ...]:
        """Matching passages, best first, ties by record id and ordinal; at most `pool` of them.

        The words of `related` are searched for as well; they do not change the vectors of the question.
        A question that names a time prefers records of that time; relative ones ("last week") are relative to `now`.

        A failing embedder or reranker is recorded in `trace` as a degradation, and the search goes on without it. So is
        the number of passages that have no vector yet. Such an answer is not cached. Raises `InvalidRequest` when
        `pool` is below 1.
        """
        size = self._options.pool if pool is None else pool
        if size < 1:
            raise InvalidRequest(f"the pool must hold at least 1 passage, not {size}")
        asked = repair_text(question)[:_MAX_QUESTION_CHARS]
        time = find_time_range(asked, now)
        key = (scope.tenant, tuple(sorted(scope.principals)), collection, asked, related, where, size, time)
        try:
            version = await self._index.version(scope, collection)
        except UnknownCollection:
            if collection in self._options.optional:
                return ()
            raise
        remembered = await self._cached_answer(scope, key, version)
        if remembered is not None:
            return remembered
        found, pool_used = await self._search(scope, collection, asked, related, where, size, trace, time)
        if pool_used is not None:
            self._cache.put(key, version, CachedSearch(found=found, pool=pool_used))
        return found

    def cache_stats(self) -> SearchCacheStats:
        """Hits and misses of the result cache."""
        return self._cache.stats()

    async def _cached_answer(self, scope: Scope, key: Hashable, version: int) -> tuple[FoundPassage, ...] | None:
        """The cached answer to a question, if it is still valid; counts the hit or miss."""
        kept = self._cache.find(key)
        if kept is None or not (kept.held == version or await self._is_still_valid(scope, kept)):
            self._cache.record_miss()
            return None
        self._cache.record_hit(key, kept, version)
        return kept.result.found

    async def _is_still_valid(self, scope: Scope, kept: CachedResult[CachedSearch]) -> bool:
        if self._validity is None:
            return False
        return await self._validity.is_valid(scope, kept.result.pool, since=kept.version, held=kept.held)

    async def _search(
        self,
        scope: Scope,
        collection: str,
        question: str,
        related: str,
        where: Filter | None,
        size: int,
        trace: Trace,
        time: DateRange | None,
    ) -> tuple[tuple[FoundPassage, ...], CandidatePool | None]:
        """The passages found, and the pool they were chosen from; the pool is None if the search was degraded."""
        lang = detect_language(question)
        words = question_terms(question, lang)
        among = None if self._spaces is None else await self._spaces.spaces(scope, collection)
        vectors, whole = await self._vectors(question, lang, among, trace)
        query = Query(
            collection=collection,
            terms=tuple(
                dict.fromkeys(term for ids in (*words, *question_terms(related, lang)) for term in sorted(ids))
            ),
            vectors=vectors,
            where=where,
            k=max(self._options.channel_k, size),
            # One passage more for each channel, as each may have a tie at the edge.
            fuse=partial(fuse_channels, pool=size + len(vectors) + 1),
        )
        hits = await self._index.search(scope, query)
        kept = keep_best_by_rank(hits, size)
        found = self._rank(kept, RankedQuestion.parse(question, lang, words, time))
        if self._reranker is not None and found:
            found, reranked = await self._rerank(self._reranker, question, found, trace)
            whole = whole and reranked
        waiting = 0 if self._backlog is None else await self._backlog.count_unembedded(scope, collection)
        if waiting:
            passages = "1 passage is" if waiting == 1 else f"{waiting} passages are"
            trace.add_degradation(UNEMBEDDED, f"{passages} found by words only until their vectors are computed")
        return tuple(found), make_pool(query, hits, kept, size, among) if whole and not waiting else None

    async def _vectors(
        self, question: str, lang: str, among: frozenset[str] | None, trace: Trace
    ) -> tuple[Mapping[str, Vector], bool]:
        try:
            return await self._encoders.question(question, lang, among), True
        except SourceError as failure:
            trace.add_degradation("embedder", failure)
            return {}, False

    def _rank(self, hits: Sequence[Hit], question: RankedQuestion) -> list[FoundPassage]:
        similar = self._encoders.similarities([hit.scores for hit in hits])
        found = [
            FoundPassage(hit=each.hit, score=each.score, signals=each.signals)
            for each in rank_hits(hits, similar, question, self._options.ranking)
            if each.signals[BM25] > 0 or each.signals.get(SEMANTIC, 0.0) >= self._options.floor
        ]
        return sorted(found, key=_rank_key)

    async def _rerank(
        self, reranker: Reranker, question: str, found: Sequence[FoundPassage], trace: Trace
    ) -> tuple[list[FoundPassage], bool]:
        top, rest = found[: self._options.rerank_top], found[self._options.rerank_top :]
        try:
            scores = await reranker.rerank(question, [each.hit.text for each in top])
        except SourceError as failure:
            trace.add_degradation("reranker", failure)
            return list(found), False
        weight = self._options.rerank_weight
        again = [
            FoundPassage(
                hit=each.hit,
                score=(1 - weight) * each.score + weight * score,
                signals={**each.signals, reranker.name: score},
            )
            for each, score in zip(top, scores, strict=True)
        ]
        return [*sorted(again, key=_rank_key), *rest], True


def _rank_key(found: FoundPassage) -> tuple[float, str, int]:
    return (-found.score, found.hit.record.id, found.hit.ordinal)
