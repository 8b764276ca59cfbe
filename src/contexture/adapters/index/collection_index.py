"""Search index of one collection: BM25 in the edge shard, vectors by exact scan or by the shard's HNSW graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import qdrant_edge as qe

from contexture.adapters.index import codec
from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.edge_shard import CandidateFilter, EdgeShard, PreparedPoints, compile_access_filter
from contexture.adapters.index.record_store import PassageRow, StoredVectors
from contexture.adapters.index.scanner import VectorScanner, VectorView
from contexture.adapters.index.scoring import TermWeights
from contexture.types import BM25, FieldType, Filter, PassageKeyLookup, Record, Vector

_MIN_REMOVED_TO_COMPACT = 1_000  # up to this many removed passages are not worth a compaction


class VectorSearcher(Protocol):
    """Searches the vectors of one collection within one scope."""

    def search_dense(self, name: str, vector: Vector, k: int) -> dict[int, float]:
        """The best `k` passages by dot product, with every passage that ties with the last."""
        ...

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; passages without this vector are left out."""
        ...

    @property
    def passage_keys(self) -> PassageKeyLookup:
        """Looks up record id and ordinal of passages, used to break ties."""
        ...


@dataclass(frozen=True, slots=True)
class GraphView:
    """The shard's HNSW graphs restricted to one scope; approximate."""

    shard: EdgeShard
    where: qe.Filter | None
    passage_keys: PassageKeyLookup

    def search_dense(self, name: str, vector: Vector, k: int) -> dict[int, float]:
        """Approximately the best `k` passages by dot product."""
        return self.shard.search_dense(name, vector, self.where, k)

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages."""
        return self.shard.similarities(name, vector, pids)


@dataclass(frozen=True, slots=True)
class MixedVectorView:
    """Some vector spaces searched in the shard's graphs, the others by exact scan."""

    graph: GraphView
    scan: VectorView
    graph_spaces: frozenset[str]

    @property
    def passage_keys(self) -> PassageKeyLookup:
        """Looks up record id and ordinal of every passage, also of those that the scanner does not hold."""
        return self.graph.passage_keys

    def search_dense(self, name: str, vector: Vector, k: int) -> dict[int, float]:
        """The best `k` passages by dot product; approximate if the space has a graph."""
        return self._searcher_for(name).search_dense(name, vector, k)

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; passages without this vector are left out."""
        return self._searcher_for(name).similarities(name, vector, pids)

    def _searcher_for(self, name: str) -> VectorSearcher:
        return self.graph if name in self.graph_spaces else self.scan


@dataclass(frozen=True, slots=True)
class ScopedView:
    """A collection restricted to one scope and one filter.

    With `post_filter` the caller's filter is not part of `where` but evaluated on the shard's BM25 results.
    """

    shard: EdgeShard
    where: qe.Filter | None
    vectors: VectorSearcher
    post_filter: CandidateFilter | None = None

    def find_candidates(
        self, weights: TermWeights, vectors: Mapping[str, Vector], k: int
    ) -> dict[str, dict[int, float]]:
        """By channel, its best `k` passages and all that tie with the last; BM25 comes first."""
        words = {BM25: self.search_lexical(weights, k)} if weights.terms else {}
        return words | {name: self.vectors.search_dense(name, vector, k) for name, vector in vectors.items()}

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; passages without this vector are left out."""
        return self.vectors.similarities(name, vector, pids)

    @property
    def passage_keys(self) -> PassageKeyLookup:
        """Looks up record id and ordinal of passages, used to break ties."""
        return self.vectors.passage_keys

    def search_lexical(self, weights: TermWeights, k: int) -> dict[int, float]:
        """The best `k` passages by BM25, with every passage that ties with the last."""
        return self.shard.search_lexical(weights.terms, self.where, k, self.post_filter)


