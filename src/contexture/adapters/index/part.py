"""What finds the passages of one collection: the engine by words, and by meaning a scanner or the engine's graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import qdrant_edge as qe

from contexture.adapters.index import codec
from contexture.adapters.index.classes import Access
from contexture.adapters.index.engine import Draft, Engine, Passing, engine_filter
from contexture.adapters.index.hits import Places
from contexture.adapters.index.parts import BM25
from contexture.adapters.index.scanner import Look, Scanner
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
class Both:
    """Some spaces walked over the engine's graph, the others compared."""

    walk: Walk
    look: Look
    walked: frozenset[str]

    @property
    def places(self) -> Places:
        """Of every passage, those without a compared vector too."""
        return self.walk.places

    def dense(self, name: str, vector: Vector, k: int) -> dict[int, float]:
        """The best `k` passages by dot product, about so where the space is walked."""
        return self._of(name).dense(name, vector, k)

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; one without such a vector is left out."""
        return self._of(name).similarities(name, vector, pids)

    def _of(self, name: str) -> Dense:
        return self.walk if name in self.walked else self.look


@dataclass(frozen=True, slots=True)
class Sight:
    """A collection as one scope may see it through one filter.

    With `passing` the caller's filter is not in `where`: it is tested on what the engine finds.
    """

    engine: Engine
    where: qe.Filter | None
    vectors: Dense
    passing: Passing | None = None

    def proposals(self, weights: Weights, vectors: Mapping[str, Vector], k: int) -> dict[str, dict[int, float]]:
        """Each channel's best `k` passages, with every passage that ties with the last; words come first."""
        words = {BM25: self.lexical(weights, k)} if weights.terms else {}
        return words | {name: self.vectors.dense(name, vector, k) for name, vector in vectors.items()}

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; one without such a vector is left out."""
        return self.vectors.similarities(name, vector, pids)

    @property
    def places(self) -> Places:
        """Gives record id and ordinal of passages, by which ties are broken."""
        return self.vectors.places

    def lexical(self, weights: Weights, k: int) -> dict[int, float]:
        """The best `k` passages by BM25, with every passage that ties with the last."""
        return self.engine.lexical(weights.terms, self.where, k, self.passing)


class Part:
    """One collection. The vectors of `walked` spaces are in the engine's graphs, all others in the scanner."""

    def __init__(
        self, engine: Engine, scanner: Scanner | None, places: Places, walked: frozenset[str] = frozenset()
    ) -> None:
        self.engine = engine
        self.scanner = scanner
        self._places = places
        self._walked = walked

    def fill(self, stored: Iterable[Stored]) -> None:
        """Read the vectors to be compared from what SQLite holds."""
        if self.scanner is not None:
            self.scanner.fill(row for row in stored if self._compared(row.vectors))

    def apply(self, added: Sequence[Row], removed: Sequence[int], draft: Draft | None = None) -> None:
        """Follow a change that SQLite has committed; `draft` is the engine's of the passages added."""
        if self.scanner is not None:
            rows = [row for row in added if self._compared(row.vectors)]
            stored = [Stored(row.pid, row.access, row.vectors, (row.record_id, row.ordinal)) for row in rows]
            self.scanner.apply(stored, [record_of(row) for row in rows] if self.scanner.fields else (), removed)
        self.engine.apply(added, removed, draft)

    def add_fields(self, fields: Mapping[str, FieldType]) -> None:
        """Let filters name further fields."""
        self.engine.add_fields(fields)

    def sight(self, access: Access, where: Filter | None) -> Sight:
        """What these permissions and this filter let through."""
        if self.scanner is None or self._walked:
            return self._walking(access, where)
        look = self.scanner.look(access.allowed, where)
        if where is None or look.count * 2 < self.scanner.look(access.allowed, None).count:
            return Sight(self.engine, engine_filter(access, where), look)
        # The engine tests conditions one by one on every passage; most of its best pass a filter that most pass.
        return Sight(self.engine, engine_filter(access, None), look, look.passing)

    def spaces(self, access: Access) -> frozenset[str]:
        """The names of the vectors that what may be read has, and those of every graph."""
        return self._walked if self.scanner is None else self._walked | self.scanner.spaces(access.allowed)

    def unlimited(self) -> Dense:
        """Everything there is, for warming up."""
        walk = Walk(self.engine, None, self._places)
        return walk if self.scanner is None else Both(walk, self.scanner.look(frozenset(), None), self._walked)

    def lacking(self, where: Filter | None) -> set[str]:
        """The fields that must be added before this filter can be tested."""
        return set() if self.scanner is None or where is None else self.scanner.lacking(where)

    def _walking(self, access: Access, where: Filter | None) -> Sight:
        compiled = engine_filter(access, where)
        walk = Walk(self.engine, compiled, self._places)
        if self.scanner is None:
            return Sight(self.engine, compiled, walk)
        return Sight(self.engine, compiled, Both(walk, self.scanner.look(access.allowed, where), self._walked))

    def _compared(self, vectors: bytes) -> bool:
        """Whether a passage belongs in the scanner: those with walked vectors alone do not."""
        return not self._walked or not self._walked.issuperset(codec.packed_vectors(vectors))

    @property
    def worn(self) -> bool:
        """Whether more of the scanner is gone than left."""
        return self.scanner is not None and self.scanner.removed > len(self.scanner) + _SPARED


def record_of(row: Row) -> Record:
    """The record of a passage, without its text."""
    return codec.unpack_header(row.header, row.record_id, "")[0]
