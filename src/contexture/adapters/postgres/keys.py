"""API keys in PostgreSQL, for all services that share a store."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from contexture.adapters.keys import ApiKeys
from contexture.adapters.postgres.pool import Pool
from contexture.adapters.postgres.tables import PostgresTables

MIGRATIONS = (
    """
    CREATE TABLE keys (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, hash BYTEA NOT NULL, tenant TEXT NOT NULL, "user" TEXT NOT NULL,
        groups TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION, revoked DOUBLE PRECISION,
        rights TEXT
    );
    """,
)


class PostgresKeys(ApiKeys):
    """The keys of one store; each is read when it is presented, so a revoked one fails everywhere at once."""

    far = True

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._tables = PostgresTables(pool, "keys", MIGRATIONS)

    def close(self) -> None:
        """Release the connections."""
        self._tables.close()
        self._pool.close()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        def work(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return db.execute(statement, values).fetchall()

        return self._tables.run(work)
