"""Base class of indexes that keep records in a database and search them in rebuildable search indexes."""

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice, takewhile
from typing import TypeVar

from contexture.adapters.index.access_classes import AccessClasses, ScopeAccess
from contexture.adapters.index.checks import (
    check_query,
    check_records,
    check_tenant,
    is_valid_id,
    merge_collection,
    unknown_collection_error,
)
from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.collection_registry import CollectionRegistry
from contexture.adapters.index.filters import check_filter, field_types, record_matches, rename_to_columns
from contexture.adapters.index.hits import collect_hits
from contexture.adapters.index.id_spaces import find_owner
from contexture.adapters.index.journal import WriteJournal
from contexture.adapters.index.reader_latch import ReaderLatch
from contexture.adapters.index.record_store import PassageRow
from contexture.adapters.index.search_ports import ScopedSearcher, SearchBackend
from contexture.adapters.index.store_ports import RecordStore
from contexture.adapters.index.write_queue import SLOW_SECONDS, WriteQueue
from contexture.errors import InvalidRequest
from contexture.types import Collection, CollectionChanges, Filter, Hit, Matrix, PreparedRecord, Query, Record, Scope

_T = TypeVar("_T")

_MAX_INLINE_IDS = 32  # up to this many records are read in the calling thread
_MAX_CACHED_CLASSES = 500_000  # access classes of all tenants in memory
_MAX_INLINE_CLASSES = 1_000  # up to this many access classes are collected in the calling thread


