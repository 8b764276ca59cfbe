"""An index over a database: the database is the truth, and parts in this process find."""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from contexture.adapters.index.checks import check_query, check_records, check_tenant, merged, unknown, valid_id
from contexture.adapters.index.classes import Access, Classes
from contexture.adapters.index.declared import Declared
from contexture.adapters.index.filters import check, field_types, holds, in_columns
from contexture.adapters.index.gate import Gate
from contexture.adapters.index.hits import hits_of, pooled
from contexture.adapters.index.journal import WriteJournal
from contexture.adapters.index.parts import BM25, Parts, Seen
from contexture.adapters.index.scoring import Weights, bm25_scores, idf_weights
from contexture.adapters.index.shelf import EmbeddedOptions
from contexture.adapters.index.source import Reading
from contexture.errors import InvalidRequest
from contexture.types import Changes, Collection, Filter, Hit, Matrix, Prepared, Query, Record, Scope

_T = TypeVar("_T")

_FEW = 32  # records whose reading is a glance
_MANY = 1_000  # access classes whose gathering is not


class IndexOverTruth:
    """Implements the `Index`, `Journal` and `Spaces` ports but for how a write is made.

    Reads happen in threads, unless they are a glance, inside `_reading`, which makes sure that the parts have seen
    every write that was acknowledged before.
    """

    def __init__(self, name: str, truth: Reading, shelf: Parts, options: EmbeddedOptions) -> None:
        self._gate = Gate(f"the store in {name!r} is closed")
        self._truth = truth
        self._shelf = shelf
        self._options = options
        self._writing = threading.RLock()
        self._declared = Declared(truth.declared())
        self._classes: dict[str, Classes] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._journal = WriteJournal()
        self._opened = truth.seq

    # --- what a database does in its own way ---

    @abstractmethod
    def _reading(self) -> AbstractContextManager[None]:
        """Holds as long as something is read; the database's errors become ours."""

    @abstractmethod
    def _still(self) -> AbstractContextManager[object]:
        """Holds as long as the truth is read as it is now; the parts have seen just that."""

    @abstractmethod
    def _save(self, tenant: str, collection: Collection) -> None:
        """Store a collection that is new to a tenant or has new fields."""

    @abstractmethod
    def _upsert(
        self, scope: Scope, collection: str, records: Sequence[Prepared], unchanged: Sequence[Record] = ()
    ) -> int:
        """Write records and let the parts follow; the number of the write."""

    @abstractmethod
    def _delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove records and let the parts follow; how many there were."""

    @abstractmethod
    def _release(self) -> None:
        """Give back what the store holds."""

    # --- the port ---

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Make the collection for the tenant, or add fields to it."""
        await self._read(lambda: self._create(scope, collection))

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant, by name."""
        return await self._glance(lambda: self._declared.of(scope.tenant))

    async def upsert(
        self, scope: Scope, collection: str, records: Sequence[Prepared], *, unchanged: Sequence[Record] = ()
    ) -> int:
        """Write all of them or none."""

        def write() -> int:
            self._known(scope, collection)
            check_records(records, self._options.vectors)
            return self._upsert(scope, collection, records, unchanged)

        return await self._read(write)

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove those the scope may see."""

        def write() -> int:
            self._known(scope, collection)
            return self._delete(scope, collection, [id_ for id_ in ids if valid_id(id_)])

        return await self._read(write)

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Those that exist and that the scope may see, in the order asked for."""
        read = self._glance if len(ids) <= _FEW and self._at_hand(scope, collection) is not None else self._read
        return await read(lambda: self._get(scope, collection, [id_ for id_ in ids if valid_id(id_)]))

    async def scroll(
        self, scope: Scope, collection: str, *, where: Filter | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """Records in id order, starting behind `after`."""

        def walk() -> list[Record]:
            fields = field_types(self._known(scope, collection))
            if limit < 1 or not valid_id(after):
                raise InvalidRequest(f"cannot scroll {limit} records behind {after!r}")
            if where is not None:
                check(where, fields)

            def some(allowed: frozenset[int]) -> list[Record]:
                records = self._truth.walk(collection, scope.tenant, allowed, after)
                return list(islice((r for r in records if where is None or holds(where, r, fields)), limit))

            return self._allowing(scope, collection, some)

        return await self._read(walk)

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The union of every channel's best passages, each with all its scores."""
        return await self._read(lambda: self._search(scope, query))

    async def matrices(self, scope: Scope, collection: str, name: str, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """By id, the rows written under `name` with those records that the scope may see."""

        def read() -> dict[str, Matrix]:
            self._known(scope, collection)

            def some(allowed: frozenset[int]) -> dict[str, Matrix]:
                found = self._truth.matrices(collection, scope.tenant, name, [id_ for id_ in ids if valid_id(id_)])
                return {id_: matrix for id_, access, matrix in found if access in allowed}

            return self._allowing(scope, collection, some)

        return await self._read(read)

    async def version(self, scope: Scope, collection: str) -> int:
        """The sequence number of the tenant's last write to the collection, or of the opening."""
        return await self._glance(lambda: self._version(scope, collection))

    async def changes(self, scope: Scope, collection: str, since: int) -> Changes | None:
        """What was written behind `since` and the scope may read, or could before."""
        return await self._glance(lambda: self._changes(scope, collection, since))

    async def spaces(self, scope: Scope, collection: str) -> frozenset[str] | None:
        """The names of the vectors that what the scope may read has, and perhaps others; None when unknown."""
        if self._declared.find(scope.tenant, collection) is None:
            return None
        access = self._at_hand(scope, collection)
        if access is None:
            return await self._read(lambda: self._shelf.spaces(collection, self._access(scope, collection)))
        return self._shelf.spaces(collection, access)

    async def close(self) -> None:
        """Flush and release."""
        await asyncio.to_thread(self._close)

    # --- beyond the port ---

    async def optimize(self) -> None:
        """Merge what was written in small pieces; worth calling after a large load."""
        await self._read(self._optimize)

    async def warm(self) -> None:
        """Touch every part of the index once, so that the first real query does not pay for it."""
        await self._read(self._warm)

    @property
    def ailing(self) -> str:
        """Why nothing was found when something was last looked for; empty where all is well."""
        return self._shelf.ailing

    async def names(self) -> Sequence[str]:
        """The name of every collection, whoever has it; for operators."""
        return await self._glance(lambda: sorted(self._shelf.columns))

    def count(self, collection: str) -> int:
        """Passages in a collection, whoever may see them; for operators."""
        with self._gate.inside(), self._reading():
            return self._truth.count(collection)

    # --- inside ---

    async def _read(self, work: Callable[[], _T]) -> _T:
        def guarded() -> _T:
            with self._gate.inside(), self._reading():
                return work()

        return await asyncio.to_thread(guarded)

    async def _glance(self, work: Callable[[], _T]) -> _T:
        """A read so short that changing threads would cost more, where the database is in this process."""
        return await self._read(work)

    def _known(self, scope: Scope, name: str) -> Collection:
        """The tenant's collection; one that it has not is refused with those that it has."""
        check_tenant(scope)
        found = self._declared.find(scope.tenant, name)
        if found is None:
            raise unknown(name, self._declared.of(scope.tenant))
        return found

    def _create(self, scope: Scope, collection: Collection) -> None:
        check_tenant(scope)
        if self._lacks(scope, collection) is None:  # then nobody waits for those who write
            return
        with self._writing:
            wanted = self._lacks(scope, collection)
            if wanted is not None:
                self._save(scope.tenant, wanted)

    def _lacks(self, scope: Scope, collection: Collection) -> Collection | None:
        """The collection as the tenant is to have it; None where it has it so."""
        old = self._declared.find(scope.tenant, collection.name)
        wanted = merged(old, collection)
        return None if wanted == old else wanted

    def _version(self, scope: Scope, collection: str) -> int:
        self._known(scope, collection)
        return self._versions.get((scope.tenant, collection), self._opened)

    def _changes(self, scope: Scope, collection: str, since: int) -> Changes | None:
        self._known(scope, collection)
        found = self._journal.since(scope, collection, since)
        if found is None or since < self._opened:
            return None
        return Changes(ids=tuple(found), passages=self._access(scope, collection).passages)

    def _get(self, scope: Scope, collection: str, ids: Sequence[str]) -> list[Record]:
        self._known(scope, collection)

        def some(allowed: frozenset[int]) -> list[Record]:
            found = self._truth.records(collection, scope.tenant, ids)
            return [found[id_][1] for id_ in ids if id_ in found and found[id_][0] in allowed]

        return self._allowing(scope, collection, some)

    def _allowing(self, scope: Scope, collection: str, read: Callable[[frozenset[int]], _T]) -> _T:
        """What is read of the classes that a scope may read; again, if their numbers mean others meanwhile."""
        while True:
            known = self._known_classes(collection)
            found = read(known.access(scope).allowed)
            if self._classes.get(collection) is known:
                return found

    def _access(self, scope: Scope, collection: str) -> Access:
        return self._known_classes(collection).access(scope)

    def _known_classes(self, collection: str) -> Classes:
        """The access classes of a collection: read once, and then kept in step with every write."""
        known = self._classes.get(collection)
        if known is None:
            with self._writing:  # so that nothing is written between reading and keeping them
                known = self._classes.setdefault(collection, Classes(self._truth.classes(collection)))
        return known

    def _at_hand(self, scope: Scope, collection: str) -> Access | None:
        """What a scope may read, where telling it is a glance."""
        known = self._classes.get(collection)
        return known.access(scope) if known is not None and known.within(scope, _MANY) else None

    def _search(self, scope: Scope, query: Query) -> list[Hit]:
        fields = field_types(self._known(scope, query.collection))
        check_query(query, fields, self._options.vectors)
        if query.where is not None:
            query = replace(query, where=in_columns(query.where, fields))
        hits, overtaken = self._found(scope, query)
        if overtaken:
            with self._still():
                hits, _ = self._found(scope, query)
        return hits

    def _found(self, scope: Scope, query: Query) -> tuple[list[Hit], bool]:
        """What is found; and whether a write has overtaken the search.

        The parts then proposed what is gone, or of a class that is just written and may not be read. That is left
        out, but what it stood in the place of is missing.
        """
        known = self._known_classes(query.collection)
        access = known.access(scope)
        if not access.readable:
            return [], False
        weights = self._idf(query, access)
        sight = self._sight(query, access)
        proposed = sight.proposals(weights, query.vectors, query.k)
        ranks = pooled(proposed, query.k, query.pool, sight.places)
        rows = [row for row in self._truth.rows(sorted(ranks)) if row.access in access.allowed]
        if self._classes.get(query.collection) is not known:
            return [], True
        columns: dict[str, Mapping[int, float]] = {}
        matched: Mapping[int, int] = {}
        if weights.terms:
            lexical = bm25_scores(rows, weights)
            columns[BM25], matched = lexical.scores, lexical.matched
        for name, vector in query.vectors.items():
            missing = [row.pid for row in rows if row.pid not in proposed[name]]
            columns[name] = {**proposed[name], **(sight.similarities(name, vector, missing) if missing else {})}
        return hits_of(rows, columns, ranks, matched), len(rows) < len(ranks)

    def _sight(self, query: Query, access: Access) -> Seen:
        part = self._shelf.part(query.collection)
        if part.lacking(query.where):
            with self._writing:
                part = self._shelf.part(query.collection)
                self._shelf.add_columns(query.collection, part.lacking(query.where))
        return part.sight(access, query.where)

    def _idf(self, query: Query, access: Access) -> Weights:
        terms = list(dict.fromkeys(query.terms))
        return idf_weights(terms, self._truth.frequencies(terms, access.allowed), access.passages)

    def _warm(self) -> None:
        with self._writing:
            self._shelf.add_declared_columns()
        self._shelf.warm()

    def _optimize(self) -> None:
        with self._writing:
            self._shelf.optimize()

    def _close(self) -> None:
        if self._gate.shut():
            with self._writing:
                self._release()
