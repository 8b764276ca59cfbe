"""Protocols of the search side of an index: a search index per tenant and collection, in this process or on a server.

All of them can be rebuilt from the record store.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.record_store import StoreChange
from contexture.adapters.index.scoring import TermWeights
from contexture.types import FieldType, Filter, PassageKeyLookup, Vector


class ScopedSearcher(Protocol):
    """Searches a tenant's part of a collection within one scope and one filter."""

    def weigh_terms(self, terms: Sequence[int]) -> TermWeights:
        """BM25 weights of these terms over what the scope may read, whatever the filter."""
        ...

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
    """Searches a tenant's part of a collection."""

    def scoped_view(self, access: ScopeAccess, where: Filter | None) -> ScopedSearcher:
        """The collection restricted to these permissions and this filter."""
        ...


class SearchBackend(Protocol):
    """Search indexes, kept up to date with the record store."""

    @property
    def last_error(self) -> str:
        """Error of the last search, or what is wrong with an index; empty when all is well."""
        ...

    def collection_index(self, tenant: str, name: str) -> CollectionSearcher:
        """The search index of a tenant's collection, with every write applied."""
        ...

    def spaces(self, name: str, access: ScopeAccess) -> frozenset[str] | None:
        """Names of the vector spaces of the readable passages, perhaps more; None when unknown."""
        ...

    def ensure_collection(self, name: str, columns: Mapping[str, FieldType]) -> None:
        """Add a collection, or fields to a known one; does nothing when all is known."""
        ...

    def apply_change(self, tenant: str, name: str, done: StoreChange) -> None:
        """Apply a committed change of a tenant's collection."""
        ...

    def rebuild_all(self) -> None:
        """Rebuild every index, because the missed writes cannot be replayed."""
        ...

    def flush(self) -> None:
        """Make everything applied so far durable."""
        ...

    def optimize(self) -> None:
        """Compact the indexes."""
        ...

    def warm(self) -> None:
        """Warm up the indexes, so that the first real query is not slower than later ones."""
        ...

    def release(self) -> None:
        """Release files, threads and connections."""
        ...
