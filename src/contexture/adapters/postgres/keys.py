"""API keys in PostgreSQL, for all services that share a store."""

import hashlib
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Any

from contexture.adapters.keys import ApiKeys
from contexture.adapters.postgres.pool import PostgresPool
from contexture.adapters.postgres.tables import PostgresTables
from contexture.errors import SourceTimeout, SourceUnavailable
from contexture.types import ApiKey

MIGRATIONS = (
    """
    CREATE TABLE keys (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, hash BYTEA NOT NULL, tenant TEXT NOT NULL, "user" TEXT NOT NULL,
        groups TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION, revoked DOUBLE PRECISION,
        rights TEXT
    );
    """,
)


_OUTAGE_GRACE = timedelta(minutes=5)
_MAX_REMEMBERED_KEYS = 4_096


class PostgresKeys(ApiKeys):
    """API keys of one store; each is read when it is presented, so a revoked key fails everywhere at once.

    While the database cannot be reached, a key that was valid here in the last five minutes is still accepted, so that
    contexts are built without the unavailable sources (degradation) instead of not at all.
    """

    needs_thread = True

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool
        self._tables = PostgresTables(pool, "keys", MIGRATIONS)
        self._recently_valid: OrderedDict[bytes, tuple[datetime, ApiKey]] = OrderedDict()
        self._recent_lock = threading.Lock()

    def _storage_errors(self) -> AbstractContextManager[None]:
        """The pool raises its own errors."""
        return nullcontext()

    def _check_space(self) -> None:
        """The database watches its own disk."""

    def find(self, presented: str, *, now: datetime) -> ApiKey | None:
        """The API key with this secret, if it is active; None otherwise.

        Raises the database error if the database cannot be reached and the key was not valid in the last five minutes.
        """
        digest = hashlib.sha256(presented.encode("utf-8", "surrogatepass")).digest()
        try:
            found = super().find(presented, now=now)
        except (SourceUnavailable, SourceTimeout):
            since, known = self._recently_valid.get(digest, (now, None))
            if known is None or now - since > _OUTAGE_GRACE or not known.is_active(now):
                raise
            return known
        self._remember(digest, found, now)
        return found

    def _remember(self, digest: bytes, found: ApiKey | None, now: datetime) -> None:
        with self._recent_lock:
            self._recently_valid.pop(digest, None)
            if found is not None:
                self._recently_valid[digest] = (now, found)
            if len(self._recently_valid) > _MAX_REMEMBERED_KEYS:
                self._recently_valid.popitem(last=False)

    def close(self) -> None:
        """Release the connections."""
        self._tables.close()
        self._pool.close()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        def work(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return db.execute(statement, values).fetchall()

        return self._tables.run(work)
