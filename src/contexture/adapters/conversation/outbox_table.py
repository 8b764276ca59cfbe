"""The outbox table, with memories that wait for delivery, and all SQL statements on it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from contexture.adapters.sqlite import check_storable
from contexture.conversation import Memory
from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.types import Scope

OUTBOX_MIGRATIONS = (
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
MAX_DUE_ITEMS = 256
"""Maximum number of items that `select_due` returns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxItem:
    """A memory that waits for delivery; `tries` counts all attempts, `blames` those that failed because of the item."""

    seq: int
    scope: Scope
    memory: Memory
    tries: int
    blames: int
    failure: str


class RetryDecision(NamedTuple):
    """New state of an item that was not delivered, in the column order of the `UPDATE` statement."""

    tries: int
    blames: int
    due: float
    parked: bool
    failure: str
    seq: int


class OutboxRow(NamedTuple):
    """A new item, in the column order of the `INSERT` statement."""

    tenant: str
    user: str
    groups: str
    key: str
    memory: bytes
    due: float


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxStatus:
    """Number of waiting and of parked memories, and the failure of the waiting one with the latest due time."""

    waiting: int
    parked: int
    failure: str = ""


def make_row(scope: Scope, memory: Memory, due: float) -> OutboxRow:
    """Row of a memory; one without an idempotency key gets a new one, so that a repeated delivery is harmless.

    Raises `InvalidRequest` for a memory that cannot be stored.
    """
    key = memory.idempotency_key or uuid4().hex
    try:
        packed = msgspec.json.encode(replace(memory, idempotency_key=key))
    except (TypeError, ValueError, RecursionError) as failure:
        raise InvalidRequest(f"a memory cannot be stored: {failure}") from failure
    owner = check_storable("the tenant", scope.tenant), check_storable("the user", scope.user)
    return OutboxRow(*owner, json.dumps(scope.groups), check_storable("the idempotency key", key), packed, due)


def insert_rows(db: sqlite3.Connection, rows: Sequence[OutboxRow]) -> None:
    """Insert rows; a row whose key is already stored is skipped."""
    db.executemany(
        "INSERT INTO items (tenant, user, groups, key, memory, due) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        rows,
    )


def select_due(db: sqlite3.Connection, before: float) -> list[OutboxItem]:
    """Items due at `before`, earliest due first, at most `MAX_DUE_ITEMS`."""
    query = f"SELECT {_COLUMNS} FROM items WHERE parked = 0 AND due <= ? ORDER BY due, seq LIMIT ?"  # noqa: S608 - fixed
    return [_item_from_row(row) for row in db.execute(query, (before, MAX_DUE_ITEMS))]


def has_untried(db: sqlite3.Connection, scope: Scope, before: float) -> bool:
    """Whether this scope has a due item that was never tried."""
    query = "SELECT seq FROM items WHERE tenant = ? AND user = ? AND parked = 0 AND tries = 0 AND due <= ? LIMIT 1"
    return db.execute(query, (scope.tenant, scope.user, before)).fetchone() is not None


def next_due_time(db: sqlite3.Connection) -> float | None:
    """Earliest due time of a waiting item; None if nothing waits."""
    found: float | None = db.execute("SELECT min(due) FROM items WHERE parked = 0").fetchone()[0]
    return found


def select_parked(db: sqlite3.Connection) -> list[OutboxItem]:
    """Parked items, oldest first."""
    return [_item_from_row(row) for row in db.execute(f"SELECT {_COLUMNS} FROM items WHERE parked = 1 ORDER BY seq")]  # noqa: S608 - fixed


def unpark_all(db: sqlite3.Connection) -> None:
    """Unpark all items and make them due, with tries and blames reset."""
    db.execute("UPDATE items SET parked = 0, tries = 0, blames = 0, due = 0 WHERE parked = 1")


def make_all_due(db: sqlite3.Connection) -> None:
    """Make all waiting items due."""
    db.execute("UPDATE items SET due = 0 WHERE parked = 0")


def write_outcome(db: sqlite3.Connection, taken: Iterable[int], verdicts: Sequence[RetryDecision]) -> None:
    """Delete delivered items and store the retry decisions of the others."""
    db.executemany("DELETE FROM items WHERE seq = ?", [(seq,) for seq in taken])
    db.executemany("UPDATE items SET tries = ?, blames = ?, due = ?, parked = ?, failure = ? WHERE seq = ?", verdicts)


def read_status(db: sqlite3.Connection) -> OutboxStatus:
    """Counts of waiting and parked items, and the failure of the waiting item with the latest due time."""
    count = "SELECT count(*) - count(nullif(parked, 0)), count(nullif(parked, 0)) FROM items"
    waiting, given_up = db.execute(count).fetchone()
    last = db.execute("SELECT failure FROM items WHERE parked = 0 ORDER BY due DESC, seq DESC LIMIT 1").fetchone()
    return OutboxStatus(waiting=int(waiting), parked=int(given_up), failure=last[0] if last else "")


def _item_from_row(row: Sequence[Any]) -> OutboxItem:
    seq, tenant, user, groups, memory, tries, blames, failure = row
    try:
        return OutboxItem(
            seq=seq,
            scope=Scope(tenant=tenant, user=user, groups=tuple(json.loads(groups))),
            memory=msgspec.json.decode(memory, type=Memory),
            tries=tries,
            blames=blames,
            failure=failure,
        )
    except (msgspec.MsgspecError, ValueError) as damage:
        raise SourceUnavailable(f"item {seq!r} of the outbox is damaged: {damage}") from damage
