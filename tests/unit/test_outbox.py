"""The outbox: durable before it returns, delivered at least once, patient with outages, firm with poison."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from contexture.adapters.conversation.outbox import Outbox, OutboxOptions
from contexture.conversation import Memory
from contexture.errors import ContextError, InvalidRequest, SourceUnavailable, StoreUnwritable
from contexture.testing.doubles import NOON
from contexture.types import Scope
from contexture.wiring import SystemClock
from support.damage import overwrite_leaf_page

ANNA = Scope(tenant="acme", user="anna", groups=("sales",))
BORIS = Scope(tenant="acme", user="boris")


@dataclass
class Clock:
    """A clock that the test moves."""

    moment: datetime = NOON

    def now(self) -> datetime:
        """The time it was set to."""
        return self.moment


@dataclass
class Service:
    """Keeps what it is given by idempotency key; `down` and `poison` make it fail."""

    down: ContextError | None = None
    poison: str = ""
    failure: Exception = field(default_factory=lambda: InvalidRequest("cannot be read"))
    kept: dict[str, tuple[Scope, Memory]] = field(default_factory=dict)
    calls: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Keep all of them or none."""
        self.calls += 1
        self.heard.set()
        if self.down is not None:
            raise self.down
        if any(self.poison and self.poison in memory.text for memory in memories):
            raise self.failure
        self.kept |= {memory.idempotency_key: (scope, memory) for memory in memories}
        return [memory.idempotency_key for memory in memories]

    @property
    def texts(self) -> list[str]:
        """What arrived, in order."""
        return [memory.text for _, memory in self.kept.values()]


def memory(text: str, key: str = "") -> Memory:
    """A memory on its way."""
    return Memory(text=text, idempotency_key=key, tags=("a",), time=NOON, metadata={"n": [1, None]})


@pytest.fixture
def path(new_folder: Callable[[], Path]) -> Path:
    """The file of an outbox."""
    return new_folder() / "outbox.sqlite"


def opened(path: Path, service, **more) -> Outbox:
    """An outbox over a file, with a clock that stands still unless one is given."""
    return Outbox(path, service, clock=more.pop("clock", Clock()), **more)


async def test_what_was_put_arrives_unchanged_and_once(path: Path) -> None:
    """Scope and memory are what they were, and nothing is left waiting."""
    service = Service()
    box = opened(path, service)
    await box.put(ANNA, memory("one", "k1"), memory("two", "k2"))
    await box.put(BORIS, memory("three", "k3"))
    status = await box.drain()

    assert {
        "k1": (ANNA, memory("one", "k1")),
        "k2": (ANNA, memory("two", "k2")),
        "k3": (BORIS, memory("three", "k3")),
    } == (service.kept)
    assert (0, 0, 2) == (status.waiting, status.parked, service.calls)
    await box.stop()


async def test_a_memory_without_a_key_gets_one(path: Path) -> None:
    """A second delivery of it is recognised too."""
    service = Service()
    box = opened(path, service)
    await box.put(ANNA, memory("one"), memory("one"))
    await box.drain()

    assert 2 == len(service.kept)
    assert "" not in service.kept
    await box.stop()


async def test_a_key_waits_once(path: Path) -> None:
    """Putting the same key again while it waits adds nothing."""
    box = opened(path, Service(down=SourceUnavailable("down")))
    await box.put(ANNA, memory("one", "k"))
    await box.put(ANNA, memory("one again", "k"))

    assert 1 == (await box.status()).waiting
    await box.stop()


async def test_nothing_is_lost_while_the_service_is_down(path: Path) -> None:
    """However many rounds fail, an outage parks nothing, and everything arrives afterwards."""
    service = Service(down=SourceUnavailable("down"))
    box = opened(path, service, options=OutboxOptions(blames=2))
    await box.put(ANNA, *(memory(f"m{number}") for number in range(50)))
    for _ in range(10):
        status = await box.drain()

    assert (50, 0, "SourceUnavailable: down") == (status.waiting, status.parked, status.failure)
    assert service.calls < 10 * 50
    service.down = None
    await box.drain()
    assert [f"m{number}" for number in range(50)] == sorted(service.texts, key=lambda text: int(text[1:]))
    await box.stop()


