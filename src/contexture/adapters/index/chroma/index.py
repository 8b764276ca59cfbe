"""The index in ChromaDB: in a folder of this process, or behind the address of a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np

from contexture.adapters.index.checks import check_query, check_records, valid_id
from contexture.adapters.index.chroma.client import Client, check_place
from contexture.adapters.index.chroma.items import DATA, Kept, unpacked
from contexture.adapters.index.chroma.search import search
from contexture.adapters.index.chroma.store import Store
from contexture.adapters.index.filters import check, field_types
from contexture.adapters.index.gate import Gate
from contexture.adapters.index.matrices import unpack_matrix
from contexture.errors import InvalidRequest
from contexture.types import Collection, Filter, Hit, Matrix, Prepared, Query, Record, Scope

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChromaOptions:
    """How Chroma is used.

    Where at most `exact_limit` vectors pass permissions and filter they are fetched and compared here, exactly; where
    more do, Chroma's graph is walked. A request to a server may take `timeout` seconds.
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
        check_place(place)
        self._place = place
        self._options = options
        self._opening = threading.Lock()
        self._store: Store | None = None
        self._gate = Gate(f"the index in {place!r} is closed")

    @classmethod
    async def open(cls, place: str, options: ChromaOptions) -> ChromaIndex:
        """The index with its connection made; without this the first call makes it, and each one until it succeeds."""
        index = cls(place, options)
        await asyncio.to_thread(index._opened)
        return index

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Make the collection for the tenant, or add fields to it."""
        await self._run(lambda store: store.create(scope, collection))

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant, by name."""
        return await self._run(lambda store: store.collections(scope))

    async def upsert(
        self, scope: Scope, collection: str, records: Sequence[Prepared], *, unchanged: Sequence[Record] = ()
    ) -> int:
        """Write all of them or none."""

        def write(store: Store) -> int:
            store.known(scope, collection)
            check_records(records, store.vectors)
            return store.upsert(scope, collection, records, unchanged)

        return await self._run(write)

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove those the scope may see."""

        def write(store: Store) -> int:
            store.known(scope, collection)
            return store.delete(scope, collection, [id_ for id_ in ids if valid_id(id_)])

        return await self._run(write)

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Those that exist and that the scope may see, in the order asked for."""

        def find(store: Store) -> list[Record]:
            store.known(scope, collection)
            return store.whole(scope, collection, _seen(store, scope, collection, ids))

        return await self._run(find)

    async def scroll(
        self, scope: Scope, collection: str, *, where: Filter | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """Records in id order, starting behind `after`."""

        def walk(store: Store) -> list[Record]:
            fields = field_types(store.known(scope, collection))
            if limit < 1 or not valid_id(after):
                raise InvalidRequest(f"cannot scroll {limit} records behind {after!r}")
            if where is not None:
                check(where, fields)
            board = store.mirror(scope, collection).board
            passing = np.flatnonzero(board.visible(scope) & board.passing(where, fields)).tolist()
            behind = (board.records[at] for at in passing if board.records[at].record.id > after)
            return store.whole(scope, collection, list(islice(behind, limit)))

        return await self._run(walk)

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The union of every channel's best passages, each with all its scores."""

        def find(store: Store) -> list[Hit]:
            check_query(query, field_types(store.known(scope, query.collection)), store.vectors)
            return search(store, scope, query)

        return await self._run(find)

    async def matrices(self, scope: Scope, collection: str, name: str, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """By id, the rows written under `name` with those records that the scope may see."""

        def find(store: Store) -> dict[str, Matrix]:
            store.known(scope, collection)
            seen = _seen(store, scope, collection, ids)
            items = {kept.matrix(name): kept.record.id for kept in seen if name in kept.matrices}
            found = store.rows(scope, collection).metadata(list(items)) if items else {}
            return {items[item]: unpack_matrix(unpacked(said[DATA])) for item, said in found.items()}

        return await self._run(find)

    async def version(self, scope: Scope, collection: str) -> int:
        """The sequence number of the tenant's last write to the collection."""

        def find(store: Store) -> int:
            store.known(scope, collection)
            return store.version(scope, collection)

        return await self._run(find)

    async def close(self) -> None:
        """Let go of Chroma behind the last call; what was written is there."""
        await asyncio.to_thread(self._close)

    async def _run(self, work: Callable[[Store], _T]) -> _T:
        def guarded() -> _T:
            with self._gate.inside():
                return work(self._opened())

        return await asyncio.to_thread(guarded)

    def _close(self) -> None:
        if self._gate.shut() and self._store is not None:
            self._store.close()
            self._store = None

    def _opened(self) -> Store:
        with self._opening:
            if self._store is None:
                client = Client(self._place, timeout=self._options.timeout)
                self._store = Store(client, self._options.vectors, exact_limit=self._options.exact_limit)
            return self._store


def _seen(store: Store, scope: Scope, collection: str, ids: Sequence[str]) -> list[Kept]:
    """Those of these records that exist and that the scope may see, in the order asked for."""
    mirror = store.mirror(scope, collection)
    return [kept for id_ in ids if valid_id(id_) and (kept := mirror.find(id_, scope)) is not None]
