"""Access classes: records of one tenant with the same readers share one, and a scope may read some of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from contexture.types import Scope

_NOBODY: frozenset[int] = frozenset()


class AccessClass(NamedTuple):
    """Whose records these are, who may read them, and how many passages they have."""

    tenant: str
    readers: tuple[str, ...]
    passages: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """Which access classes a scope may read, and how many passages they hold.

    `readable` are those that hold any. `hidden` are the others that hold any, whoever they belong to; None where
    there are more of them than readable ones, which are then quicker named.
    """

    allowed: frozenset[int]
    readable: frozenset[int]
    hidden: frozenset[int] | None
    tenant: str = ""
    passages: int = 0


class Classes:
    """The access classes of one collection, found by who may read them.

    Writes come one at a time. Scopes are looked up meanwhile: all that is taken from a set is taken in one step.
    """

    def __init__(self, known: Mapping[int, AccessClass]) -> None:
        self._known: dict[int, AccessClass] = {}
        self._held: dict[tuple[str, str], set[int]] = {}
        self._filled: set[int] = set()
        self.update(known)

    def update(self, changed: Mapping[int, AccessClass]) -> None:
        """Take classes that are new, or hold more or fewer passages than before."""
        for number, one in changed.items():
            new = number not in self._known
            self._known[number] = one
            (self._filled.add if one.passages else self._filled.discard)(number)
            if new:
                for reader in one.readers:
                    self._held.setdefault((one.tenant, reader), set()).add(number)

    def access(self, scope: Scope) -> Access:
        """What a scope may read; takes as long as there are classes that it may."""
        allowed = _NOBODY.union(*(self._held.get((scope.tenant, one), _NOBODY) for one in scope.principals))
        readable = allowed & self._filled
        few = len(self._filled) <= 2 * len(readable)
        return Access(
            allowed=allowed,
            readable=readable,
            hidden=frozenset(self._filled - readable) if few else None,
            tenant=scope.tenant,
            passages=sum(self._known[number].passages for number in readable),
        )

    def readers(self, number: int) -> tuple[str, ...]:
        """Who may read a class."""
        return self._known[number].readers

    def within(self, scope: Scope, limit: int) -> bool:
        """Whether a scope may read so few classes, at most."""
        return sum(len(self._held.get((scope.tenant, one), ())) for one in scope.principals) <= limit
