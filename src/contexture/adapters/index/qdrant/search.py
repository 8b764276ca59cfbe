"""Search in a Qdrant collection within one scope: Qdrant proposes candidates, which are checked and rescored here."""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from qdrant_client import models

from contexture.adapters.index import codec
from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.filters import bound_value, payload_key
from contexture.adapters.index.qdrant.client import ACCESS, LEXICAL
from contexture.adapters.index.qdrant.collection import QdrantCollection, to_wire_vector
from contexture.adapters.index.quantized_vectors import QuantizedView, dot_products, quantize
from contexture.adapters.index.record_store import PassageRow, StoredVectors, StoreState
from contexture.adapters.index.scoring import TermWeights, bm25_scores
from contexture.errors import SourceUnavailable
from contexture.types import BM25, And, AnyOf, Contains, Equals, Filter, Not, Or, Range, Scalar, Vector

_MAX_SINGLE_MATCHES = 16
_EXTRA_CANDIDATES = 28  # requested beyond `k`, so that ties and near ties seldom need a second request
_LIMIT_GROWTH = 4
_EF_PER_RESULT = 2  # candidates visited in the HNSW graph per requested result
# Largest expected difference between Qdrant's similarity, of quantized vectors, and ours; .0015 was measured.
_MAX_SCORE_ERROR = 4e-3

_MAX_ATTEMPTS = 3  # searches until Qdrant's answer belongs to a state that can be completed

Rescore = Callable[[Mapping[int, float]], Mapping[int, float]]
SubstringMatch = Callable[[str], models.Match]
"""Returns the condition that a text field contains a text, in the form that the server knows."""

UnsentLookup = Callable[[StoreState], Sequence[PassageRow] | None]
"""Returns the passages, with vectors, that points of a state lack; None if they have now been sent: search again."""


@dataclass(frozen=True, slots=True)
class ChannelQuery:
    """One channel of a search: the query for Qdrant and how its candidates are rescored.

    `max_error` bounds the difference between Qdrant's score and the rescored one.
    """

    query: models.SparseVector | list[float]
    using: str
    rescore: Rescore
    max_error: float


@dataclass(frozen=True, slots=True)
class AccessBoundary:
    """What restricts every query: filter, access classes, tenant, and whether search is exact."""

    where: models.Filter
    allowed: frozenset[int]
    tenant: str
    exact: bool


