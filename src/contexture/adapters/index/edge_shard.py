"""One qdrant-edge shard: BM25 and HNSW search over passages; can be rebuilt from the record store."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import qdrant_edge as qe

from contexture.adapters.index import codec
from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.disk_space import check_free_space
from contexture.adapters.index.filters import build_payload, compile_filter, payload_key
from contexture.adapters.index.record_store import PassageRow
from contexture.adapters.index.scoring import to_impacts
from contexture.errors import SourceUnavailable
from contexture.types import FieldType, Filter, Vector

LEXICAL = "lexical"

CandidateFilter = Callable[[Mapping[int, float]], dict[int, float]]
"""Keeps the found passages that pass a filter, with their scores."""

_ACCESS = "access"
_MAX_SINGLE_MATCHES = 16
_FULL_SCAN_KB = 10_000
_EF_PER_RESULT = 2  # candidates visited in the HNSW graph per requested result
_UPDATE_POINTS = 128  # points per engine call: a call holds the interpreter lock, about 15 ms for this many
_PAYLOAD_TYPES = {
    FieldType.KEYWORD: qe.PayloadSchemaType.Keyword,
    FieldType.NUMBER: qe.PayloadSchemaType.Float,
    FieldType.TIME: qe.PayloadSchemaType.Float,
    FieldType.FLAG: qe.PayloadSchemaType.Float,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeShardOptions:
    """Layout of a shard: a sparse vector for BM25, and an HNSW graph per vector space."""

    vectors: Mapping[str, int]
    threads: int = 2


@dataclass(frozen=True, slots=True)
class PreparedPoints:
    """Points built ahead of a write; they are built again if the fields of the shard changed."""

    points: Sequence[qe.Point]
    fields: Mapping[str, FieldType]


class EdgeShard:
    """One qdrant-edge shard on disk for one collection; term weights are integers, so that BM25 sums are exact."""

    def __init__(self, folder: Path, options: EdgeShardOptions, fields: Mapping[str, FieldType]) -> None:
        self._folder = folder
        self._options = options
        self._fields = fields
        loaded = self._load() if (folder / "segments").is_dir() else None
        self.is_new = loaded is None
        self._shard = loaded or self._create()

    def prepare_points(self, added: Sequence[PassageRow]) -> PreparedPoints:
        """Build the points of these passages for `apply`; no search finds them yet."""
        fields = self._fields
        return PreparedPoints([self._build_point(row, fields) for row in added], fields)

    def apply(self, added: Sequence[PassageRow], removed: Sequence[int], draft: PreparedPoints | None = None) -> None:
        """Apply a committed change; `draft` is the result of `prepare_points` for the added passages."""
        if draft is None or draft.fields is not self._fields:
            draft = self.prepare_points(added)
        with edge_errors("update"):
            # Before the removals, so that a replaced record can be found at any time.
            for start in range(0, len(draft.points), _UPDATE_POINTS):
                batch = draft.points[start : start + _UPDATE_POINTS]
                self._shard.update(qe.UpdateOperation.upsert_points(list(batch)))
            if removed:
                self._shard.update(qe.UpdateOperation.delete_points(list(removed)))

    def search_lexical(
        self, weights: Mapping[int, int], where: qe.Filter | None, k: int, passing: CandidateFilter | None = None
    ) -> dict[int, float]:
        """The best `k` passages by BM25 that `passing` keeps, with every passage that ties with the last."""
        terms = sorted(weights)
        query = qe.SparseVector(indices=terms, values=[float(weights[term]) for term in terms])
        nearest = qe.Query.Nearest(query, using=LEXICAL)
        if passing is None:
            return self._search(nearest, where, k)
        asked = k
        while True:
            found = self._search(nearest, where, asked)
            kept = passing(found)
            if len(kept) >= k or len(found) < asked:
                return kept if len(kept) <= k else _top_with_ties(kept, k)
            asked *= 4

    def search_dense(self, name: str, vector: Vector, where: qe.Filter | None, k: int) -> dict[int, float]:
        """The best `k` passages by dot product, with every passage that ties with the last."""
        return self._search(qe.Query.Nearest(vector.tolist(), using=name), where, k)

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; passages without this vector are left out."""
        where = qe.Filter(must=[qe.HasIdCondition(set(pids))])
        query = qe.Query.Nearest(vector.tolist(), using=name)
        request = qe.QueryRequest(limit=len(pids), query=query, filter=where, params=qe.SearchParams(exact=True))
        with edge_errors("search"):
            return {int(str(point.id)): point.score for point in self._shard.query(request)}

    def add_fields(self, fields: Mapping[str, FieldType]) -> None:
        """Index further payload fields."""
        for name in fields.keys() - self._fields.keys():
            self._shard.update(qe.UpdateOperation.create_field_index(payload_key(name), _PAYLOAD_TYPES[fields[name]]))
        self._fields = fields

    def optimize(self) -> None:
        """Merge segments, and build the HNSW graphs, if any."""
        self._shard.optimize()

    def flush(self) -> None:
        """Make everything applied so far durable."""
        with edge_errors("flush"):
            self._shard.flush()

    def close(self) -> None:
        """Flush and release the files."""
        with edge_errors("close"):
            self._shard.flush()
            self._shard.close()

    def close_quietly(self) -> None:
        """Release the files of a shard that may be broken; errors are ignored."""
        with suppress(SourceUnavailable):
            self.close()

    def count(self) -> int:
        """Number of passages in the shard."""
        with edge_errors("count"):
            return self._shard.count(qe.CountRequest(exact=True))

    def _search(self, query: qe.Query, where: qe.Filter | None, k: int) -> dict[int, float]:
        params = qe.SearchParams(exact=False, hnsw_ef=_EF_PER_RESULT * k)
        limit = k + 1
        while True:
            with edge_errors("search"):
                found = self._shard.query(qe.QueryRequest(limit=limit, query=query, filter=where, params=params))
            # Ties with the last result would otherwise be cut by storage order, which hidden records influence.
            floor = found[k - 1].score if len(found) >= k else -math.inf
            if len(found) < limit or found[-1].score < floor:
                break
            limit *= 4
        return {int(str(point.id)): point.score for point in found if point.score >= floor}

    def _build_point(self, row: PassageRow, fields: Mapping[str, FieldType]) -> qe.Point:
        record, _ = codec.unpack_header(row.header, row.record_id, "")
        vectors: dict[str, list[float] | qe.SparseVector] = {
            name: codec.unpack_vector(half).tolist()
            for name, half in (codec.unpack_vector_bytes(row.vectors).items() if self._options.vectors else ())
            if name in self._options.vectors
        }
        terms, weights = codec.term_arrays(row.facts)
        if len(terms):
            vectors[LEXICAL] = qe.SparseVector(indices=terms.tolist(), values=to_impacts(weights).tolist())
        return qe.Point(row.pid, vectors, {_ACCESS: row.access, **build_payload(record, fields)})  # pyright: ignore[reportArgumentType]

    def _load(self) -> qe.EdgeShard | None:
        """The shard on disk; None when it cannot be read, because the record store can fill a new one."""
        try:
            with edge_errors("load"):
                return qe.EdgeShard.load(str(self._folder), self._config())
        except SourceUnavailable:
            return None

    def _create(self) -> qe.EdgeShard:
        """Create an empty shard; existing files in its folder are deleted."""
        if self._folder.is_dir():
            shutil.rmtree(self._folder)
        self._folder.unlink(missing_ok=True)
        self._folder.mkdir(parents=True)
        check_free_space(self._folder)
        with edge_errors("create"):
            shard = qe.EdgeShard.create(str(self._folder), self._config())
            shard.update(qe.UpdateOperation.create_field_index(_ACCESS, qe.PayloadSchemaType.Integer))
            for name, kind in self._fields.items():
                shard.update(qe.UpdateOperation.create_field_index(payload_key(name), _PAYLOAD_TYPES[kind]))
        return shard

    def _config(self) -> qe.EdgeConfig:
        graph = qe.HnswIndexConfig(m=16, ef_construct=128, full_scan_threshold=_FULL_SCAN_KB)
        return qe.EdgeConfig(
            vectors={
                name: qe.EdgeVectorParams(
                    size=size,
                    distance=qe.Distance.Dot,
                    datatype=qe.VectorStorageDatatype.Turbo8,
                    hnsw_config=graph,
                )
                for name, size in self._options.vectors.items()
            },
            sparse_vectors={LEXICAL: qe.EdgeSparseVectorParams()},
            optimizers=qe.EdgeOptimizersConfig(default_segment_number=self._options.threads),
            max_search_threads=self._options.threads,
            wal_enabled=False,
        )


