"""Sessions and replies in SQL tables, and in SQLite files."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from contexture.adapters.sqlite import SqliteTables, Tables, check_storable, decode_json, encode_json
from contexture.conversation import ReplyState, SessionEvent, StoredReply
from contexture.types import Scope

SESSION_MIGRATIONS = (
    """
    CREATE TABLE sessions (
        row INTEGER PRIMARY KEY, tenant TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL,
        last INTEGER NOT NULL DEFAULT 0, touched INTEGER NOT NULL DEFAULT 0, UNIQUE (tenant, user, id)
    );
    CREATE INDEX sessions_touched ON sessions (tenant, user, touched);
    CREATE TABLE events (
        session INTEGER NOT NULL REFERENCES sessions, position INTEGER NOT NULL, id TEXT NOT NULL,
        time TEXT NOT NULL, message TEXT NOT NULL, metadata TEXT NOT NULL,
        PRIMARY KEY (session, position), UNIQUE (session, id)
    ) WITHOUT ROWID;
    """,
)

_MAX_LIMIT = 1 << 31  # SQLite accepts no limit beyond 64 bits


class _EventRow(NamedTuple):
    id: str
    time: str
    message: str
    metadata: str


class StoredSessions:
    """Append-only events by tenant, user and session, in SQL tables.

    Positions of a session start at 1 and have no gaps. When `append` returns, the events are durable.
    """

    def __init__(self, tables: Tables) -> None:
        self._database = tables

    async def append(self, scope: Scope, session_id: str, events: Sequence[SessionEvent]) -> int:
        """Append the events in one transaction, without those whose id is known; returns the last position."""
        rows = [_event_row(event) for event in events]
        key = _session_key(scope, session_id)
        return await self._database.write(lambda db: _insert_events(db, key, rows))

    async def list_events(self, scope: Scope, session_id: str, *, limit: int = 20) -> Sequence[SessionEvent]:
        """Newest `limit` events, oldest first."""
        if limit <= 0:
            return ()
        key = _session_key(scope, session_id)
        return await self._database.read(lambda db: _select_newest(db, key, min(limit, _MAX_LIMIT)))

    async def sessions(self, scope: Scope, *, limit: int = 50) -> Sequence[str]:
        """Ids of the scope's sessions, last written first."""
        query = "SELECT id FROM sessions WHERE tenant = ? AND user = ? ORDER BY touched DESC LIMIT ?"
        given = (*_owner_key(scope), min(max(0, limit), _MAX_LIMIT))
        return await self._database.read(lambda db: [str(row[0]) for row in db.execute(query, given)])

    def close(self) -> None:
        """Release the tables."""
        self._database.close()


class SqliteSessions(StoredSessions):
    """Sessions in one SQLite file; a damaged file raises `SourceUnavailable` with its path."""

    def __init__(self, path: Path) -> None:
        super().__init__(SqliteTables(path, SESSION_MIGRATIONS))


def _owner_key(scope: Scope) -> tuple[str, str]:
    return check_storable("the tenant", scope.tenant), check_storable("the user", scope.user)


def _session_key(scope: Scope, session_id: str) -> tuple[str, str, str]:
    return (*_owner_key(scope), check_storable("the session", session_id))


def _event_row(event: SessionEvent) -> _EventRow:
    name = f"event {event.id!r}"
    return _EventRow(
        check_storable("the event", event.id),
        event.time.isoformat(),
        encode_json(event.message, f"the message of {name}"),
        encode_json(dict(event.metadata), f"the metadata of {name}"),
    )


def _insert_events(db: sqlite3.Connection, key: tuple[str, str, str], rows: Sequence[_EventRow]) -> int:
    found = db.execute("SELECT row, last FROM sessions WHERE tenant = ? AND user = ? AND id = ?", key).fetchone()
    last = found[1] if found else 0
    known = _known_event_ids(db, found[0], rows) if found else set[str]()
    fresh = {row.id: row for row in reversed(rows) if row.id not in known}  # the first of two with one id is kept
    new = [fresh[row.id] for row in rows if row.id in fresh and fresh[row.id] is row]
    if not new:
        return last
    session = _touch_session(db, key)
    db.executemany(
        "INSERT INTO events (session, position, id, time, message, metadata) VALUES (?, ?, ?, ?, ?, ?)",
        [(session, position, *row) for position, row in enumerate(new, start=last + 1)],
    )
    db.execute("UPDATE sessions SET last = ? WHERE row = ?", (last + len(new), session))
    return last + len(new)


