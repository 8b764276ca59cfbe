"""Search indexes on a Qdrant server, and the index that has them over SQLite.

Writes that Qdrant could not take are sent later; until then a search adds their passages from the record store.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TypeVar
from uuid import uuid4

from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.collection_index import unpack_record
from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.adapters.index.filters import BUILT_IN, build_payload, record_matches
from contexture.adapters.index.qdrant.client import QdrantCollectionLost, QdrantServer, QdrantTooOld
from contexture.adapters.index.qdrant.collection import NEVER_FILLED, QdrantCollection, TenantLookup, tenant_key
from contexture.adapters.index.qdrant.search import (
    AccessBoundary,
    QdrantScopedView,
    UnsentLookup,
    compile_server_filter,
)
from contexture.adapters.index.record_store import PassageRow, StoreChange, StoreState
from contexture.adapters.index.scoring import TermWeights, idf_weights
from contexture.adapters.index.search_ports import SearchBackend
from contexture.adapters.index.store_ports import RecordStore
from contexture.errors import SourceError, SourceUnavailable, StoreUnwritable
from contexture.ports import Index
from contexture.types import FieldType, Filter

_I = TypeVar("_I", bound=Index)
_MAX_UNSENT = 2_000  # passages that a search adds from the record store; a collection that lacks more is filled first
SendLock = Callable[[], AbstractContextManager[object]]
"""Lock held while points are sent: by one thread of one process at a time, which reads the newest records."""


@dataclass(frozen=True, slots=True)
class QdrantCollectionIndex:
    """Search index of one collection on a Qdrant server."""

    collection: QdrantCollection
    record_store: RecordStore
    exact_limit: int
    unsent: UnsentLookup

    def scoped_view(self, access: ScopeAccess, where: Filter | None) -> QdrantScopedView:
        """The collection restricted to these permissions and this filter.

        Search is exact if the scope may read at most `exact_limit` passages.
        """
        tenant = tenant_key(access.tenant)
        exact = access.passages <= self.exact_limit
        compiled = compile_server_filter(access, where, self.collection.match_substring)
        boundary = AccessBoundary(compiled, access.allowed, tenant, exact)

        def weigh_terms(terms: Sequence[int]) -> TermWeights:
            return idf_weights(terms, self.record_store.document_frequencies(terms, access.allowed), access.passages)

        return QdrantScopedView(
            self.collection,
            boundary,
            self.record_store.load_vectors,
            weigh_terms,
            partial(self._find_unsent, access, where),
        )

    def _find_unsent(self, access: ScopeAccess, where: Filter | None, seen: StoreState) -> Sequence[PassageRow] | None:
        rows = self.unsent(seen)
        if not rows:
            return rows
        fields = {**self.collection.columns, **BUILT_IN}
        return [
            row
            for row in rows
            if row.access in access.allowed and (where is None or record_matches(where, unpack_record(row), fields))
        ]


class QdrantCollectionIndexes:
    """Search backend with a Qdrant collection per collection.

    A write that Qdrant has not taken is in the record store, and its collection is dirty until Qdrant has it. A search
    of a dirty collection adds the passages that Qdrant lacks, up to some thousands, and otherwise waits for them.
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
        self._sending: Counter[str] = Counter()  # by collection, the writes that are being sent
        # By collection, when it was last clean: the state of its points, and the last write to the store that they had.
        self._clean_states: dict[str, tuple[int, int]] = {}
        self._last_failure = ""
        self._failures = 0
        self._retry_at = 0.0

    @property
    def last_error(self) -> str:
        """Error of the last use of Qdrant; empty when it succeeded."""
        return self._last_failure or next(
            (box.last_error for box in list(self._collections.values()) if box.last_error), ""
        )

    def collection_index(self, tenant: str, name: str) -> QdrantCollectionIndex:
        """The search index of a collection, after trying to send Qdrant the writes that it lacks.

        Raises when that fails and the collection cannot be searched as it is.
        """
        del tenant
        if self._is_dirty(name) and not (self._sending[name] and self._can_search(name)):
            self._sync_or_search_as_is(name)
        return QdrantCollectionIndex(
            self._collections[name], self._record_store, self._options.exact_limit, partial(self._load_unsent, name)
        )

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

    def drop_collection(self, name: str) -> None:
        """Drop a collection that no longer exists."""
        self.columns.pop(name, None)
        self._collections.pop(name, None)
        self._dirty_counts.pop(name, None)

    def apply_change(self, tenant: str, name: str, done: StoreChange) -> None:
        """Send a committed change to Qdrant if it can be reached; otherwise `sync` sends it."""
        del tenant
        if self._server.timed_out:  # `sync` lets one caller at a time try a server that timed out
            self.mark_dirty([name])
            self.try_sync([name])
            return
        self._sending[name] += 1
        try:
            with self._send_lock():
                self._send_in_order(name, done)
        finally:
            self._sending[name] -= 1

    def _send_in_order(self, name: str, done: StoreChange) -> None:
        behind = self._is_dirty(name)
        if not behind:
            self._clean_states[name] = (self._collections[name].applied.seq, done.seq - 1)
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

    def _sync_or_search_as_is(self, name: str) -> None:
        """`sync` unless that failed a moment ago; raises if it fails and a search could not make up for it."""
        box = self._collections.get(name)
        if box is not None and not box.last_error and monotonic() < self._retry_at and self._can_search(name):
            return
        try:
            self.sync(name)
        except SourceError:
            if self._server.timed_out or not self._can_search(name):
                raise

    def _can_search(self, name: str) -> bool:
        """Whether Qdrant has the collection with all its fields, so that a search can add the passages it lacks."""
        box = self._collections.get(name)
        return box is not None and box.columns == self.columns[name] and box.applied != NEVER_FILLED

    def _load_unsent(self, name: str, seen: StoreState) -> Sequence[PassageRow] | None:
        """The passages that points of this state lack; None if they were too many and have been sent."""
        if not self._is_dirty(name):
            return ()
        if seen != NEVER_FILLED and self._record_store.has_history_since(seen):
            applied, clean = self._clean_states.get(name, (seen.seq + 1, -1))
            since = max(seen.seq, clean) if seen.seq >= applied else seen.seq
            rows = list(islice(self._record_store.passages_since(since, name), _MAX_UNSENT + 1))
            if len(rows) <= _MAX_UNSENT:
                return rows
        self.sync(name)
        return None

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
            if isinstance(failure, QdrantCollectionLost):
                self._collections.pop(name, None)
            elif name in self._collections and isinstance(failure, SourceUnavailable):
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
        seen = box.read_state()
        # Otherwise an earlier state was restored, or the missing writes are no longer in the write log.
        has_history = box.was_complete and self._record_store.has_history_since(seen)
        if first and has_history and not box.missing_fields:  # it can be searched, whether or not it takes the writes
            box.is_trusted = False
            self._collections[name] = box
        self._replay(box, name, seen if has_history else NEVER_FILLED)
        if box.missing_fields:
            if has_history:
                self._fill_fields(box, name)
            box.mark_complete()
        if (first or not has_history) and box.count() != self._record_store.count(name):
            box.remove_unknown(self._record_store.passage_keys)
            if has_history and box.count() != self._record_store.count(name):
                self._replay(box, name, NEVER_FILLED)
        box.is_trusted = True
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