class IndexedStore:
    """Implements the `Index`, `Journal` and `Spaces` ports over a record store and a search backend.

    Subclasses implement writes, read sessions and release for their database.
    """

    def __init__(
        self, name: str, records: RecordStore, search_backend: SearchBackend, options: EmbeddedOptions
    ) -> None:
        self._latch = ReaderLatch(f"the store in {name!r} is closed")
        self._record_store = records
        self._search_backend = search_backend
        self._options = options
        self._write_lock = threading.RLock()
        self._writes = WriteQueue()
        self._registry = CollectionRegistry(records.list_declarations())
        self._access_classes: dict[tuple[str, str], AccessClasses] = {}
        self._reloads = 0  # how often a subclass dropped the access classes, because it missed writes
        self._versions: dict[tuple[str, str], int] = {}
        self._journal = WriteJournal()
        self._opened_at_seq = records.seq

    # --- implemented per database ---

    @abstractmethod
    def _read_session(self) -> AbstractContextManager[None]:
        """Context of a read: search indexes have every acknowledged write, and database errors are translated."""

    @abstractmethod
    def _with_writes_paused(self) -> AbstractContextManager[object]:
        """Context in which no write is applied, so that records and search indexes are of the same version."""

    @abstractmethod
    def _save_collection(self, tenant: str, collection: Collection) -> None:
        """Store a collection that is new to a tenant or has new fields."""

    @abstractmethod
    def _upsert(
        self, scope: Scope, collection: str, records: Sequence[PreparedRecord], unchanged: Sequence[Record] = ()
    ) -> int:
        """Write records and update the search indexes; returns the sequence number of the write."""

    @abstractmethod
    def _delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove records and update the search indexes; returns how many were removed."""

    @abstractmethod
    def _release(self) -> None:
        """Flush the search indexes and release files, locks and connections."""

    # --- the `Index`, `Journal` and `Spaces` ports ---

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Create the collection for the tenant, or add fields to it."""
        check_tenant(scope)
        if await self._read_inline(lambda: self._collection_to_save(scope, collection)) is not None:
            await self._write_in_turn(scope, lambda: self._create(scope, collection))

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant, by name."""
        return await self._read_inline(lambda: self._registry.list_for(scope.tenant))

    async def upsert(
        self, scope: Scope, collection: str, records: Sequence[PreparedRecord], *, unchanged: Sequence[Record] = ()
    ) -> int:
        """Write all records or none; returns the sequence number of the write.

        Raises `Outdated` if a record of `unchanged` differs from what is stored, and `NotPermitted` if the scope may
        not read a record it would replace.
        """

        def write() -> int:
            self._require_collection(scope, collection)
            check_records(records, self._options.vectors)
            return self._upsert(scope, collection, records, unchanged)

        return await self._write_in_turn(scope, write)

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove the records that the scope may read; returns how many were removed."""

        def write() -> int:
            self._require_collection(scope, collection)
            return self._delete(scope, collection, [id_ for id_ in ids if is_valid_id(id_)])

        return await self._write_in_turn(scope, write)

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Records that exist and that the scope may read, in the order of `ids`."""
        read = (
            self._read_inline
            if len(ids) <= _MAX_INLINE_IDS and self._cached_access(scope, collection) is not None
            else self._read_in_thread
        )
        return await read(lambda: self._get(scope, collection, [id_ for id_ in ids if is_valid_id(id_)]))

    async def scroll(
        self, scope: Scope, collection: str, *, where: Filter | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """Up to `limit` records that pass the filter, in id order, with ids greater than `after`."""

        def walk() -> list[Record]:
            fields = field_types(self._require_collection(scope, collection))
            if limit < 1 or not is_valid_id(after):
                raise InvalidRequest(f"cannot scroll {limit} records after {after!r}")
            if where is not None:
                check_filter(where, fields)

            def some(allowed: frozenset[int]) -> list[Record]:
                records = self._record_store.iter_records(collection, scope.tenant, allowed, after)
                read = takewhile(lambda _: not cancelled.is_set(), records)
                return list(islice((r for r in read if where is None or record_matches(where, r, fields)), limit))

            return self._read_allowed(scope, collection, some)

        cancelled = threading.Event()
        try:
            return await self._read_in_thread(walk)
        except asyncio.CancelledError:
            cancelled.set()  # the thread would go on to the end of the collection
            raise

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The passages that `query.fuse` chooses from the best of every channel, each with all its scores."""
        return await self._read_in_thread(lambda: self._search(scope, query))

    async def matrices(self, scope: Scope, collection: str, name: str, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """By record id, the matrix stored under `name`, for records that the scope may read."""

        def read() -> dict[str, Matrix]:
            self._require_collection(scope, collection)

            def some(allowed: frozenset[int]) -> dict[str, Matrix]:
                wanted = [id_ for id_ in ids if is_valid_id(id_)]
                return dict(self._record_store.iter_matrices(collection, scope.tenant, name, wanted, allowed))

            return self._read_allowed(scope, collection, some)

        return await self._read_in_thread(read)

    async def list_owners(self, tenant: str, collection: str, ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """By id, the users who have a private record of it, and "" for a shared one; applies no permissions."""

        def read() -> dict[str, frozenset[str]]:
            stored = self._record_store.list_spaces(collection, tenant, [id_ for id_ in ids if is_valid_id(id_)])
            owners: dict[str, set[str]] = {}
            for id_, space in stored:
                owners.setdefault(id_, set()).add(find_owner(space))
            return {id_: frozenset(some) for id_, some in owners.items()}

        return await self._read_in_thread(read)

    async def version(self, scope: Scope, collection: str) -> int:
        """Sequence number of the tenant's last write to the collection since the store was opened.

        Without such a write, the sequence number at which the store was opened.
        """
        return await self._read_inline(lambda: self._version(scope, collection))

    async def changes(self, scope: Scope, collection: str, since: int) -> CollectionChanges | None:
        """Records written after `since` that the scope may read or could read before; None when unknown."""
        return await self._read_inline(lambda: self._changes(scope, collection, since))

    async def spaces(self, scope: Scope, collection: str) -> frozenset[str] | None:
        """Names of the vector spaces of the passages the scope may read, perhaps more; None when unknown."""
        if self._registry.find(scope.tenant, collection) is None:
            return None
        access = self._cached_access(scope, collection)
        if access is None:
            return await self._read_in_thread(
                lambda: self._search_backend.spaces(collection, self._access_of_scope(scope, collection))
            )
        return self._search_backend.spaces(collection, access)

    async def close(self) -> None:
        """Wait for running calls, flush the search indexes and release all resources."""
        await asyncio.to_thread(self._close)

    async def optimize(self) -> None:
        """Compact the search indexes; worth calling after a large load."""
        await self._read_in_thread(self._optimize)

    async def warm(self) -> None:
        """Warm up every search index, so that the first real query is not slower than later ones."""
        await self._read_in_thread(self._warm)

    async def check_health(self) -> str:
        """Error of the last search, or a write that is stuck; empty if all is well.

        Raises `SourceError` when the records cannot be read.
        """
        running = self._writes.running_seconds()
        if running > SLOW_SECONDS:
            return f"a write has been running for {running:.0f} seconds; others wait for it"
        await self.names()
        return self._search_backend.last_error

    # --- beyond the ports ---

    async def names(self) -> Sequence[str]:
        """Names of the collections of all tenants; for operators."""
        return await self._read_inline(lambda: sorted(self._registry.names()))

    def count(self, collection: str) -> int:
        """Number of passages in a collection, over all tenants and readers; for operators."""
        with self._latch.reader(), self._read_session():
            return self._record_store.count(collection)

    # --- inside ---

    async def _write_in_turn(self, scope: Scope, work: Callable[[], _T]) -> _T:
        """Run a write when it is the tenant's turn; one whose caller is cancelled before it is committed is undone."""

        def run_with_reader() -> _T:
            with self._latch.reader(), self._read_session():
                return work()

        return await self._writes.run(scope.tenant, run_with_reader)

    async def _read_in_thread(self, work: Callable[[], _T]) -> _T:
        def run_with_reader() -> _T:
            with self._latch.reader(), self._read_session():
                return work()

        return await asyncio.to_thread(run_with_reader)

    async def _read_inline(self, work: Callable[[], _T]) -> _T:
        """Run a short read in the calling thread where the database is in process; in a thread otherwise."""
        return await self._read_in_thread(work)

    def _require_collection(self, scope: Scope, name: str) -> Collection:
        """The tenant's collection; raises `UnknownCollection`, which names those the tenant has."""
        check_tenant(scope)
        found = self._registry.find(scope.tenant, name)
        if found is None:
            raise unknown_collection_error(name, self._registry.list_for(scope.tenant))
        return found

    def _create(self, scope: Scope, collection: Collection) -> None:
        with self._write_lock:
            wanted = self._collection_to_save(scope, collection)
            if wanted is not None:
                self._save_collection(scope.tenant, wanted)

    def _collection_to_save(self, scope: Scope, collection: Collection) -> Collection | None:
        """The collection merged with what is stored; None when nothing would change."""
        old = self._registry.find(scope.tenant, collection.name)
        wanted = merge_collection(old, collection)
        return None if wanted == old else wanted

    def _version(self, scope: Scope, collection: str) -> int:
        self._require_collection(scope, collection)
        return self._versions.get((scope.tenant, collection), self._opened_at_seq)

    def _changes(self, scope: Scope, collection: str, since: int) -> CollectionChanges | None:
        self._require_collection(scope, collection)
        found = self._journal.touched_since(scope, collection, since)
        if found is None or since < self._opened_at_seq:
            return None
        return CollectionChanges(ids=tuple(found), passages=self._access_of_scope(scope, collection).passages)

    def _get(self, scope: Scope, collection: str, ids: Sequence[str]) -> list[Record]:
        self._require_collection(scope, collection)

        def some(allowed: frozenset[int]) -> list[Record]:
            found = self._record_store.load_records(collection, scope.tenant, ids, allowed)
            return [found[id_] for id_ in ids if id_ in found]

        return self._read_allowed(scope, collection, some)

    def _read_allowed(self, scope: Scope, collection: str, read: Callable[[frozenset[int]], _T]) -> _T:
        """Run `read` with the access classes a scope may read; repeat it if they were reloaded during the read."""
        while True:
            known, reloads = self._load_access_classes(scope.tenant, collection), self._reloads
            found = read(known.access_of_scope(scope).allowed)
            if self._reloads == reloads:
                return found

    def _access_of_scope(self, scope: Scope, collection: str) -> ScopeAccess:
        return self._load_access_classes(scope.tenant, collection).access_of_scope(scope)

    def _load_access_classes(self, tenant: str, collection: str) -> AccessClasses:
        """The access classes of a tenant's part of a collection: loaded when first used, updated with every write."""
        known = self._access_classes.get((tenant, collection))
        if known is None:
            with self._write_lock:  # no write may come between loading and caching them
                known = AccessClasses(self._record_store.load_access_classes(collection, tenant))
                self._cache_access_classes((tenant, collection), known)
        return known

    def _cache_access_classes(self, key: tuple[str, str], known: AccessClasses) -> None:
        """Keep access classes in memory; those loaded first are dropped when there are too many."""
        self._access_classes[key] = known
        total = sum(map(len, self._access_classes.values()))
        for oldest in list(self._access_classes):
            if total <= _MAX_CACHED_CLASSES or oldest == key:
                return
            total -= len(self._access_classes.pop(oldest))

    def _cached_access(self, scope: Scope, collection: str) -> ScopeAccess | None:
        """What a scope may read, if it is cached and cheap to compute; None otherwise."""
        known = self._access_classes.get((scope.tenant, collection))
        return (
            known.access_of_scope(scope)
            if known is not None and known.has_at_most(scope, _MAX_INLINE_CLASSES)
            else None
        )

    def _search(self, scope: Scope, query: Query) -> list[Hit]:
        fields = field_types(self._require_collection(scope, query.collection))
        check_query(query, fields, self._options.vectors)
        if query.where is not None:
            query = replace(query, where=rename_to_columns(query.where, fields))
        hits, overtaken = self._search_once(scope, query)
        if overtaken:
            with self._with_writes_paused():
                hits, _ = self._search_once(scope, query)
        return hits

    def _search_once(self, scope: Scope, query: Query) -> tuple[list[Hit], bool]:
        """Hits, and whether a concurrent write overtook the search, so that hits may be missing.

        In that case the search index proposed passages that are removed by now, or whose access class the scope may
        not read. They are left out, and the next best passages, whose places they took, are missing.
        """
        known, reloads = self._load_access_classes(scope.tenant, query.collection), self._reloads
        access = known.access_of_scope(scope)
        if not access.readable:
            return [], False

        def load_readable(pids: Sequence[int]) -> list[PassageRow]:
            return [row for row in self._record_store.load_passages(pids) if row.access in access.allowed]

        def find_shadowed(pids: Sequence[int]) -> AbstractSet[int]:
            return self._record_store.find_shadowed(pids, access.private) if access.private else frozenset()

        hits, complete = collect_hits(self._open_view(query, access), query, load_readable, find_shadowed)
        return (hits, not complete) if self._reloads == reloads else ([], True)

    def _open_view(self, query: Query, access: ScopeAccess) -> ScopedSearcher:
        return self._search_backend.collection_index(access.tenant, query.collection).scoped_view(access, query.where)

    def _warm(self) -> None:
        self._search_backend.warm()

    def _optimize(self) -> None:
        with self._write_lock:
            self._search_backend.optimize()

    def _close(self) -> None:
        if self._latch.close():
            with self._write_lock:
                self._release()
            self._writes.close()
