"""Conversations over the real parts: sessions, outbox, memory and index; only the embedders are small."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from contexture import Contexture, Settings
from contexture.answer.chat_types import ChatRequest
from contexture.answer.route import ModelRoute
from contexture.conversation import Recall
from contexture.testing.doubles import NOON
from contexture.types import Message, Record, Scope
from support.service import small_engine

pytestmark = pytest.mark.integration


@pytest.fixture
async def engine(new_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """An engine whose outbox delivers in the background."""
    async with small_engine(Settings(home=new_folder(), tenant="acme", user="anna", memory_threshold=0.3)) as found:
        found.outbox.start()
        yield found


async def stored(engine: Contexture, scope: Scope) -> list[Record]:
    """Every memory of a user."""
    return list(await engine.index.scroll(scope, "memories", limit=10_000))


class Parrot:
    """A model that repeats what stands in its memory block, and then says something of its own."""

    name = "parrot"

    def __init__(self) -> None:
        self.recalled = 0

    async def complete(self, messages: list[Message], *, max_tokens: int) -> str:
        """The memory block, quoted, and a remark."""
        block = next((str(each["content"]) for each in messages if each.get("name") == "memory"), "")
        self.recalled += bool(block)
        quoted = [line for line in block.splitlines()[1:] if not line.startswith("[")]
        return " ".join(quoted[:3]) or f"I heard: {messages[-1]['content']}"


async def test_memory_does_not_feed_on_itself(engine: Contexture) -> None:
    """Over a hundred turns that recall, each adds at most its two messages, and no quotation is stored again.

    Each in a session of its own, for what a history says is not shown as a memory.
    """
    model = Parrot()
    engine.__dict__["chat"] = replace(engine.chat, route=ModelRoute({"parrot": model}))
    before = 0
    for turn in range(100):
        message = f"The pump in hall {turn} was mended on day {turn}, says report number {turn}."
        await engine.chat.run(ChatRequest(message=message, session_id=f"s-{turn}"), scope=engine.scope)
        await engine.outbox.drain()
        found = await stored(engine, engine.scope)
        assert len(found) <= before + 2
        before = len(found)

    texts = [record.text for record in found]
    assert model.recalled >= 99
    assert len(texts) == len(set(texts))
    assert before <= 130  # a hundred messages, and few answers that were more than quotations


async def test_many_turns_at_once_do_not_mix(engine: Contexture) -> None:
    """200 concurrent turns of 50 sessions of 10 users: no error, nothing lost, nothing of one in another."""
    owners = {f"s{number}": Scope(tenant="acme", user=f"user{number % 10}") for number in range(50)}

    async def turn(session: str, number: int) -> None:
        text = f"Note {number} of {session}: the code word of {session} is w{session}n{number}."
        request = ChatRequest(message=text, session_id=session, max_prompt_tokens=150)
        result = await engine.chat.run(request, scope=owners[session])
        # So many at once are an overload, in which nobody waits for memories.
        assert {"the last message is not stored in memory yet"} >= {lost.reason for lost in result.degradations}

    await asyncio.gather(*(turn(session, number) for number in range(4) for session in owners))
    status = await engine.outbox.drain()

    assert (0, 0) == (status.waiting, status.parked)
    for session, scope in owners.items():
        events = await engine.sessions.list_events(scope, session, limit=100)
        asked = [str(each.message["content"]) for each in events[::2]]
        assert list(range(1, 9)) == [each.position for each in events]
        assert [f"Note {number} of {session}:" for number in range(4)] == [
            text.partition(":")[0] + ":" for text in asked
        ]
    for user in sorted({scope.user for scope in owners.values()}):
        scope = Scope(tenant="acme", user=user)
        own = {session for session, owner in owners.items() if owner == scope}
        messages = [record for record in await stored(engine, scope) if record.payload.get("type") == "message"]
        assert {f"Note {number} of {session}:" for session in own for number in range(4)} == {
            record.text.partition(":")[0] + ":" for record in messages
        }


async def test_no_summary_is_lost(engine: Contexture) -> None:
    """Each of twenty sessions that were trimmed at once has a summary in memory, and none is there twice."""
    sessions = [f"s{number}" for number in range(20)]

    async def converse(session: str) -> None:
        for number in range(8):
            text = f"In {session} we spoke of subject {number}, " + "at some length and without end " * 4
            request = ChatRequest(message=text, session_id=session, max_prompt_tokens=260)
            await engine.chat.run(request, scope=engine.scope)

    await asyncio.gather(*map(converse, sessions))
    await engine.outbox.drain()
    summaries = [each for each in await stored(engine, engine.scope) if each.payload.get("type") == "session_summary"]

    assert set(sessions) == {record.session for record in summaries}
    assert len(summaries) == len({record.text for record in summaries})


async def test_a_later_turn_recalls_a_summary(engine: Contexture) -> None:
    """What was trimmed away comes back when it is asked for, from another session of the same user's."""
    long = "and the meeting went on without any further result worth a note for anyone there " * 3
    for text in ("The vault opens with a zebra key.", *(long + str(at) for at in range(6))):
        request = ChatRequest(message=text, session_id="old", max_prompt_tokens=250)
        await engine.chat.run(request, scope=engine.scope, now=NOON)
    await engine.outbox.drain()
    query = Recall(query="zebra key of the vault", now=NOON, threshold=0.3, top_k=20)
    found = await engine.memory.recall(engine.scope, query)

    assert any(each.type == "session_summary" and "zebra" in each.text for each in found)
    result = await engine.chat.run(ChatRequest(message="What opens the vault, which key?"), scope=engine.scope)
    assert "zebra" in result.reply
