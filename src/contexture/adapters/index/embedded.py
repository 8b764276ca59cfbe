"""The default index: SQLite is the truth, Qdrant's engine in process finds. No set-up, one process."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from contexture.adapters.index import codec
from contexture.adapters.index.checks import check_query, check_records, merged, valid_id
from contexture.adapters.index.engine import Access, Engine, EngineOptions, engine_filter
from contexture.adapters.index.filters import check, field_types, holds
from contexture.adapters.index.hits import hits_of
from contexture.adapters.index.lock import StoreLock
from contexture.adapters.index.scoring import bm25_scores, idf_weights
from contexture.adapters.index.truth import Change, Row, Truth, store_errors
from contexture.errors import InvalidRequest, SourceUnavailable, StoreUnwritable, UnknownCollection
from contexture.types import Collection, Filter, Hit, Prepared, Query, Record, Scope, Vector

BM25 = "bm25"

_T = TypeVar("_T")
_REPLAY = 1_000
_FLUSH = 20_000
_LOSSY = 0.1  # what quantisation may do to the product of a unit vector with itself


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedOptions:
    """How the embedded index is laid out.

    Up to `exact_limit` passages a collection is searched exactly, and what a scope may not see
    cannot move a score; above it, or with `exact_limit=0`, an HNSW graph is used.
    """

    vectors: Mapping[str, int]
    threads: int = 2
    exact_limit: int = 200_000


class EmbeddedIndex:
    """Implements the `Index` port in one folder.

    index = await EmbeddedIndex.open(Path(".contexture"), EmbeddedOptions(vectors={"minilm-en-1": 384}))
    """

    def __init__(self, folder: Path, options: EmbeddedOptions) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as failure:
            raise StoreUnwritable(f"cannot create {str(folder)!r}: {failure.strerror}") from failure
        self._lock = StoreLock(folder)
        self._folder = folder
        self._options = options
        self._writing = threading.Lock()
        self._engines: dict[str, Engine] = {}
        self._class_cache: dict[str, tuple[int, Mapping[int, tuple[str, tuple[str, ...], int]]]] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._unflushed = 0
        self._closed = False
        try:
            self._truth = Truth(folder / "truth.sqlite")
        except BaseException:
            self._lock.release()
            raise
        self._opened = self._truth.seq
        self._collections = self._truth.collections()
        try:
            self._heal()
        except BaseException:
            self._release()
            raise

    @classmethod
    async def open(cls, folder: Path, options: EmbeddedOptions) -> EmbeddedIndex:
        """Open or create the store; writes that the engine has not seen are replayed."""
        return await asyncio.to_thread(cls, folder, options)

    # --- the port ---

    async def create(self, collection: Collection) -> None:
        """Make the collection, or add fields to it."""
        await asyncio.to_thread(self._create, collection)

    async def collections(self) -> Sequence[Collection]:
        """Every collection, by name."""
        self._check_open()
        return [self._collections[name] for name in sorted(self._collections)]

    async def upsert(self, scope: Scope, collection: str, records: Sequence[Prepared]) -> int:
        """Write all of them or none."""
        self._known(scope, collection)
        check_records(records, self._options.vectors)
        return await asyncio.to_thread(
            self._write, scope, collection, lambda: self._truth.upsert(scope, collection, records)
        )

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove those the scope may see."""
        self._known(scope, collection)
        removed = 0

        def change() -> Change:
            nonlocal removed
            done, removed = self._truth.delete(scope, collection, [id_ for id_ in ids if valid_id(id_)])
            return done

        await asyncio.to_thread(self._write, scope, collection, change)
        return removed

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Those that exist and that the scope may see, in the order asked for."""
        self._known(scope, collection)
        return await self._read(lambda: self._get(scope, collection, [id_ for id_ in ids if valid_id(id_)]))

    async def scroll(
        self, scope: Scope, collection: str, *, where: Filter | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """Records in id order, starting behind `after`."""
        fields = field_types(self._known(scope, collection))
        if limit < 1 or not valid_id(after):
            raise InvalidRequest(f"cannot scroll {limit} records behind {after!r}")
        if where is not None:
            check(where, fields)

        def walk() -> list[Record]:
            allowed = self._access(scope, collection).allowed
            records = self._truth.walk(collection, scope.tenant, allowed, after)
            return list(islice((r for r in records if where is None or holds(where, r, fields)), limit))

        return await self._read(walk)

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The union of every channel's best passages, each with all its scores."""
        check_query(query, field_types(self._known(scope, query.collection)), self._options.vectors)
        return await self._read(lambda: self._search(scope, query))

    async def version(self, scope: Scope, collection: str) -> int:
        """The sequence number of the tenant's last write to the collection, or of the opening."""
        self._known(scope, collection)
        return self._versions.get((scope.tenant, collection), self._opened)

    async def close(self) -> None:
        """Flush and release."""
        await asyncio.to_thread(self._close)

    # --- beyond the port ---

    async def optimize(self) -> None:
        """Merge what was written in small pieces; worth calling after a large load."""
        await asyncio.to_thread(self._optimize)

    async def warm(self) -> None:
        """Touch every part of the index once, so that the first real query does not pay for it."""
        await self._read(self._warm)

    def count(self, collection: str) -> int:
        """Passages in a collection, whoever may see them; for operators."""
        return self._truth.count(collection)

    # --- inside ---

    async def _read(self, work: Callable[[], _T]) -> _T:
        def guarded() -> _T:
            with store_errors(self._folder):
                return work()

        return await asyncio.to_thread(guarded)

    def _check_open(self) -> None:
        if self._closed:
            raise SourceUnavailable(f"the store in {str(self._folder)!r} is closed")

    def _known(self, scope: Scope, name: str) -> Collection:
        """The collection; an unknown one is refused with those in which the tenant has something."""
        self._check_open()
        if name not in self._collections:
            mine = [
                known
                for known in sorted(self._collections)
                if any(tenant == scope.tenant for tenant, *_ in self._truth.classes(known).values())
            ]
            known = ", ".join(mine) or "none yet"
            raise UnknownCollection(f"unknown collection {name!r}; there are: {known}")
        return self._collections[name]

    def _create(self, collection: Collection) -> None:
        with self._writing:
            old = self._collections.get(collection.name)
            wanted = merged(old, collection)
            if wanted == old:
                return
            self._truth.save_collection(wanted)
            self._collections[wanted.name] = wanted
            engine = self._engines.get(wanted.name) or self._open_engine(wanted.name, 0)
            engine.add_fields(field_types(wanted))
            self._replay(engine, wanted.name, 0)
            self._truth.set_meta(f"layout {wanted.name}", self._layout(wanted.name))

    def _write(self, scope: Scope, collection: str, change: Callable[[], Change]) -> int:
        with self._writing:
            self._check_open()
            done = change()
            self._follow(collection, done)
            self._versions[scope.tenant, collection] = done.seq
            self._unflushed += len(done.added) + len(done.removed)
            if self._unflushed >= _FLUSH:
                self._flush()
            return done.seq

    def _follow(self, collection: str, done: Change) -> None:
        """Let the engine follow a committed change; one that cannot is built anew from what SQLite holds."""
        try:
            self._engine(collection).apply(done.added, done.removed)
        except SourceUnavailable:
            self._rebuild(collection)

    def _get(self, scope: Scope, collection: str, ids: Sequence[str]) -> list[Record]:
        allowed = self._access(scope, collection).allowed
        found = self._truth.records(collection, scope.tenant, ids)
        return [found[id_][1] for id_ in ids if id_ in found and found[id_][0] in allowed]

    def _access(self, scope: Scope, collection: str) -> Access:
        classes = self._classes(collection)
        principals = set(scope.principals)
        allowed = frozenset(
            access
            for access, (tenant, acl, _) in classes.items()
            if tenant == scope.tenant and not principals.isdisjoint(acl)
        )
        return Access(allowed=allowed, known=frozenset(access for access, (*_, count) in classes.items() if count))

    def _classes(self, collection: str) -> Mapping[int, tuple[str, tuple[str, ...], int]]:
        seq = self._truth.seq
        cached = self._class_cache.get(collection)
        if cached is None or cached[0] != seq:
            cached = self._class_cache[collection] = (seq, self._truth.classes(collection))
        return cached[1]

    def _search(self, scope: Scope, query: Query) -> list[Hit]:
        access = self._access(scope, query.collection)
        if not access.allowed & access.known:
            return []
        weights = self._idf(query, access)
        where = engine_filter(access, query.where)
        engine = self._engine(query.collection)
        proposed: dict[str, dict[int, float]] = {}
        if weights:
            proposed[BM25] = engine.lexical(weights, where, query.k)
        for name, vector in query.vectors.items():
            proposed[name] = engine.dense(name, vector, where, query.k)
        pids = sorted({pid for best in proposed.values() for pid in best})
        rows = list(self._truth.rows(pids).values())
        columns: dict[str, Mapping[int, float]] = {}
        if weights:
            columns[BM25] = bm25_scores(rows, weights)
        for name, vector in query.vectors.items():
            missing = [pid for pid in pids if pid not in proposed[name]]
            columns[name] = {**proposed[name], **(engine.similarities(name, vector, missing) if missing else {})}
        return hits_of(rows, columns, proposed, query)

    def _idf(self, query: Query, access: Access) -> dict[int, float]:
        if not query.terms:
            return {}
        terms = list(dict.fromkeys(query.terms))
        classes = self._classes(query.collection)
        passages = sum(classes[allowed][2] for allowed in access.allowed)
        return idf_weights(terms, self._truth.frequencies(terms, access.allowed), passages)

    def _engine(self, collection: str) -> Engine:
        found = self._engines.get(collection)
        if found is None:
            raise SourceUnavailable(f"the index of {collection!r} is being rebuilt; try again")
        return found

    def _open_engine(self, collection: str, flushed: int) -> Engine:
        """Open a collection's engine and bring it up to the last committed write."""
        options = EngineOptions(
            vectors=self._options.vectors, threads=self._options.threads, hnsw=self._wants_graph(collection)
        )
        engine = Engine(self._folder / "index" / collection, options, field_types(self._collections[collection]))
        if engine.fresh:
            self._truth.set_meta("flushed", "0")  # so that a rebuild that is cut short is not taken for a whole one
        self._replay(engine, collection, 0 if engine.fresh else flushed)
        self._engines[collection] = engine
        return engine

    def _rebuild(self, collection: str) -> None:
        broken = self._engines.pop(collection, None)
        if broken is not None:
            broken.abandon()
        self._discard(collection)
        self._open_engine(collection, 0)

    def _discard(self, collection: str) -> None:
        shutil.rmtree(self._folder / "index" / collection, ignore_errors=True)

    def _layout(self, collection: str) -> str:
        """What an engine was built for; another layout needs another engine."""
        fields = {name: str(kind) for name, kind in self._collections[collection].fields.items()}
        return json.dumps([dict(self._options.vectors), fields], sort_keys=True)

    def _wants_graph(self, collection: str) -> bool:
        return self._truth.count(collection) > self._options.exact_limit

    def _heal(self) -> None:
        """Bring every engine up to the last committed write; one that lost something is built anew."""
        flushed = int(self._truth.meta("flushed") or 0)
        for name in self._collections:
            if self._truth.meta(f"layout {name}") != self._layout(name):
                self._discard(name)
            try:
                whole = self._is_whole(self._open_engine(name, flushed), name)
            except SourceUnavailable:
                whole = False
            if not whole:
                self._rebuild(name)
            self._truth.set_meta(f"layout {name}", self._layout(name))
        self._flush()

    def _is_whole(self, engine: Engine, collection: str) -> bool:
        """Whether an engine holds as many passages as SQLite, and the first of them still has its vectors."""
        if engine.count() != self._truth.count(collection):
            return False
        row = next(self._truth.since(0, collection), None)
        if row is None:
            return True
        return all(
            math.isclose(
                engine.similarities(name, numbers, [row.pid]).get(row.pid, 0.0),
                float(numbers @ numbers),
                abs_tol=_LOSSY,
            )
            for name, numbers in self._known_vectors(row).items()
        )

    def _known_vectors(self, row: Row) -> dict[str, Vector]:
        stored = codec.unpack_vectors(row.vectors)
        return {name: numbers for name, numbers in stored.items() if name in self._options.vectors}

    def _replay(self, engine: Engine, collection: str, seq: int) -> None:
        removed = self._truth.removed_since(seq, collection)
        for at in range(0, len(removed), _REPLAY):
            engine.apply((), removed[at : at + _REPLAY])
        rows = self._truth.since(seq, collection)
        while batch := list(islice(rows, _REPLAY)):
            engine.apply(batch, ())

    def _flush(self) -> None:
        seq = self._truth.seq
        for engine in self._engines.values():
            engine.flush()
        self._truth.set_meta("flushed", str(seq))
        self._truth.forget_removed(seq)
        self._unflushed = 0

    def _optimize(self) -> None:
        with self._writing:
            for name, engine in self._engines.items():
                engine.optimize(hnsw=self._wants_graph(name))
            self._flush()

    def _warm(self) -> None:
        for name, engine in self._engines.items():
            row = next(self._truth.since(0, name), None)
            if row is None:
                continue
            if weights := codec.term_weights(row.facts):
                engine.lexical(weights, None, 1)
            for vector, numbers in self._known_vectors(row).items():
                engine.dense(vector, numbers, None, 1)

    def _close(self) -> None:
        with self._writing:
            if self._closed:
                return
            self._closed = True
            try:
                self._flush()
            finally:
                self._release()

    def _release(self) -> None:
        for engine in self._engines.values():
            engine.abandon()
        self._engines.clear()
        self._truth.close()
        self._lock.release()