class CollectionIndex:
    """Search index of one collection.

    Vectors of some spaces are in the shard's HNSW graphs, all others in the scanner.
    """

    def __init__(
        self,
        engine: EdgeShard,
        scanner: VectorScanner | None,
        places: PassageKeyLookup,
        walked: frozenset[str] = frozenset(),
    ) -> None:
        self.shard = engine
        self.scanner = scanner
        self._passage_keys = places
        self._graph_spaces = walked

    def fill(self, stored: Iterable[StoredVectors]) -> None:
        """Load stored vectors into the scanner, if there is one."""
        if self.scanner is not None:
            self.scanner.fill(row for row in stored if self._needs_scanner(row.vectors))

    def apply(self, added: Sequence[PassageRow], removed: Sequence[int], draft: PreparedPoints | None = None) -> None:
        """Apply a committed change; `draft` holds the shard's points of the added passages."""
        if self.scanner is not None:
            rows = [row for row in added if self._needs_scanner(row.vectors)]
            stored = [StoredVectors(row.pid, row.access, row.vectors, (row.record_id, row.ordinal)) for row in rows]
            self.scanner.apply(stored, [unpack_record(row) for row in rows] if self.scanner.fields else (), removed)
        self.shard.apply(added, removed, draft)

    def add_fields(self, fields: Mapping[str, FieldType]) -> None:
        """Index further fields for filters."""
        self.shard.add_fields(fields)

    def scoped_view(self, access: ScopeAccess, where: Filter | None) -> ScopedView:
        """The collection restricted to these permissions and this filter."""
        if self.scanner is None or self._graph_spaces:
            return self._graph_view(access, where)
        look = self.scanner.view(access.allowed, where)
        if where is None or look.count * 2 < self.scanner.view(access.allowed, None).count:
            return ScopedView(self.shard, compile_access_filter(access, where), look)
        # The shard evaluates conditions one by one on every passage. If at least half of the passages pass the filter,
        # it is cheaper to search without it and to drop the few results that fail.
        return ScopedView(self.shard, compile_access_filter(access, None), look, look.keep_visible)

    def spaces(self, access: ScopeAccess) -> frozenset[str]:
        """Names of the vector spaces of the readable passages, and of every space with a graph."""
        return self._graph_spaces if self.scanner is None else self._graph_spaces | self.scanner.spaces(access.allowed)

    def unscoped_vectors(self) -> VectorSearcher:
        """All vectors, without permissions; for warming up."""
        walk = GraphView(self.shard, None, self._passage_keys)
        return (
            walk
            if self.scanner is None
            else MixedVectorView(walk, self.scanner.view(frozenset(), None), self._graph_spaces)
        )

    def missing_columns(self, where: Filter | None) -> set[str]:
        """Fields that must be added before this filter can be evaluated."""
        return set() if self.scanner is None or where is None else self.scanner.missing_columns(where)

    def _graph_view(self, access: ScopeAccess, where: Filter | None) -> ScopedView:
        compiled = compile_access_filter(access, where)
        walk = GraphView(self.shard, compiled, self._passage_keys)
        if self.scanner is None:
            return ScopedView(self.shard, compiled, walk)
        return ScopedView(
            self.shard, compiled, MixedVectorView(walk, self.scanner.view(access.allowed, where), self._graph_spaces)
        )

    def _needs_scanner(self, vectors: bytes) -> bool:
        """Whether a passage belongs in the scanner; one whose vectors are all in graphs does not."""
        return not self._graph_spaces or not self._graph_spaces.issuperset(codec.unpack_vector_bytes(vectors))

    @property
    def needs_compaction(self) -> bool:
        """Whether removed slots of the scanner outnumber live ones by more than `_MIN_REMOVED_TO_COMPACT`."""
        return self.scanner is not None and self.scanner.removed > len(self.scanner) + _MIN_REMOVED_TO_COMPACT


def unpack_record(row: PassageRow) -> Record:
    """The record of a passage, without its text."""
    return codec.unpack_header(row.header, row.record_id, "")[0]
