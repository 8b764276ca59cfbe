"""What an index needs of the database that is its truth; whatever finds can be filled from it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from contexture.adapters.index.classes import AccessClass
from contexture.adapters.index.declared import Declaration
from contexture.adapters.index.truth import Row, State, Stored
from contexture.types import FieldType, Matrix, Record


class Source(Protocol):
    """What fills and heals the parts of an index. `seq` is the number of the last write that they have seen."""

    @property
    def seq(self) -> int:
        """The number of the last write."""
        ...

    def state(self) -> State:
        """How far the store has come."""
        ...

    def tells_since(self, seen: State) -> bool:
        """Whether the store was once in this state, and all that was written since can be told."""
        ...

    def meta(self, key: str) -> str | None:
        """Something noted about the parts."""
        ...

    def set_meta(self, key: str, value: str) -> None:
        """Note something about the parts."""
        ...

    def columns(self) -> dict[str, dict[str, FieldType]]:
        """By collection, every field that some tenant has declared, as it is called beside those of others."""
        ...

    def count(self, collection: str) -> int:
        """How many passages a collection holds."""
        ...

    def since(self, seq: int, collection: str) -> Iterator[Row]:
        """Every passage of a collection written after `seq`, oldest first, with its vectors."""
        ...

    def removed_since(self, seq: int, collection: str) -> list[int]:
        """Every passage of a collection removed after `seq`."""
        ...

    def stored(self, collection: str) -> Iterator[Stored]:
        """What a scanner needs of every passage of a collection, in the order of their ids."""
        ...

    def headers(self, collection: str) -> Iterator[tuple[int, Record]]:
        """The record, without its text, of every passage of a collection, in the order of the passages' ids."""
        ...

    def places(self, pids: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Record id and ordinal of passages, by which ties are broken."""
        ...

    def forget_removed(self, seq: int) -> None:
        """The parts will not ask again for what was removed up to `seq`."""
        ...


class Reading(Source, Protocol):
    """What answers about records and permissions need beside that."""

    def declared(self) -> Sequence[Declaration]:
        """Every collection of every tenant."""
        ...

    def classes(self, collection: str) -> dict[int, AccessClass]:
        """Every access class of a collection."""
        ...

    def frequencies(self, terms: Sequence[int], classes: Iterable[int]) -> Mapping[int, int]:
        """In how many passages of these classes each term occurs."""
        ...

    def stored_at(self, pids: Sequence[int]) -> list[Stored]:
        """What comparing vectors needs of passages, by id; one that is gone is left out."""
        ...

    def rows(self, pids: Sequence[int]) -> list[Row]:
        """Passages by id; one that is gone is left out."""
        ...

    def records(self, collection: str, tenant: str, ids: Sequence[str]) -> dict[str, tuple[int, Record]]:
        """Records of a tenant by id, each with its access class."""
        ...

    def matrices(
        self, collection: str, tenant: str, name: str, ids: Sequence[str]
    ) -> Iterator[tuple[str, int, Matrix]]:
        """The rows of vectors of this name of a tenant's records, each with its record's id and access class."""
        ...

    def walk(self, collection: str, tenant: str, classes: Iterable[int], after: str) -> Iterator[Record]:
        """Records of these classes in id order, behind `after`."""
        ...
