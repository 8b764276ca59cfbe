"""The workspace: the store is the truth, and the index follows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import contexture
from contexture import Contexture, Settings, wiring
from contexture.blocks.workspace import Workspace
from contexture.errors import InvalidRequest, NotFound, NotPermitted, SourceUnavailable
from contexture.testing.blocks_tree import PRIVATE, block_ids, make_block, make_page
from contexture.testing.doubles import NOON
from contexture.types import Equals, Range, Record, Scope
from contexture.workspace import Activity, ActivityKind, BlockType, PutResult
from support.service import small_engine
from support.workbench import Parts

ANNA = Scope(tenant="acme", user="anna")
BORIS = Scope(tenant="acme", user="boris")


@pytest.fixture
async def engine(new_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """An engine over small embedders."""
    async with small_engine(Settings(home=new_folder(), tenant="acme", user="anna")) as found:
        yield found


async def found(engine, question="pump", scope=ANNA, where=None):
    """What a search finds, by id, with the titles."""
    result = await engine.search(question, collection="blocks", scope=scope, where=where)
    return {each.record_id: each.title for each in result.found}


async def plant(engine):
    """A page with a task and a private note."""
    note = make_block("n", "p", text="the pump is stolen", readers=PRIVATE)
    todo = make_block("t", "p", text="mend the pump", kind=BlockType.TODO, properties={"due": "2026-05-01"})
    return await engine.workspace.put(
        ANNA, [todo, note, make_block("d", "n", text="pump of anna"), make_page("p", text="Plant")], now=NOON
    )


async def test_what_is_put_is_found_by_those_who_may_read_it(engine):
    """Records carry the page's title; filters see dates and states."""
    assert PutResult(added=4) == await plant(engine)
    due = Range(field="due", lt=NOON)

    assert {"t": "Plant", "n": "Plant", "d": "Plant"} == await found(engine)
    assert {"t": "Plant"} == await found(engine, scope=BORIS)
    assert {"t": "Plant"} == await found(engine, where=due)
    assert {} == await found(engine, where=Equals("done", True))


async def test_an_index_that_is_up_to_date_is_not_written(engine):
    """Putting the same again, or another order of siblings, writes nothing to the index."""
    await plant(engine)
    before = await engine.index.version(ANNA, "blocks")
    again = await plant(engine)
    await engine.workspace.put(ANNA, [replace(make_page("p", text="Plant"), order=5.0)], now=NOON)

    assert PutResult(unchanged=4) == again
    assert before == await engine.index.version(ANNA, "blocks")


async def test_a_new_title_reaches_every_record_of_the_page(engine):
    """Also those of blocks that the writer may not read."""
    await plant(engine)
    await engine.workspace.put(BORIS, [make_page("p", text="Works")], now=NOON)

    assert {"t": "Works", "n": "Works", "d": "Works"} == await found(engine)


async def test_a_move_changes_who_finds_what(engine):
    """Below a private block everything is private; at the top it has no page."""
    await plant(engine)
    await engine.workspace.move(ANNA, "t", parent="n", now=NOON)
    hidden = await found(engine, scope=BORIS)
    await engine.workspace.move(ANNA, "d", parent=None, now=NOON)

    assert ({}, {"d": ""}) == (hidden, await found(engine, scope=BORIS))


async def test_what_is_deleted_is_not_found_until_it_is_restored(engine):
    """A subtree goes and comes back; hidden blocks stay without their page meanwhile."""
    await plant(engine)
    gone = await engine.workspace.delete(BORIS, ["p", "p"], now=NOON)
    hidden = await found(engine)
    back = await engine.workspace.restore(BORIS, ["p"])

    assert (2, {"d": "", "n": ""}, 2) == (gone.count_of("blocks"), hidden, back)
    assert {"t": "Plant", "n": "Plant", "d": "Plant"} == await found(engine)


async def test_what_is_purged_stays_away(engine):
    """Only what was deleted before then."""
    await plant(engine)
    await engine.workspace.delete(ANNA, ["t"], now=NOON)

    assert ("t",) == (await engine.workspace.purge(ANNA, before=NOON + timedelta(days=1))).removed["blocks"]
    assert 0 == await engine.workspace.restore(ANNA, ["t"])


