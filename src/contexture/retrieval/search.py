"""Hybrid search: each channel proposes, ranks make the pool, scores decide, neighbours lend."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from contexture.errors import InvalidRequest, SourceError
from contexture.ledger import Trace
from contexture.pipeline.fuse import blends
from contexture.ports import Index, Journal, Reranker, Spaces
from contexture.retrieval.cache import CacheStats, Kept, ResultCache
from contexture.retrieval.encoders import Encoders, Similarity
from contexture.retrieval.lasting import BM25, Lasting, Pool, inside, pool_of
from contexture.retrieval.neighbours import lifts
from contexture.retrieval.prepare import mended
from contexture.text.language import detect
from contexture.text.terms import terms
from contexture.types import Filter, Hit, Query, Scope, Vector

LEXICAL = "lexical"
SEMANTIC = "semantic"
COSINE = "cosine"
NEIGHBOUR = "neighbour"

_QUESTION_CHARACTERS = 8_192


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchOptions:
    """How hybrid search weighs what it finds.

    `lexical` is the weight of BM25 by the question's language, the rest goes to the cosine. `floor`
    is the calibrated similarity at which a passage that shares no term with the question still
    matches. `lift` is the share of a neighbour's score that a passage gains, and `lift_session`
    that of a record in a session: a turn of a dialogue says less by itself. `lag` is the share of the
    records that may change before a remembered answer is computed anew with the weights of its terms.
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


class Found(Struct, frozen=True, kw_only=True, eq=False):
    """A passage that matches, its final score and every signal behind it."""

    hit: Hit
    score: float
    signals: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Remembered:
    """An answer and the pool it was chosen from."""

    found: tuple[Found, ...]
    pool: Pool


