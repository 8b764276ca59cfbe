"""Hybrid search.

Each channel proposes passages, reciprocal ranks select the pool, fused scores order it, and neighbouring passages raise
each other's scores. `ResultCache` caches answers with the index version they were computed from.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from contexture.errors import InvalidRequest, SourceError
from contexture.ledger import Trace
from contexture.pipeline.fusion import fuse_channels
from contexture.pipeline.scoring import weighted_means
from contexture.ports import Index, Journal, Reranker, VectorSpaces
from contexture.retrieval.cache_validity import BM25, CacheValidity, CandidatePool, keep_best_by_rank, make_pool
from contexture.retrieval.encoders import Encoders, Similarity
from contexture.text.language import detect_language
from contexture.text.terms import extract_terms
from contexture.text.unicode import repair_text
from contexture.types import Filter, Hit, Query, Scope, Vector

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


PassagePosition = tuple[str, int, int]


def neighbour_lifts(hits: Sequence[Hit], scores: Sequence[float], shares: Sequence[float]) -> list[float]:
    """The score each hit gains from its best neighbour: its share of that neighbour's score.

    Neighbours are passages next to each other in one record, and records next to each other in
    one session. Records without a session and records of a single passage gain nothing.
    """
    keys = [_position_of(hit) for hit in hits]
    crowded = {name for name, count in Counter(name for name, *_ in keys).items() if count > 1}
    places: dict[PassagePosition, float] = defaultdict(float)
    for key, score in zip(keys, scores, strict=True):
        places[key] = max(places[key], score)
    return [
        share * max(places.get(near, 0.0) for near in _neighbour_positions(hit, key)) if key[0] in crowded else 0.0
        for hit, key, share in zip(hits, keys, shares, strict=True)
    ]


def _position_of(hit: Hit) -> PassagePosition:
    """The position of a hit: in its session, or in its record."""
    record = hit.record
    if record.session and record.position is not None:
        return (f"session {record.session}", record.position, hit.ordinal)
    return (f"record {record.id}", 0, hit.ordinal)


def _neighbour_positions(hit: Hit, place: PassagePosition) -> tuple[PassagePosition, ...]:
    name, position, ordinal = place
    inside = ((name, position, ordinal - 1), (name, position, ordinal + 1))
    if hit.record.session and hit.record.position is not None:
        return (*inside, (name, position - 1, 0), (name, position + 1, 0))
    return inside


LEXICAL = "lexical"
SEMANTIC = "semantic"
COSINE = "cosine"
NEIGHBOUR = "neighbour"

_MAX_QUESTION_CHARS = 8_192


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions:
    """Weights and limits of hybrid search.

    `lexical` is the weight of BM25 by the question's language; the cosine gets the rest. `floor` is the calibrated
    similarity from which a passage that shares no term with the question still matches. `lift` is the share of a
    neighbour's score that a passage gains, and `lift_session` the same for a record in a session, where a single turn
    carries less information by itself. `lag` is the share of the records that may change before a cached answer is
    recomputed because the weights of its terms have changed.
    """

    lexical: Mapping[str, float] = field(default_factory=dict[str, float])
    lexical_default: float = 0.45
    floor: float = 0.3
    lift: float = 0.1
    lift_session: float = 0.3
    channel_k: int = 32
    pool: int = 50
    rerank_top: int = 20
    rerank_weight: float = 0.5
    lag: float = 0.01


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
    vector spaces that the collection has.
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
    ) -> None:
        self._index = index
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
    ) -> tuple[FoundPassage, ...]:
        """Matching passages, best first, ties by record id and ordinal; at most `pool` of them.

        A failing embedder or reranker is recorded in `trace` as a degradation, and the search goes on without it; such
        an answer is not cached. Raises `InvalidRequest` when `pool` is below 1.
        """
        size = self._options.pool if pool is None else pool
        if size < 1:
            raise InvalidRequest(f"the pool must hold at least 1 passage, not {size}")
        asked = repair_text(question)[:_MAX_QUESTION_CHARS]
        key = (scope.tenant, tuple(sorted(scope.principals)), collection, asked, where, size)
        version = await self._index.version(scope, collection)
        remembered = await self._cached_answer(scope, key, version)
        if remembered is not None:
            return remembered
        found, pool_used = await self._search(scope, collection, asked, where, size, trace)
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
        self, scope: Scope, collection: str, question: str, where: Filter | None, size: int, trace: Trace
    ) -> tuple[tuple[FoundPassage, ...], CandidatePool | None]:
        """The passages found, and the pool they were chosen from; the pool is None if the search was degraded."""
        lang = detect_language(question)
        among = None if self._spaces is None else await self._spaces.spaces(scope, collection)
        vectors, whole = await self._vectors(question, lang, among, trace)
        query = Query(
            collection=collection,
            terms=tuple(extract_terms(question)),
            vectors=vectors,
            where=where,
            k=max(self._options.channel_k, size),
            # One passage more for each channel, as each may have a tie at the edge.
            fuse=partial(fuse_channels, pool=size + len(vectors) + 1),
        )
        hits = await self._index.search(scope, query)
        kept = keep_best_by_rank(hits, size)
        found = self._fuse(kept, lang)
        if self._reranker is not None and found:
            found, reranked = await self._rerank(self._reranker, question, found, trace)
            whole = whole and reranked
        return tuple(found), make_pool(query, hits, kept, size, among) if whole else None

    async def _vectors(
        self, question: str, lang: str, among: frozenset[str] | None, trace: Trace
    ) -> tuple[Mapping[str, Vector], bool]:
        try:
            return await self._encoders.question(question, lang, among), True
        except SourceError as failure:
            trace.add_degradation("embedder", failure)
            return {}, False

    def _fuse(self, hits: Sequence[Hit], lang: str) -> list[FoundPassage]:
        best = max((hit.scores.get(BM25, 0.0) for hit in hits), default=0.0)
        similar = self._encoders.similarities([hit.scores for hit in hits])
        signals = [_hit_signals(hit, best, each) for hit, each in zip(hits, similar, strict=True)]
        weights = self._weights(lang, lexical=best > 0, semantic=any(each is not None for each in similar))
        scores = [max(score, 0.0) for score in weighted_means(signals, weights)]
        shares = [self._options.lift_session if hit.record.session else self._options.lift for hit in hits]
        gains = neighbour_lifts(hits, scores, shares)
        found = [
            FoundPassage(hit=hit, score=(score + gain) / (1 + share), signals={**each, NEIGHBOUR: gain})
            for hit, each, score, gain, share in zip(hits, signals, scores, gains, shares, strict=True)
            if each[BM25] > 0 or each.get(SEMANTIC, 0.0) >= self._options.floor
        ]
        return sorted(found, key=_rank_key)

    def _weights(self, lang: str, *, lexical: bool, semantic: bool) -> Mapping[str, float]:
        """Weights by signal; a channel that found nothing gets none, so that scores keep their scale."""
        share = self._options.lexical.get(lang, self._options.lexical_default)
        weights = {LEXICAL: share if lexical else 0.0, COSINE: 1 - share if semantic else 0.0}
        return {name: weight for name, weight in weights.items() if weight}

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


def _hit_signals(hit: Hit, best: float, similar: Similarity | None) -> dict[str, float]:
    bm25 = hit.scores.get(BM25, 0.0)
    signals = {BM25: bm25, LEXICAL: bm25 / best if best else 0.0}
    if similar is not None:
        signals[COSINE], signals[SEMANTIC] = similar.cosine, similar.calibrated
    return signals


def _rank_key(found: FoundPassage) -> tuple[float, str, int]:
    return (-found.score, found.hit.record.id, found.hit.ordinal)
