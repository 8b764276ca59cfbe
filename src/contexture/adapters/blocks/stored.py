"""Blocks as a writer sees them: with their rows, hidden and deleted ones too."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from contexture.adapters.blocks.rows import listed
from contexture.adapters.sessions.database import storable
from contexture.types import Scope

_FIELDS = "row, id, parent, position, type, text, properties, readers, class, author, created, modified, deletion"

# `UNION`, so that a damaged tree that runs in a circle still ends.
BELOW = """
WITH RECURSIVE below (row) AS (
    SELECT :row UNION SELECT b.row FROM below CROSS JOIN blocks b ON b.parent = below.row
)
"""


class Stored(NamedTuple):
    """A row of the table of blocks."""

    row: int
    id: str
    parent: int | None
    position: float
    type: str
    text: str
    properties: str
    readers: str | None
    access: int
    author: str
    created: int
    modified: int
    deletion: int | None


def by_id(db: sqlite3.Connection, tenant: str, ids: Iterable[str]) -> dict[str, Stored]:
    """The tenant's blocks of these ids."""
    query = f"SELECT {_FIELDS} FROM blocks WHERE tenant = ? AND id IN (SELECT value FROM json_each(?))"  # noqa: S608 - fixed
    return {found.id: found for found in map(Stored._make, db.execute(query, (tenant, listed(ids))))}


def by_row(db: sqlite3.Connection, row: int | None) -> Stored | None:
    """The block of a row; the parent of a root is none."""
    found = db.execute(f"SELECT {_FIELDS} FROM blocks WHERE row = ?", (row,)).fetchone()  # noqa: S608 - fixed
    return None if found is None else Stored._make(found)


def upwards(db: sqlite3.Connection, row: int | None) -> Iterator[int]:
    """The row and those of all its parents; a walk in a circle is the caller's to end."""
    while row is not None:
        yield row
        found = db.execute("SELECT parent FROM blocks WHERE row = ?", (row,)).fetchone()
        row = None if found is None else found[0]


class Classes:
    """Access classes: blocks of a tenant that the same principals may read share one."""

    def __init__(self, db: sqlite3.Connection, scope: Scope) -> None:
        self._db = db
        self._tenant = storable("the tenant", scope.tenant)
        storable("the user", scope.user)
        self._principals = frozenset(scope.principals)
        self._numbers: dict[str, int] = {}
        self._readable: dict[int, bool] = {}

    def number(self, readers: Sequence[str]) -> int:
        """The class of these readers, made when it is new."""
        acl = packed_readers(readers)
        if acl not in self._numbers:
            self._numbers[acl] = self._found(acl) or self._made(acl, readers)
        return self._numbers[acl]

    def may_read(self, access: int) -> bool:
        """Whether the scope may read what belongs to a class."""
        if access not in self._readable:
            names = {row[0] for row in self._db.execute("SELECT principal FROM readers WHERE class = ?", (access,))}
            self._readable[access] = not self._principals.isdisjoint(names)
        return self._readable[access]

    def _found(self, acl: str) -> int | None:
        query = "SELECT class FROM classes WHERE tenant = ? AND acl = ?"
        found = self._db.execute(query, (self._tenant, acl)).fetchone()
        return None if found is None else found[0]

    def _made(self, acl: str, readers: Sequence[str]) -> int:
        query = "INSERT INTO classes (tenant, acl) VALUES (?, ?) RETURNING class"
        access: int = self._db.execute(query, (self._tenant, acl)).fetchone()[0]
        everyone = [(access, name, self._tenant) for name in sorted(set(readers))]
        self._db.executemany("INSERT INTO readers VALUES (?, ?, ?)", everyone)
        return access


def packed_readers(readers: Sequence[str]) -> str:
    """Readers as they are stored: sorted, each once."""
    return json.dumps(sorted(set(readers)), ensure_ascii=False)


def outdated(db: sqlite3.Connection, condition: str, given: Mapping[str, str | int | float | None]) -> None:
    """Note that the search records of the live blocks that meet a condition may differ from now on."""
    db.execute(
        "INSERT INTO pending (tenant, id, class) "  # noqa: S608 - fixed pieces
        f"SELECT tenant, id, class FROM blocks WHERE deletion IS NULL AND {condition}",
        given,
    )


def outdated_below(db: sqlite3.Connection, row: int) -> None:
    """The same for a block and all below it."""
    db.execute(
        f"{BELOW} INSERT INTO pending (tenant, id, class) SELECT b.tenant, b.id, b.class "  # noqa: S608 - fixed pieces
        "FROM below CROSS JOIN blocks b ON b.row = below.row WHERE b.deletion IS NULL",
        {"row": row},
    )