async def test_an_outbox_resumes_after_a_restart(path: Path) -> None:
    """What an earlier process left is delivered by the next one."""
    first = opened(path, Service(down=SourceUnavailable("down")))
    await first.put(ANNA, memory("one"))
    await first.stop()
    service = Service()
    second = opened(path, service)
    second.start()
    await service.heard.wait()
    await second.stop()

    assert ["one"] == service.texts


@pytest.mark.parametrize(
    "failure",
    [InvalidRequest("cannot be read"), SourceUnavailable("500"), KeyError("a bug")],
    ids=["refused", "failed", "broken"],
)
async def test_poison_is_parked_and_reported_and_holds_up_nobody(path: Path, failure: Exception) -> None:
    """An item the service refuses while it takes others is given up on after so many blames, and kept."""
    reported = []
    service = Service(poison="bad", failure=failure)
    box = opened(path, service, options=OutboxOptions(blames=3), on_parked=reported.append)
    await box.put(ANNA, memory("good 0"), memory("bad"), memory("good 1"))
    await box.drain()
    assert ["good 0", "good 1"] == service.texts
    for number in (2, 3):
        await box.put(ANNA, memory(f"good {number}"))
        await box.drain()

    status = await box.status()
    assert (0, 1) == (status.waiting, status.parked)
    assert ["bad"] == [item.memory.text for item in reported] == [item.memory.text for item in await box.list_parked()]
    assert str(failure) in reported[0].failure
    await box.stop()


async def test_parked_memories_can_be_tried_again(path: Path) -> None:
    """What was given up on arrives once its cause is gone."""
    service = Service(poison="bad")
    box = opened(path, service, options=OutboxOptions(blames=1))
    await box.put(ANNA, memory("bad"))
    await box.drain()
    service.poison = ""
    await box.retry_parked()
    await box.drain()

    assert ["bad"] == service.texts
    await box.stop()


async def test_waits_double_and_are_bounded(path: Path) -> None:
    """The time to the next attempt grows with every failure and never beyond the longest wait."""
    clock, service = Clock(), Service(down=SourceUnavailable("down"))
    box = opened(path, service, clock=clock, options=OutboxOptions(first_wait=1, longest_wait=10))
    await box.put(ANNA, memory("one"))
    waits = []
    for _ in range(8):
        await box._deliver(clock.now().timestamp())
        waits.append(await box._until_due())
        clock.moment += timedelta(seconds=waits[-1] + 0.001)

    assert all(
        low <= wait <= high for wait, low, high in zip(waits, (0.5, 1, 2, 4, 5, 5), (1, 2, 4, 8, 10, 10), strict=False)
    )
    assert max(waits) <= 10
    await box.stop()


async def test_the_worker_delivers_what_comes_while_it_runs(path: Path) -> None:
    """A put wakes the worker; an outage that ends is noticed without a further put."""
    service = Service()
    box = opened(path, service, clock=SystemClock(), options=OutboxOptions(first_wait=0.001, longest_wait=0.001))
    box.start()
    box.start()
    await box.put(ANNA, memory("one"))
    await service.heard.wait()
    service.down = SourceUnavailable("down")
    service.heard.clear()
    await box.put(ANNA, memory("two"))
    await service.heard.wait()
    service.down = None
    service.heard.clear()
    await service.heard.wait()
    await box.stop()

    assert {"one", "two"} == set(service.texts)


async def test_a_few_bad_items_never_keep_others_waiting(path: Path) -> None:
    """Items that fail alone at the head of the queue are tried less often than those behind them."""
    clock = Clock()
    service = Service(poison="bad", failure=SourceUnavailable("500"))
    box = opened(path, service, clock=clock, options=OutboxOptions(batch=1))
    box._jitter.seed(0)
    await box.put(ANNA, *(memory(f"bad {number}") for number in range(5)))
    await box.put(ANNA, memory("good"))
    for _ in range(4):
        await box._deliver(clock.now().timestamp())
        clock.moment += timedelta(seconds=1)

    assert ["good"] == service.texts
    await box.stop()


