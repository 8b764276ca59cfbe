"""Writes take turns by tenant, are undone when their caller is gone, and a stuck one is reported."""

from __future__ import annotations

import asyncio
import threading

import pytest

from contexture.adapters.index import indexed_store
from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.index.journal import WriteJournal
from contexture.adapters.index.write_queue import WriteQueue
from contexture.errors import SourceTimeout, SourceUnavailable
from contexture.testing.index_records import VECTORS, make_record, prepare_record
from contexture.types import Collection, Scope

ANNA = Scope(tenant="acme", user="anna")
NAME = "things"


class Held:
    """Work that waits until it is let go."""

    def __init__(self):
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self):
        """Wait, at most as long as a test may take."""
        self.begun.set()
        self.go.wait(60)


@pytest.fixture
def queue():
    """A queue that is closed at the end."""
    made = WriteQueue()
    yield made
    made.close()


async def hold(queue):
    """A running write of tenant loud, and what it waits for."""
    held = Held()
    running = asyncio.create_task(queue.run("loud", held))
    await asyncio.to_thread(held.begun.wait, 60)
    return held, running


async def test_tenants_take_turns(queue):
    """Of four waiting writes, the one of another tenant is second, and each tenant's are in order."""
    done = []
    held, running = await hold(queue)
    later = [
        asyncio.create_task(queue.run(tenant, lambda name=name: done.append(name)))
        for tenant, name in (("loud", "l1"), ("loud", "l2"), ("quiet", "q1"), ("loud", "l3"))
    ]
    await asyncio.sleep(0)
    held.go.set()
    await asyncio.gather(running, *later)

    assert ["l1", "q1", "l2", "l3"] == done


async def test_with_threads_one_tenant_waits_for_no_other():
    """Its writes run beside a running one of another tenant, which goes on with its own in order, also at the end."""
    queue, done = WriteQueue(threads=2), []
    held, running = await hold(queue)
    behind = [asyncio.create_task(queue.run("loud", lambda at=at: done.append(at))) for at in (1, 2)]
    for _ in range(3):
        await queue.run("quiet", lambda: done.append("q"))
    slow = queue.running_seconds() > 0
    held.go.set()
    await asyncio.to_thread(queue.close)
    await asyncio.gather(running, *behind)

    assert ["q", "q", "q", 1, 2] == done
    assert slow


async def test_a_waiting_write_whose_caller_is_gone_is_not_run(queue):
    """It leaves the queue, and those behind it run."""
    done = []
    held, running = await hold(queue)
    first, second = (asyncio.create_task(queue.run("loud", lambda at=at: done.append(at))) for at in (1, 2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    held.go.set()
    await asyncio.gather(running, second)

    assert [2] == done


async def test_an_error_is_raised_where_the_write_is_awaited(queue):
    """The queue goes on."""

    def fail():
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        await queue.run("loud", fail)

    assert 1 == await queue.run("loud", lambda: 1)


async def test_a_closed_queue_takes_no_write():
    """It says so instead of waiting for ever."""
    queue = WriteQueue()
    queue.close()
    with pytest.raises(SourceUnavailable):
        await queue.run("loud", lambda: 1)


@pytest.fixture
async def index(new_folder):
    """An index with one collection."""
    made = await EmbeddedIndex.open(new_folder(), EmbeddedOptions(vectors=VECTORS, threads=1))
    await made.create(ANNA, Collection(name=NAME))
    yield made
    await made.close()


async def test_a_running_write_whose_caller_is_gone_is_undone(index, monkeypatch):
    """It ends before the next record, nothing of it is stored, and the next write works."""
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()
    check = index._writes.check_cancelled

    def wait_and_check():
        begun.set()
        go.wait(60)
        try:
            check()
        except SourceTimeout:
            ended.set()
            raise

    monkeypatch.setattr(index._writes, "check_cancelled", wait_and_check)
    records = [prepare_record(make_record(name)) for name in "ab"]
    writing = asyncio.create_task(index.upsert(ANNA, NAME, records))
    await asyncio.to_thread(begun.wait, 60)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    go.set()
    await asyncio.to_thread(ended.wait, 60)
    await index.upsert(ANNA, NAME, [prepare_record(make_record("c"))])

    assert ended.is_set()
    assert ["c"] == [record.id for record in await index.scroll(ANNA, NAME)]


async def test_a_stuck_write_is_reported_with_its_age(index, monkeypatch):
    """Health names it while it runs, without waiting for it."""
    monkeypatch.setattr(indexed_store, "SLOW_SECONDS", -1.0)
    held, running = await hold(index._writes)
    monkeypatch.setattr(index._writes, "running_seconds", lambda: 34.2)
    stuck = await index.check_health()
    monkeypatch.undo()
    held.go.set()
    await running

    assert "a write has been running for 34 seconds; others wait for it" == stuck
    assert "" == await index.check_health()


async def test_reads_go_on_while_many_writes_wait(index):
    """Waiting writes occupy no thread that reads need."""
    held, running = await hold(index._writes)
    writes = [
        asyncio.create_task(index.upsert(ANNA, NAME, [prepare_record(make_record(f"r{at}"))])) for at in range(40)
    ]
    await asyncio.sleep(0)
    read = await index.scroll(ANNA, NAME)
    held.go.set()
    await asyncio.gather(running, *writes)

    assert [] == read
    assert 40 == len(await index.scroll(ANNA, NAME))


class CountedName(str):
    """A name that counts how often it is hashed."""

    __slots__ = ()
    hashed = 0

    def __hash__(self):
        """The hash of the name."""
        CountedName.hashed += 1
        return super().__hash__()


@pytest.mark.parametrize("number", [100, 1_000])
def test_the_journal_reads_each_reader_a_few_times(number):
    """Its cost grows with the number of readers, not with their square."""
    CountedName.hashed = 0
    WriteJournal().record_write("acme", NAME, 1, [("a", tuple(CountedName(at) for at in range(number)))])

    assert CountedName.hashed <= 5 * number
