"""Protocols of the record store: the part that search indexes are rebuilt from, and the read side."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from contexture.adapters.index.access_classes import AccessClass
from contexture.adapters.index.collection_registry import Declaration
from contexture.adapters.index.record_store import IndexedPassage, PassageRow, StoredVectors, StoreState
from contexture.types import Collection, FieldType, Matrix, Record


class ReplaySource(Protocol):
    """What search indexes are rebuilt and updated from."""

    @property
    def seq(self) -> int:
        """Sequence number of the last write that the search indexes have applied."""
        ...

    def state(self) -> StoreState:
        """State after the last write."""
        ...

    def has_history_since(self, seen: StoreState) -> bool:
        """Whether the store was once in this state, and every write since then can be replayed."""
        ...

    def declared_columns(self) -> dict[str, dict[str, FieldType]]:
        """By collection, the columns (`column_name`) of every field that some tenant has declared."""
        ...

    def find_declaration(self, tenant: str, name: str) -> Collection:
        """A tenant's collection; one without fields if it is not declared."""
        ...

    def count(self, collection: str, tenant: str | None = None) -> int:
        """Number of passages in a collection, or in a tenant's part of it."""
        ...

    def largest_partitions(self, limit: int) -> Sequence[tuple[str, str, int]]:
        """Tenant, collection and number of passages of the largest partitions, the largest first."""
        ...

    def iter_partition(self, collection: str, tenant: str) -> Iterator[IndexedPassage]:
        """Every passage of a tenant's part of a collection, in order of passage id; a snapshot."""
        ...

    def passages_since(self, seq: int, collection: str) -> Iterator[PassageRow]:
        """Every passage of a collection written after `seq`, oldest first, with its vectors."""
        ...

    def removed_since(self, seq: int, collection: str) -> list[int]:
        """Every passage of a collection removed after `seq`."""
        ...

    def iter_headers(self, collection: str, tenant: str, after: int) -> Iterator[tuple[int, Record]]:
        """Passage id and record, without its text, of every passage of a partition above an id, in order of its id."""
        ...

    def passage_keys(self, pids: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Record id and ordinal of these passages, used to break ties; removed ones are left out."""
        ...

    def prune_removed(self, seq: int) -> None:
        """Delete tombstones up to `seq`, which the search indexes no longer need."""
        ...


class RecordStore(ReplaySource, Protocol):
    """Read side of the record store: declarations, access classes, statistics, passages, records."""

    def list_declarations(self) -> Sequence[Declaration]:
        """Every collection of every tenant."""
        ...

    def load_access_classes(self, collection: str, tenant: str | None = None) -> dict[int, AccessClass]:
        """Every access class of a collection, or of a tenant's part of it."""
        ...

    def document_frequencies(self, terms: Sequence[int], classes: Iterable[int]) -> Mapping[int, int]:
        """By term, the number of passages of these access classes that contain it."""
        ...

    def load_vectors(self, pids: Sequence[int]) -> list[StoredVectors]:
        """Vectors of these passages; removed ones are left out."""
        ...

    def load_passages(self, pids: Sequence[int]) -> list[PassageRow]:
        """Passages by id; removed ones are left out."""
        ...

    def load_records(
        self, collection: str, tenant: str, ids: Sequence[str], classes: AbstractSet[int]
    ) -> dict[str, Record]:
        """Records of a tenant and these access classes by id; of one id the private one."""
        ...

    def find_shadowed(self, pids: Sequence[int], classes: AbstractSet[int]) -> set[int]:
        """Those of these passages whose record a private one of the same id and of these classes hides."""
        ...

    def list_spaces(self, collection: str, tenant: str, ids: Sequence[str]) -> list[tuple[str, str]]:
        """Id and id space of every record of a tenant with one of these ids."""
        ...

    def iter_matrices(
        self, collection: str, tenant: str, name: str, ids: Sequence[str], classes: AbstractSet[int]
    ) -> Iterator[tuple[str, Matrix]]:
        """Id and matrix `name` of each of these records of a tenant and these access classes that has one."""
        ...

    def iter_records(self, collection: str, tenant: str, classes: Iterable[int], after: str) -> Iterator[Record]:
        """Records of these access classes with an id greater than `after`, in id order; of one id the private one."""
        ...
