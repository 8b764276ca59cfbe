"""Index with records in PostgreSQL and search in Qdrant; several processes share both."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.collection_registry import collection_columns
from contexture.adapters.index.postgres.index import SNAPSHOT_TRANSACTION, PostgresIndex
from contexture.adapters.index.postgres.record_store import WriteLogEntry
from contexture.adapters.index.qdrant.client import QdrantServer
from contexture.adapters.index.qdrant.collection_indexes import QdrantCollectionIndexes, open_checked
from contexture.adapters.index.record_store import StoreChange
from contexture.adapters.index.search_ports import SearchBackend
from contexture.adapters.postgres.pool import PostgresPool, errors
from contexture.errors import SourceTimeout
from contexture.types import PreparedRecord, Record, Scope


class QdrantOverPostgres(PostgresIndex):
    """Implements the `Index` port over a PostgreSQL database and a Qdrant server that several processes share.

    server = QdrantServer(QdrantOptions(place="qdrant://db"))
    index = await QdrantOverPostgres.open_with_server("postgres://db/app", folder, options, server)

    Each write is sent to Qdrant once, by the process that made it or the first process that finds it missing.
    """

    def __init__(self, pool: PostgresPool, folder: Path, options: EmbeddedOptions, server: QdrantServer) -> None:
        self._server = server
        self._qdrant: QdrantCollectionIndexes
        self._send_mutex = threading.RLock()
        super().__init__(pool, folder, options)

    @classmethod
    async def open_with_server(
        cls, url: str, folder: Path, options: EmbeddedOptions, server: QdrantServer
    ) -> QdrantOverPostgres:
        """Open or create the store; writes that Qdrant has not applied are sent, now or once it can be reached."""
        return await open_checked(lambda: cls(PostgresPool(url), folder, options, server), server)

    def _open_search_backend(self, options: EmbeddedOptions) -> SearchBackend:
        self._qdrant = QdrantCollectionIndexes(
            self._server, self._postgres_store.store_id(), self._postgres_store, options, self._send_lock
        )
        return self._qdrant

    @contextmanager
    def _send_lock(self) -> Generator[None]:
        """Lock held while points are sent to Qdrant: no other process sends, and reads see a current snapshot.

        Raises `SourceTimeout` if another process holds it for too long.
        """
        key = int.from_bytes(hashlib.sha256(self._postgres_store.store_id().encode()).digest()[:8], "big", signed=True)
        with self._send_mutex, self.pool.connection() as connection:
            try:
                connection.execute("SELECT pg_advisory_lock(%s)", (key,))
            except errors.LockNotAvailable as busy:
                raise SourceTimeout(f"{self._server.name} is still being filled by another process") from busy
            try:
                with self.pool.transaction(SNAPSHOT_TRANSACTION):
                    self._load_new_columns()
                    yield
            finally:
                connection.execute("SELECT pg_advisory_unlock(%s)", (key,))

    @contextmanager
    def _with_writes_paused(self) -> Generator[None]:
        """Also hold the send lock; otherwise Qdrant could get ahead of the snapshot, and be set back to it."""
        with self._write_lock, self._send_lock(), self._caught_up_snapshot():
            yield

    def _load_new_columns(self) -> None:
        """Add fields declared since this process last caught up; points sent now must have them."""
        for _, collection in self._postgres_store.declarations_since(self._postgres_store.seq):
            self._qdrant.ensure_collection(collection.name, collection_columns(collection))

    def _apply_writes(self, writes: Sequence[WriteLogEntry], seen: int, mine: StoreChange | None) -> None:
        """Only mark the collections dirty: the writer sends its write to Qdrant, and a search checks that it did."""
        del seen, mine
        self._qdrant.mark_dirty({each.collection for each in writes})

    def _upsert(
        self, scope: Scope, collection: str, records: Sequence[PreparedRecord], unchanged: Sequence[Record] = ()
    ) -> int:
        number = super()._upsert(scope, collection, records, unchanged)
        self._qdrant.try_sync([collection])
        return number

    def _delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        removed = super()._delete(scope, collection, ids)
        self._qdrant.try_sync([collection])
        return removed
