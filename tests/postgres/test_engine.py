"""Engines over one PostgreSQL: what one of them is told, all of them know, and builds are those of the embedded one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from contexture import Contexture, Record, Scope, Settings, wiring
from contexture.cli._demo_samples import load_sample_memories, load_sample_news, load_sample_workspace
from contexture.cli.demo import memories_folder, news_folder, workspace_folder
from contexture.conversation import SessionEvent
from contexture.errors import NotFound, UnknownAdapter
from contexture.ledger import Ledger
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC
from contexture.workspace import Block, BlockType
from support.service import small_engine

pytest.importorskip("psycopg", reason="psycopg is not installed")

DEMO = Scope(tenant="demo", user="demo", groups=("staff",))
PUMP = Record(id="pump", title="Pump", text="The pump leaks oil into the basin.", acl=(PUBLIC,))


def settings(folder: Path, url: str) -> Settings:
    """Settings of one process."""
    return Settings(home=folder, store=url, tenant="demo", user="demo", groups=("staff",))


@pytest.fixture
async def pair(
    new_url: Callable[[], str], new_folder: Callable[[], Path]
) -> AsyncIterator[tuple[Contexture, Contexture]]:
    """Two engines over one empty store."""
    url = new_url()
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(small_engine(settings(new_folder(), url)))
        second = await stack.enter_async_context(small_engine(settings(new_folder(), url)))
        yield first, second


async def test_what_one_process_wrote_the_other_finds_at_once(pair: tuple[Contexture, Contexture]) -> None:
    """Written, found, changed and removed: an acknowledged write is seen by the next question anywhere."""
    one, other = pair
    await one.add([PUMP])
    found = await other.search("pump")
    await other.add([msgspec.structs.replace(PUMP, text="The valve is new.")])
    gone, new = await one.search("pump oil"), await one.search("valve")
    removed = (await one.delete(["pump"])).removed
    left = await other.search("valve")

    assert [["pump"], ["pump"], [], {"documents": ("pump",)}] == [
        [each.record_id for each in found.found],
        [each.record_id for each in new.found],
        [each.record_id for each in left.found],
        removed,
    ]
    assert not any("oil" in each.text for each in gone.found)


async def test_a_remembered_answer_does_not_outlive_anothers_write(pair: tuple[Contexture, Contexture]) -> None:
    """The same question again finds what another process has written since."""
    one, other = pair
    await one.add([PUMP])
    before = await one.search("pump")
    await other.add([msgspec.structs.replace(PUMP, id="second", title="Second pump")])
    after = await one.search("pump")

    assert (1, 2) == (len(before.found), len(after.found))


async def test_everything_else_is_shared_too(pair: tuple[Contexture, Contexture]) -> None:
    """Sessions, builds, blocks and keys that one process has are those of the other."""
    one, other = pair
    await one.sessions.append(DEMO, "s", [SessionEvent(id="a", message={"role": "user", "content": "hi"}, time=NOON)])
    await one.add([PUMP])
    built = await one.build("Who knows the pump?", now=NOON)
    await one.workspace.put(DEMO, [Block(id="p", type=BlockType.PAGE, text="Harbour")], now=NOON)
    mine, theirs = wiring.api_keys(one.settings), wiring.api_keys(other.settings)
    made, token = mine.add("laptop", DEMO, now=NOON)
    found = theirs.find(token, now=NOON)
    theirs.revoke(made.id, now=NOON)
    revoked = mine.find(token, now=NOON)
    mine.close()
    theirs.close()

    assert ["a"] == [event.id for event in await other.sessions.list_events(DEMO, "s")]
    assert built.context.messages == (await other.capsule(built.context.build_id)).messages
    assert ["Harbour"] == [block.text for block in await other.blocks.get(DEMO, ["p"])]
    assert (made, None) == (found, revoked)


@pytest.mark.parametrize("readers", [("user:demo",), None])
async def test_a_block_that_another_process_hides_meanwhile_is_not_found(
    pair: tuple[Contexture, Contexture], monkeypatch: pytest.MonkeyPatch, readers: tuple[str, ...] | None
) -> None:
    """One process is about to write a search record when the other narrows or deletes the block, and is done."""
    one, other = pair
    boris = Scope(tenant="demo", user="boris")
    note = Block(id="n", type=BlockType.PARAGRAPH, text="The pump leaks.", readers=("user:demo", "user:boris"))
    write = one.index.upsert

    async def late(*given: Any) -> int:
        monkeypatch.undo()
        if readers:
            await other.workspace.put(DEMO, [msgspec.structs.replace(note, readers=readers)], now=NOON)
        else:
            await other.workspace.delete(DEMO, ["n"], now=NOON)
        return await write(*given)

    monkeypatch.setattr(one.index, "upsert", late)
    await one.workspace.put(DEMO, [note], now=NOON)
    found = [await engine.search("pump", collection="blocks", scope=boris) for engine in pair]

    assert [[], []] == [list(each.found) for each in found]
    assert bool(readers) == bool(await other.index.get(DEMO, "blocks", ["n"]))


async def test_a_build_nobody_kept_is_not_found(pair: tuple[Contexture, Contexture]) -> None:
    """Unknown ids and ids of another shape are answered alike."""
    for name in ("ctx-000000000000", "../../etc/passwd"):
        with pytest.raises(NotFound):
            await pair[0].capsule(name)


async def test_every_builder_builds_what_it_builds_over_the_embedded_store(
    new_url: Callable[[], str], new_folder: Callable[[], Path]
) -> None:
    """Queries, turns, commands and workspaces over the samples are the same, letter for letter."""
    built: list[Any] = []
    for url in ("", new_url()):
        async with small_engine(settings(new_folder(), url)) as engine:
            await _load(engine)
            built.append(await _contexts(engine))

    assert built[0] == built[1]


async def _load(engine: Contexture) -> None:
    def member(name: str) -> Scope:
        return Scope(tenant="demo", user=name, groups=("staff",))

    await engine.add([PUMP, msgspec.structs.replace(PUMP, id="second", text="A second pump leaks too.")])
    await load_sample_news(engine, news_folder(), DEMO, NOON)
    await load_sample_memories(engine, memories_folder(), DEMO, member, NOON)
    await load_sample_workspace(engine, workspace_folder(), DEMO, member, NOON)


async def _contexts(engine: Contexture) -> list[Any]:
    turn = {
        "tenant_id": "demo", "user_id": "demo", "session_id": "s", "system_prompt": "You help.",
        "user_message": "What did we say about the gauge?", "history": [],
    }  # fmt: skip
    query = await engine.build("Where does the pump leak?", now=NOON)
    chat = await engine.build_turn(turn, now=NOON)
    command = await engine.build_command({"raw_command": "/ask", "args": "query=gauges window=1m"}, now=NOON)
    asked = {"query": "What tasks are overdue?", "type": "chat"}
    blocks = await engine.build_workspace(asked, scope=DEMO, now=NOON)
    return [
        (query.context.messages, _told(query.ledger)),
        (chat.messages, _told(chat.ledger)),
        (command.messages, _told(command.ledger)),
        (blocks.serialized, _told(blocks.ledger)),
    ]


def _told(ledger: Ledger) -> bytes:
    return msgspec.json.encode(ledger.entries)


async def test_a_store_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    """The error says what a store can be."""
    with pytest.raises(UnknownAdapter, match="the known ones are folder, postgres, postgresql, qdrant"):
        async with small_engine(settings(tmp_path, "mysql://localhost/app")):
            pass
