"""Search indexes on a Qdrant server; writes that Qdrant has not applied are sent before a search."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from typing import TypeVar

from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.collection_index import unpack_record
from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.edge_shard import PreparedPoints
from contexture.adapters.index.filters import build_payload
from contexture.adapters.index.indexed_store import IndexedStore
from contexture.adapters.index.qdrant.client import QdrantServer
from contexture.adapters.index.qdrant.collection import NEVER_FILLED, QdrantCollection, TenantLookup
from contexture.adapters.index.qdrant.filters import compile_server_filter
from contexture.adapters.index.qdrant.points import tenant_key
from contexture.adapters.index.qdrant.scoped_view import AccessBoundary, QdrantScopedView
from contexture.adapters.index.record_store import PassageRow, StoreChange, StoreState
from contexture.adapters.index.store_ports import RecordStore
from contexture.errors import SourceError, SourceUnavailable
from contexture.types import FieldType, Filter

_I = TypeVar("_I", bound=IndexedStore)
SendLock = Callable[[], AbstractContextManager[object]]
"""Lock held while points are sent: by one thread of one process at a time, which reads the newest records."""


@dataclass(frozen=True, slots=True)
class QdrantCollectionIndex:
    """Search index of one collection on a Qdrant server."""

    collection: QdrantCollection
    record_store: RecordStore
    exact_limit: int

    def missing_columns(self, where: Filter | None) -> set[str]:
        """Always empty: Qdrant has every field."""
        del where
        return set()

    def scoped_view(self, access: ScopeAccess, where: Filter | None) -> QdrantScopedView:
        """The collection restricted to these permissions and this filter.

        Search is exact if the scope may read at most `exact_limit` passages.
        """
        tenant = tenant_key(access.tenant)
        exact = access.passages <= self.exact_limit
        boundary = AccessBoundary(compile_server_filter(access, where), access.allowed, tenant, exact)
        return QdrantScopedView(self.collection, boundary, self.record_store.load_vectors)


class QdrantCollectionIndexes:
    """Search backend with a Qdrant collection per collection.

    A write that Qdrant could not take is still in the record store. Its collection is dirty until Qdrant has it, and
    a dirty collection is not searched.
    """

    def __init__(
        self,
        server: QdrantServer,
        store: str,
        record_store: RecordStore,
        options: EmbeddedOptions,
        turn: SendLock | None = None,
    ) -> None:
        self._server = server
        self._store_id = store
        self._record_store = record_store
        self._options = options
        self._send_lock: SendLock = turn or _process_lock()
        self._collections: dict[str, QdrantCollection] = {}
        self._tenant_keys: dict[int, str] = {}
        self.columns = record_store.declared_columns()
        self._columns_lock = threading.Lock()
        # By collection: how often it was marked dirty, and that count as of its last completed sync.
        self._dirty_counts: Counter[str] = Counter()
        self._synced_counts: dict[str, int] = {}
        self._last_failure = ""
        self._failures = 0
        self._retry_at = 0.0

    @property
    def last_error(self) -> str:
        """Error of the last use of Qdrant; empty when it succeeded."""
        return self._last_failure or next(
            (box.last_error for box in list(self._collections.values()) if box.last_error), ""
        )

    def collection_index(self, name: str) -> QdrantCollectionIndex:
        """The search index of a collection, after sending Qdrant every missing write; raises when that fails."""
        self.sync(name)
        return QdrantCollectionIndex(self._collections[name], self._record_store, self._options.exact_limit)

    def spaces(self, name: str, access: ScopeAccess) -> None:
        """Always unknown: asking Qdrant would take longer than a needless embedding."""
        del name, access

    def sync(self, name: str) -> None:
        """Send Qdrant every write to a collection that it has not applied; raises when that fails."""
        if not self._is_dirty(name):
            return
        failures = self._failures
        with self._server.probe(), self._send_lock():
            if self._failures != failures:  # another thread failed while this one waited: fail fast
                raise SourceUnavailable(f"{self._server.name} failed a moment ago")
            if self._is_dirty(name):
                doubt = self._dirty_counts[name]
                with self._track_failure(name):
                    self._send_missing(name)
                self._synced_counts[name] = doubt

    def try_sync(self, names: Iterable[str]) -> None:
        """`sync` these collections if Qdrant can be reached now; otherwise the next search does it."""
        with suppress(SourceError):
            for name in names if monotonic() >= self._retry_at else ():
                self.sync(name)

    def mark_dirty(self, names: Iterable[str]) -> None:
        """Note that these collections were written to: `sync` sends the writes before the next search."""
        self._dirty_counts.update(names)

    def ensure_collection(self, name: str, columns: Mapping[str, FieldType]) -> None:
        """Add a collection, or fields to a known one; Qdrant gets them with the next `sync`."""
        with self._columns_lock:  # threads that catch up and threads that send may add columns at the same time
            known = self.columns.get(name)
            wanted = {**(known or {}), **columns}
            if wanted != known:
                self.columns[name] = wanted
                self.mark_dirty([name])

    def prepare_points(self, name: str, added: Sequence[PassageRow]) -> PreparedPoints:
        """Always empty: points are built when they are sent."""
        del name, added
        return PreparedPoints((), {})

    def drop_collection(self, name: str) -> None:
        """Drop a collection that no longer exists."""
        self.columns.pop(name, None)
        self._collections.pop(name, None)
        self._dirty_counts.pop(name, None)

    def apply_change(self, name: str, done: StoreChange, draft: PreparedPoints | None = None) -> bool:
        """Send a committed change to Qdrant if it can be reached; otherwise `sync` sends it. Returns False."""
        del draft
        self._send_change(name, done)
        return False

    def _send_change(self, name: str, done: StoreChange) -> None:
        if self._server.timed_out:  # `sync` lets one caller at a time try a server that timed out
            self.mark_dirty([name])
            self.try_sync([name])
            return
        with self._send_lock():
            behind = self._is_dirty(name)
            self.mark_dirty([name])
            if behind:
                self.try_sync([name])
                return
            doubt = self._dirty_counts[name]
            with suppress(SourceError), self._track_failure(name):
                tenants = self._tenant_lookup(name)
                owners = frozenset(tenants(row.access) for row in done.added) or None
                self._collections[name].apply(done.added, done.removed, self._record_store.state(), tenants, owners)
                self._synced_counts[name] = doubt

    def rebuild_all(self) -> None:
        """Mark every collection dirty, so that `sync` checks its state: an earlier one may have been restored."""
        self._tenant_keys.clear()
        self.mark_dirty(self.columns)

    def recover(self) -> None:
        """Do nothing: missing writes are sent once the store is open."""

    def add_columns(self, name: str, fields: set[str]) -> None:
        """Do nothing: Qdrant has every field."""

    def add_declared_columns(self) -> None:
        """Do nothing: Qdrant has every field."""

    def flush(self) -> None:
        """Prune tombstones if no collection is dirty: what Qdrant has applied is durable."""
        if not any(map(self._is_dirty, self.columns)):
            self._record_store.prune_removed(self._record_store.seq)

    def optimize(self) -> None:
        """Flush only: Qdrant merges segments by itself."""
        self.flush()

    def warm(self) -> None:
        """Send missing writes to Qdrant, so that the first real query does not wait for them."""
        self.try_sync(self.columns)

    def release(self) -> None:
        """Close the connections to Qdrant."""
        self._server.close()

    # --- inside ---

    @contextmanager
    def _track_failure(self, name: str) -> Generator[None]:
        """Record a failure of Qdrant or the record store, and delay the next `try_sync`.

        After a `SourceUnavailable` the collection is not trusted, so that the next `sync` checks its state.
        """
        try:
            yield
            self._last_failure = ""
        except SourceError as failure:
            self._last_failure = str(failure)
            if name in self._collections and isinstance(failure, SourceUnavailable):
                self._collections[name].is_trusted = False
            self._failures += 1
            self._retry_at = monotonic() + self._server.options.pause
            raise

    def _is_dirty(self, name: str) -> bool:
        box = self._collections.get(name)
        return box is None or not box.is_trusted or self._synced_counts.get(name) != self._dirty_counts[name]

    def _send_missing(self, name: str) -> None:
        """Send the writes to a collection that Qdrant has not applied; all of them if its state is unknown."""
        box, first = self._prepare_collection(name)
        seen = box.applied_state
        # Otherwise an earlier state was restored, or the missing writes are no longer in the write log.
        has_history = box.was_complete and self._record_store.has_history_since(seen)
        self._replay(box, name, seen if has_history else NEVER_FILLED)
        if box.missing_fields:
            if has_history:
                self._fill_fields(box, name)
            box.mark_complete()
        if (first or not has_history) and box.count() != self._record_store.count(name):
            if has_history:
                self._replay(box, name, NEVER_FILLED)
            box.remove_unknown(self._record_store.passage_keys)
        self._collections[name] = box

    def _replay(self, box: QdrantCollection, name: str, seen: StoreState) -> None:
        now = self._record_store.state()
        if seen != now:
            removed, added = (
                self._record_store.removed_since(seen.seq, name),
                self._record_store.passages_since(seen.seq, name),
            )
            box.apply(added, removed, now, self._tenant_lookup(name))

    def _fill_fields(self, box: QdrantCollection, name: str) -> None:
        """Send the passages that have a value for new fields again.

        Others are skipped, so that a field of one tenant causes no work for the passages of others.
        """
        lacking = box.missing_fields
        rows = (row for row in self._record_store.passages_since(0, name) if build_payload(unpack_record(row), lacking))
        box.apply(rows, (), self._record_store.state(), self._tenant_lookup(name))

    def _prepare_collection(self, name: str) -> tuple[QdrantCollection, bool]:
        """The `QdrantCollection` with the current columns, and whether it was newly prepared and must be checked."""
        found, columns = self._collections.get(name), self.columns[name]
        if found is not None and found.is_trusted and found.columns == columns:
            return found, False
        box = QdrantCollection(self._server, self._store_id, name, columns, self._options.vectors)
        box.prepare()
        return box, True

    def _tenant_lookup(self, name: str) -> TenantLookup:
        """Function from an access class to the key of its tenant in Qdrant."""

        def key(access: int) -> str:
            if access not in self._tenant_keys:
                self._tenant_keys |= {
                    number: tenant_key(one.tenant)
                    for number, one in self._record_store.load_access_classes(name).items()
                }
            return self._tenant_keys[access]

        return key


async def warm_or_close(index: _I) -> _I:
    """Warm up an index and return it; close it if that fails."""
    async with AsyncExitStack() as undo:
        undo.push_async_callback(index.close)
        await index.warm()
        undo.pop_all()
    return index


def _process_lock() -> SendLock:
    lock = threading.RLock()
    return lambda: lock