@pytest.mark.parametrize("bad", [memory("\ud800"), Memory(text="x", metadata={"a": object()}), memory("x", "\ud800")])
async def test_what_cannot_be_stored_is_refused(path: Path, bad: Memory) -> None:
    """A memory that no file can hold is the caller's to fix, and nothing of its put is taken."""
    box = opened(path, Service())

    with pytest.raises(InvalidRequest, match="stored"):
        await box.put(ANNA, memory("good"), bad)
    assert 0 == (await box.status()).waiting
    await box.stop()


async def test_an_undecodable_item_is_set_aside_and_the_others_are_delivered(path: Path) -> None:
    """It is reported once, stays stored, counts as damaged, and is not retried with the parked items."""
    reported, service = [], Service()
    box = opened(path, service, on_damaged=reported.append)
    await box.put(ANNA, memory("one"), memory("two"), memory("three"))
    with sqlite3.connect(path) as other:
        other.execute("UPDATE items SET memory = '{' WHERE seq = 2")
    other.close()
    for _ in range(2):
        status = await box.drain()
        await box.retry_parked()

    assert ["one", "three"] == service.texts
    assert (0, 0, 1) == (status.waiting, status.parked, status.damaged)
    assert 1 == len(reported)
    assert reported[0].startswith("item 2 is set aside: damaged: ")
    await box.stop()


async def test_a_damaged_file_is_set_aside_and_every_readable_item_is_delivered(path: Path) -> None:
    """The file is kept beside a new one, the status names it, and only the items of one page are missing."""
    reported, service = [], Service(down=SourceUnavailable("down"))
    first = opened(path, service)
    await first.put(ANNA, *(memory(f"{number} " + "long " * 100) for number in range(200)))
    await first.stop()
    overwrite_leaf_page(path)
    service.down = None
    box = opened(path, service, on_damaged=reported.append)
    status = await box.drain()

    assert 180 < len(service.kept) < 200
    assert 0 == status.waiting
    assert "outbox.sqlite.damaged-1" == status.set_aside
    assert 1 == len(reported)
    assert "outbox.sqlite' is damaged" in reported[0]
    await box.put(ANNA, memory("afterwards", "k"))
    await box.drain()
    assert "k" in service.kept
    await box.stop()


async def test_the_worker_outlives_a_file_that_fails(path: Path) -> None:
    """When the file cannot be read for a while, deliveries go on afterwards."""
    service = Service()
    box = opened(path, service, clock=SystemClock(), options=OutboxOptions(longest_wait=0.001))
    await box.put(ANNA, memory("one"))
    read, failing = box._database.read, asyncio.Event()

    async def fails(work):
        failing.set()
        raise StoreUnwritable("disk full")

    box._database.read = fails
    box.start()
    await failing.wait()
    box._database.read = read
    await service.heard.wait()
    await box.stop()

    assert ["one"] == service.texts


@dataclass
class HungService(Service):
    """Never answers."""

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Hear it, and say nothing."""
        self.calls += 1
        self.heard.set()
        await asyncio.Event().wait()
        return await super().remember(scope, memories)


@pytest.mark.parametrize("started", [True, False])
async def test_a_service_that_hangs_does_not_keep_the_process(path: Path, *, started: bool) -> None:
    """`stop` gives up after its last try, in the middle of a delivery or at its beginning; nothing is lost."""
    service = HungService()
    box = opened(path, service, options=OutboxOptions(stop_seconds=0.01))
    if started:
        box.start()
    await box.put(ANNA, memory("one", "k"))
    if started:
        await service.heard.wait()
    await box.stop()
    later = Service()
    second = opened(path, later)
    await second.drain()
    await second.stop()

    assert ["one"] == later.texts
    assert 1 == service.calls


async def test_what_is_under_way_when_it_stops_is_not_sent_twice(path: Path) -> None:
    """A delivery that is answered in time is the only one."""
    service = Service()
    box = opened(path, service)
    box.start()
    await box.put(ANNA, memory("one", "k"))
    await service.heard.wait()
    await box.stop()

    assert (["one"], 1) == (service.texts, service.calls)


@dataclass
class GatedService(Service):
    """Answers when it is let."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:
        """Hear it, and answer later."""
        self.heard.set()
        await self.gate.wait()
        return await super().remember(scope, memories)


