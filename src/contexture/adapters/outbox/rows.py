"""The table of memories that wait for delivery, and every statement on it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from contexture.adapters.sessions.database import storable
from contexture.conversation import Memory
from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.types import Scope

MIGRATIONS = (
    """
    CREATE TABLE items (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, user TEXT NOT NULL, groups TEXT NOT NULL,
        key TEXT NOT NULL, memory BLOB NOT NULL, due REAL NOT NULL, tries INTEGER NOT NULL DEFAULT 0,
        blames INTEGER NOT NULL DEFAULT 0, parked INTEGER NOT NULL DEFAULT 0, failure TEXT NOT NULL DEFAULT '',
        UNIQUE (tenant, user, key)
    );
    CREATE INDEX items_due ON items (parked, due, seq);
    """,
)
_COLUMNS = "seq, tenant, user, groups, memory, tries, blames, failure"
AT_ONCE = 256
"""Items that one look finds, at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """A memory that waits; `tries` counts every attempt, `blames` those that were its own fault."""

    seq: int
    scope: Scope
    memory: Memory
    tries: int
    blames: int
    failure: str


class Verdict(NamedTuple):
    """What becomes of an item that was not taken, in the order of the statement that writes it."""

    tries: int
    blames: int
    due: float
    parked: bool
    failure: str
    seq: int


class Row(NamedTuple):
    """A new item, in the order of the statement that inserts it."""

    tenant: str
    user: str
    groups: str
    key: str
    memory: bytes
    due: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxStatus:
    """How many memories wait, how many were given up on, and why the one tried last still waits."""

    waiting: int
    parked: int
    failure: str = ""


def new_row(scope: Scope, memory: Memory, due: float) -> Row:
    """The row of a memory; it gets a key of its own when it has none, so that a second delivery does no harm."""
    key = memory.idempotency_key or uuid4().hex
    try:
        packed = msgspec.json.encode(replace(memory, idempotency_key=key))
    except (TypeError, ValueError, RecursionError) as failure:
        raise InvalidRequest(f"a memory cannot be stored: {failure}") from failure
    owner = storable("the tenant", scope.tenant), storable("the user", scope.user)
    return Row(*owner, json.dumps(scope.groups), storable("the idempotency key", key), packed, due)


def insert(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """Add the rows whose key is not waiting already."""
    db.executemany(
        "INSERT INTO items (tenant, user, groups, key, memory, due) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        rows,
    )


def due(db: sqlite3.Connection, before: float) -> list[Item]:
    """Items to try now, those that wait longest first."""
    query = f"SELECT {_COLUMNS} FROM items WHERE parked = 0 AND due <= ? ORDER BY due, seq LIMIT ?"  # noqa: S608 - fixed
    return [_item(row) for row in db.execute(query, (before, AT_ONCE))]


def untried(db: sqlite3.Connection, scope: Scope, before: float) -> bool:
    """Whether something of this scope is due that nobody has tried."""
    query = "SELECT seq FROM items WHERE tenant = ? AND user = ? AND parked = 0 AND tries = 0 AND due <= ? LIMIT 1"
    return db.execute(query, (scope.tenant, scope.user, before)).fetchone() is not None


def next_due(db: sqlite3.Connection) -> float | None:
    """When the next item is to be tried."""
    found: float | None = db.execute("SELECT min(due) FROM items WHERE parked = 0").fetchone()[0]
    return found


def parked(db: sqlite3.Connection) -> list[Item]:
    """Every item that was given up on, oldest first."""
    return [_item(row) for row in db.execute(f"SELECT {_COLUMNS} FROM items WHERE parked = 1 ORDER BY seq")]  # noqa: S608 - fixed


def unpark(db: sqlite3.Connection) -> None:
    """Let every parked item be tried again as if it were new."""
    db.execute("UPDATE items SET parked = 0, tries = 0, blames = 0, due = 0 WHERE parked = 1")


def hasten(db: sqlite3.Connection) -> None:
    """Let everything that waits be due."""
    db.execute("UPDATE items SET due = 0 WHERE parked = 0")


def settle(db: sqlite3.Connection, taken: Iterable[int], verdicts: Sequence[Verdict]) -> None:
    """Remove what was taken and write down what became of the rest."""
    db.executemany("DELETE FROM items WHERE seq = ?", [(seq,) for seq in taken])
    db.executemany("UPDATE items SET tries = ?, blames = ?, due = ?, parked = ?, failure = ? WHERE seq = ?", verdicts)


def status(db: sqlite3.Connection) -> OutboxStatus:
    """The counts, and the failure of the item that was tried last."""
    count = "SELECT count(*) - count(nullif(parked, 0)), count(nullif(parked, 0)) FROM items"
    waiting, given_up = db.execute(count).fetchone()
    last = db.execute("SELECT failure FROM items WHERE parked = 0 ORDER BY due DESC, seq DESC LIMIT 1").fetchone()
    return OutboxStatus(waiting=int(waiting), parked=int(given_up), failure=last[0] if last else "")


def _item(row: Sequence[Any]) -> Item:
    seq, tenant, user, groups, memory, tries, blames, failure = row
    try:
        return Item(
            seq=seq,
            scope=Scope(tenant=tenant, user=user, groups=tuple(json.loads(groups))),
            memory=msgspec.json.decode(memory, type=Memory),
            tries=tries,
            blames=blames,
            failure=failure,
        )
    except (msgspec.MsgspecError, ValueError) as damage:
        raise SourceUnavailable(f"item {seq!r} of the outbox is damaged: {damage}") from damage
