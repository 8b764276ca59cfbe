"""API keys in PostgreSQL, for all services that share a store."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from contexture.adapters.keys import ApiKey, ApiKeys
from contexture.adapters.postgres.pool import Pool
from contexture.adapters.postgres.tables import PostgresTables
from contexture.errors import SourceTimeout, SourceUnavailable

MIGRATIONS = (
    """
    CREATE TABLE keys (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, hash BYTEA NOT NULL, tenant TEXT NOT NULL, "user" TEXT NOT NULL,
        groups TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION, revoked DOUBLE PRECISION,
        rights TEXT
    );
    """,
)


_OUTAGE = timedelta(minutes=5)
_REMEMBERED = 4_096


class PostgresKeys(ApiKeys):
    """The keys of one store; each is read when it is presented, so a revoked one fails everywhere at once.

    While the database cannot be asked, a key that worked here in the last five minutes still does, so that contexts
    are built without what cannot be asked, instead of not at all.
    """

    far = True

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._tables = PostgresTables(pool, "keys", MIGRATIONS)
        self._worked: OrderedDict[bytes, tuple[datetime, ApiKey]] = OrderedDict()
        self._lately = threading.Lock()

    def find(self, presented: str, *, now: datetime) -> ApiKey | None:
        """The key that this is the secret of, if it works now."""
        digest = hashlib.sha256(presented.encode("utf-8", "surrogatepass")).digest()
        try:
            found = super().find(presented, now=now)
        except (SourceUnavailable, SourceTimeout):
            since, known = self._worked.get(digest, (now, None))
            if known is None or now - since > _OUTAGE or not known.works(now):
                raise
            return known
        self._remember(digest, found, now)
        return found

    def _remember(self, digest: bytes, found: ApiKey | None, now: datetime) -> None:
        with self._lately:
            self._worked.pop(digest, None)
            if found is not None:
                self._worked[digest] = (now, found)
            if len(self._worked) > _REMEMBERED:
                self._worked.popitem(last=False)

    def close(self) -> None:
        """Release the connections."""
        self._tables.close()
        self._pool.close()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        def work(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return db.execute(statement, values).fetchall()

        return self._tables.run(work)