async def open_checked(make: Callable[[], _I], server: QdrantServer) -> _I:
    """Make and warm up an index; close it if that fails. Raises `QdrantTooOld` for a server of an older version."""
    await asyncio.to_thread(_check_version, server)
    async with AsyncExitStack() as undo:
        index = await asyncio.to_thread(make)
        undo.push_async_callback(index.close)
        await index.warm()
        undo.pop_all()
    return index


def _check_version(server: QdrantServer) -> None:
    try:
        server.check_version()
    except QdrantTooOld:
        server.close()
        raise
    except SourceError:  # the first call that reaches it checks again
        return


def _process_lock() -> SendLock:
    lock = threading.RLock()
    return lambda: lock


class QdrantOverSqlite(EmbeddedIndex):
    """Implements the `Index` port for one process: records in a local folder, search in Qdrant.

    server = QdrantServer(QdrantOptions(place="qdrant://db"))
    index = await QdrantOverSqlite.open_with_server(Path(".contexture"), options, server)
    """

    _for_server = True

    def __init__(self, folder: Path, options: EmbeddedOptions, server: QdrantServer) -> None:
        self._server = server
        super().__init__(folder, options)

    @classmethod
    async def open_with_server(cls, folder: Path, options: EmbeddedOptions, server: QdrantServer) -> QdrantOverSqlite:
        """Open or create the store; writes that Qdrant has not applied are sent, now or once it can be reached."""
        return await open_checked(lambda: cls(folder, options, server), server)

    def _open_search_backend(self, options: EmbeddedOptions) -> SearchBackend:
        return QdrantCollectionIndexes(
            self._server, _load_store_id(self._folder / "qdrant.store"), self._sqlite_store, options
        )


def _load_store_id(path: Path) -> str:
    """Unique id of the store on its Qdrant server, created if missing.

    It is kept beside the SQLite file, not in it, so that a store restored by `contexture restore` gets another id.
    """
    if not path.exists() or not path.stat().st_size:  # empty if its creation was interrupted
        try:
            path.write_text(uuid4().hex, "ascii")
        except OSError as failure:
            raise StoreUnwritable(f"cannot write {str(path)!r}: {failure.strerror}") from failure
    return path.read_text("ascii")
