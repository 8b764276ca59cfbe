"""Access classes: records of one tenant with the same readers share a class; a scope may read some classes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from contexture.adapters.index.id_spaces import is_private
from contexture.types import Scope

_NO_CLASSES: frozenset[int] = frozenset()


class AccessClass(NamedTuple):
    """Tenant, readers and number of passages of one access class."""

    tenant: str
    readers: tuple[str, ...]
    passages: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ScopeAccess:
    """Access classes that a scope may read (`allowed`), and how many passages they hold.

    `readable` are those with passages, and `private` those of them whose only reader is one user. `hidden` are the
    other classes with passages; None if they outnumber the readable ones.
    """

    allowed: frozenset[int]
    readable: frozenset[int]
    hidden: frozenset[int] | None
    private: frozenset[int] = _NO_CLASSES
    tenant: str = ""
    passages: int = 0


class AccessClasses:
    """The access classes of one collection, by reader.

    Updates must be serialised; lookups may run concurrently, because they read each set in one step.
    """

    def __init__(self, known: Mapping[int, AccessClass]) -> None:
        self._by_number: dict[int, AccessClass] = {}
        self._by_reader: dict[tuple[str, str], set[int]] = {}
        self._nonempty: set[int] = set()
        self._private: set[int] = set()
        self.update(known)

    def __len__(self) -> int:
        return len(self._by_number)

    def update(self, changed: Mapping[int, AccessClass]) -> None:
        """Add new classes, and update the number of passages of known ones."""
        for number, one in changed.items():
            new = number not in self._by_number
            self._by_number[number] = one
            (self._nonempty.add if one.passages else self._nonempty.discard)(number)
            if new:
                if is_private(one.readers):
                    self._private.add(number)
                for reader in one.readers:
                    self._by_reader.setdefault((one.tenant, reader), set()).add(number)

    def access_of_scope(self, scope: Scope) -> ScopeAccess:
        """What a scope may read; the cost grows with the number of classes it may read."""
        allowed = _NO_CLASSES.union(
            *(self._by_reader.get((scope.tenant, one), _NO_CLASSES) for one in scope.principals)
        )
        readable = allowed & self._nonempty
        few = len(self._nonempty) <= 2 * len(readable)
        return ScopeAccess(
            allowed=allowed,
            readable=readable,
            hidden=frozenset(self._nonempty - readable) if few else None,
            private=readable & self._private,
            tenant=scope.tenant,
            passages=sum(self._by_number[number].passages for number in readable),
        )

    def readers(self, number: int) -> tuple[str, ...]:
        """Readers of an access class."""
        return self._by_number[number].readers

    def has_at_most(self, scope: Scope, limit: int) -> bool:
        """Whether a scope may read at most `limit` access classes."""
        return sum(len(self._by_reader.get((scope.tenant, one), ())) for one in scope.principals) <= limit
