"""Work beside the event loop: where it runs, in which order, and what becomes of it when its caller goes away."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack

import pytest

from contexture.retrieval.compute_thread import (
    INLINE_CHARACTERS,
    LONG_SECONDS,
    SHORT_SECONDS,
    ComputeThread,
    RequestsInProgress,
    give_way,
    iterate_in_thread,
)

LONG = ["x" * INLINE_CHARACTERS] * 40


@pytest.fixture
def thread():
    """A thread that is closed at the end."""
    made = ComputeThread()
    yield made
    made.close()


async def test_little_work_stays_in_the_callers_thread(thread):
    """A single short text is not worth a change of threads."""
    ran = await thread.map(lambda _: threading.get_ident(), ["short"], len)

    assert [threading.get_ident()] == ran


@pytest.mark.parametrize("items", [LONG, [""] * INLINE_CHARACTERS], ids=["long", "many"])
async def test_much_work_runs_in_one_other_thread(thread, items):
    """However long the texts are, or how many; callers share the thread."""
    ran = await asyncio.gather(*(thread.map(lambda _: threading.get_ident(), items, len) for _ in range(3)))
    whole = await thread.run(threading.get_ident, items, len)

    assert 1 == len({whole, *(each for some in ran for each in some)})
    assert threading.get_ident() != whole


async def test_results_keep_the_order_of_the_items(thread):
    """Whatever the pieces are."""
    items = [f"{at} " * (at % 7 * 300) for at in range(100)]

    assert [text[::-1] for text in items] == await thread.map(lambda text: text[::-1], items, len)


async def test_the_first_error_is_raised_and_ends_the_work(thread):
    """As a loop in the caller's thread would; pieces behind it are not begun."""
    seen = []

    def refuse(item):
        seen.append(item)
        if item[0] in (13, 14):
            raise ValueError(item[0])

    with pytest.raises(ValueError, match="13"):
        await thread.map(refuse, list(enumerate(LONG)), lambda item: len(item[1]))
    assert list(range(14)) == [at for at, _ in seen]


async def test_callers_take_turns(thread):
    """A caller with one piece does not wait for all pieces of another."""
    order = []
    first = asyncio.create_task(thread.map(lambda _: order.append("large"), LONG, len))
    await asyncio.sleep(0)
    await thread.map(lambda _: order.append("small"), LONG[:2], len)
    await first

    assert order.index("small") < len(LONG) - 1
    assert len(LONG) + 2 == len(order)


async def test_nothing_is_begun_for_a_cancelled_caller(thread):
    """The piece under way ends, and no other begins."""
    begun, go, seen = threading.Event(), threading.Event(), []

    def hold(item):
        seen.append(item)
        begun.set()
        go.wait(timeout=30)  # so that work on the wrong thread fails instead of hanging

    task = asyncio.create_task(thread.map(hold, LONG, len))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()
    await thread.run(int, LONG, len)

    assert 0 < len(seen) < len(LONG)


async def test_after_closing_the_callers_thread_does_the_work():
    """What fails then is the store that is closed too, with an error of its own."""
    thread = ComputeThread()
    await thread.run(int, LONG, len)
    thread.close()
    thread.close()

    assert {threading.get_ident()} == set(await thread.map(lambda _: threading.get_ident(), LONG, len))
    assert not any(each.name.startswith("contexture-compute") for each in threading.enumerate())


async def test_an_iterator_is_advanced_in_threads():
    """In order, to its end, and with the errors it raises."""
    ran = []

    def numbers():
        for at in range(3):
            ran.append(threading.get_ident())
            yield at
        raise ValueError("the end")

    found = iterate_in_thread(numbers())

    assert [0, 1, 2] == [await anext(found) for _ in range(3)]
    assert threading.get_ident() not in ran
    with pytest.raises(ValueError, match="the end"):
        await anext(found)


class FakeTime:
    """A clock that advances only while somebody sleeps; `during` is called in every sleep."""

    def __init__(self):
        self.now = 100.0
        self.slept = 0.0
        self.during = lambda: None

    async def sleep(self, seconds):
        """Advance the clock."""
        self.now += seconds
        self.slept += seconds
        self.during()
        await asyncio.sleep(0)


def send_request(requests, tenant):
    """A request that is answered at once."""
    with requests.enter(tenant):
        pass


@pytest.fixture
def time():
    """A clock of the test."""
    return FakeTime()


@pytest.fixture
def requests(time):
    """Requests in progress by that clock."""
    return RequestsInProgress(lambda: time.now, time.sleep)


async def test_long_work_waits_for_a_short_request_of_another_tenant(time, requests):
    """It goes on when the request has ended, and a moment later no other has come."""
    with requests.enter("loud") as work, ExitStack() as other:
        time.now += 1.0
        other.enter_context(requests.enter("quiet"))
        time.during = lambda: other.close() if time.slept > 0.1 else None
        await requests.give_way(work)

    assert 0.1 < time.slept < 0.25


async def test_short_work_does_not_wait(time, requests):
    """A small load has no others behind it that wait for long."""
    with requests.enter("quiet"), requests.enter("loud"):
        time.now += LONG_SECONDS / 2
        await give_way()

    assert not time.slept


async def test_long_work_keeps_a_fifth_of_the_time(time, requests):
    """However many requests others send."""
    with requests.enter("loud") as work:
        time.during = lambda: send_request(requests, "quiet")
        for _ in range(3):
            time.now += 0.5
            send_request(requests, "quiet")
            await requests.give_way(work)

    assert pytest.approx(4 * 3 * 0.5, abs=0.1) == time.slept


@pytest.mark.parametrize("other", ["loud", "nobody"])
async def test_work_that_is_alone_does_not_wait(time, requests, other):
    """Nor does it wait for requests of its own tenant, for long ones, and for one that waits for a model."""
    with requests.enter("slow"):
        time.now += SHORT_SECONDS
        with requests.enter("loud" if other == "loud" else "job", is_long=other != "loud"), requests.enter("loud"):
            time.now += LONG_SECONDS
            await give_way()

    assert not time.slept


async def test_batches_and_pieces_give_way_between_each_other(time, requests, thread):
    """Not before the first, and not behind the last: a load of one batch never waits."""
    waits = []

    def work(_):
        waits.append(time.slept)
        time.now += 0.04
        send_request(requests, "quiet")

    def batches():
        for at in range(3):
            work(at)
            yield at

    with requests.enter("loud", is_long=True):
        time.during = lambda: send_request(requests, "quiet")
        await thread.map(work, LONG[:9], len)
        pieces = [*waits]
        async for _ in iterate_in_thread(batches()):
            pass
        slept = time.slept
        async for _ in iterate_in_thread(iter(("only",))):
            pass

    assert 0.0 == pieces[0] < pieces[-1] == waits[len(pieces)] < waits[-1] < slept
    assert slept == time.slept


async def test_outside_of_requests_nobody_waits(time):
    """The command line and the library have no other tenants."""
    await give_way()

    assert not time.slept
