"""Search indexes of the embedded store: one per tenant and collection, loaded when first asked, evicted by memory."""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeVar

from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.collection_index import CollectionIndex
from contexture.adapters.index.collection_registry import collection_columns
from contexture.adapters.index.record_store import StoreChange
from contexture.adapters.index.store_ports import ReplaySource
from contexture.errors import SourceUnavailable
from contexture.types import FieldType

MAX_PARTITION_PASSAGES = 1_000_000
"""Passages of one tenant in one collection up to which the embedded index is meant to be used."""

_T = TypeVar("_T")
_LARGE_PASSAGES = 20_000  # partitions of more passages are loaded apart, so that small ones never wait for them
_WARMED_PARTITIONS = 16
_PARTITION_OVERHEAD = 1 << 15  # bytes of the objects that even an empty partition consists of
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedOptions:
    """Layout of the embedded index.

    Partitions, each a tenant's part of a collection, are kept in memory up to `memory_bytes` together; 0 stands for
    half of what the machine or its container has. Only Qdrant reads `exact_limit`: embedded search is always exact.
    """

    vectors: Mapping[str, int]
    threads: int = 2
    memory_bytes: int = 0
    exact_limit: int = MAX_PARTITION_PASSAGES


@dataclass(eq=False, slots=True)
class _Partition:
    """A tenant's part of a collection: its index if it is loaded, and the writes since its loading began."""

    tenant: str
    collection: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    index: CollectionIndex | None = None
    loading: Future[CollectionIndex] | None = None
    pending: list[StoreChange] = field(default_factory=list[StoreChange])
    nbytes: int = 0
    last_used: int = 0


