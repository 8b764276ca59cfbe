"""Replies in PostgreSQL."""

from __future__ import annotations

from contexture.adapters.postgres.pool import Pool
from contexture.adapters.postgres.tables import PostgresTables
from contexture.adapters.replies.sqlite import StoredReplies

MIGRATIONS = (
    """
    CREATE TABLE replies (
        tenant TEXT NOT NULL, "user" TEXT NOT NULL, id TEXT NOT NULL, session TEXT NOT NULL, state TEXT NOT NULL,
        time DOUBLE PRECISION NOT NULL, body BYTEA NOT NULL, PRIMARY KEY (tenant, "user", id)
    );
    CREATE INDEX replies_time ON replies (time);
    """,
)


class PostgresReplies(StoredReplies):
    """Replies in a database that several processes share."""

    def __init__(self, pool: Pool, *, days: float) -> None:
        super().__init__(PostgresTables(pool, "replies", MIGRATIONS), days=days)
