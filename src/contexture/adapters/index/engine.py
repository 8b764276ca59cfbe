"""Qdrant's engine in process: proposes the best passages of each channel, and holds nothing that SQLite does not."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import qdrant_edge as qe

from contexture.adapters.index import codec
from contexture.adapters.index.classes import Access
from contexture.adapters.index.filters import compile_filter, key_of, payload_of
from contexture.adapters.index.room import check_room
from contexture.adapters.index.scoring import impacts
from contexture.adapters.index.truth import Row
from contexture.errors import SourceUnavailable
from contexture.types import FieldType, Filter, Vector

LEXICAL = "lexical"

Passing = Callable[[Mapping[int, float]], dict[int, float]]
"""Keeps those of the passages found that a filter lets through."""

_ACCESS = "access"
_FEW = 16
_SCAN_KB = 10_000
_EFFORT = 2  # passages looked at in the graph for each one that is asked for
_SCHEMA = {
    FieldType.KEYWORD: qe.PayloadSchemaType.Keyword,
    FieldType.NUMBER: qe.PayloadSchemaType.Float,
    FieldType.TIME: qe.PayloadSchemaType.Float,
    FieldType.FLAG: qe.PayloadSchemaType.Float,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineOptions:
    """How a shard is laid out: it holds words, and a graph over each of these vector spaces."""

    vectors: Mapping[str, int]
    threads: int = 2


@dataclass(frozen=True, slots=True)
class Draft:
    """Passages as the engine takes them, made before it may have them; of no use once it knows other fields."""

    points: Sequence[qe.Point]
    fields: Mapping[str, FieldType]


class Engine:
    """One shard on disk for one collection; term weights are whole numbers, so that sums of them are exact."""

    def __init__(self, folder: Path, options: EngineOptions, fields: Mapping[str, FieldType]) -> None:
        self._folder = folder
        self._options = options
        self._fields = fields
        loaded = self._load() if (folder / "segments").is_dir() else None
        self.fresh = loaded is None
        self._shard = loaded or self._create()

    def draft(self, added: Sequence[Row]) -> Draft:
        """What `apply` would make of these passages; nothing finds them yet."""
        fields = self._fields
        return Draft([self._point(row, fields) for row in added], fields)

    def apply(self, added: Sequence[Row], removed: Sequence[int], draft: Draft | None = None) -> None:
        """Follow a change that SQLite has committed; `draft` is of the passages added."""
        if draft is None or draft.fields is not self._fields:
            draft = self.draft(added)
        with engine_errors("update"):
            if draft.points:  # first, so that what is replaced can be found at every moment
                self._shard.update(qe.UpdateOperation.upsert_points(list(draft.points)))
            if removed:
                self._shard.update(qe.UpdateOperation.delete_points(list(removed)))

    def lexical(
        self, weights: Mapping[int, int], where: qe.Filter | None, k: int, passing: Passing | None = None
    ) -> dict[int, float]:
        """The best `k` passages by BM25, with every passage that ties with the last; all of them `passing`."""
        terms = sorted(weights)
        query = qe.SparseVector(indices=terms, values=[float(weights[term]) for term in terms])
        nearest = qe.Query.Nearest(query, using=LEXICAL)
        if passing is None:
            return self._best(nearest, where, k)
        asked = k
        while True:
            found = self._best(nearest, where, asked)
            kept = passing(found)
            if len(kept) >= k or len(found) < asked:
                return kept if len(kept) <= k else _foremost(kept, k)
            asked *= 4

    def dense(self, name: str, vector: Vector, where: qe.Filter | None, k: int) -> dict[int, float]:
        """The best `k` passages by dot product, with every passage that ties with the last."""
        return self._best(qe.Query.Nearest(vector.tolist(), using=name), where, k)

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; one without such a vector is left out."""
        where = qe.Filter(must=[qe.HasIdCondition(set(pids))])
        query = qe.Query.Nearest(vector.tolist(), using=name)
        request = qe.QueryRequest(limit=len(pids), query=query, filter=where, params=qe.SearchParams(exact=True))
        with engine_errors("search"):
            return {int(str(point.id)): point.score for point in self._shard.query(request)}

    def add_fields(self, fields: Mapping[str, FieldType]) -> None:
        """Index further payload fields."""
        for name in fields.keys() - self._fields.keys():
            self._shard.update(qe.UpdateOperation.create_field_index(key_of(name), _SCHEMA[fields[name]]))
        self._fields = fields

    def optimize(self) -> None:
        """Merge segments, and build the graph where there is one."""
        self._shard.optimize()

    def flush(self) -> None:
        """Make everything applied so far durable."""
        with engine_errors("flush"):
            self._shard.flush()

    def close(self) -> None:
        """Flush and release the files."""
        with engine_errors("close"):
            self._shard.flush()
            self._shard.close()

    def abandon(self) -> None:
        """Release the files of an engine that may be broken."""
        with suppress(SourceUnavailable):
            self.close()

    def count(self) -> int:
        """How many passages it holds."""
        with engine_errors("count"):
            return self._shard.count(qe.CountRequest(exact=True))

    def _best(self, query: qe.Query, where: qe.Filter | None, k: int) -> dict[int, float]:
        params = qe.SearchParams(exact=False, hnsw_ef=_EFFORT * k)
        limit = k + 1
        while True:
            with engine_errors("search"):
                found = self._shard.query(qe.QueryRequest(limit=limit, query=query, filter=where, params=params))
            # Ties at the edge would be cut by storage order, which hidden records influence.
            floor = found[k - 1].score if len(found) >= k else -math.inf
            if len(found) < limit or found[-1].score < floor:
                break
            limit *= 4
        return {int(str(point.id)): point.score for point in found if point.score >= floor}

    def _point(self, row: Row, fields: Mapping[str, FieldType]) -> qe.Point:
        record, _ = codec.unpack_header(row.header, row.record_id, "")
        vectors: dict[str, list[float] | qe.SparseVector] = {
            name: codec.unpack_vector(half).tolist()
            for name, half in (codec.packed_vectors(row.vectors).items() if self._options.vectors else ())
            if name in self._options.vectors
        }
        terms, weights = codec.term_arrays(row.facts)
        if len(terms):
            vectors[LEXICAL] = qe.SparseVector(indices=terms.tolist(), values=impacts(weights).tolist())
        return qe.Point(row.pid, vectors, {_ACCESS: row.access, **payload_of(record, fields)})  # pyright: ignore[reportArgumentType]

    def _load(self) -> qe.EdgeShard | None:
        """The shard on disk; None when it cannot be read, for SQLite can fill another."""
        try:
            with engine_errors("load"):
                return qe.EdgeShard.load(str(self._folder), self._config())
        except SourceUnavailable:
            return None

    def _create(self) -> qe.EdgeShard:
        """An empty shard; whatever stood in its place is thrown away."""
        if self._folder.is_dir():
            shutil.rmtree(self._folder)
        self._folder.unlink(missing_ok=True)
        self._folder.mkdir(parents=True)
        check_room(self._folder)
        with engine_errors("create"):
            shard = qe.EdgeShard.create(str(self._folder), self._config())
            shard.update(qe.UpdateOperation.create_field_index(_ACCESS, qe.PayloadSchemaType.Integer))
            for name, kind in self._fields.items():
                shard.update(qe.UpdateOperation.create_field_index(key_of(name), _SCHEMA[kind]))
        return shard

    def _config(self) -> qe.EdgeConfig:
        graph = qe.HnswIndexConfig(m=16, ef_construct=128, full_scan_threshold=_SCAN_KB)
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