class HybridSearch:
    """Searches one index for passages; equal questions give equal answers until something is written.

    With the journal of the index, an answer outlasts writes that can change nothing of it but the weight of its
    question's terms; see `lasting.Lasting` and `SearchOptions.lag`. With its spaces, a question is embedded only for
    vectors that there are.
    """

    def __init__(
        self,
        *,
        index: Index,
        encoders: Encoders,
        options: SearchOptions | None = None,
        cache: ResultCache[Remembered] | None = None,
        reranker: Reranker | None = None,
        journal: Journal | None = None,
        spaces: Spaces | None = None,
    ) -> None:
        self._index = index
        self._spaces = spaces
        self._encoders = encoders
        self._options = options or SearchOptions()
        self._cache = cache or ResultCache()
        self._reranker = reranker
        self._lasting = None if journal is None else self._lasting_by(journal)

    def _lasting_by(self, journal: Journal) -> Lasting:
        options = self._options
        return Lasting(
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
    ) -> tuple[Found, ...]:
        """Matching passages, best first, ties by record id and ordinal; at most `pool` of them.

        A failing embedder or reranker degrades the answer to what is left and is named in `trace`.
        """
        size = self._options.pool if pool is None else pool
        if size < 1:
            raise InvalidRequest(f"the pool must hold at least 1 passage, not {size}")
        asked = mended(question)[:_QUESTION_CHARACTERS]
        key = (scope.tenant, tuple(sorted(scope.principals)), collection, asked, where, size)
        version = await self._index.version(scope, collection)
        remembered = await self._remembered(scope, key, version)
        if remembered is not None:
            return remembered
        found, pool_used = await self._search(scope, collection, asked, where, size, trace)
        if pool_used is not None:
            self._cache.put(key, version, Remembered(found=found, pool=pool_used))
        return found

    def cache_stats(self) -> CacheStats:
        """How often a search was answered from memory."""
        return self._cache.stats()

    async def _remembered(self, scope: Scope, key: Hashable, version: int) -> tuple[Found, ...] | None:
        """The answer to a question asked before, if it still holds."""
        kept = self._cache.find(key)
        if kept is None or not (kept.held == version or await self._holds(scope, kept)):
            self._cache.miss()
            return None
        self._cache.hit(key, kept, version)
        return kept.result.found

    async def _holds(self, scope: Scope, kept: Kept[Remembered]) -> bool:
        if self._lasting is None:
            return False
        return await self._lasting.holds(scope, kept.result.pool, since=kept.version, held=kept.held)

    async def _search(
        self, scope: Scope, collection: str, question: str, where: Filter | None, size: int, trace: Trace
    ) -> tuple[tuple[Found, ...], Pool | None]:
        """What is found, and the pool it was chosen from; None where something failed on the way."""
        lang = detect(question)
        among = None if self._spaces is None else await self._spaces.spaces(scope, collection)
        vectors, whole = await self._vectors(question, lang, among, trace)
        query = Query(
            collection=collection,
            terms=tuple(terms(question)),
            vectors=vectors,
            where=where,
            k=max(self._options.channel_k, size),
            pool=size + len(vectors) + 1,  # one more for each channel, which all may tie at the edge
        )
        hits = await self._index.search(scope, query)
        kept = inside(hits, size)
        found = self._fuse(kept, lang)
        if self._reranker is not None and found:
            found, reranked = await self._rerank(self._reranker, question, found, trace)
            whole = whole and reranked
        return tuple(found), pool_of(query, hits, kept, size, among) if whole else None

    async def _vectors(
        self, question: str, lang: str, among: frozenset[str] | None, trace: Trace
    ) -> tuple[Mapping[str, Vector], bool]:
        try:
            return await self._encoders.question(question, lang, among), True
        except SourceError as failure:
            trace.degraded("embedder", failure)
            return {}, False

    def _fuse(self, hits: Sequence[Hit], lang: str) -> list[Found]:
        best = max((hit.scores.get(BM25, 0.0) for hit in hits), default=0.0)
        similar = self._encoders.similarities([hit.scores for hit in hits])
        signals = [_signals(hit, best, each) for hit, each in zip(hits, similar, strict=True)]
        weights = self._weights(lang, lexical=best > 0, semantic=any(each is not None for each in similar))
        scores = [max(score, 0.0) for score in blends(signals, weights)]
        shares = [self._options.lift_session if hit.record.session else self._options.lift for hit in hits]
        gains = lifts(hits, scores, shares)
        found = [
            Found(hit=hit, score=(score + gain) / (1 + share), signals={**each, NEIGHBOUR: gain})
            for hit, each, score, gain, share in zip(hits, signals, scores, gains, shares, strict=True)
            if each[BM25] > 0 or each.get(SEMANTIC, 0.0) >= self._options.floor
        ]
        return sorted(found, key=_order)

    def _weights(self, lang: str, *, lexical: bool, semantic: bool) -> Mapping[str, float]:
        """A channel that found nothing has no say, so that scores keep their scale."""
        share = self._options.lexical.get(lang, self._options.lexical_default)
        weights = {LEXICAL: share if lexical else 0.0, COSINE: 1 - share if semantic else 0.0}
        return {name: weight for name, weight in weights.items() if weight}

    async def _rerank(
        self, reranker: Reranker, question: str, found: Sequence[Found], trace: Trace
    ) -> tuple[list[Found], bool]:
        top, rest = found[: self._options.rerank_top], found[self._options.rerank_top :]
        try:
            scores = await reranker.rerank(question, [each.hit.text for each in top])
        except SourceError as failure:
            trace.degraded("reranker", failure)
            return list(found), False
        weight = self._options.rerank_weight
        again = [
            Found(
                hit=each.hit,
                score=(1 - weight) * each.score + weight * score,
                signals={**each.signals, reranker.name: score},
            )
            for each, score in zip(top, scores, strict=True)
        ]
        return [*sorted(again, key=_order), *rest], True


def _signals(hit: Hit, best: float, similar: Similarity | None) -> dict[str, float]:
    bm25 = hit.scores.get(BM25, 0.0)
    signals = {BM25: bm25, LEXICAL: bm25 / best if best else 0.0}
    if similar is not None:
        signals[COSINE], signals[SEMANTIC] = similar.cosine, similar.calibrated
    return signals


def _order(found: Found) -> tuple[float, str, int]:
    return (-found.score, found.hit.record.id, found.hit.ordinal)
