"""What finds the passages of one collection: the engine by words, and by meaning a scanner or the engine's graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import qdrant_edge as qe

from contexture.adapters.index import codec
from contexture.adapters.index.engine import Access, Engine, Passing, engine_filter
from contexture.adapters.index.hits import Places
from contexture.adapters.index.scanner import Scanner
from contexture.adapters.index.scoring import Weights
from contexture.adapters.index.truth import Row, Stored
from contexture.types import FieldType, Filter, Record, Vector

_SPARED = 1_000  # removed passages that are not worth sweeping


class Dense(Protocol):
    """Vectors of one collection as one scope may see them."""

    def dense(self, name: str, vector: Vector, k: int) -> dict[int, float]:
        """The best `k` passages by dot product, with every passage that ties with the last."""
        ...

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; one without such a vector is left out."""
        ...

    @property
    def places(self) -> Places:
        """Gives record id and ordinal of passages, by which ties are broken."""
        ...


@dataclass(frozen=True, slots=True)
class Walk:
    """The engine's graph as one scope may see it."""

    engine: Engine
    where: qe.Filter | None
    places: Places

    def dense(self, name: str, vector: Vector, k: int) -> dict[int, float]:
        """About the best `k` passages by dot product."""
        return self.engine.dense(name, vector, self.where, k)

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages."""
        return self.engine.similarities(name, vector, pids)


@dataclass(frozen=True, slots=True)
class Sight:
    """A collection as one scope may see it through one filter.

    With `passing` the caller's filter is not in `where`: it is tested on what the engine finds.
    """

    engine: Engine
    where: qe.Filter | None
    vectors: Dense
    passing: Passing | None = None

    def lexical(self, weights: Weights, k: int) -> dict[int, float]:
        """The best `k` passages by BM25, with every passage that ties with the last."""
        return self.engine.lexical(weights.terms, self.where, k, self.passing)


class Part:
    """One collection. With a scanner every vector is compared, without one the engine's graph is walked."""

    def __init__(self, engine: Engine, scanner: Scanner | None, places: Places) -> None:
        self.engine = engine
        self.scanner = scanner
        self._places = places

    def apply(self, added: Sequence[Row], removed: Sequence[int]) -> None:
        """Follow a change that SQLite has committed."""
        if self.scanner is not None:
            stored = [Stored(row.pid, row.access, row.vectors, (row.record_id, row.ordinal)) for row in added]
            self.scanner.apply(stored, [_record(row) for row in added] if self.scanner.fields else (), removed)
        self.engine.apply(added, removed)

    def add_fields(self, fields: Mapping[str, FieldType]) -> None:
        """Let filters name further fields."""
        self.engine.add_fields(fields)

    def sight(self, access: Access, where: Filter | None) -> Sight:
        """What these permissions and this filter let through."""
        if self.scanner is None:
            compiled = engine_filter(access, where)
            return Sight(self.engine, compiled, Walk(self.engine, compiled, self._places))
        look = self.scanner.look(access.allowed, where)
        if where is None or look.count * 2 < self.scanner.look(access.allowed, None).count:
            return Sight(self.engine, engine_filter(access, where), look)
        # The engine tests conditions one by one on every passage; most of its best pass a filter that most pass.
        return Sight(self.engine, engine_filter(access, None), look, look.passing)

    def unlimited(self) -> Dense:
        """Everything there is, for warming up."""
        return Walk(self.engine, None, self._places) if self.scanner is None else self.scanner.look(frozenset(), None)

    def lacking(self, where: Filter | None) -> set[str]:
        """The fields that must be added before this filter can be tested."""
        return set() if self.scanner is None or where is None else self.scanner.lacking(where)

    @property
    def worn(self) -> bool:
        """Whether more of the scanner is gone than left."""
        return self.scanner is not None and self.scanner.removed > len(self.scanner) + _SPARED


def _record(row: Row) -> Record:
    return codec.unpack_header(row.header, row.record_id, "")[0]
