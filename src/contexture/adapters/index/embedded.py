"""The default index: SQLite is the truth, Qdrant's engine in process finds. No set-up, one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TypeVar

from contexture.adapters.index.declared import columns_of
from contexture.adapters.index.lock import StoreLock
from contexture.adapters.index.over_truth import IndexOverTruth
from contexture.adapters.index.parts import BM25, Parts
from contexture.adapters.index.room import check_room
from contexture.adapters.index.shelf import EmbeddedOptions, Shelf
from contexture.adapters.index.truth import Change, Truth, store_errors
from contexture.errors import StoreUnwritable
from contexture.types import Collection, Prepared, Record, Scope

__all__ = ["BM25", "EmbeddedIndex", "EmbeddedOptions"]

_T = TypeVar("_T")


class EmbeddedIndex(IndexOverTruth):
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
            self._file = Truth(folder / "truth.sqlite")
            undo.callback(self._file.close)
            shelf = self._shelve(options)
            undo.callback(shelf.release)
            super().__init__(str(folder), self._file, shelf, options)
            shelf.heal()
            undo.pop_all()

    @classmethod
    async def open(cls, folder: Path, options: EmbeddedOptions) -> EmbeddedIndex:
        """Open or create the store; writes that the engine has not seen are replayed."""
        return await asyncio.to_thread(cls, folder, options)

    def _shelve(self, options: EmbeddedOptions) -> Parts:
        """What finds: parts in this folder."""
        return Shelf(self._folder, self._file, options)

    def _reading(self) -> AbstractContextManager[None]:
        return store_errors(self._folder)

    def _still(self) -> AbstractContextManager[object]:
        return self._writing

    async def _glance(self, work: Callable[[], _T]) -> _T:
        """Here and now: nobody else writes, and what is asked for is at hand."""
        with self._gate.inside(), self._reading():
            return work()

    def _save(self, tenant: str, collection: Collection) -> None:
        check_room(self._folder)
        self._file.declare(tenant, collection)
        self._shelf.add(collection.name, columns_of(collection))
        self._declared.add(tenant, collection)

    def _upsert(
        self, scope: Scope, collection: str, records: Sequence[Prepared], unchanged: Sequence[Record] = ()
    ) -> int:
        check_room(self._folder)
        with self._writing:
            return self._follow(scope, collection, self._file.upsert(scope, collection, records, unchanged))

    def _delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        with self._writing:
            done, removed = self._file.delete(scope, collection, ids)
            self._follow(scope, collection, done)
            return removed

    def _follow(self, scope: Scope, collection: str, done: Change) -> int:
        known = self._classes.get(collection)
        if known is not None:
            known.update(done.classes)  # before the parts follow: they must not find what nobody knows the readers of
        try:
            self._shelf.follow(collection, done)
        finally:
            self._journal.note(scope.tenant, collection, done.seq, done.touched)
            self._versions[scope.tenant, collection] = done.seq
        return done.seq

    def _release(self) -> None:
        try:
            self._shelf.flush()
        finally:
            self._shelf.release()
            self._file.close()
            self._lock.release()
