"""A chat answers from everything that the user may read: sources in the prompt, citations, rights and erasure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from contexture import Contexture, Record, Settings
from contexture.answer.chat_types import ChatRequest, ChatResult
from contexture.answer.completions import CompletionRequest, Completions
from contexture.answer.route import ModelRoute
from contexture.conversation import Memory
from contexture.errors import NotFound
from contexture.testing.doubles import NOON
from contexture.types import Message, Scope
from support.service import small_engine

pytestmark = pytest.mark.integration

ANNA = Scope(tenant="acme", user="anna")
BORIS = Scope(tenant="acme", user="boris")
PUMP = Record(id="pump", title="Pump", text="The pump in the harbour costs 900 euros.", acl=("public",))
SECRET = Record(id="secret", title="Pump", text="The pump in the harbour has a hidden valve.", acl=("user:boris",))
QUESTION = "What does the pump in the harbour cost?"


@pytest.fixture
async def engine(new_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """An engine with a public record and a private one of somebody else."""
    async with small_engine(Settings(home=new_folder(), tenant="acme", user="anna", memory_threshold=0.3)) as found:
        found.outbox.start()
        await found.add([PUMP], scope=ANNA)
        await found.add([SECRET], scope=BORIS)
        yield found


async def ask(engine: Contexture, message: str = QUESTION, session: str = "s", scope: Scope = ANNA) -> ChatResult:
    """The answer to a message."""
    return await engine.chat.run(ChatRequest(message=message, session_id=session), scope=scope)


async def prompt(engine: Contexture, result: ChatResult) -> Sequence[Message]:
    """The messages that the model was given."""
    return (await engine.capsule(result.build_id, scope=ANNA)).messages


async def test_a_question_is_answered_from_a_record(engine: Contexture) -> None:
    """The reply quotes it, the citation names its collection, and the prompt has it in a message of the user role."""
    result = await ask(engine)
    (block,) = [each for each in await prompt(engine, result) if each.get("name") == "memory"]

    assert "900 euros. [1]" in result.reply
    assert [("documents", "pump", True)] == [(each.collection, each.memory_id, each.cited) for each in result.citations]
    assert "user" == block["role"]
    assert str(block["content"]).startswith("Relevant memory and sources:\n[1] (Pump)\n")


async def test_what_others_keep_to_themselves_is_in_no_prompt(engine: Contexture) -> None:
    """The prompt of one who may not read a record is the same as without it."""
    with_it = await prompt(engine, await ask(engine, session="one"))
    await engine.delete(["secret"], scope=BORIS)

    assert "valve" not in str(with_it)
    assert with_it == await prompt(engine, await ask(engine, session="two"))


async def test_statements_and_small_talk_search_nothing(engine: Contexture) -> None:
    """Only questions and orders are answered from sources."""
    for message in ("The pump in the harbour is my favourite.", "Hello!"):
        assert not any("900 euros" in str(each) for each in await prompt(engine, await ask(engine, message)))


async def test_questions_about_oneself_are_answered_from_memory(engine: Contexture) -> None:
    """A document that has the words of the question is about something else."""
    await engine.add([Record(id="spec", text="Icons like these are what I like to call generic.", acl=("public",))])
    await ask(engine, "I like tulips.", session="first")
    await engine.wait_delivered(ANNA)

    assert "tulips" in (await ask(engine, "What do I like?")).reply


async def test_a_document_answers_how_one_does_something(engine: Contexture) -> None:
    """Such a question is in the first person, too, and its answer has no markup of the document."""
    guide = Record(id="guide", text="- **Export**: press the red button to export a graph.", acl=("public",))
    await engine.add([guide], scope=ANNA)

    reply = (await ask(engine, "How do I export a graph?")).reply

    assert reply.startswith("Export: press the red button to export a graph. [")


async def test_a_short_question_may_begin_another_subject(engine: Contexture) -> None:
    """What was asked before does not hide what this question is about."""
    await engine.add([Record(id="crane", text="The crane is yellow.", acl=("public",))], scope=ANNA)
    await ask(engine)

    assert "yellow" in (await ask(engine, "Which colour is the crane?")).reply


async def test_memory_alone_is_a_setting(new_folder: Callable[[], Path]) -> None:
    """With `memory`, a chat does not search records; completions do with `everything`."""
    settings = Settings(home=new_folder(), tenant="acme", user="anna")
    asked = CompletionRequest(messages=({"role": "user", "content": QUESTION},))
    async with small_engine(settings.model_copy(update={"chat_sources": "memory"})) as engine:
        await engine.add([PUMP], scope=ANNA)
        assert () == (await ask(engine)).citations
        assert () == (await Completions(engine.chat).run(asked, scope=ANNA)).citations
    async with small_engine(settings.model_copy(update={"completion_sources": "everything"})) as engine:
        assert ["pump"] == [
            each.memory_id for each in (await Completions(engine.chat).run(asked, scope=ANNA)).citations
        ]


class Quoter:
    """A model that repeats the price."""

    name = "quoter"

    async def complete(self, messages: list[Message], *, max_tokens: int) -> str:
        """A sentence of its own with what the source says."""
        return "As far as I know the pump costs 900 euros [1]."


async def test_an_answer_from_sources_becomes_no_memory_and_goes_with_its_source(engine: Contexture) -> None:
    """Deleting the record removes the answer from the session, for everybody who asked; questions stay."""
    engine.__dict__["chat"] = replace(engine.chat, route=ModelRoute({"quoter": Quoter()}))
    await ask(engine)
    await ask(engine, session="b", scope=BORIS)
    await engine.wait_delivered(ANNA)
    memories = [record for owner in (ANNA, BORIS) for record in await engine.index.scroll(owner, "memories")]
    await engine.delete(["pump"], scope=ANNA)
    left = [
        *await engine.sessions.list_events(ANNA, "s"),
        *await engine.sessions.list_events(BORIS, "b"),
    ]

    assert [] == [record.text for record in memories if "900" in record.text]
    assert [QUESTION] * 2 == [event.message["content"] for event in left]


@pytest.mark.parametrize("by", ["delete", "forget"])
async def test_later_turns_of_a_session_go_with_the_answer_in_their_history(engine: Contexture, by: str) -> None:
    """Their kept builds and stored replies show what the answer said, for everybody who asked."""
    later: list[str] = []
    for scope in (ANNA, BORIS):
        await ask(engine, scope=scope)
        later.append((await ask(engine, "The weather is fine.", scope=scope)).build_id)
    await (engine.delete(["pump"]) if by == "delete" else engine.forget({"ids": ["pump"]}))

    for scope, build_id in zip((ANNA, BORIS), later, strict=True):
        with pytest.raises(NotFound):
            await engine.capsule(build_id, scope=scope)
    assert not any(b"900 euros" in path.read_bytes() for path in engine.settings.home.glob("builds/*"))


async def test_later_turns_of_others_go_with_an_answer_from_a_shared_memory(engine: Contexture) -> None:
    """Whoever shares a memory and forgets it removes the answers of others that repeat it, and what has these."""
    shared = Memory(text="The tulips of the garden are purple.", id="tulips", readers=("public",))
    await engine.memory.remember(ANNA, [shared])
    answer = await ask(engine, "Which colour are the tulips of the garden?", scope=BORIS)
    later = await ask(engine, "The weather is fine.", scope=BORIS)
    await engine.forget({"ids": ["tulips"], "collection": "memories"})

    assert "purple" in answer.reply
    with pytest.raises(NotFound):
        await engine.capsule(later.build_id, scope=BORIS)


async def test_forgetting_names_the_answers(engine: Contexture) -> None:
    """The receipt, and the preview before it, list the answers that repeat a record."""
    answer = (await ask(engine)).events[-1]
    named = {"collection": "documents", "ids": ["pump"]}
    preview = await engine.forget({**named, "preview": True}, scope=ANNA)
    receipt = await engine.forget(named, scope=ANNA)

    assert answer.id in preview.removed["session events"]
    assert answer.id in receipt.removed["session events"]
    assert "900" not in str(await engine.sessions.list_events(ANNA, "s"))


async def test_every_source_has_a_verdict_and_replays(engine: Contexture, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out, as beyond the best, is in the capsule and in the ledger that it rebuilds."""
    monkeypatch.setattr("contexture.builders.turn.compose._MAX_MATERIAL", 3)
    many = [Record(id=f"far-{at}", text=f"The pump costs {at}.", acl=("public",)) for at in range(30)]
    await engine.add(many, scope=ANNA)
    built = await engine.build_turn({"user_message": QUESTION}, scope=ANNA, with_sources=True)

    assert {"fits", "beyond_top_k"} == {str(entry.reason) for entry in built.ledger.entries}
    assert built.ledger.entries == (await engine.load_build(built.build_id, scope=ANNA))[1].entries


async def test_personal_data_of_documents_is_not_restored(new_folder: Callable[[], Path]) -> None:
    """Callers see their own data again, and not what redaction hides in a record that they may read."""
    settings = Settings(home=new_folder(), tenant="acme", user="anna", show_own_data=True)
    record = Record(id="pump", text="For the pump in the harbour write to viktor@example.com.", acl=("public",))
    async with small_engine(settings) as engine:
        await engine.add([record], scope=ANNA)
        answer = await ask(engine, "Which address has the pump in the harbour?")

    assert "write to <EMAIL_1>. [1]" in answer.reply


async def test_only_memories_are_corrected(engine: Contexture) -> None:
    """What splits a message into statements is shown memories, not records of the prompt."""
    built = await engine.build_turn({"user_message": QUESTION}, scope=ANNA, with_sources=True)
    seen: list[object] = []

    class Extractor:
        async def extract(self, message: str, *, memories: list[object], **_: object) -> tuple[()]:
            seen.append(memories)
            return ()

    await replace(engine.chat, extractor=cast("Any", Extractor())).extract(built, QUESTION, NOON)

    assert built.snippets
    assert [[]] == seen
