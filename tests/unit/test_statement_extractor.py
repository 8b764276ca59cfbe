"""Statements by a model: what is taken from its answer, what is checked, and what is remembered and forgotten."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from contexture import Contexture, ForgetRequest, Settings
from contexture.answer._chat_turn import StatementExtractor, is_stated
from contexture.answer.chat_types import ChatRequest
from contexture.conversation import Memory
from contexture.engine import open_store
from contexture.errors import SourceUnavailable
from contexture.testing.doubles import NOON, ScriptedChatModel
from contexture.types import Record

MESSAGE = "I moved to Bergen in May. My flight to Oslo is tomorrow. What should I pack?"


def answer(*statements: str, corrects: tuple[int, ...] = ()) -> str:
    """The answer of a model that finds these statements."""
    return json.dumps([{"statement": text, "corrects": list(corrects)} for text in statements])


async def extract(told: str | Exception, message: str = MESSAGE) -> list[str]:
    """The texts of the statements of a message."""
    extractor = StatementExtractor(model=ScriptedChatModel([told]))
    found = await extractor.extract(message, shown=message, memories=(), restore=str, now=NOON)
    return [each.text for each in found]


async def test_statements_of_a_model_are_taken_with_their_dates() -> None:
    """Also when it talks around its list."""
    told = ["I moved to Bergen in May.", f"My flight to Oslo is tomorrow ({NOON + timedelta(days=1):%Y-%m-%d})."]

    assert told == await extract(f"Here they are:\n```json\n{answer(*told)}\n```")


@pytest.mark.parametrize(
    "told", ["no list", "[1, 2]", "[]", '[{"statement": 7}]', answer("I moved to Paris."), SourceUnavailable("gone")]
)
async def test_a_model_that_fails_or_invents_leaves_the_message(told: str | Exception) -> None:
    """The statements of the message are remembered as they were said."""
    assert ["I moved to Bergen in May. My flight to Oslo is tomorrow."] == await extract(told)


async def test_a_sentence_that_the_model_leaves_out_is_kept() -> None:
    """As it was said, behind what was found."""
    assert ["I moved to Bergen in May.", "My flight to Oslo is tomorrow."] == await extract(
        answer("I moved to Bergen in May.")
    )


async def test_a_message_that_states_nothing_is_not_sent_to_the_model() -> None:
    """Questions, greetings and orders are no memories."""
    model = ScriptedChatModel([answer("I pack.")])
    extractor = StatementExtractor(model=model)

    assert () == await extractor.extract("What should I pack?", shown="", memories=(), restore=str, now=NOON)
    assert [] == model.asked


async def test_a_model_that_takes_too_long_leaves_the_message() -> None:
    """The turn does not wait for it."""

    class Hanging(ScriptedChatModel):
        async def complete(self, messages, *, max_tokens):
            await asyncio.Event().wait()

    extractor = StatementExtractor(model=Hanging([]), seconds=0.0)

    assert ["I sail."] == [
        each.text for each in await extractor.extract("I sail.", shown="", memories=(), restore=str, now=NOON)
    ]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("I moved to Bergen.", "I moved to Bergen in May."),
        ("My flight is tomorrow (2026-06-02).", "My flight is tomorrow."),
        ("I do not eat meat.", "I do not eat meat, but fish."),
        ("Моя сестра живёт в Томске.", "Моя сестра переехала, теперь живёт в Томске."),
    ],
)
def test_a_statement_in_the_words_of_its_message_counts(statement: str, message: str) -> None:
    """With a date of about the same time."""
    assert is_stated(statement, message, NOON)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("I moved to Paris.", "I moved to Bergen."),
        ("The code is 4472.", "The code is 4471."),
        ("I do not eat meat.", "I eat meat."),
        ("I eat meat.", "I do not eat meat."),
        ("My flight is tomorrow (1999-01-01).", "My flight is tomorrow."),
        ("My flight is tomorrow (2026-99-99).", "My flight is tomorrow."),
        ("It is so.", "I moved to Bergen."),
        ("Моя сестра живёт в Омске.", "Моя сестра живёт в Томске."),
    ],
)
def test_an_invention_does_not_count(statement: str, message: str) -> None:
    """Another name, number or date, or a negation more or less."""
    assert not is_stated(statement, message, NOON)


@pytest.fixture
async def engine(new_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """An engine whose outbox delivers when it is told to."""
    async with open_store(Settings(home=new_folder(), tenant="acme", user="anna")) as found:
        yield found


async def say(engine: Contexture, message: str, told: str) -> ScriptedChatModel:
    """A message of a chat, split by a model that gives this answer; returns the model."""
    model = ScriptedChatModel([told])
    engine.__dict__["chat"] = replace(engine.chat, extractor=StatementExtractor(model=model))
    await engine.chat.run(ChatRequest(message=message, session_id="s"), scope=engine.scope, now=NOON)
    await engine.outbox.drain()
    return model


async def stored(engine: Contexture) -> dict[str, Record]:
    """The texts of all memories, with their records."""
    found = await engine.index.scroll(engine.scope, "memories")
    return {record.text: record for record in found}


async def test_each_statement_of_a_message_is_a_memory_and_all_are_forgotten_with_it(engine: Contexture) -> None:
    """And each leads to the message, so that forgetting one forgets the message that repeats it."""
    told = ("My daughter is Mia.", "My son is Bram.", "My cat is Pixel.")
    message = "My daughter is Mia, my son is Bram, my cat is Pixel."
    await say(engine, message, answer(*told))
    memories = await stored(engine)

    preview = await engine.forget(
        ForgetRequest(ids=(memories[told[1]].id,), collection="memories", preview=True), scope=engine.scope
    )
    await engine.forget(ForgetRequest(session_id="s"), scope=engine.scope)

    assert set(told) == set(memories)
    assert 3 == len(preview.removed["memories"])
    assert preview.removed["session events"]
    assert {} == await stored(engine)


async def test_a_statement_may_correct_a_memory_of_the_prompt(engine: Contexture) -> None:
    """It names the id of the memory by its number, and personal data goes to no model."""
    old = Memory(text="We meet at the harbour on Friday.", time=NOON - timedelta(days=3), metadata={"role": "user"})
    (known,) = await engine.memory.remember(engine.scope, [old])
    message = "On Friday we meet at the harbour no more, ask anna@example.org for the office."
    model = await say(engine, message, answer("We meet at the harbour on Friday no more.", corrects=(1, 9)))

    found = next(each for text, each in (await stored(engine)).items() if text.endswith("no more."))
    assert [known] == found.payload["metadata"]["corrects"]
    assert "[1] (user, " in str(model.asked[0][-1]["content"])
    assert "anna@example.org" not in str(model.asked)


async def test_personal_data_is_put_back_into_what_is_remembered(engine: Contexture) -> None:
    """The model has seen a placeholder; the memory has what the user said."""
    await say(engine, "My address is anna@example.org.", answer("My address is <EMAIL_1>."))

    assert {"My address is anna@example.org."} == set(await stored(engine))
