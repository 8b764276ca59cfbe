"""Default index, for one process and without set-up: records in SQLite, search by qdrant-edge in process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TypeVar

from contexture.adapters.index.collection_indexes import CollectionIndexes, EmbeddedOptions
from contexture.adapters.index.collection_registry import collection_columns
from contexture.adapters.index.disk_space import check_free_space
from contexture.adapters.index.indexed_store import IndexedStore
from contexture.adapters.index.lock import StoreLock
from contexture.adapters.index.record_store import SqliteRecordStore, StoreChange, sqlite_errors
from contexture.adapters.index.search_ports import BM25, SearchBackend
from contexture.errors import StoreUnwritable
from contexture.types import Collection, PreparedRecord, Record, Scope

__all__ = ["BM25", "EmbeddedIndex", "EmbeddedOptions"]

_T = TypeVar("_T")


class EmbeddedIndex(IndexedStore):
    """Implements the `Index` port in one folder.

    index = await EmbeddedIndex.open(Path(".contexture"), EmbeddedOptions(vectors={"minilm-en-2": 384}))
    """

    def __init__(self, folder: Path, options: EmbeddedOptions) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as failure:
            raise StoreUnwritable(f"cannot create {str(folder)!r}: {failure.strerror}") from failure
        self._lock = StoreLock(folder)
        self._folder = folder
        with ExitStack() as undo:
            undo.callback(self._lock.release)
            self._sqlite_store = SqliteRecordStore(folder / "truth.sqlite")
            undo.callback(self._sqlite_store.close)
            search_backend = self._open_search_backend(options)
            undo.callback(search_backend.release)
            super().__init__(str(folder), self._sqlite_store, search_backend, options)
            search_backend.recover()
            undo.pop_all()

    @classmethod
    async def open(cls, folder: Path, options: EmbeddedOptions) -> EmbeddedIndex:
        """Open or create the store; writes that the search indexes have not applied are replayed."""
        return await asyncio.to_thread(cls, folder, options)

    def _open_search_backend(self, options: EmbeddedOptions) -> SearchBackend:
        """The search backend: indexes in this folder."""
        return CollectionIndexes(self._folder, self._sqlite_store, options)

    def _read_session(self) -> AbstractContextManager[None]:
        return sqlite_errors(self._folder)

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
        with self._write_lock:
            return self._apply_change(
                scope, collection, self._sqlite_store.upsert(scope, collection, records, unchanged)
            )

    def _delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        with self._write_lock:
            done, removed = self._sqlite_store.delete(scope, collection, ids)
            self._apply_change(scope, collection, done)
            return removed

    def _apply_change(self, scope: Scope, collection: str, done: StoreChange) -> int:
        known = self._access_classes.get(collection)
        if known is not None:
            # Before the search indexes: they must not return passages of unknown access classes.
            known.update(done.classes)
        try:
            self._search_backend.apply_change(collection, done)
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
