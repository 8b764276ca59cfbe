"""Sessions in tables, and in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from contexture.adapters.sessions.database import Database, Tables, packed, storable, unpacked
from contexture.conversation import Event
from contexture.types import Scope

MIGRATIONS = (
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


_MOST = 1 << 31  # SQLite takes no larger limit than 64 bits hold


class _Row(NamedTuple):
    id: str
    time: str
    message: str
    metadata: str


class StoredSessions:
    """Append-only events by tenant, user and session, in tables.

    Positions of a session start at 1 and have no gaps. When `append` returns, the events survive the end of the
    process, however it ends.
    """

    def __init__(self, tables: Tables) -> None:
        self._database = tables

    async def append(self, scope: Scope, session_id: str, events: Sequence[Event]) -> int:
        """Add all of the events in order, or none; those whose id is known are left out."""
        rows = [_row(event) for event in events]
        key = _key(scope, session_id)
        return await self._database.write(lambda db: _append(db, key, rows))

    async def list_events(self, scope: Scope, session_id: str, *, limit: int = 20) -> Sequence[Event]:
        """The newest `limit` events, oldest first."""
        if limit <= 0:
            return ()
        key = _key(scope, session_id)
        return await self._database.read(lambda db: _newest(db, key, min(limit, _MOST)))

    async def sessions(self, scope: Scope, *, limit: int = 50) -> Sequence[str]:
        """The scope's sessions, the one last written to first."""
        query = "SELECT id FROM sessions WHERE tenant = ? AND user = ? ORDER BY touched DESC LIMIT ?"
        given = (*_owner(scope), min(max(0, limit), _MOST))
        return await self._database.read(lambda db: [str(row[0]) for row in db.execute(query, given)])

    def close(self) -> None:
        """Release the tables."""
        self._database.close()


class SqliteSessions(StoredSessions):
    """Sessions in one file; a damaged one is a `SourceUnavailable` that names it."""

    def __init__(self, path: Path) -> None:
        super().__init__(Database(path, MIGRATIONS))


def _owner(scope: Scope) -> tuple[str, str]:
    return storable("the tenant", scope.tenant), storable("the user", scope.user)


def _key(scope: Scope, session_id: str) -> tuple[str, str, str]:
    return (*_owner(scope), storable("the session", session_id))


def _row(event: Event) -> _Row:
    name = f"event {event.id!r}"
    return _Row(
        storable("the event", event.id),
        event.time.isoformat(),
        packed(event.message, f"the message of {name}"),
        packed(dict(event.metadata), f"the metadata of {name}"),
    )


def _append(db: sqlite3.Connection, key: tuple[str, str, str], rows: Sequence[_Row]) -> int:
    found = db.execute("SELECT row, last FROM sessions WHERE tenant = ? AND user = ? AND id = ?", key).fetchone()
    last = found[1] if found else 0
    known = _known(db, found[0], rows) if found else set[str]()
    fresh = {row.id: row for row in reversed(rows) if row.id not in known}  # of two with one id the first counts
    new = [fresh[row.id] for row in rows if row.id in fresh and fresh[row.id] is row]
    if not new:
        return last
    session = _touched(db, key)
    db.executemany(
        "INSERT INTO events (session, position, id, time, message, metadata) VALUES (?, ?, ?, ?, ?, ?)",
        [(session, position, *row) for position, row in enumerate(new, start=last + 1)],
    )
    db.execute("UPDATE sessions SET last = ? WHERE row = ?", (last + len(new), session))
    return last + len(new)


def _known(db: sqlite3.Connection, session: int, rows: Sequence[_Row]) -> set[str]:
    query = "SELECT 1 FROM events WHERE session = ? AND id = ?"
    return {row.id for row in rows if db.execute(query, (session, row.id)).fetchone()}


def _touched(db: sqlite3.Connection, key: tuple[str, str, str]) -> int:
    """The session's row, made when it is missing, and now the one last written to."""
    row: int = db.execute(
        "INSERT INTO sessions (tenant, user, id, touched) "
        "VALUES (?1, ?2, ?3, (SELECT coalesce(max(touched), 0) + 1 FROM sessions WHERE tenant = ?1 AND user = ?2)) "
        "ON CONFLICT (tenant, user, id) DO UPDATE SET touched = excluded.touched RETURNING row",
        key,
    ).fetchone()[0]
    return row


def _newest(db: sqlite3.Connection, key: tuple[str, str, str], limit: int) -> list[Event]:
    rows = db.execute(
        "SELECT e.id, e.time, e.message, e.metadata, e.position FROM events e JOIN sessions s ON s.row = e.session "
        "WHERE s.tenant = ? AND s.user = ? AND s.id = ? ORDER BY e.position DESC LIMIT ?",
        (*key, limit),
    ).fetchall()
    return [_event(_Row(*row[:4]), row[4]) for row in reversed(rows)]


def _event(row: _Row, position: int) -> Event:
    return Event(
        id=row.id,
        message=unpacked(row.message),
        time=datetime.fromisoformat(row.time),
        position=position,
        metadata=unpacked(row.metadata),
    )
