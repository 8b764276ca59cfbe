"""What a chat remembers, with the shipped embedders: facts are recalled, corrections win, inventions stay apart."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from contexture import Contexture, Settings
from contexture.answer.chat_types import ChatRequest
from contexture.answer.route import ModelRoute
from contexture.builders.turn.build import TurnContext
from contexture.engine import open_store
from contexture.testing.doubles import NOON
from contexture.types import Message, Scope
from support.dialogue import CONVERSATION, CORRECTIONS, FACTS, OTHER_STATEMENTS

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
async def engine(new_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """An engine over the shipped embedders."""
    async with open_store(Settings(home=new_folder(), tenant="acme", user="anna")) as found:
        found.outbox.start()
        yield found


async def say(engine: Contexture, message: str, scope: Scope, *, session: str = "", now: datetime = NOON) -> str:
    """One message of a chat and its reply, stored."""
    request = ChatRequest(message=message, session_id=session)
    reply = (await engine.chat.run(request, scope=scope, now=now)).reply
    await engine.outbox.drain()
    return reply


async def build(engine: Contexture, question: str, scope: Scope, now: datetime) -> TurnContext:
    """The prompt of a question in a new session."""
    return await engine.build_turn({"user_message": question}, scope=scope, now=now)


def memory_block(context: TurnContext) -> str:
    """The memories of a prompt, as a model reads them."""
    return next((str(each["content"]) for each in context.messages if each.get("name") == "memory"), "")


async def test_a_fact_is_recalled_however_often_and_in_whatever_words_it_is_asked(engine: Contexture) -> None:
    """Among two hundred other statements, in fifty new sessions; questions do not push the answer out."""
    scope = engine.scope
    for at, statement in enumerate((*OTHER_STATEMENTS[:100], *(fact for fact, _ in FACTS), *OTHER_STATEMENTS[100:])):
        await say(engine, statement, scope, session=f"told-{at}")
    shown = first = 0
    for fact, questions in FACTS:
        for question in questions:
            built = await build(engine, question, scope, NOON + timedelta(days=1))
            await say(engine, question, scope, now=NOON + timedelta(days=1))
            shown += fact in memory_block(built)
            first += bool(built.snippets) and built.snippets[0].text == fact

    assert 50 == shown
    assert first >= 47


async def test_a_corrected_statement_is_shown_and_the_old_one_is_not(engine: Contexture) -> None:
    """Forty corrections, English and Russian; each supersession is in the ledger."""
    right = superseded = 0
    for at, (older, newer, question, value) in enumerate(CORRECTIONS):
        scope = Scope(tenant="acme", user=f"user{at}")
        await say(engine, older, scope, session="a")
        await say(engine, newer, scope, session="b", now=NOON + timedelta(days=3))
        built = await build(engine, question, scope, NOON + timedelta(days=9))
        right += bool(built.snippets) and value in built.snippets[0].text and newer in memory_block(built)
        superseded += any(entry.reason == "superseded" for entry in built.ledger.entries)

    assert right >= 38
    assert superseded >= 36


async def test_a_question_about_the_past_brings_back_what_was_superseded(engine: Contexture) -> None:
    """The old value is stored, and left out only while nobody asks for it."""
    await say(engine, "My sister Anna lives in Oslo.", engine.scope, session="a")
    await say(engine, "My sister Anna moved to Bergen.", engine.scope, session="b", now=NOON + timedelta(days=3))

    then = await build(engine, "Where did my sister Anna live before?", engine.scope, NOON + timedelta(days=4))

    assert "Oslo" in memory_block(then)
    assert "Bergen" in memory_block(then)


async def test_a_conversation_of_sixty_turns_is_answered_from_the_right_statements(engine: Contexture) -> None:
    """Two sessions, two languages, no model: the first sentence quoted is the one that answers."""
    assert 60 == len(CONVERSATION)
    wrong: list[str] = []
    for at, (session, message, expected) in enumerate(CONVERSATION):
        now = NOON + timedelta(days=7 if session == "two" else 0, minutes=at)
        reply = await say(engine, message, engine.scope, session=session, now=now)
        if expected is not None and expected.lower() not in reply.split("\n", maxsplit=1)[0].lower():
            wrong.append(f"{message}: {reply}")

    assert len(wrong) <= 1, wrong


class _Inventor:
    """A model that invents an answer to everything."""

    name = "inventor"

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """An invention with the words of the question."""
        return f"Your dog is called Brutus and lives in Paris, as to {messages[-1]['content']}"


async def test_what_a_model_invents_never_looks_like_what_the_user_said(engine: Contexture) -> None:
    """It is labelled as the assistant's, and ranked below the user's own statement."""
    await say(engine, "My dog is called Rex.", engine.scope, session="a")
    engine.__dict__["chat"] = replace(engine.chat, route=ModelRoute({"inventor": _Inventor()}))
    await say(engine, "What is my dog called?", engine.scope, session="b", now=NOON + timedelta(days=1))

    block = memory_block(await build(engine, "What is my dog called?", engine.scope, NOON + timedelta(days=2)))

    assert "[1] (user, 2026-01-01)\nMy dog is called Rex." in block.replace(f"{NOON:%Y-%m-%d}", "2026-01-01")
    assert "What is my dog called?" not in block.split("(assistant", 1)[0]
    assert "Brutus" not in block.split("(assistant", 1)[0]
