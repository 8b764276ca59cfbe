"""Work beside the event loop: where it runs, in which order, and what becomes of it when its caller goes away."""

from __future__ import annotations

import asyncio
import threading

import pytest

from contexture.retrieval.compute_thread import INLINE_CHARACTERS, ComputeThread, iterate_in_thread

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
