"""Blocks as rows of SQLite, and back."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from contexture.adapters.sessions.database import storable
from contexture.types import Scope
from contexture.workspace import Block, BlockType

Given: TypeAlias = dict[str, str | int | float | None]

_INCOMPARABLE = re.compile("[\ud800-\udfff\x00]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_FIRST, _LAST = (
    (datetime(*end, tzinfo=UTC) - _EPOCH) // _TICK for end in ((1, 1, 1), (9999, 12, 31, 23, 59, 59, 999_999))
)
_properties = msgspec.json.Decoder(dict[str, Any]).decode
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_listing = msgspec.json.Encoder(enc_hook=str).encode  # kinds of text of one's own are texts
_TYPES = {str(kind): kind for kind in BlockType}
MOST = 1 << 31
"""A limit that no store reaches; SQLite takes none beyond 64 bits."""


class Rows:
    """Makes blocks of rows; who belongs to an access class never changes, so it is looked up once."""

    def __init__(self) -> None:
        self._acls: dict[int, tuple[str, ...]] = {}

    def blocks(self, db: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> list[Block]:
        """The blocks of rows of `schema.columns`."""
        return [self.block(db, row) for row in rows]

    def block(self, db: sqlite3.Connection, row: Sequence[Any]) -> Block:
        """The block of one row; what stands behind its columns is ignored."""
        id_, kind, text, position, properties, readers, author, created, modified, access, parent = row[:11]
        return Block(
            id=id_,
            type=_TYPES[kind],
            text=text,
            parent=parent,
            order=position,
            properties=_properties(properties),
            readers=None if readers is None else _names(readers),
            author=author,
            created=moment(created),
            modified=moment(modified),
            acl=self.acl(db, access),
        )

    def acl(self, db: sqlite3.Connection, access: int) -> tuple[str, ...]:
        """Who may read what belongs to an access class."""
        found = self._acls.get(access)
        if found is None:
            row = db.execute("SELECT acl FROM classes WHERE class = ?", (access,)).fetchone()
            found = self._acls[access] = _names(row[0]) if row else ()
        return found


def asking(scope: Scope, **more: str | float | None) -> Given:
    """The parameters that every query of a scope has, and those of this one."""
    storable("the user", scope.user)
    return {"tenant": storable("the tenant", scope.tenant), "principals": listed(scope.principals), **more}


def listed(ids: Iterable[str]) -> str:
    """Ids as a query takes them, each once; one that SQLite cannot hold was never stored."""
    return _listing(holdable(ids)).decode()


def holdable(ids: Iterable[str]) -> list[str]:
    """Those ids that SQLite can hold, each once."""
    names = list(dict.fromkeys(ids))
    # One look at all of them, for nearly always all can be held.
    return names if can_hold("".join(names)) else [name for name in names if can_hold(name)]


def most(limit: int) -> int:
    """A limit as SQLite takes it; less than nothing is nothing."""
    return min(max(0, limit), MOST)


def microseconds(time: datetime) -> int:
    """A time as a whole number; without a zone it is read as UTC. What lies beyond the calendar stands at its end."""
    number = ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _TICK
    return min(max(number, _FIRST), _LAST)


def moment(number: int) -> datetime:
    """The time that was made a number, in UTC."""
    return _EPOCH + _TICK * number


def can_hold(name: str) -> bool:
    """Whether SQLite can compare a text: not one with a lone surrogate, nor one that a NUL would end too early."""
    return _INCOMPARABLE.search(name) is None
