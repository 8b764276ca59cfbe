"""Default index, for one process and without set-up: records in SQLite, search in the memory of the process."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TypeVar

from contexture.adapters.index.codec import pack_named_vectors, unpack_header
from contexture.adapters.index.collection_indexes import CollectionIndexes, EmbeddedOptions
from contexture.adapters.index.collection_registry import collection_columns
from contexture.adapters.index.disk_space import check_free_space
from contexture.adapters.index.indexed_store import IndexedStore
from contexture.adapters.index.lock import StoreLock
from contexture.adapters.index.record_store import SqliteRecordStore, StoreChange, pack_records
from contexture.adapters.index.search_ports import SearchBackend
from contexture.adapters.store_damage import RECORDS_DATABASE, sqlite_errors
from contexture.errors import StoreUnwritable
from contexture.types import (
    BM25,
    Collection,
    Hit,
    PreparedRecord,
    Query,
    Record,
    Scope,
    UnembeddedBatch,
    UnembeddedPassage,
    Vector,
)

__all__ = ["BM25", "EmbeddedIndex", "EmbeddedOptions"]

_T = TypeVar("_T")


class EmbeddedIndex(IndexedStore):
    """Implements the `Index` port in one folder.

    index = await EmbeddedIndex.open(Path(".contexture"), EmbeddedOptions(vectors={"minilm-en-2": 384}))
    """

    _for_server = False

    def __init__(self, folder: Path, options: EmbeddedOptions) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as failure:
            raise StoreUnwritable(f"cannot create {str(folder)!r}: {failure.strerror}") from failure
        self._lock = StoreLock(folder)
        self._folder = folder
        with ExitStack() as undo, self._read_session():
            undo.callback(self._lock.release)
            self._sqlite_store = SqliteRecordStore(folder / RECORDS_DATABASE, for_server=self._for_server)
            undo.callback(self._sqlite_store.close)
            search_backend = self._open_search_backend(options)
            undo.callback(search_backend.release)
            super().__init__(str(folder), self._sqlite_store, search_backend, options)
            undo.pop_all()

    @classmethod
    async def open(cls, folder: Path, options: EmbeddedOptions) -> EmbeddedIndex:
        """Open or create the store; writes that the search indexes have not applied are replayed."""
        return await asyncio.to_thread(cls, folder, options)

    def _open_search_backend(self, options: EmbeddedOptions) -> SearchBackend:
        """The search backend: in this process."""
        shutil.rmtree(self._folder / "index", ignore_errors=True)  # files of versions that searched on disk
        return CollectionIndexes(self._sqlite_store, options)

    def _read_session(self) -> AbstractContextManager[None]:
        return sqlite_errors(self._folder / RECORDS_DATABASE)

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The passages that `query.fuse` chooses from the best of every channel, each with all its scores."""
        await self._wait_until_loaded(scope, query.collection)
        return await super().search(scope, query)

    async def spaces(self, scope: Scope, collection: str) -> frozenset[str] | None:
        """Names of the vector spaces of the passages the scope may read, perhaps more; None when unknown."""
        await self._wait_until_loaded(scope, collection)
        return await super().spaces(scope, collection)

    async def _wait_until_loaded(self, scope: Scope, collection: str) -> None:
        """Wait for the partition to be loaded without a thread of its own; an error of that is raised by its user."""
        backend = self._search_backend
        if (
            isinstance(backend, CollectionIndexes)
            and self._registry.find(scope.tenant, collection) is not None
            and backend.find_loaded(scope.tenant, collection) is None
        ):
            loading = asyncio.wrap_future(backend.load(scope.tenant, collection))
            loading.add_done_callback(lambda done: done.cancelled() or done.exception())  # so that nothing is logged
            await asyncio.wait([loading])  # unlike `await loading`, cancelling this leaves the others their load

    async def scrub(self, collections: Sequence[str]) -> Sequence[str]:
        """Remove deleted texts from the files of the records; returns what still holds words of them: nothing."""
        del collections
        await self._read_in_thread(self._sqlite_store.empty_log)
        return ()

    def _with_writes_paused(self) -> AbstractContextManager[object]:
        return self._write_lock

    async def _read_inline(self, work: Callable[[], _T]) -> _T:
        """Run a short read in the calling thread: SQLite is in process, and no other process writes."""
        with self._latch.reader(), self._read_session():
            return work()

    def _save_collection(self, tenant: str, collection: Collection) -> None:
        check_free_space(self._folder)
        self._sqlite_store.declare(tenant, collection)
        self._search_backend.ensure_collection(collection.name, collection_columns(collection))
        self._registry.add(tenant, collection)

    def _upsert(
        self, scope: Scope, collection: str, records: Sequence[PreparedRecord], unchanged: Sequence[Record] = ()
    ) -> int:
        check_free_space(self._folder)
        packed = pack_records(records)
        with self._write_lock:
            check = self._writes.check_cancelled
            return self._apply_change(
                scope, collection, self._sqlite_store.upsert(scope, collection, packed, unchanged, check)
            )

    def _delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        with self._write_lock:
            done, removed = self._sqlite_store.delete(scope, collection, ids, self._writes.check_cancelled)
            self._apply_change(scope, collection, done)
            return removed

    # --- the `VectorBacklog` port ---

    async def count_unembedded(self, scope: Scope, collection: str) -> int:
        """How many passages that the scope may read have no vectors yet."""
        if self._registry.find(scope.tenant, collection) is None:
            return 0

        def count() -> int:
            return self._sqlite_store.count_unembedded(self._access_of_scope(scope, collection).allowed)

        return await self._read_inline(count)

    async def next_unembedded(self, *, after: str, limit: int) -> UnembeddedBatch | None:
        """The next passages to embed, those of the first tenant after `after` that has some; None without any."""
        waiting = self._sqlite_store.unembedded
        if not waiting:
            return None
        found = await self._read_in_thread(lambda: self._sqlite_store.next_unembedded(limit, after))
        if found is None:
            return None
        tenant, collection, rows = found
        records: dict[str, Record] = {}
        for row, text in rows:
            if row.record_id not in records:
                records[row.record_id] = unpack_header(row.header, row.record_id, text)[0]
        return UnembeddedBatch(
            tenant=tenant,
            collection=collection,
            passages=tuple(
                UnembeddedPassage(
                    number=row.pid, record=records[row.record_id], start=row.facts.start, end=row.facts.end
                )
                for row, _ in rows
            ),
            waiting=waiting,
        )

    async def add_vectors(self, batch: UnembeddedBatch, vectors: Mapping[int, Mapping[str, Vector]]) -> frozenset[int]:
        """Write vectors by passage number; returns the passages that were still there to get them."""
        scope = Scope(tenant=batch.tenant, user="vectors")
        packed = {number: pack_named_vectors(row) for number, row in vectors.items()}

        def write() -> frozenset[int]:
            check_free_space(self._folder)
            with self._write_lock:
                change = self._sqlite_store.add_vectors(batch.tenant, batch.collection, packed)
                self._apply_change(scope, batch.collection, change)
            return frozenset(change.removed)

        return await self._write_in_turn(scope, write)

    def _apply_change(self, scope: Scope, collection: str, done: StoreChange) -> int:
        known = self._access_classes.get((scope.tenant, collection))
        if known is not None:
            # Before the search indexes: they must not return passages of unknown access classes.
            known.update(done.classes)
        try:
            self._search_backend.apply_change(scope.tenant, collection, done)
        finally:
            self._journal.record_write(scope.tenant, collection, done.seq, done.touched)
            self._versions[scope.tenant, collection] = done.seq
        return done.seq

    def _release(self) -> None:
        try:
            self._search_backend.flush()
        finally:
            self._search_backend.release()
            self._sqlite_store.close()
            self._lock.release()