def _known_event_ids(db: sqlite3.Connection, session: int, rows: Sequence[_EventRow]) -> set[str]:
    query = "SELECT 1 FROM events WHERE session = ? AND id = ?"
    return {row.id for row in rows if db.execute(query, (session, row.id)).fetchone()}


def _touch_session(db: sqlite3.Connection, key: tuple[str, str, str]) -> int:
    """Row of a session, created if missing, and marked as last written."""
    row: int = db.execute(
        "INSERT INTO sessions (tenant, user, id, touched) "
        "VALUES (?1, ?2, ?3, (SELECT coalesce(max(touched), 0) + 1 FROM sessions WHERE tenant = ?1 AND user = ?2)) "
        "ON CONFLICT (tenant, user, id) DO UPDATE SET touched = excluded.touched RETURNING row",
        key,
    ).fetchone()[0]
    return row


def _select_newest(db: sqlite3.Connection, key: tuple[str, str, str], limit: int) -> list[SessionEvent]:
    rows = db.execute(
        "SELECT e.id, e.time, e.message, e.metadata, e.position FROM events e JOIN sessions s ON s.row = e.session "
        "WHERE s.tenant = ? AND s.user = ? AND s.id = ? ORDER BY e.position DESC LIMIT ?",
        (*key, limit),
    ).fetchall()
    return [_event_from_row(_EventRow(*row[:4]), row[4]) for row in reversed(rows)]


def _event_from_row(row: _EventRow, position: int) -> SessionEvent:
    return SessionEvent(
        id=row.id,
        message=decode_json(row.message),
        time=datetime.fromisoformat(row.time),
        position=position,
        metadata=decode_json(row.metadata),
    )


REPLY_MIGRATIONS = (
    """
    CREATE TABLE replies (
        tenant TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL, session TEXT NOT NULL,
        state TEXT NOT NULL, time REAL NOT NULL, body BLOB NOT NULL, PRIMARY KEY (tenant, user, id)
    ) WITHOUT ROWID;
    CREATE INDEX replies_time ON replies (time);
    """,
)

_PUT_REPLY = """
    INSERT INTO replies (tenant, user, id, session, state, time, body) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, user, id) DO UPDATE
    SET session = excluded.session, state = excluded.state, time = excluded.time, body = excluded.body
    WHERE replies.state <> 'complete'
"""
_GET_REPLY = "SELECT id, session, state, time, body FROM replies WHERE tenant = ? AND user = ? AND id = ?"


class StoredReplies:
    """Replies by tenant, user and message id, in SQL tables; `put` deletes replies older than `days`."""

    def __init__(self, tables: Tables, *, days: float) -> None:
        self._database = tables
        self._retention = timedelta(days=days)

    async def get(self, scope: Scope, message_id: str) -> StoredReply | None:
        """Stored reply to a message; None if there is none."""
        key = _reply_key(scope, message_id)
        return await self._database.read(lambda db: _select_reply(db, key))

    async def put(self, scope: Scope, reply: StoredReply) -> StoredReply:
        """Store a reply, unless a complete one is stored already, and return the stored one."""
        key = _reply_key(scope, reply.message_id)
        session = check_storable("the session", reply.session_id)
        row = (*key, session, reply.state.value, reply.time.timestamp(), reply.body)
        oldest = (reply.time - self._retention).timestamp()

        def work(db: sqlite3.Connection) -> StoredReply:
            db.execute("DELETE FROM replies WHERE time < ?", (oldest,))
            db.execute(_PUT_REPLY, row)
            return _select_reply(db, key) or reply

        return await self._database.write(work)

    def close(self) -> None:
        """Release the tables."""
        self._database.close()


class SqliteReplies(StoredReplies):
    """Replies in one SQLite file."""

    def __init__(self, path: Path, *, days: float) -> None:
        super().__init__(SqliteTables(path, REPLY_MIGRATIONS), days=days)


def _reply_key(scope: Scope, message_id: str) -> tuple[str, str, str]:
    return (
        check_storable("the tenant", scope.tenant),
        check_storable("the user", scope.user),
        check_storable("the message id", message_id),
    )


def _select_reply(db: sqlite3.Connection, key: Sequence[str]) -> StoredReply | None:
    row: Sequence[Any] | None = db.execute(_GET_REPLY, tuple(key)).fetchone()
    if row is None:
        return None
    name, session, state, time, body = row
    return StoredReply(
        message_id=name,
        session_id=session,
        state=ReplyState(state),
        time=datetime.fromtimestamp(time, UTC),
        body=bytes(body),
    )