class QdrantScopedView:
    """Searches Qdrant within one scope; candidates are checked and rescored with data of the record store."""

    def __init__(
        self,
        box: QdrantCollection,
        boundary: AccessBoundary,
        stored: Callable[[Sequence[int]], Sequence[StoredVectors]],
        weigh_terms: Callable[[Sequence[int]], TermWeights],
        unsent: UnsentLookup = lambda _: (),
    ) -> None:
        self._collection = box
        self._boundary = boundary
        self._read_vectors = stored
        self._find_unsent = unsent
        self._weigh_terms = weigh_terms
        self._loaded: dict[int, StoredVectors | None] = {}

    def weigh_terms(self, terms: Sequence[int]) -> TermWeights:
        """BM25 weights of these terms over what the scope may read, whatever the filter."""
        return self._weigh_terms(terms)

    def find_candidates(
        self, weights: TermWeights, vectors: Mapping[str, Vector], k: int
    ) -> dict[str, dict[int, float]]:
        """By channel, its best `k` passages and all that tie with the last; BM25 comes first."""
        channels = {BM25: _lexical_channel(weights)} if weights.terms else {}
        channels |= {name: self._dense_channel(name, vector) for name, vector in vectors.items()}
        best: dict[str, dict[int, float]] = {name: {} for name in channels}
        limit = k + _EXTRA_CANDIDATES
        while channels:
            found, unsent = self._search_channels(channels, limit)
            added = self._score_unsent(unsent, weights, vectors)
            for name, proposed in found.items():
                scores = {
                    **channels[name].rescore({pid: proposed[pid] for pid in proposed if self._is_readable(pid)}),
                    **added[name],
                }
                best[name] = _top_with_ties(scores, k)
                if len(proposed) < limit or _is_final(scores, proposed, k, channels[name].max_error):
                    del channels[name]
            limit *= _LIMIT_GROWTH
        return best

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; passages without this vector are left out."""
        self._load_vectors(pids)
        halves = {pid: self._vector_bytes(pid).get(name, b"") for pid in pids}
        known = {pid: half for pid, half in halves.items() if half}
        if not known:
            return {}
        numbers = np.frombuffer(b"".join(known.values()), np.float16).astype(np.float32)
        codes, scales = quantize(numbers.reshape(len(known), -1))
        view = QuantizedView(codes, np.empty((0, 0), np.uint8), scales, np.arange(len(known)))
        return dict(zip(known, dot_products(view, vector, None).tolist(), strict=True))

    def passage_keys(self, pids: Sequence[int]) -> Mapping[int, tuple[str, int]]:
        """Record id and ordinal of passages, used to break ties."""
        self._load_vectors(pids)
        known = {pid: self._loaded[pid] for pid in pids}
        return {pid: stored.passage_key if stored else ("", 0) for pid, stored in known.items()}

    def _dense_channel(self, name: str, vector: Vector) -> ChannelQuery:
        slack = _MAX_SCORE_ERROR * max(1.0, float(vector @ vector))
        return ChannelQuery(
            to_wire_vector(vector), name, lambda found: self.similarities(name, vector, list(found)), slack
        )

    def _search_channels(
        self, channels: Mapping[str, ChannelQuery], limit: int
    ) -> tuple[dict[str, dict[int, float]], Sequence[PassageRow]]:
        """Qdrant's proposals by channel, and the readable passages that it had not got yet."""
        requests = {name: self._build_request(channel, limit) for name, channel in channels.items()}
        for _ in range(_MAX_ATTEMPTS):
            found, seen = self._collection.search(requests, self._boundary.tenant)
            unsent = self._find_unsent(seen)
            if unsent is not None:
                self._load_vectors([pid for proposed in found.values() for pid in proposed])
                return found, unsent
        raise SourceUnavailable(f"collection {self._collection.name!r} of Qdrant is behind the record store")

    def _score_unsent(
        self, rows: Sequence[PassageRow], weights: TermWeights, vectors: Mapping[str, Vector]
    ) -> dict[str, Mapping[int, float]]:
        """By channel, the scores of passages that Qdrant has not got yet, on the same scale as its own."""
        scores: dict[str, Mapping[int, float]] = {name: {} for name in (BM25, *vectors)}
        if not rows:
            return scores
        for row in rows:
            key = (row.record_id, row.ordinal)
            self._loaded[row.pid] = StoredVectors(row.pid, row.access, row.vectors, key)
        if weights.terms:
            found = bm25_scores(rows, weights).scores
            scores[BM25] = {pid: float(round(score / weights.unit)) for pid, score in found.items() if score}
        for name, vector in vectors.items():
            scores[name] = self.similarities(name, vector, [row.pid for row in rows])
        return scores

    def _build_request(self, channel: ChannelQuery, limit: int) -> models.QueryRequest:
        exact = self._boundary.exact
        params = models.SearchParams(exact=exact, hnsw_ef=None if exact else _EF_PER_RESULT * limit)
        return models.QueryRequest(
            query=channel.query,
            using=channel.using,
            filter=self._boundary.where,
            limit=limit,
            params=None if channel.using == LEXICAL else params,
        )

    def _is_readable(self, pid: int) -> bool:
        """Whether a passage exists and may be read according to the record store; Qdrant may be behind."""
        stored = self._loaded[pid]
        return stored is not None and stored.access in self._boundary.allowed

    def _load_vectors(self, pids: Sequence[int]) -> None:
        """Load vectors that are not cached yet from the record store; removed passages are cached as None."""
        new = sorted({pid for pid in pids if pid not in self._loaded})
        if new:
            self._loaded.update(dict.fromkeys(new))
            self._loaded.update((stored.pid, stored) for stored in self._read_vectors(new))

    def _vector_bytes(self, pid: int) -> Mapping[str, bytes]:
        stored = self._loaded[pid]
        return codec.unpack_vector_bytes(stored.vectors) if stored else {}


