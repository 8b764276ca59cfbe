"""Replies in tables, and in a SQLite file, kept for some days."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from contexture.adapters.sessions.database import Database, Tables, storable
from contexture.conversation import ReplyState, StoredReply
from contexture.types import Scope

MIGRATIONS = (
    """
    CREATE TABLE replies (
        tenant TEXT NOT NULL, user TEXT NOT NULL, id TEXT NOT NULL, session TEXT NOT NULL,
        state TEXT NOT NULL, time REAL NOT NULL, body BLOB NOT NULL, PRIMARY KEY (tenant, user, id)
    ) WITHOUT ROWID;
    CREATE INDEX replies_time ON replies (time);
    """,
)

_PUT = """
    INSERT INTO replies (tenant, user, id, session, state, time, body) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (tenant, user, id) DO UPDATE
    SET session = excluded.session, state = excluded.state, time = excluded.time, body = excluded.body
    WHERE replies.state <> 'complete'
"""
_GET = "SELECT id, session, state, time, body FROM replies WHERE tenant = ? AND user = ? AND id = ?"


class StoredReplies:
    """Replies by tenant, user and message id, in tables; what is older than `days` goes when another one comes."""

    def __init__(self, tables: Tables, *, days: float) -> None:
        self._database = tables
        self._kept = timedelta(days=days)

    async def get(self, scope: Scope, message_id: str) -> StoredReply | None:
        """What became of a message; None when it is not known."""
        key = _key(scope, message_id)
        return await self._database.read(lambda db: _found(db, key))

    async def put(self, scope: Scope, reply: StoredReply) -> StoredReply:
        """Keep this and say what stands."""
        key = _key(scope, reply.message_id)
        session = storable("the session", reply.session_id)
        row = (*key, session, reply.state.value, reply.time.timestamp(), reply.body)
        oldest = (reply.time - self._kept).timestamp()

        def work(db: sqlite3.Connection) -> StoredReply:
            db.execute("DELETE FROM replies WHERE time < ?", (oldest,))
            db.execute(_PUT, row)
            return _found(db, key) or reply

        return await self._database.write(work)

    def close(self) -> None:
        """Release the tables."""
        self._database.close()


class SqliteReplies(StoredReplies):
    """Replies in one file."""

    def __init__(self, path: Path, *, days: float) -> None:
        super().__init__(Database(path, MIGRATIONS), days=days)


def _key(scope: Scope, message_id: str) -> tuple[str, str, str]:
    return (
        storable("the tenant", scope.tenant),
        storable("the user", scope.user),
        storable("the message id", message_id),
    )


def _found(db: sqlite3.Connection, key: Sequence[str]) -> StoredReply | None:
    row: Sequence[Any] | None = db.execute(_GET, tuple(key)).fetchone()
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