async def test_pages_are_found_by_their_names(engine):
    """Names are compared without case."""
    await plant(engine)

    assert ["p"] == block_ids(list((await engine.workspace.find_pages(BORIS, ["PLANT", "PLANT", "none"])).values()))


async def test_views_and_deeds_are_noted(engine):
    """An unknown block is refused, and so is one that is hidden."""
    await plant(engine)
    await engine.workspace.view(BORIS, "t", now=NOON)
    await engine.workspace.note(ANNA, [Activity(block_id="p", user="boris", deed=ActivityKind.VIEW, time=NOON)])

    assert ["p", "t"] == [
        each.block_id for each in await engine.blocks.recent(BORIS, ActivityKind.VIEW, since=NOON, limit=9)
    ]
    assert 1 == (await engine.blocks.touches(BORIS, ["t"]))["t"].views
    for name in ("n", "never"):
        with pytest.raises(NotFound, match=f"no block '{name}'"):
            await engine.workspace.view(BORIS, name, now=NOON)


@pytest.mark.parametrize("bad", [make_block("x", "never"), make_block("x", "x"), make_block("x", readers=())])
async def test_all_or_nothing_is_written(engine, bad):
    """One block that cannot be stored keeps the others out, of the store and of the index."""
    with pytest.raises((InvalidRequest, NotFound)):
        await engine.workspace.put(ANNA, [make_page("p", text="pump"), bad], now=NOON)

    assert [] == list(await engine.blocks.get(ANNA, ["p", "x"]))
    assert 0 == await engine.workspace.catch_up()


async def test_an_index_that_failed_is_brought_up_to_date(engine, monkeypatch):
    """The write is stored although the call raises; the next one writes the records of both."""

    async def refuse(*_: object) -> int:
        raise SourceUnavailable("down")

    with monkeypatch.context() as broken:
        broken.setattr(engine.index, "upsert", refuse)
        with pytest.raises(SourceUnavailable):
            await plant(engine)
    await engine.workspace.put(ANNA, [make_block("late", "p", text="a late pump")], now=NOON)

    assert {"t", "n", "d", "late"} == set(await found(engine))


async def test_a_block_that_the_index_refuses_keeps_no_other_out(engine):
    """Its writer is told, nobody else, and everything else is found."""
    await engine.workspace.put(ANNA, [make_block("x", text="pump")], now=NOON)
    foreign = Record(id="t", text="not a block", acl=("group:mallory",))
    await engine.add([foreign], collection="blocks", scope=Scope(tenant="acme", user="mallory", groups=("mallory",)))
    other = Scope(tenant="other", user="zoe")
    with pytest.raises(NotPermitted, match="'t'"):
        await plant(engine)
    await engine.workspace.put(other, [make_block("y", text="pump")], now=NOON)

    assert {"x", "n", "d"} == set(await found(engine))
    assert {"y"} == set(await found(engine, scope=other))
    assert 0 == await engine.workspace.catch_up()


class Held:
    """An index's write that goes on when whoever asked for it has gone, as a thread does; it waits for `gate`."""

    def __init__(self, engine: Contexture) -> None:
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        self._write: Callable[..., Awaitable[int]] = engine.index.upsert
        self.writes: list[asyncio.Task[int]] = []

    async def __call__(self, *given: object) -> int:
        """Write, once the gate is open."""
        self.writes.append(asyncio.create_task(self._later(*given)))
        return await asyncio.shield(self.writes[-1])

    async def _later(self, *given: object) -> int:
        self.begun.set()
        await self.gate.wait()
        return await self._write(*given)