def _top_with_ties(found: Mapping[int, float], k: int) -> dict[int, float]:
    """The best `k` passages, with every passage that ties with the last."""
    floor = sorted(found.values(), reverse=True)[k - 1]
    return {pid: score for pid, score in found.items() if score >= floor}


@contextmanager
def edge_errors(doing: str) -> Generator[None]:
    """Translate qdrant-edge failures to `SourceUnavailable`.

    It raises bare `Exception`, and Rust panics as a BaseException.
    """
    try:
        yield
    except BaseException as failure:
        if type(failure) is not Exception and type(failure).__name__ != "PanicException":
            raise
        raise SourceUnavailable(f"the search engine failed to {doing}: {failure}") from failure


def compile_access_filter(access: ScopeAccess, where: Filter | None) -> qe.Filter | None:
    """Permissions and the caller's filter as one shard filter; None when everything passes.

    Permissions are written in the form that the shard evaluates fastest: the single readable access class, else none
    of the hidden ones, else any of the readable ones.
    """
    must: list[qe.ConditionType] = []
    must_not: list[qe.ConditionType] = []
    if access.hidden != frozenset() and len(access.readable) == 1:
        must.extend(_match_classes(access.readable))
    elif access.hidden is not None:
        must_not.extend(_match_classes(access.hidden))
    else:
        must.append(qe.Filter(should=_match_classes(access.readable)))
    if where is not None:
        must.append(compile_filter(where))
    return qe.Filter(must=must, must_not=must_not) if must or must_not else None


def _match_classes(classes: frozenset[int]) -> list[qe.ConditionType]:
    ordered = sorted(classes)
    if len(ordered) > _MAX_SINGLE_MATCHES:
        return [qe.FieldCondition(key=_ACCESS, match=qe.MatchAny(ordered))]
    return [qe.FieldCondition(key=_ACCESS, match=qe.MatchValue(access)) for access in ordered]