class CollectionIndexes:
    """Search backend with a `CollectionIndex` per partition, which is read from the record store when first asked.

    A write to a partition that is not loaded costs nothing here. Above the memory limit the partitions that were not
    searched for longest are dropped; the next search loads them again, with the same answers.
    """

    def __init__(self, record_store: ReplaySource, options: EmbeddedOptions) -> None:
        self._record_store = record_store
        self._options = options
        self._memory_limit = options.memory_bytes or _available_memory() // 2
        self._partitions: dict[tuple[str, str], _Partition] = {}
        self._guard = threading.Lock()
        self._clock = count(1)
        self._is_closing = False
        self._executor: Executor | None = None
        if options.threads > 1:
            self._executor = ThreadPoolExecutor(options.threads - 1, thread_name_prefix="contexture-scan")
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="contexture-load")
        self._large_loader = ThreadPoolExecutor(1, thread_name_prefix="contexture-load-large")

    @property
    def last_error(self) -> str:
        """What to use instead where a loaded partition is larger than the embedded index is meant for; else empty."""
        sizes = ((len(one.index), one) for one in list(self._partitions.values()) if one.index is not None)
        most, one = max(sizes, key=lambda each: each[0], default=(0, None))
        return describe_size(one.tenant, one.collection, most) if one and most > MAX_PARTITION_PASSAGES else ""

    @property
    def nbytes(self) -> int:
        """Approximate memory of all loaded partitions."""
        return sum(one.nbytes for one in list(self._partitions.values()))

    def collection_index(self, tenant: str, name: str) -> CollectionIndex:
        """The index of a partition, with every write applied; waits until it is loaded."""
        return self.find_loaded(tenant, name) or self.load(tenant, name).result()

    def find_loaded(self, tenant: str, name: str) -> CollectionIndex | None:
        """The index of a partition if it is loaded."""
        one = self._find(tenant, name)
        one.last_used = next(self._clock)
        return one.index

    def load(self, tenant: str, name: str) -> Future[CollectionIndex]:
        """Load a partition unless that is under way; the future is shared, so nobody may cancel it."""
        one = self._find(tenant, name)
        if (loading := one.loading) is not None:
            return loading
        with one.lock:
            if one.index is not None:
                loaded: Future[CollectionIndex] = Future()
                loaded.set_result(one.index)
                return loaded
            if one.loading is None:
                one.loading = self._start_loading(one)
            return one.loading

    def spaces(self, name: str, access: ScopeAccess) -> frozenset[str] | None:
        """Names of the vector spaces of the readable passages, perhaps more; None while they are not loaded."""
        index = self._find(access.tenant, name).index
        return None if index is None else index.spaces(access)

    def ensure_collection(self, name: str, columns: Mapping[str, FieldType]) -> None:
        """Do nothing: a partition is made when it is loaded, and a column when a filter names it."""

    def apply_change(self, tenant: str, name: str, done: StoreChange) -> None:
        """Apply a committed change to the partition if it is loaded, or as soon as it is."""
        one = self._find(tenant, name)
        with one.lock:
            if one.loading is not None:
                one.pending.append(done)
            if one.index is None:
                return
            is_applied = False
            try:
                one.index.apply(done.added, done.removed)
                is_applied = True
            except MemoryError:
                pass  # the write is committed all the same
            finally:
                if not is_applied:
                    one.index, one.nbytes = None, 0  # the next search loads the partition again
            if one.index is None:
                return
            one.nbytes = one.index.nbytes + _PARTITION_OVERHEAD
            if one.index.needs_compaction and one.loading is None:
                one.loading = self._start_loading(one)
        self._evict(one)

    def rebuild_all(self) -> None:
        """Drop every partition; needed when missed writes cannot be replayed."""
        for one in list(self._partitions.values()):
            with one.lock:
                one.index, one.nbytes = None, 0

    def flush(self) -> None:
        """Do nothing: nothing here outlives the process."""

    def optimize(self) -> None:
        """Merge the posting lists of the loaded partitions."""
        for one in list(self._partitions.values()):
            if (index := one.index) is not None:
                index.merge()
                one.nbytes = index.nbytes + _PARTITION_OVERHEAD

    def warm(self) -> None:
        """Load the largest partitions that fit into memory, and the columns of their declared fields."""
        for tenant, name, _ in self._record_store.largest_partitions(_WARMED_PARTITIONS):
            if self.nbytes >= self._memory_limit:
                return
            index = self.collection_index(tenant, name)
            index.load_columns(collection_columns(self._record_store.find_declaration(tenant, name)))

    def release(self) -> None:
        """Stop the threads and drop all partitions."""
        self._is_closing = True
        for executor in (self._loader, self._large_loader):
            executor.shutdown(cancel_futures=True)
        for one in list(self._partitions.values()):
            if one.loading is not None and not one.loading.done():
                one.loading.set_exception(SourceUnavailable("the store is closed"))
        self._partitions.clear()
        if self._executor is not None:
            self._executor.shutdown(wait=False)

    # --- inside ---

    def _find(self, tenant: str, name: str) -> _Partition:
        found = self._partitions.get((tenant, name))
        if found is None:
            with self._guard:
                found = self._partitions.setdefault((tenant, name), _Partition(tenant, name))
        return found

    def _start_loading(self, one: _Partition) -> Future[CollectionIndex]:
        """Start to load a partition; writes from now on are kept in `pending`."""
        if self._is_closing:
            raise SourceUnavailable("the store is closed")
        loading: Future[CollectionIndex] = Future()
        one.pending = []
        self._loader.submit(self._load, one, loading, self._large_loader)
        return loading

    def _load(self, one: _Partition, loading: Future[CollectionIndex], large: Executor | None) -> None:
        """Load a partition and publish it; leave it to `large` if it is large."""
        try:
            expected = self._record_store.count(one.collection, one.tenant)
            if large is not None and expected > _LARGE_PASSAGES:
                large.submit(self._load, one, loading, None)
                return
            index = self._read_partition(one, expected)
            with one.lock:
                for change in one.pending:
                    index.apply(change.added, change.removed)
                one.loading, one.pending, one.index = None, [], index
                one.nbytes, one.last_used = index.nbytes + _PARTITION_OVERHEAD, next(self._clock)
        except BaseException as failure:  # noqa: BLE001 - raised again where the partition is waited for
            with one.lock:
                one.loading, one.pending = None, []
            loading.set_exception(failure)
            return
        loading.set_result(index)
        self._evict(one)

    def _read_partition(self, one: _Partition, expected: int) -> CollectionIndex:
        place = one.collection, one.tenant
        index = CollectionIndex(
            self._options.vectors,
            lambda after: self._record_store.iter_headers(*place, after),
            self._record_store.passage_keys,
            self._executor,
        )
        index.fill(self._until_closed(self._record_store.iter_partition(*place)), expected)
        return index

    def _until_closed(self, rows: Iterable[_T]) -> Iterator[_T]:
        for row in rows:
            if self._is_closing:
                raise SourceUnavailable("the store is closed")
            yield row

    def _evict(self, used: _Partition) -> None:
        """Drop partitions that were not searched for longest, until the others fit into memory; never `used`."""
        if self.nbytes <= self._memory_limit:
            return
        for one in sorted(self._partitions.values(), key=lambda each: each.last_used):
            if one is not used and one.index is not None:
                with one.lock:
                    one.index, one.nbytes = None, 0
                if self.nbytes <= self._memory_limit:
                    return


def describe_size(tenant: str, collection: str, passages: int) -> str:
    """What to use instead of the embedded index for a partition of so many passages."""
    return (
        f"collection {collection!r} of tenant {tenant!r} has {passages:,} passages; the embedded index is meant for "
        f"up to {MAX_PARTITION_PASSAGES:,}: answers stay exact but take longer. Use PostgreSQL or Qdrant instead"
    )


def _available_memory() -> int:
    """Memory of the machine, or of the container if that has less."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP_LIMIT.read_text("ascii").strip()
    except OSError:
        return found
    return min(found, int(limit)) if limit.isdecimal() else found
