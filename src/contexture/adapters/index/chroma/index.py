"""Index in ChromaDB, in a local folder or on a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np

from contexture.adapters.index.checks import check_query, check_records, is_valid_id
from contexture.adapters.index.chroma.client import ChromaClient, check_address, ping
from contexture.adapters.index.chroma.items import DATA, ChromaRecord, decode_base64
from contexture.adapters.index.chroma.search import search
from contexture.adapters.index.chroma.store import ChromaStore
from contexture.adapters.index.filters import check_filter, field_types
from contexture.adapters.index.matrices import unpack_matrix
from contexture.adapters.index.reader_latch import ReaderLatch
from contexture.errors import InvalidRequest
from contexture.types import Collection, Filter, Hit, Matrix, PreparedRecord, Query, Record, Scope

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChromaOptions:
    """Options of a `ChromaIndex`.

    If at most `exact_limit` vectors pass permissions and filter, they are fetched and compared exactly in this process;
    otherwise Chroma's HNSW graph is searched. A request to a server may take `timeout` seconds.
    """

    vectors: Mapping[str, int]
    exact_limit: int = 128
    timeout: float = 30.0


class ChromaIndex:
    """Implements the `Index` port on Chroma.

    options = ChromaOptions(vectors={"minilm-en-2": 384})
    index = await ChromaIndex.open("chroma:./pages", options)
    index = await ChromaIndex.open("chroma+http://localhost:8000", options)
    """

    def __init__(self, place: str, options: ChromaOptions) -> None:
        check_address(place)
        self._place = place
        self._options = options
        self._open_lock = threading.Lock()
        self._store: ChromaStore | None = None
        self._latch = ReaderLatch(f"the index in {place!r} is closed")

    @classmethod
    async def open(cls, place: str, options: ChromaOptions) -> ChromaIndex:
        """Open the index and connect; without `open` the first call connects, and later calls retry if it fails."""
        index = cls(place, options)
        await asyncio.to_thread(index._open_store)
        return index

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Create the collection for the tenant, or add fields to it."""
        await self._run_in_thread(lambda store: store.create(scope, collection))

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant, by name."""
        return await self._run_in_thread(lambda store: store.collections(scope))

    async def upsert(
        self, scope: Scope, collection: str, records: Sequence[PreparedRecord], *, unchanged: Sequence[Record] = ()
    ) -> int:
        """Write all records or none; returns the sequence number of the write.

        Raises `Outdated` if a record of `unchanged` differs from what is stored, and `NotPermitted` if the scope may
        not read a record it would replace.
        """

        def write(store: ChromaStore) -> int:
            store.require_collection(scope, collection)
            check_records(records, store.vectors)
            return store.upsert(scope, collection, records, unchanged)

        return await self._run_in_thread(write)

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove the records that the scope may read; returns how many were removed."""

        def write(store: ChromaStore) -> int:
            store.require_collection(scope, collection)
            return store.delete(scope, collection, [id_ for id_ in ids if is_valid_id(id_)])

        return await self._run_in_thread(write)

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Records that exist and that the scope may read, in the order of `ids`."""

        def find(store: ChromaStore) -> list[Record]:
            store.require_collection(scope, collection)
            return store.load_records(scope, collection, _find_readable(store, scope, collection, ids))

        return await self._run_in_thread(find)

    async def scroll(
        self, scope: Scope, collection: str, *, where: Filter | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """Up to `limit` records that pass the filter, in id order, with ids greater than `after`."""

        def walk(store: ChromaStore) -> list[Record]:
            fields = field_types(store.require_collection(scope, collection))
            if limit < 1 or not is_valid_id(after):
                raise InvalidRequest(f"cannot scroll {limit} records after {after!r}")
            if where is not None:
                check_filter(where, fields)
            board = store.load_mirror(scope, collection).snapshot
            passing = np.flatnonzero(board.visible_mask(scope) & board.filter_mask(where, fields)).tolist()
            behind = (board.records[at] for at in passing if board.records[at].record.id > after)
            return store.load_records(scope, collection, list(islice(behind, limit)))

        return await self._run_in_thread(walk)

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The passages that `query.fuse` chooses from the best of every channel, each with all its scores."""

        def find(store: ChromaStore) -> list[Hit]:
            check_query(query, field_types(store.require_collection(scope, query.collection)), store.vectors)
            return search(store, scope, query)

        return await self._run_in_thread(find)

    async def matrices(self, scope: Scope, collection: str, name: str, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """By record id, the matrix stored under `name`, for records that the scope may read."""

        def find(store: ChromaStore) -> dict[str, Matrix]:
            store.require_collection(scope, collection)
            seen = _find_readable(store, scope, collection, ids)
            items = {kept.matrix_id(name): kept.record.id for kept in seen if name in kept.matrices}
            found = store.matrix_collection(scope, collection).metadata(list(items)) if items else {}
            return {items[item]: unpack_matrix(decode_base64(said[DATA])) for item, said in found.items()}

        return await self._run_in_thread(find)

    async def version(self, scope: Scope, collection: str) -> int:
        """Sequence number of the tenant's last write to the collection; 0 before the first."""

        def find(store: ChromaStore) -> int:
            store.require_collection(scope, collection)
            return store.version(scope, collection)

        return await self._run_in_thread(find)

    async def optimize(self) -> None:
        """Do nothing: Chroma maintains its graphs itself."""

    async def warm(self) -> None:
        """Connect."""
        await self._run_in_thread(lambda _: None)

    async def check_health(self) -> str:
        """Raise `SourceError` when Chroma cannot be reached; it answers searches whenever it is reached."""
        await self._run_in_thread(lambda _: ping(self._place, timeout=self._options.timeout))
        return ""

    async def close(self) -> None:
        """Wait for running calls, then close Chroma; acknowledged writes are already stored."""
        await asyncio.to_thread(self._close)

    async def _run_in_thread(self, work: Callable[[ChromaStore], _T]) -> _T:
        def run_with_reader() -> _T:
            with self._latch.reader():
                return work(self._open_store())

        return await asyncio.to_thread(run_with_reader)

    def _close(self) -> None:
        if self._latch.close() and self._store is not None:
            self._store.close()
            self._store = None

    def _open_store(self) -> ChromaStore:
        with self._open_lock:
            if self._store is None:
                client = ChromaClient(self._place, timeout=self._options.timeout)
                self._store = ChromaStore(client, self._options.vectors, exact_limit=self._options.exact_limit)
            return self._store


def _find_readable(store: ChromaStore, scope: Scope, collection: str, ids: Sequence[str]) -> list[ChromaRecord]:
    """Records that exist and that the scope may read, in the order of `ids`."""
    mirror = store.load_mirror(scope, collection)
    return [kept for id_ in ids if is_valid_id(id_) and (kept := mirror.find_readable(id_, scope)) is not None]