async def test_whoever_waits_goes_on_when_what_they_put_has_arrived(path: Path) -> None:
    """Not before; and nobody waits for what others have put."""
    service = GatedService()
    box = opened(path, service)
    box.start()
    await box.put(ANNA, memory("one"))
    waiting = asyncio.create_task(box.wait_delivered(ANNA, 60))
    await service.heard.wait()
    other = await box.wait_delivered(BORIS, 60)
    before = waiting.done()
    service.gate.set()

    assert (True, False, True) == (other, before, await waiting)
    assert ["one"] == service.texts
    await box.stop()


async def test_nobody_waits_for_longer_than_they_want(path: Path) -> None:
    """A service that hangs is not waited for."""
    box = opened(path, HungService(), options=OutboxOptions(stop_seconds=0.01))
    box.start()
    await box.put(ANNA, memory("one"))

    assert [False, True] == [await box.wait_delivered(ANNA, 0.01), await box.wait_delivered(ANNA, 0)]
    await box.stop()


async def test_nobody_waits_in_an_overload(path: Path) -> None:
    """Where too much was put before, only those who were first wait."""
    service = GatedService()
    box = opened(path, service, options=OutboxOptions(max_pending_to_wait=3, stop_seconds=0.01))
    box.start()
    for scope in (ANNA, ANNA, BORIS, BORIS, BORIS):
        await box.put(scope, memory("one"))
    hers = asyncio.create_task(box.wait_delivered(ANNA, 60))
    his = await box.wait_delivered(BORIS, 60)
    service.gate.set()

    assert (True, False) == (await hers, his)
    await box.stop()


async def test_nobody_waits_for_what_was_refused(path: Path) -> None:
    """It may arrive much later."""
    box = opened(path, Service(down=SourceUnavailable("down")))
    box.start()
    await box.put(ANNA, memory("one"))

    assert await box.wait_delivered(ANNA, 60)
    assert 1 == (await box.status()).waiting
    await box.stop()


async def test_nobody_waits_for_a_file_that_fails(path: Path) -> None:
    """Deliveries will be tried again only much later."""
    box = opened(path, Service())
    await box.put(ANNA, memory("one"))

    async def fails(work):
        raise StoreUnwritable("disk full")

    box._database.read = fails
    box.start()

    assert await box.wait_delivered(ANNA, 60)
    await box.stop()


async def test_nothing_is_waited_for_where_nothing_is_delivered(path: Path) -> None:
    """Without the background work nothing would ever arrive."""
    box = opened(path, Service())
    await box.put(ANNA, memory("one"))

    assert await box.wait_delivered(ANNA, 60)
    await box.stop()


async def test_what_an_earlier_process_left_is_waited_for(path: Path) -> None:
    """Whoever asks first after a restart knows what was said before it, however much there is."""
    first = opened(path, Service(down=SourceUnavailable("down")))
    await first.put(ANNA, *(memory(f"m{number}") for number in range(300)))
    await first.stop()
    service = Service()
    box = opened(path, service)
    box.start()

    assert await box.wait_delivered(ANNA, 60)
    assert 300 == len(service.texts)
    await box.stop()


async def test_what_somebody_put_who_went_away_is_delivered(path: Path) -> None:
    """It is written down, so nobody needs to put anything else for it to arrive."""
    service = Service()
    box = opened(path, service, clock=SystemClock())
    box.start()
    await box.put(ANNA, memory("first", "k1"))
    await box.wait_delivered(ANNA, 60)
    await asyncio.sleep(0.1)  # by now nothing is under way
    service.heard.clear()
    gone = asyncio.create_task(box.put(ANNA, memory("second", "k2")))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait_for(service.heard.wait(), 10)

    assert ["first", "second"] == service.texts
    await box.stop()
