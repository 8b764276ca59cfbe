"""Protocols of the search side of an index: per-collection search indexes, in this process or on a server.

All of them can be rebuilt from the record store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.edge_shard import PreparedPoints
from contexture.adapters.index.record_store import PassageRow, StoreChange
from contexture.adapters.index.scoring import TermWeights
from contexture.types import FieldType, Filter, PassageKeyLookup, Vector


class ScopedSearcher(Protocol):
    """Searches one collection within one scope and one filter."""

    def find_candidates(
        self, weights: TermWeights, vectors: Mapping[str, Vector], k: int
    ) -> dict[str, dict[int, float]]:
        """By channel, its best `k` passages and all that tie with the last; BM25 comes first."""
        ...

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; passages without this vector are left out."""
        ...

    @property
    def passage_keys(self) -> PassageKeyLookup:
        """Looks up record id and ordinal of passages, used to break ties."""
        ...


class CollectionSearcher(Protocol):
    """Searches one collection."""

    def scoped_view(self, access: ScopeAccess, where: Filter | None) -> ScopedSearcher:
        """The collection restricted to these permissions and this filter."""
        ...

    def missing_columns(self, where: Filter | None) -> set[str]:
        """Fields that must be added before this filter can be evaluated."""
        ...


class SearchBackend(Protocol):
    """A search index per collection, kept up to date with the record store."""

    columns: dict[str, dict[str, FieldType]]
    """By collection, the columns (`column_name`) of every field that some tenant has declared."""

    @property
    def last_error(self) -> str:
        """Error of the last search; empty when it succeeded."""
        ...

    def collection_index(self, name: str) -> CollectionSearcher:
        """The search index of a collection, with every write applied."""
        ...

    def spaces(self, name: str, access: ScopeAccess) -> frozenset[str] | None:
        """Names of the vector spaces of the readable passages, perhaps more; None when unknown."""
        ...

    def ensure_collection(self, name: str, columns: Mapping[str, FieldType]) -> None:
        """Add a collection, or fields to a known one; does nothing when all is known."""
        ...

    def drop_collection(self, name: str) -> None:
        """Drop a collection that no longer exists."""
        ...

    def prepare_points(self, name: str, added: Sequence[PassageRow]) -> PreparedPoints:
        """Build the points of these passages ahead of `apply_change`; no search finds them yet."""
        ...

    def apply_change(self, name: str, done: StoreChange, draft: PreparedPoints | None = None) -> bool:
        """Apply a committed change; returns whether the index was rebuilt and so has later changes too."""
        ...

    def rebuild_all(self) -> None:
        """Rebuild every index, because the missed writes cannot be replayed."""
        ...

    def add_columns(self, name: str, fields: set[str]) -> None:
        """Load these fields, so that filters may name them."""
        ...

    def add_declared_columns(self) -> None:
        """Load all declared fields, for filters on them."""
        ...

    def recover(self) -> None:
        """Bring every index up to the last committed write."""
        ...

    def flush(self) -> None:
        """Make everything applied so far durable."""
        ...

    def optimize(self) -> None:
        """Compact the indexes."""
        ...

    def warm(self) -> None:
        """Warm up every index, so that the first real query is not slower than later ones."""
        ...

    def release(self) -> None:
        """Release files, threads and connections."""
        ...
