"""What finds the passages of an index, in this process or elsewhere; all of it can be filled from the truth again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from contexture.adapters.index.classes import Access
from contexture.adapters.index.engine import Draft
from contexture.adapters.index.hits import Places
from contexture.adapters.index.scoring import Weights
from contexture.adapters.index.truth import Change, Row
from contexture.types import FieldType, Filter, Vector

BM25 = "bm25"


class Seen(Protocol):
    """A collection as one scope may see it through one filter."""

    def proposals(self, weights: Weights, vectors: Mapping[str, Vector], k: int) -> dict[str, dict[int, float]]:
        """Each channel's best `k` passages, with every passage that ties with the last; words come first."""
        ...

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; one without such a vector is left out."""
        ...

    @property
    def places(self) -> Places:
        """Gives record id and ordinal of passages, by which ties are broken."""
        ...


class Finder(Protocol):
    """What finds in one collection."""

    def sight(self, access: Access, where: Filter | None) -> Seen:
        """What these permissions and this filter let through."""
        ...

    def lacking(self, where: Filter | None) -> set[str]:
        """The fields that must be added before this filter can be tested."""
        ...


class Parts(Protocol):
    """A finder for each collection, kept in step with the truth."""

    columns: dict[str, dict[str, FieldType]]
    """By collection, every field that some tenant has declared, as it is called beside those of others."""

    @property
    def ailing(self) -> str:
        """Why nothing was found when something was last looked for; empty where all is well."""
        ...

    def part(self, name: str) -> Finder:
        """The finder of a collection, which has seen every write."""
        ...

    def spaces(self, name: str, access: Access) -> frozenset[str] | None:
        """The names of the vectors that what may be read has, and perhaps others; None when unknown."""
        ...

    def add(self, name: str, columns: Mapping[str, FieldType]) -> None:
        """Take a new collection, or new fields of a known one; what is known already costs nothing."""
        ...

    def forget(self, name: str) -> None:
        """Let go of a collection that is no longer there."""
        ...

    def draft(self, name: str, added: Sequence[Row]) -> Draft:
        """Do beforehand what following a change that adds these passages takes; nothing finds them yet."""
        ...

    def follow(self, name: str, done: Change, draft: Draft | None = None) -> bool:
        """Follow a committed change; whether all there is was read for it, later changes too."""
        ...

    def rebuild(self) -> None:
        """Too much was missed to follow it."""
        ...

    def add_columns(self, name: str, fields: set[str]) -> None:
        """Let filters name these fields."""
        ...

    def add_declared_columns(self) -> None:
        """Prepare for filters on the fields that tenants have declared."""
        ...

    def heal(self) -> None:
        """Bring everything up to the last committed write."""
        ...

    def flush(self) -> None:
        """Make everything applied so far durable."""
        ...

    def optimize(self) -> None:
        """Merge what was written in small pieces."""
        ...

    def warm(self) -> None:
        """Touch everything once, so that the first real query does not pay for it."""
        ...

    def release(self) -> None:
        """Give back what is held."""
        ...