def _lexical_channel(weights: TermWeights) -> ChannelQuery:
    """The BM25 channel; both sides add the same integers, so Qdrant's scores need no rescoring."""
    terms = sorted(weights.terms)
    query = models.SparseVector(indices=terms, values=[float(weights.terms[term]) for term in terms])
    return ChannelQuery(query, LEXICAL, dict, 0.0)


def _is_final(scores: Mapping[int, float], proposed: Mapping[int, float], k: int, slack: float) -> bool:
    """Whether no passage beyond those proposed can be among the best `k` or tie with the last."""
    return len(scores) >= k and min(proposed.values()) + slack < _kth_best(scores, k)


def _top_with_ties(scores: Mapping[int, float], k: int) -> dict[int, float]:
    floor = _kth_best(scores, k)
    return {pid: score for pid, score in scores.items() if score >= floor}


def _kth_best(scores: Mapping[int, float], k: int) -> float:
    """The `k`-th best score; minus infinity if there are fewer."""
    return heapq.nlargest(k, scores.values())[-1] if len(scores) >= k else -math.inf


def compile_server_filter(access: ScopeAccess, where: Filter | None, match_substring: SubstringMatch) -> models.Filter:
    """Filter on the readable access classes, each of which belongs to one tenant, and the caller's filter."""
    must: list[models.Condition] = [models.Filter(should=_match_classes(sorted(access.readable)))]
    if where is not None:
        must.append(_compile_filter(where, match_substring))
    return models.Filter(must=must)


def _match_classes(classes: Sequence[int]) -> list[models.Condition]:
    """Conditions for any of these access classes; for a few, single matches are evaluated twice as fast."""
    if len(classes) > _MAX_SINGLE_MATCHES:
        return [models.FieldCondition(key=ACCESS, match=models.MatchAny(any=list(classes)))]
    return [models.FieldCondition(key=ACCESS, match=models.MatchValue(value=access)) for access in classes]


def _compile_filter(where: Filter, match_substring: SubstringMatch) -> models.Filter:
    match where:
        case And(parts):
            return models.Filter(must=[_compile_filter(part, match_substring) for part in parts])
        case Or(parts):
            return (
                models.Filter(should=[_compile_filter(part, match_substring) for part in parts])
                if parts
                else _match_nothing()
            )
        case Not(part):
            return models.Filter(must_not=[_compile_filter(part, match_substring)])
        case Equals(name, value):
            return models.Filter(must=[_compile_equals(name, value)])
        case AnyOf(name, values):
            return models.Filter(should=_compile_any_of(name, values)) if values else _match_nothing()
        case Contains(name, piece):
            return models.Filter(must=[models.FieldCondition(key=payload_key(name), match=match_substring(piece))])
        case Range():
            return models.Filter(must=[_compile_range(where)])


def _compile_any_of(name: str, values: Sequence[Scalar]) -> list[models.Condition]:
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) > _MAX_SINGLE_MATCHES and len(texts) == len(values):
        return [models.FieldCondition(key=payload_key(name), match=models.MatchAny(any=texts))]
    return [_compile_equals(name, value) for value in values]


def _compile_equals(name: str, value: Scalar) -> models.FieldCondition:
    if isinstance(value, str):
        return models.FieldCondition(key=payload_key(name), match=models.MatchValue(value=value))
    number = float(value)  # flags are stored as numbers, as in the embedded index
    return models.FieldCondition(key=payload_key(name), range=models.Range(gte=number, lte=number))


def _compile_range(where: Range) -> models.FieldCondition:
    bounds = models.Range(
        gte=bound_value(where.gte), gt=bound_value(where.gt), lte=bound_value(where.lte), lt=bound_value(where.lt)
    )
    return models.FieldCondition(key=payload_key(where.field), range=bounds)


def _match_nothing() -> models.Filter:
    return models.Filter(must=[models.HasIdCondition(has_id=[])])
