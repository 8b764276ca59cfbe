"""Closing a store that is being read."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.index.record_store import SqliteRecordStore
from contexture.errors import SourceUnavailable
from contexture.testing.index_records import COLLECTION, NAME, VECTORS, make_record, prepare_record, record_ids
from contexture.types import Record, Scope

SCOPE = Scope.local()

Walk = Callable[[SqliteRecordStore, str, str, Iterable[int], str], Iterator[Record]]


class Held:
    """Stops a reader in the middle of its work."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.reached = threading.Event()
        self.free = threading.Event()

    def wait(self) -> None:
        """Go on once it is free."""
        self.reached.set()
        self.free.wait(60)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Every walk over the records is held up until the test lets it go, or ends."""
    held = Held(SqliteRecordStore.iter_records)

    def walk(
        truth: SqliteRecordStore, collection: str, tenant: str, classes: Iterable[int], after: str
    ) -> Iterator[Record]:
        held.wait()
        return held.walk(truth, collection, tenant, classes, after)

    monkeypatch.setattr(SqliteRecordStore, "iter_records", walk)
    yield held
    held.free.set()


async def opened(folder: Path) -> EmbeddedIndex:
    """A store with one record."""
    index = await EmbeddedIndex.open(folder, EmbeddedOptions(vectors=VECTORS, threads=1))
    await index.create(SCOPE, COLLECTION)
    await index.upsert(SCOPE, NAME, [prepare_record(make_record("a"))])
    return index


async def test_closing_waits_for_a_reader_and_refuses_the_next(tmp_path: Path, held: Held):
    """Who reads already gets an answer; who comes afterwards is told that the store is closed."""
    index = await opened(tmp_path)
    reading = asyncio.create_task(index.scroll(SCOPE, NAME))
    await asyncio.to_thread(held.reached.wait)
    closing = asyncio.create_task(index.close())
    await shut(index)

    assert not closing.done()
    held.free.set()
    assert record_ids(await reading) == ["a"]
    await closing


async def test_closing_waits_for_a_reader_whose_caller_has_left(tmp_path: Path, held: Held):
    """A search that was given up still runs in its thread; nothing is closed under its hands."""
    index = await opened(tmp_path)
    reading = asyncio.create_task(index.scroll(SCOPE, NAME))
    await asyncio.to_thread(held.reached.wait)
    reading.cancel()
    closing = asyncio.create_task(index.close())
    await shut(index)

    assert not closing.done()
    held.free.set()
    await closing


async def shut(index: EmbeddedIndex) -> None:
    """Ask until the store says that it is closed."""
    with suppress(SourceUnavailable):
        while True:
            await asyncio.to_thread(index.count, NAME)
