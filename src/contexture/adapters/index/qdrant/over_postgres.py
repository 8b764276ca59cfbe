"""Index with records in PostgreSQL and search in Qdrant; several processes share both."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import cast

from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.postgres.index import PostgresIndex, PostgresOptions
from contexture.adapters.index.postgres.replay import PostgresReplay
from contexture.adapters.index.postgres.search import READABLE, SNAPSHOT, PostgresView
from contexture.adapters.index.qdrant.client import QdrantServer
from contexture.adapters.index.qdrant.collection_indexes import QdrantCollectionIndexes, open_checked
from contexture.adapters.index.qdrant.search import QdrantScopedView
from contexture.adapters.index.scoring import TermWeights
from contexture.adapters.index.store_ports import RecordStore
from contexture.adapters.postgres.pool import PostgresPool, errors
from contexture.errors import SourceTimeout
from contexture.types import Collection, PreparedRecord, Record, Scope, UnembeddedBatch, Vector


@dataclass(slots=True)
class ProposingView(PostgresView):
    """Qdrant proposes candidates; PostgreSQL reads and checks them."""

    proposing: QdrantScopedView | None = None

    def find_candidates(
        self, weights: TermWeights, vectors: Mapping[str, Vector], k: int
    ) -> dict[str, dict[int, float]]:
        """By channel, its best `k` passages and all that tie with the last; BM25 comes first."""
        assert self.proposing is not None  # noqa: S101 - set where it is made
        return self.proposing.find_candidates(weights, vectors, k)

    def passage_keys(self, pids: Sequence[int]) -> Mapping[int, tuple[str, int]]:
        """Record id and ordinal of proposed passages, used to break ties."""
        assert self.proposing is not None  # noqa: S101 - set where it is made
        return self.proposing.passage_keys(pids)


class QdrantOverPostgres(PostgresIndex):
    """Implements the `Index` port over a PostgreSQL database and a Qdrant server that several processes share.

    server = QdrantServer(QdrantOptions(place="qdrant://db"))
    index = await QdrantOverPostgres.open_with_server("postgres://db/app", options, server)

    Each write is sent to Qdrant once, by the process that made it or the first process that finds it missing.
    """

    def __init__(self, pool: PostgresPool, options: PostgresOptions, server: QdrantServer) -> None:
        super().__init__(pool, options)
        self._server = server
        self._send_mutex = threading.RLock()
        self._replay = PostgresReplay(pool)
        self._replay.keep_log()
        self._store_id = self._replay.store_id()
        self._seen: Counter[str] = Counter()
        chosen = EmbeddedOptions(vectors=options.vectors, exact_limit=options.exact_limit)
        # It uses those methods of a record store that `PostgresReplay` has.
        records = cast("RecordStore", self._replay)
        self._qdrant = QdrantCollectionIndexes(server, self._store_id, records, chosen, self._send_lock)

    @classmethod
    async def open_with_server(cls, url: str, options: PostgresOptions, server: QdrantServer) -> QdrantOverPostgres:
        """Open or create the store; writes that Qdrant has not applied are sent, now or once it can be reached."""
        return await open_checked(lambda: cls(PostgresPool(url), options, server), server)

    @contextmanager
    def _send_lock(self) -> Generator[None]:
        """Lock held while points are sent to Qdrant: no other process sends, and reads see a current snapshot.

        Raises `SourceTimeout` if another process holds it for too long.
        """
        key = int.from_bytes(hashlib.sha256(self._store_id.encode()).digest()[:8], "big", signed=True)
        with self._send_mutex, self.pool.connection() as connection:
            try:
                connection.execute("SELECT pg_advisory_lock(%s)", (key,))
            except errors.LockNotAvailable as busy:
                raise SourceTimeout(f"{self._server.name} is still being filled by another process") from busy
            try:
                with self.pool.transaction(f"{SNAPSHOT}; SET LOCAL idle_in_transaction_session_timeout = 0"):
                    self._add_declared_columns()
                    yield
            finally:
                connection.execute("SELECT pg_advisory_unlock(%s)", (key,))

    def _add_declared_columns(self) -> None:
        """Add the fields that any process has declared; points sent now must have them."""
        for name, columns in self._replay.declared_columns().items():
            self._qdrant.ensure_collection(name, columns)

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Create the collection for the tenant, or add fields to it."""
        await super().create(scope, collection)
        await self._read(lambda _: self._add_declared_columns())

    async def upsert(
        self, scope: Scope, collection: str, records: Sequence[PreparedRecord], *, unchanged: Sequence[Record] = ()
    ) -> int:
        """Write all records or none, and send them to Qdrant; returns the version of the collection with them."""
        number = await super().upsert(scope, collection, records, unchanged=unchanged)
        await self._send(collection)
        return number

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove the records that the scope may read, also from Qdrant; returns how many were removed."""
        removed = await super().delete(scope, collection, ids)
        await self._send(collection)
        return removed

    async def add_vectors(self, batch: UnembeddedBatch, vectors: Mapping[int, Mapping[str, Vector]]) -> frozenset[int]:
        """Write vectors by passage number, and send them; returns the passages that were still there to get them."""
        written = await super().add_vectors(batch, vectors)
        await self._send(batch.collection)
        return written

    async def warm(self) -> None:
        """Send missing writes to Qdrant, so that the first real query does not wait for them."""
        await self._read(lambda _: self._qdrant.warm())

    async def optimize(self) -> None:
        """Tidy the tables; Qdrant merges its segments by itself."""
        await super().optimize()
        await self._read(lambda _: self._replay.prune_log())

    async def check_health(self) -> str:
        """Error of the last use of Qdrant or the last search; empty if all is well."""
        return await super().check_health() or self._qdrant.last_error

    async def _send(self, collection: str) -> None:
        await self._read(lambda _: self._note_writes(collection))
        await self._read(lambda _: self._qdrant.try_sync([collection]))

    def _note_writes(self, collection: str) -> None:
        """Mark a collection dirty if it was written to, by any process, since this one last looked."""
        last = self._replay.last_write(collection)
        if last != self._seen[collection]:
            if collection not in self._qdrant.columns:
                self._add_declared_columns()
            self._qdrant.mark_dirty([collection])
            self._seen[collection] = last

    def _snapshot(self) -> AbstractContextManager[object]:
        """Also hold the send lock; otherwise Qdrant could get ahead of the snapshot, and be set back to it."""
        return self._send_lock()

    def _open_view(self, view: PostgresView) -> PostgresView:
        name, part = view.asked.part.collection.name, view.asked.part
        self._note_writes(name)
        query = f"SELECT class, private, passages > 0 FROM classes WHERE class = ANY({READABLE})"  # noqa: S608 - fixed
        with self.pool.connection() as db:
            rows = db.execute(query.encode(), view.asked.parameters(), binary=True).fetchall()
        readable = frozenset(number for number, _, held in rows if held)
        access = ScopeAccess(
            allowed=frozenset(number for number, *_ in rows),
            readable=readable,
            hidden=None,
            private=frozenset(number for number, private, held in rows if private and held),
            tenant=part.tenant,
            passages=view.asked.passages,
        )
        found = self._qdrant.collection_index(part.tenant, name)
        mine = cast("RecordStore", self._replay.within(part.part))
        proposing = replace(found, record_store=mine).scoped_view(access, view.asked.query.where)
        return ProposingView(view.pool, view.executor, view.asked, view.exact_limit, view.versions, proposing=proposing)

    def _close(self) -> None:
        super()._close()
        self._qdrant.release()