class Watched(asyncio.Lock):
    """A lock that says when someone has to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited = asyncio.Event()

    async def acquire(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride] - always True, says typeshed
        """Take it, when it is free."""
        if self.locked():
            self.awaited.set()
        return await super().acquire()


async def given_up(engine, monkeypatch):
    """A write whose caller goes away while the index writes."""
    held = Held(engine)
    monkeypatch.setattr(engine.index, "upsert", held)
    writing = asyncio.create_task(engine.workspace.put(ANNA, [make_block("x", text="pump")], now=NOON))
    await held.begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    return held


async def test_a_caller_that_goes_away_lets_nobody_past_what_it_began(engine, monkeypatch):
    """A block that is deleted meanwhile is not found when the write that was given up has ended."""
    turn = Watched()
    monkeypatch.setitem(engine.workspace._index_sync._turns, ANNA.tenant, turn)
    held = await given_up(engine, monkeypatch)
    removing = asyncio.create_task(engine.workspace.delete(ANNA, ["x"], now=NOON))
    waits = asyncio.create_task(turn.awaited.wait())
    await asyncio.wait({removing, waits}, return_when=asyncio.FIRST_COMPLETED)
    held.gate.set()
    await asyncio.wait({removing, *held.writes})
    waits.cancel()

    assert 1 == (await removing).count_of("blocks")
    assert [] == list(await engine.index.get(ANNA, "blocks", ["x"]))


async def test_closing_waits_for_what_was_given_up(new_folder, monkeypatch):
    """The write ends before the store is taken away, and nothing is left for the next opening."""
    settings = Settings(home=new_folder(), tenant="acme", user="anna")
    async with small_engine(settings) as closing:
        held = await given_up(closing, monkeypatch)
        asyncio.get_running_loop().call_soon(held.gate.set)
    store = wiring.block_store(settings)
    left = await store.stale(limit=9)
    store.close()

    assert [] == list(left)


async def test_a_failure_that_nobody_hears_of_is_left_to_the_next_call(engine, monkeypatch):
    """The write that failed after its caller had gone is made up for."""
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, told: heard.append(told))
    held = await given_up(engine, monkeypatch)
    monkeypatch.setattr(held, "_write", fail)
    held.gate.set()
    await engine.workspace.finish()
    monkeypatch.undo()

    assert 1 == await engine.workspace.catch_up()
    assert {"x": ""} == await found(engine)
    assert [] == heard


async def fail(*_: object) -> int:
    """An index that is away."""
    raise SourceUnavailable("down")


def beside(engine):
    """Another process over the same store and index: it takes turns with nobody here."""
    here = engine.workspace._index_sync
    return Workspace(store=here._store, index=here._index, preparer=here._preparer)


def before_writing(engine, monkeypatch, name, act):
    """Let another act just before the index does the first of these writes."""
    real = getattr(engine.index, name)
    acted: list[bool] = []

    async def write(*given: object) -> int:
        if not acted:
            acted.append(True)
            await act()
        return await real(*given)

    monkeypatch.setattr(engine.index, name, write)
    return acted


@pytest.mark.parametrize("last", ["delete", "narrow", "move"])
async def test_an_older_record_that_arrives_late_is_mended(engine, monkeypatch, last):
    """Another process changes a block, and is done with it, while this one is about to write what it was."""
    other = beside(engine)
    await engine.workspace.put(ANNA, [make_page("p", readers=PRIVATE)], now=NOON)
    acts = {
        "delete": lambda: other.delete(ANNA, ["x"], now=NOON),
        "narrow": lambda: other.put(ANNA, [make_block("x", text="pump", readers=PRIVATE)], now=NOON),
        "move": lambda: other.move(ANNA, "x", parent="p", now=NOON),
    }
    acted = before_writing(engine, monkeypatch, "upsert", acts[last])
    await engine.workspace.put(ANNA, [make_block("x", text="pump")], now=NOON)
    stored = [each.id for each in await engine.blocks.get(ANNA, ["x"])]

    assert [True] == acted
    assert {} == await found(engine, scope=BORIS)
    assert stored == [each.id for each in await engine.index.get(ANNA, "blocks", ["x"])]
    assert 0 == await other.catch_up()


async def test_a_removal_that_arrives_late_is_mended(engine, monkeypatch):
    """A block that another process brought back is found although this one removed its record after that."""
    other = beside(engine)
    await engine.workspace.put(ANNA, [make_block("x", text="pump")], now=NOON)
    before_writing(engine, monkeypatch, "delete", lambda: other.restore(ANNA, ["x"]))
    await engine.workspace.delete(ANNA, ["x"], now=NOON)

    assert {"x": ""} == await found(engine)


async def test_what_is_mended_and_fails_is_left_to_the_next_process(engine, monkeypatch):
    """That a record is wrong is noted before it is mended."""
    other = beside(engine)
    before_writing(engine, monkeypatch, "upsert", lambda: other.delete(ANNA, ["x"], now=NOON))
    monkeypatch.setattr(engine.index, "delete", fail)
    with pytest.raises(SourceUnavailable):
        await engine.workspace.put(ANNA, [make_block("x", text="pump")], now=NOON)
    monkeypatch.undo()

    assert 1 == await other.catch_up()
    assert {} == await found(engine)


async def test_a_refusal_of_what_is_not_so_any_more_is_not_told(engine, monkeypatch):
    """The record that another process wrote meanwhile is hidden from those who could read the older block."""
    other = beside(engine)
    await engine.workspace.put(ANNA, [make_block("x", text="valve", readers=("user:boris", "user:anna"))], now=NOON)
    narrowed = make_block("x", text="pump", readers=("group:board",))
    board = Scope(tenant="acme", user="anna", groups=("board",))
    before_writing(engine, monkeypatch, "upsert", lambda: other.put(board, [narrowed], now=NOON))
    await engine.workspace.put(ANNA, [make_block("x", text="pump", readers=PRIVATE)], now=NOON)

    assert {"x": ""} == await found(engine, scope=board)
    assert {} == await found(engine)


async def test_writes_at_the_same_time_all_arrive(engine):
    """However they interleave, the index ends as the store."""
    await engine.workspace.put(ANNA, [make_page("p", text="Plant")], now=NOON)
    texts = [make_block(f"b{number % 4}", "p", text=f"pump number {number}") for number in range(12)]
    await asyncio.gather(*(engine.workspace.put(ANNA, [each], now=NOON) for each in texts))

    stored = {each.id: each.text for each in await engine.blocks.children(ANNA, "p", limit=9)}
    records = await engine.index.get(ANNA, "blocks", list(stored))
    assert stored == {each.id: each.text for each in records}


async def test_more_blocks_than_one_batch_are_indexed(engine, monkeypatch):
    """Batches follow each other until nothing waits."""
    monkeypatch.setattr("contexture.blocks.workspace.BATCH_SIZE", 3)
    await engine.workspace.put(
        ANNA, [make_page("p", text="Plant"), *(make_block(f"b{n}", "p", text=f"pump {n}") for n in range(8))], now=NOON
    )

    assert 8 == len(await found(engine))


async def test_opening_a_store_brings_its_index_up_to_date(new_folder, monkeypatch):
    """What an earlier process left behind is written before the first question."""
    monkeypatch.setattr(wiring, "encoders", lambda _: Parts().encoders)
    settings = Settings(home=new_folder(), tenant="acme", user="anna")
    store = wiring.block_store(settings)
    await store.put(ANNA, [make_page("p", text="pump")], now=NOON)
    store.close()
    async with contexture.open(settings) as opened:
        assert {"p": "pump"} == await found(opened)


async def test_a_tenant_does_not_wait_for_the_search_records_of_another(engine, monkeypatch):
    """While one tenant's blocks are being embedded, another's are written and found."""
    begun, go, prepare = asyncio.Event(), asyncio.Event(), engine._preparer.prepare

    async def held(records):
        if "loud" in records[0].text:
            begun.set()
            await go.wait()
        return await prepare(records)

    monkeypatch.setattr(engine._preparer, "prepare", held)
    loud = Scope(tenant="loud", user="lou")
    first = asyncio.create_task(engine.workspace.put(loud, [make_page("p", text="loud pump")], now=NOON))
    await begun.wait()
    await plant(engine)
    mine = await found(engine)
    go.set()
    await first

    assert {"t", "n", "d"} == mine.keys()
    assert {"p"} == (await found(engine, scope=loud)).keys()
