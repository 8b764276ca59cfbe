"""Sessions in SQLite: privacy of the file, threads, damage, and what cannot be stored."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.adapters.conversation.sqlite import SqliteSessions
from contexture.errors import InvalidRequest, SourceUnavailable, StoreUnwritable
from contexture.testing.sessions import make_event
from contexture.types import Scope

ANNA = Scope(tenant="acme", user="anna")


@pytest.fixture
def path(new_folder: Callable[[], Path]) -> Path:
    """Where a store may be made."""
    return new_folder() / "deep" / "sessions.sqlite"


async def test_only_the_owner_may_read_the_file(path: Path) -> None:
    """The file and what SQLite puts beside it are closed to everyone else."""
    store = SqliteSessions(path)
    await store.append(ANNA, "s", [make_event("a")])

    assert {0o600} == {each.stat().st_mode & 0o777 for each in path.parent.iterdir()}
    store.close()


async def test_events_are_there_after_reopening(path: Path) -> None:
    """A session goes on where it stopped."""
    first = SqliteSessions(path)
    await first.append(ANNA, "s", [make_event("a")])
    first.close()
    second = SqliteSessions(path)

    assert await second.append(ANNA, "s", [make_event("b")]) == 2
    second.close()


def test_threads_with_loops_of_their_own_lose_nothing(path: Path) -> None:
    """Many threads may write one session; every event is there once."""
    store = SqliteSessions(path)

    def write(number: int) -> int:
        return asyncio.run(store.append(ANNA, "s", [make_event(str(number))]))

    with ThreadPoolExecutor(8) as pool:
        positions = list(pool.map(write, range(64)))
    found = asyncio.run(store.list_events(ANNA, "s", limit=100))

    assert list(range(1, 65)) == sorted(positions)
    assert {str(number) for number in range(64)} == {each.id for each in found}
    store.close()


async def test_a_caller_that_leaves_does_not_undo_a_write(path: Path) -> None:
    """A cancelled append is stored whole or not at all, and the store goes on."""
    store = SqliteSessions(path)
    tasks = [
        asyncio.create_task(store.append(ANNA, "s", [make_event(f"{n}a"), make_event(f"{n}b")])) for n in range(20)
    ]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.append(ANNA, "s", [make_event("end")])

    found = await store.list_events(ANNA, "s", limit=100)
    # What a cancelled caller left may be written even behind the end.
    assert list(range(1, len(found) + 1)) == [each.position for each in found]
    assert {"end", *(f"{n}a" for n in range(1, 20, 2))} <= {each.id for each in found}
    assert all(f"{each.id[:-1]}b" in {other.id for other in found} for each in found if each.id.endswith("a"))
    store.close()


@pytest.mark.parametrize(
    "content", [b"this is no database, and long enough to say so" * 40, b"SQLite format 3\x00" + b"x" * 4_000]
)
async def test_a_damaged_file_is_named(path: Path, content: bytes) -> None:
    """What is no database is refused with its path, by whoever uses it first."""
    path.parent.mkdir()
    path.write_bytes(content)  # noqa: ASYNC240 - nothing else runs

    with pytest.raises(SourceUnavailable, match=r"sessions\.sqlite"):
        await SqliteSessions(path).sessions(ANNA)


async def test_a_damaged_row_is_refused(path: Path) -> None:
    """A message that is no JSON any more is an error, not a guess."""
    store = SqliteSessions(path)
    await store.append(ANNA, "s", [make_event("a")])
    with sqlite3.connect(path) as other:
        other.execute("UPDATE events SET message = '{'")
    other.close()

    with pytest.raises(SourceUnavailable, match="damaged"):
        await store.list_events(ANNA, "s")
    store.close()


async def test_a_newer_file_is_refused(path: Path) -> None:
    """A file of a later version is left alone."""
    store = SqliteSessions(path)
    await store.append(ANNA, "s", [make_event("a")])
    store.close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()

    with pytest.raises(SourceUnavailable, match="upgrade contexture"):
        await SqliteSessions(path).sessions(ANNA)


async def test_a_folder_that_cannot_be_made_is_named(path: Path) -> None:
    """A file where the folder should be is an unwritable store."""
    path.parent.write_text("in the way")

    with pytest.raises(StoreUnwritable, match="deep"):
        await SqliteSessions(path).sessions(ANNA)


def test_nothing_is_made_before_it_is_needed(path: Path) -> None:
    """A store that nobody uses leaves no file."""
    SqliteSessions(path).close()

    assert not path.parent.exists()


async def test_a_closed_store_says_so(path: Path) -> None:
    """A call after the end is refused, and not called damage."""
    store = SqliteSessions(path)
    store.close()

    with pytest.raises(SourceUnavailable, match="is closed"):
        await store.sessions(ANNA)


@pytest.mark.parametrize(
    "bad",
    [
        make_event("\ud800"),
        replace(make_event("a"), message={"role": "user", "content": object()}),
        replace(make_event("a"), metadata={"score": float("nan")}),
    ],
    ids=["id", "message", "metadata"],
)
async def test_what_cannot_be_stored_is_refused_before_anything_is(path: Path, bad) -> None:
    """One bad event keeps the others of its append out too."""
    store = SqliteSessions(path)

    with pytest.raises(InvalidRequest, match="stored"):
        await store.append(ANNA, "s", [make_event("good"), bad])
    assert [] == list(await store.list_events(ANNA, "s"))
    store.close()


@given(appends=st.lists(st.tuples(st.sampled_from("st"), st.lists(st.sampled_from("abcdef"), max_size=4)), max_size=12))
def test_a_session_is_its_events_in_order_of_first_appearance(lasting_folder, appends) -> None:
    """Whatever is appended, a session holds each id once, in order, numbered from 1."""
    store = SqliteSessions(lasting_folder() / "sessions.sqlite")
    model: dict[str, list[str]] = {"s": [], "t": []}

    async def run() -> None:
        for session, names in appends:
            model[session] += [name for name in dict.fromkeys(names) if name not in model[session]]
            assert len(model[session]) == await store.append(ANNA, session, [make_event(name) for name in names])
        for session, names in model.items():
            found = await store.list_events(ANNA, session)
            assert list(enumerate(names, start=1)) == [(each.position, each.id) for each in found]

    asyncio.run(run())
    store.close()
