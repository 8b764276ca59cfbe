"""Index for several processes: records in PostgreSQL, and a replica of the search indexes in each process."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from contexture.adapters.index.checks import check_unchanged, merge_collection
from contexture.adapters.index.collection_indexes import CollectionIndexes, EmbeddedOptions
from contexture.adapters.index.collection_registry import CollectionRegistry, collection_columns
from contexture.adapters.index.indexed_store import IndexedStore
from contexture.adapters.index.journal import WriteJournal
from contexture.adapters.index.postgres import write
from contexture.adapters.index.postgres.listener import WriteListener
from contexture.adapters.index.postgres.packing import pack_records
from contexture.adapters.index.postgres.record_store import PostgresRecordStore, WriteLogEntry
from contexture.adapters.index.postgres.replica import ReplicaFolder
from contexture.adapters.index.postgres.schema import MIGRATIONS
from contexture.adapters.index.record_store import StoreChange, StoreState
from contexture.adapters.index.search_ports import SearchBackend
from contexture.adapters.postgres.migrations import migrate
from contexture.adapters.postgres.pool import PostgresPool
from contexture.types import Collection, PreparedRecord, Record, Scope

_MAX_PASSAGES_IN_MEMORY = 4_000  # passages held in memory while catching up
# It blocks no other transaction, and may be idle for long while search indexes are rebuilt.
SNAPSHOT_TRANSACTION = "ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL idle_in_transaction_session_timeout = 0"
_WRITE_LOG_LENGTH = 100_000  # writes that a replica may be behind before it must be rebuilt


class PostgresIndex(IndexedStore):
    """Implements the `Index` port over a database that several processes share.

    index = await PostgresIndex.open("postgres://db/app", Path(".contexture"), EmbeddedOptions(vectors={...}))

    Before each call a process reads the state of the store and applies the writes it has not seen, so that a write
    acknowledged by one process is visible to all. `folder` holds search indexes, which can be rebuilt.
    """

    def __init__(self, pool: PostgresPool, folder: Path, options: EmbeddedOptions) -> None:
        self.pool = pool
        self._partly_applied = False
        self._seq_offset = 0  # added to sequence numbers, so that they rise even if those of the database fall
        with ExitStack() as undo:
            undo.callback(pool.close)
            migrate(pool, pool.schema, MIGRATIONS)
            self._replica = ReplicaFolder(folder)
            undo.callback(self._replica.release)
            self._postgres_store = PostgresRecordStore(pool, self._replica.state_file)
            with pool.transaction(SNAPSHOT_TRANSACTION):
                self._postgres_store.applied_state = self._postgres_store.state()
                self._replica.discard_if_stale(self._postgres_store)
                search_backend = self._open_search_backend(options)
                undo.callback(search_backend.release)
                super().__init__(pool.name, self._postgres_store, search_backend, options)
            self._listener = WriteListener(pool, self._on_write_notice)
            self._listener.start()
            undo.pop_all()

    @classmethod
    async def open(cls, url: str, folder: Path, options: EmbeddedOptions) -> PostgresIndex:
        """Open or create the store; writes that the local search indexes have not seen are replayed."""
        return await asyncio.to_thread(lambda: cls(PostgresPool(url), folder, options))

    def _open_search_backend(self, options: EmbeddedOptions) -> SearchBackend:
        """The search backend: in this process."""
        return CollectionIndexes(self._postgres_store, options)

    @contextmanager
    def _read_session(self) -> Generator[None]:
        with self.pool.connection():
            self._catch_up()
            yield

    async def spaces(self, scope: Scope, collection: str) -> frozenset[str] | None:
        """Names of the vector spaces of the passages the scope may read; None when they are not cached.

        The database is not read: a search has just called `version`, which caught up.
        """
        known = self._registry.find(scope.tenant, collection) is not None
        access = self._cached_access(scope, collection) if known else None
        return None if access is None else self._search_backend.spaces(collection, access)

    @contextmanager
    def _with_writes_paused(self) -> Generator[None]:
        with self._write_lock, self._caught_up_snapshot():
            yield

    def _save_collection(self, tenant: str, collection: Collection) -> None:
        with self.pool.transaction() as db:
            db.execute("SELECT FROM counter FOR UPDATE")  # another process may be adding other fields
            wanted = merge_collection(self._postgres_store.find_declaration(tenant, collection.name), collection)
            write.declare(db, tenant, wanted)
        self._catch_up()

    def _upsert(
        self, scope: Scope, collection: str, records: Sequence[PreparedRecord], unchanged: Sequence[Record] = ()
    ) -> int:
        packed = pack_records(records)
        with self.pool.transaction() as db:
            if unchanged:
                db.execute("SELECT FROM counter FOR UPDATE")  # blocks all other writers
                allowed = self._access_of_scope(scope, collection).allowed
                ids = [record.id for record in unchanged]
                stored = self._postgres_store.load_records(collection, scope.tenant, ids, allowed)
                check_unchanged(unchanged, stored.values())
            change = write.upsert(db, scope, collection, packed, lambda _: None)
            self._writes.check_cancelled()
        self._catch_up(change)
        return change.seq + self._seq_offset

    def _delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        with self.pool.transaction() as db:
            removed = write.delete(db, scope, collection, ids)
        self._catch_up()
        return removed

    def _optimize(self) -> None:
        with self._write_lock, self._caught_up_snapshot():
            self._search_backend.optimize()
        with self.pool.transaction() as db:
            db.execute("UPDATE counter SET forgotten = greatest(forgotten, seq - %s)", (_WRITE_LOG_LENGTH,))
            db.execute("DELETE FROM writes WHERE seq < (SELECT forgotten FROM counter)")

    def _release(self) -> None:
        self._listener.stop()
        try:
            self._search_backend.flush()
        finally:
            self._search_backend.release()
            self._replica.release()
            self.pool.close()

    # --- catching up ---

    def _on_write_notice(self) -> None:
        """Catch up with a write of another process now, so that the next call does not have to."""
        with self._latch.reader(), self._read_session():
            pass

    def _catch_up(self, mine: StoreChange | None = None) -> None:
        """Apply every new write to the search indexes; `mine` is applied from memory."""
        if self._postgres_store.state() == self._postgres_store.applied_state and not self._partly_applied:
            return
        with self._write_lock, self._caught_up_snapshot(mine):
            pass

    @contextmanager
    def _caught_up_snapshot(self, mine: StoreChange | None = None) -> Generator[None]:
        """A database snapshot with the search indexes brought up to it; one thread at a time."""
        with self.pool.transaction(SNAPSHOT_TRANSACTION):
            self._advance_to(self._postgres_store.state(), mine)
            yield

    def _advance_to(self, now: StoreState, mine: StoreChange | None) -> None:
        seen = self._postgres_store.applied_state
        if now == seen and not self._partly_applied:
            return
        # Without that history the write log is too short, or an earlier state was restored.
        missed = self._partly_applied or not self._postgres_store.has_history_since(seen)
        self._partly_applied = True  # until all is applied: after a failure some search indexes may be ahead of others
        if missed:
            self._rebuild_everything(now.seq)
        else:
            self._apply_new_writes(now.seq, mine)
        self._partly_applied = False
        # Last: readers of this state assume that everything up to it is applied.
        self._postgres_store.applied_state = now

    def _rebuild_everything(self, last: int) -> None:
        """Rebuild every search index and drop all cached state; versions rise, so that callers' caches expire."""
        self._registry = CollectionRegistry(self._postgres_store.list_declarations())
        self._add_collections(-1)
        self._search_backend.rebuild_all()
        self._access_classes.clear()
        self._reloads += 1
        self._versions.clear()
        self._journal = WriteJournal()
        self._seq_offset += max(0, self._postgres_store.seq - last) + 1
        self._opened_at_seq = last + self._seq_offset

    def _apply_new_writes(self, last: int, mine: StoreChange | None) -> None:
        """Apply the new writes to the search indexes, and record them in the journal."""
        seen = self._postgres_store.seq
        writes = self._postgres_store.load_writes(seen, last)
        # Before the search indexes: they must not return passages of unknown access classes.
        self._refresh_access_classes(writes)
        self._add_collections(seen)
        self._apply_writes(writes, seen, mine)
        self._record_writes(writes)

    def _add_collections(self, seen: int) -> None:
        """Add new collections and fields."""
        for tenant, collection in self._postgres_store.declarations_since(seen):
            self._search_backend.ensure_collection(collection.name, collection_columns(collection))
            self._registry.add(tenant, collection)

    def _apply_writes(self, writes: Sequence[WriteLogEntry], seen: int, mine: StoreChange | None) -> None:
        for until in write.batch_ends(
            ((each.seq, each.added + len(each.removed)) for each in writes), _MAX_PASSAGES_IN_MEMORY
        ):
            some = [each for each in writes if seen < each.seq <= until]
            for place in sorted({(each.tenant, each.collection) for each in some}):
                is_mine = mine is not None and (seen, until) == (mine.seq - 1, mine.seq)
                self._search_backend.apply_change(
                    *place, mine if mine and is_mine else self._load_change(seen, until, *place, some)
                )
            seen = until

    def _load_change(
        self, seen: int, until: int, tenant: str, name: str, writes: Sequence[WriteLogEntry]
    ) -> StoreChange:
        """The change that these writes made to a tenant's part of a collection."""
        removed = tuple(
            pid for each in writes if (each.tenant, each.collection) == (tenant, name) for pid in each.removed
        )
        added = tuple(self._postgres_store.passages_between(seen, until, tenant, name))
        return StoreChange(seq=until, added=added, removed=removed)

    def _refresh_access_classes(self, writes: Sequence[WriteLogEntry]) -> None:
        """Reload the cached access classes that these writes touched."""
        for place, known in self._access_classes.items():
            touched = {number for each in writes if (each.tenant, each.collection) == place for number in each.classes}
            if touched:
                known.update(self._postgres_store.load_access_classes_at(touched))

    def _record_writes(self, writes: Sequence[WriteLogEntry]) -> None:
        """Record the touched records in the journal, and the new versions."""
        for each in writes:
            known, seq = self._load_access_classes(each.tenant, each.collection), each.seq + self._seq_offset
            touched = [(id_, known.readers(number)) for id_, number in zip(each.ids, each.classes, strict=True)]
            self._journal.record_write(each.tenant, each.collection, seq, touched)
            self._versions[each.tenant, each.collection] = seq
