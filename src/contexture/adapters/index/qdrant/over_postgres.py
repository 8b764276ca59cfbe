"""An index in Qdrant whose truth is PostgreSQL: several processes share both."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from contexture.adapters.index.declared import columns_of
from contexture.adapters.index.parts import Parts
from contexture.adapters.index.postgres.index import SNAPSHOT, Mine, PostgresIndex
from contexture.adapters.index.postgres.truth import Write
from contexture.adapters.index.qdrant.client import Server
from contexture.adapters.index.qdrant.shelf import RemoteShelf, warmed
from contexture.adapters.index.shelf import EmbeddedOptions
from contexture.adapters.postgres.pool import Pool, errors
from contexture.errors import SourceTimeout
from contexture.types import Prepared, Record, Scope


class QdrantOverPostgres(PostgresIndex):
    """Implements the `Index` port over a database and a Qdrant that several processes share.

    index = await QdrantOverPostgres.opened("postgres://db/app", folder, options, Server(QdrantOptions(place=...)))

    Each write is sent to Qdrant once, by whoever made it or is the first to miss it.
    """

    def __init__(self, pool: Pool, folder: Path, options: EmbeddedOptions, server: Server) -> None:
        self._server = server
        self._remote: RemoteShelf
        self._sending = threading.RLock()
        super().__init__(pool, folder, options)

    @classmethod
    async def opened(cls, url: str, folder: Path, options: EmbeddedOptions, server: Server) -> QdrantOverPostgres:
        """Open the store, made where it is missing; what Qdrant has not seen is sent, now or when it is back."""
        return await warmed(await asyncio.to_thread(lambda: cls(Pool(url), folder, options, server)))

    def _shelve(self, options: EmbeddedOptions) -> Parts:
        self._remote = RemoteShelf(self._server, self._database.identity(), self._database, options, self._turn)
        return self._remote

    @contextmanager
    def _turn(self) -> Generator[None]:
        """Nobody else sends to Qdrant meanwhile, and the database is read as it is from then on."""
        key = int.from_bytes(hashlib.sha256(self._database.identity().encode()).digest()[:8], "big", signed=True)
        with self._sending, self.pool.lent() as connection:
            try:
                connection.execute("SELECT pg_advisory_lock(%s)", (key,))
            except errors.LockNotAvailable as busy:
                raise SourceTimeout(f"{self._server.name} is still being filled by another process") from busy
            try:
                with self.pool.transaction(SNAPSHOT):
                    self._learn_columns()
                    yield
            finally:
                connection.execute("SELECT pg_advisory_unlock(%s)", (key,))

    @contextmanager
    def _still(self) -> Generator[None]:
        """Nobody else sends either: Qdrant would be ahead of what is read, and be brought back to it."""
        with self._writing, self._turn(), self._snapshot():
            yield

    def _learn_columns(self) -> None:
        """Take the fields that were declared since this process followed: what it sends now must have them too."""
        for _, collection in self._database.declared_since(self._database.seq):
            self._remote.add(collection.name, columns_of(collection))

    def _apply(self, writes: Sequence[Write], seen: int, mine: Mine | None) -> None:
        """Nothing is read: whoever wrote has told Qdrant, and whoever searches makes sure of it."""
        del seen, mine
        self._remote.doubt({each.collection for each in writes})

    def _upsert(
        self, scope: Scope, collection: str, records: Sequence[Prepared], unchanged: Sequence[Record] = ()
    ) -> int:
        number = super()._upsert(scope, collection, records, unchanged)
        self._remote.attempt([collection])
        return number

    def _delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        removed = super()._delete(scope, collection, ids)
        self._remote.attempt([collection])
        return removed
