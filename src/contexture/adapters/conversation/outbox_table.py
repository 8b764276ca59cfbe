"""The outbox table, with memories that wait for delivery, and all SQL statements on it."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from contexture import conversation
from contexture.adapters.sqlite import check_storable
from contexture.errors import InvalidRequest
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
_DAMAGED = 2  # value of `parked`, beside 0 for waiting and 1 for parked items
MAX_DUE_ITEMS = 256
"""Maximum number of items that `select_due` returns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxItem:
    """A memory that waits for delivery; `tries` counts all attempts, `blames` those that failed because of the item."""

    seq: int
    scope: Scope
    memory: conversation.Memory
    tries: int
    blames: int
    failure: str


class DamagedItem(NamedTuple):
    """An item that cannot be decoded: why, and its number."""

    reason: str
    seq: int


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
    """Number of waiting, of parked and of damaged memories, and the failure of the waiting one that is due last.

    `set_aside` is the name of the file that was damaged and replaced, if there is one.
    """

    waiting: int
    parked: int
    failure: str = ""
    damaged: int = 0
    set_aside: str = ""


def make_row(scope: Scope, memory: conversation.Memory, due: float) -> OutboxRow:
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


def select_due(db: sqlite3.Connection, before: float) -> tuple[list[OutboxItem], list[DamagedItem]]:
    """Items due at `before`, earliest due first, at most `MAX_DUE_ITEMS`; those that cannot be decoded apart."""
    query = f"SELECT {_COLUMNS} FROM items WHERE parked = 0 AND due <= ? ORDER BY due, seq LIMIT ?"  # noqa: S608 - fixed
    return _decode_rows(db.execute(query, (before, MAX_DUE_ITEMS)))


def _decode_rows(rows: Iterable[Sequence[Any]]) -> tuple[list[OutboxItem], list[DamagedItem]]:
    items, damaged = list[OutboxItem](), list[DamagedItem]()
    for row in rows:
        try:
            items.append(_item_from_row(row))
        except (msgspec.MsgspecError, TypeError, ValueError) as failure:
            damaged.append(DamagedItem(f"damaged: {failure}", int(row[0])))
    return items, damaged


def set_aside(db: sqlite3.Connection, damaged: Sequence[DamagedItem]) -> None:
    """Take damaged items out of delivery; they stay stored."""
    db.executemany(f"UPDATE items SET parked = {_DAMAGED}, failure = ? WHERE seq = ?", damaged)  # noqa: S608 - a constant


def has_untried(db: sqlite3.Connection, scope: Scope, before: float) -> bool:
    """Whether this scope has a due item that was never tried."""
    query = "SELECT seq FROM items WHERE tenant = ? AND user = ? AND parked = 0 AND tries = 0 AND due <= ? LIMIT 1"
    return db.execute(query, (scope.tenant, scope.user, before)).fetchone() is not None


def next_due_time(db: sqlite3.Connection) -> float | None:
    """Earliest due time of a waiting item; None if nothing waits."""
    found: float | None = db.execute("SELECT min(due) FROM items WHERE parked = 0").fetchone()[0]
    return found


def select_parked(db: sqlite3.Connection) -> list[OutboxItem]:
    """Parked items, oldest first; damaged ones are left out."""
    return _decode_rows(db.execute(f"SELECT {_COLUMNS} FROM items WHERE parked = 1 ORDER BY seq"))[0]  # noqa: S608 - fixed


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


def erase_items(
    db: sqlite3.Connection, scope: Scope, target: conversation.ErasureTarget, *, preview: bool = False
) -> list[str]:
    """Delete the items of the scope's user that copy the target's texts; returns their idempotency keys.

    An item that cannot be decoded is deleted with everything of its user, and kept otherwise.
    """
    rows = db.execute("SELECT seq, key, memory FROM items WHERE tenant = ? AND user = ?", (scope.tenant, scope.user))
    items = rows.fetchall()
    found = {int(seq): str(key) for seq, key, memory in items if _copies(key, memory, target)}
    if not preview:
        db.executemany("DELETE FROM items WHERE seq = ?", [(seq,) for seq in found])
        left = [(_without_injected(memory, target), seq) for seq, _, memory in items if seq not in found]
        db.executemany("UPDATE items SET memory = ? WHERE seq = ?", [row for row in left if row[0] is not None])
    return list(found.values())


def _without_injected(memory: bytes, target: conversation.ErasureTarget) -> bytes | None:
    """The item without the ids of removed memories that were in its prompt; None if it has none."""
    try:
        held = msgspec.json.decode(memory, type=conversation.Memory)
    except (msgspec.MsgspecError, ValueError):
        return None
    gone = target.records | target.own_records
    kept = tuple(
        name
        for name in held.injected
        if conversation.record_reference(conversation.MEMORIES_COLLECTION, name) not in gone
    )
    return msgspec.json.encode(replace(held, injected=kept)) if len(kept) < len(held.injected) else None


def _copies(key: str, memory: bytes, target: conversation.ErasureTarget) -> bool:
    if target.whole_user or {key, conversation.message_of(key)} & target.events:
        return True
    try:
        held = msgspec.json.decode(memory, type=conversation.Memory)
    except (msgspec.MsgspecError, ValueError):
        return False
    if held.session_id and held.session_id in target.sessions:
        return True
    if conversation.record_reference(conversation.MEMORIES_COLLECTION, held.id) in target.records | target.own_records:
        return True
    # A summary that waits is made again from what is left of its session.
    if held.type == conversation.SUMMARY_TYPE and held.session_id in target.touched_sessions:
        return True
    return target.matches is not None and target.matches(held.text)


def read_status(db: sqlite3.Connection) -> OutboxStatus:
    """Counts of waiting, parked and damaged items, and the failure of the waiting item with the latest due time."""
    counts = {
        int(state): int(count) for state, count in db.execute("SELECT parked, count(*) FROM items GROUP BY parked")
    }
    last = db.execute("SELECT failure FROM items WHERE parked = 0 ORDER BY due DESC, seq DESC LIMIT 1").fetchone()
    return OutboxStatus(
        waiting=counts.get(0, 0),
        parked=counts.get(1, 0),
        failure=last[0] if last else "",
        damaged=counts.get(_DAMAGED, 0),
    )


def _item_from_row(row: Sequence[Any]) -> OutboxItem:
    seq, tenant, user, groups, memory, tries, blames, failure = row
    return OutboxItem(
        seq=seq,
        scope=Scope(tenant=tenant, user=user, groups=tuple(json.loads(groups))),
        memory=msgspec.json.decode(memory, type=conversation.Memory),
        tries=tries,
        blames=blames,
        failure=failure,
    )