def _foremost(found: Mapping[int, float], k: int) -> dict[int, float]:
    """The best `k`, with every one that ties with the last."""
    floor = sorted(found.values(), reverse=True)[k - 1]
    return {pid: score for pid, score in found.items() if score >= floor}


@contextmanager
def engine_errors(doing: str) -> Generator[None]:
    """The engine's failures as ours: it raises bare `Exception`, and Rust panics as a BaseException."""
    try:
        yield
    except BaseException as failure:
        if type(failure) is not Exception and type(failure).__name__ != "PanicException":
            raise
        raise SourceUnavailable(f"the search engine failed to {doing}: {failure}") from failure


def engine_filter(access: Access, where: Filter | None) -> qe.Filter | None:
    """Permissions and the caller's filter in one; None when both let everything pass.

    Permissions are said in the way the engine tests fastest on every passage: the one class that is
    readable, else those that are not, else any of those that are.
    """
    must: list[qe.ConditionType] = []
    must_not: list[qe.ConditionType] = []
    if access.hidden != frozenset() and len(access.readable) == 1:
        must.extend(_one_of(access.readable))
    elif access.hidden is not None:
        must_not.extend(_one_of(access.hidden))
    else:
        must.append(qe.Filter(should=_one_of(access.readable)))
    if where is not None:
        must.append(compile_filter(where))
    return qe.Filter(must=must, must_not=must_not) if must or must_not else None


def _one_of(classes: frozenset[int]) -> list[qe.ConditionType]:
    ordered = sorted(classes)
    if len(ordered) > _FEW:
        return [qe.FieldCondition(key=_ACCESS, match=qe.MatchAny(ordered))]
    return [qe.FieldCondition(key=_ACCESS, match=qe.MatchValue(access)) for access in ordered]
