"""Forgetting in PostgreSQL: the same copies are found, also those that were written before they were indexed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from contexture import ChatRequest, Settings
from contexture.adapters.conversation import postgres
from contexture.adapters.conversation.postgres import PostgresReplies, PostgresSessions
from contexture.adapters.postgres.pool import PostgresPool
from contexture.adapters.postgres.tables import PostgresTables
from contexture.adapters.store_audit import audit_database
from contexture.conversation import MEMORIES_COLLECTION, ErasureTarget
from contexture.erasure.request import ForgetRequest
from contexture.testing.doubles import NOON
from contexture.types import PUBLIC, Record, Scope
from contexture.workspace import Block, BlockType, ImportAccess
from support.service import small_engine

ANNA = Scope(tenant="t", user="anna")
WORD = "zebracorn"


async def test_a_forgotten_text_is_in_no_table(url: str, new_folder: Callable[[], Path]) -> None:
    """Memories, messages, answers, replies, builds, records and blocks are erased by one process for all."""
    settings = Settings(home=new_folder(), store=url, tenant="t", user="anna")
    async with small_engine(settings) as ctx, small_engine(settings.model_copy(update={"home": new_folder()})) as other:
        await ctx.add([Record(id="pump", title=f"The {WORD}", text=f"The pump of the {WORD}", acl=(PUBLIC,))])
        page = Block(id="p", type=BlockType.PAGE, text="Plans")
        await ctx.workspace.put(ANNA, [page, Block(id="b", type=BlockType.PARAGRAPH, text=WORD, parent="p")], now=NOON)
        await other.build("pump")
        await ctx.chat.run(ChatRequest(message=f"My dog is called {WORD}", session_id="s"), scope=ANNA, now=NOON)
        await ctx.outbox.drain()
        asked = ChatRequest(message="What is my dog called?", session_id="t", message_id="m")
        answer = await other.once.run(asked, scope=ANNA, now=NOON + timedelta(minutes=1))
        assert WORD in answer.reply
        assert audit_database(url, WORD)

        memory = answer.citations[0].memory_id
        removed = (await ctx.forget(ForgetRequest(ids=(memory,), collection=MEMORIES_COLLECTION))).removed
        assert {"memories", "session events", "builds", "replies"} == set(removed)
        await ctx.forget(ForgetRequest(ids=("pump",)))
        await ctx.workspace.delete(ANNA, ["b"], now=NOON)
        await ctx.forget(ForgetRequest(trash=True))

        assert [] == audit_database(url, WORD)
        assert ["touched"] == [
            each.place.partition(".")[2] for each in audit_database(url, memory)
        ]  # the list of touched records has no texts


async def test_a_forgotten_user_leaves_no_private_block(url: str, new_folder: Callable[[], Path]) -> None:
    """Those in the trash go too; blocks that others may read stay."""
    async with small_engine(Settings(home=new_folder(), store=url, tenant="t", user="anna")) as ctx:
        own = [Block(id=name, type=BlockType.PAGE, text=f"{WORD} {name}", readers=("user:anna",)) for name in "ab"]
        both = Block(id="c", type=BlockType.PAGE, text="Plans", readers=("user:anna", "user:boris"))
        await ctx.workspace.put(ANNA, [*own, both], now=NOON)
        await ctx.workspace.delete(ANNA, ["b"], now=NOON)
        await ctx.forget(ForgetRequest(user_id="anna"))

        assert [] == audit_database(url, WORD)
        assert ["c"] == [block.id for block in await ctx.blocks.get(ANNA, ["a", "b", "c"])]


async def test_what_was_stored_before_copies_were_indexed_is_found(url: str) -> None:
    """The migration reads the memories and events out of stored replies and answers."""
    pool = PostgresPool(url)
    old = PostgresTables(pool, "replies", postgres.REPLY_MIGRATIONS[:1])
    body = {"citations": [{"memory_id": "mem-1"}], "events": [{"id": "turn-user"}]}
    statement = "INSERT INTO replies (tenant, user, id, session, state, time, body) VALUES (?, ?, ?, ?, ?, ?, ?)"
    rows = [
        ("t", "anna", "m", "s", "complete", 1.0, json.dumps(body).encode()),
        ("t", "anna", "n", "s", "accepted", 1.0, b""),
    ]
    await old.write(lambda db: db.executemany(statement, rows))
    old_sessions = PostgresTables(pool, "sessions", postgres.SESSION_MIGRATIONS[:1])
    metadata = json.dumps({"citations": [{"memory_id": "mem-1"}]})

    def write_events(db) -> None:
        db.execute("INSERT INTO sessions (row, tenant, user, id, last) VALUES (1, ?, ?, ?, 2)", ("t", "anna", "s"))
        told = '{"role": "assistant", "content": "x"}'
        for position, known in ((1, "{}"), (2, metadata)):
            db.execute(
                "INSERT INTO events (session, position, id, time, message, metadata) VALUES (1, ?, ?, ?, ?, ?)",
                (position, f"e{position}", NOON.isoformat(), told, known),
            )

    await old_sessions.write(write_events)
    replies, sessions = PostgresReplies(pool, days=30), PostgresSessions(pool)

    assert ["e2"] == [each.event.id for each in await sessions.citing(ANNA, ["mem-1"])]
    assert ["e2"] == await sessions.erase(ANNA, "s", ["e2"])
    assert ["m"] == await replies.erase(ANNA, ErasureTarget(events=frozenset({"turn-user"})), preview=True)
    assert ["m"] == await replies.erase(ANNA, ErasureTarget(records=frozenset({"memories/mem-1"})))
    assert ["n"] == await replies.erase(ANNA, ErasureTarget(sessions=frozenset({"s"})))
    pool.close()


async def test_an_import_does_not_open_a_locked_page(url: str, new_folder: Callable[[], Path]) -> None:
    """Readers are compared in the transaction that writes the block."""
    async with small_engine(Settings(home=new_folder(), store=url, tenant="t", user="anna")) as ctx:
        locked = Block(id="p", type=BlockType.PAGE, text="Plans", readers=("user:anna",))
        await ctx.workspace.put(ANNA, [locked], now=NOON)
        opened = Block(id="p", type=BlockType.PAGE, text="New plans", readers=(PUBLIC,))
        done = await ctx.workspace.put(ANNA, [opened], now=NOON, importing=ImportAccess())
        (page,) = await ctx.blocks.get(ANNA, ["p"])

    assert (("p",), "New plans", ("user:anna",)) == (done.kept_readers, page.text, page.readers)
