"""Processing a message: what is asked, shown, masked and kept, whatever goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.adapters.conversation.sqlite import SqliteSessions
from contexture.adapters.llm.extractive import ExtractiveModel
from contexture.adapters.policy.open import OpenPolicy
from contexture.answer.chat import ChatRecipe, ProcessMessage
from contexture.answer.chat_types import ChatRequest, ChatResult, Delta, Started
from contexture.answer.route import ModelRoute
from contexture.conversation import Decision, Memory, MemoryKind, Recalled, SessionEvent
from contexture.errors import BudgetTooSmall, InvalidRequest, NotPermitted, SourceUnavailable, StoreUnwritable
from contexture.pipeline.masking import mask_secrets
from contexture.testing.doubles import NOON, FixedClock, ScriptedChatModel, ScriptedMemory, WordCounter
from contexture.types import Scope
from support.turns import KeptSummaries, KnownSecrets, TurnBench

ANNA = Scope(tenant="acme", user="anna")
FERRY = Recalled(id="m-1", text="The ferry leaves at nine.", score=0.9, time=NOON, label="chat")


@dataclass
class Pieces:
    """A model that gives these pieces, one after the other; an exception among them is raised."""

    pieces: Sequence[str | Exception]
    name: str = "pieces"
    closed: bool = False

    async def complete(self, messages, *, max_tokens) -> str:
        """All of them."""
        return "".join([piece async for piece in self.stream(messages, max_tokens=max_tokens)])

    async def stream(self, messages, *, max_tokens) -> AsyncIterator[str]:
        """Each of them."""
        try:
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.closed = True


@dataclass
class Desk:
    """A use case and what it works with."""

    sessions: SqliteSessions
    kept: KeptSummaries = field(default_factory=KeptSummaries)

    def process(self, *models, memory=None, secrets=None, policy=None, recipe=None) -> ProcessMessage:
        """The use case over these models, tried in order."""
        bench = TurnBench(memory=memory or ScriptedMemory(), secrets=KnownSecrets(secrets or {}))
        return ProcessMessage(
            policy=policy or OpenPolicy(),
            sessions=self.sessions,
            build=bench.builder().build_for_turn,
            route=ModelRoute({model.name: model for model in models}),
            memories=self.kept,
            secrets=KnownSecrets(secrets or {}),
            counter=WordCounter(),
            clock=FixedClock(),
            recipe=recipe or ChatRecipe(),
        )

    async def events(self, session: str = "s", scope: Scope = ANNA) -> Sequence[SessionEvent]:
        """What a session holds."""
        return await self.sessions.list_events(scope, session, limit=1_000)


@pytest.fixture
def desk(new_folder: Callable[[], Path]):
    """A desk in a folder of its own."""
    made = Desk(SqliteSessions(new_folder() / "sessions.sqlite"))
    yield made
    made.sessions.close()


def to(message: str, **more) -> ChatRequest:
    """A message to session s."""
    return ChatRequest(message=message, session_id="s", **more)


async def hear(process: ProcessMessage, heard: list) -> None:
    """Listen to the answer to its end, or to its failure."""
    async for step in process.stream(to("Hello"), scope=ANNA):
        heard.append(step)  # noqa: PERF401 - what came before a failure is wanted


async def test_a_message_is_answered_and_kept(desk: Desk) -> None:
    """The result names the reply, its build, the memory it cites, its cost and its two events."""
    memory = ScriptedMemory(recalls=[FERRY])
    model = ScriptedChatModel(["It leaves at nine [1]."])
    result = await desk.process(model, memory=memory).run(to("When does the ferry leave?"), scope=ANNA)

    assert ("It leaves at nine [1].", "scripted", "s", ()) == (
        result.reply, result.model, result.session_id, result.degradations,
    )  # fmt: skip
    assert [(1, "m-1", "chat", True)] == [(c.number, c.memory_id, c.label, c.cited) for c in result.citations]
    assert 5 == result.usage["completion_tokens"]
    assert list(result.events) == list(await desk.events())
    asked, told = result.events
    assert {"lang": "en", "intent": "question", "keywords": ["ferry", "leave"]} == asked.metadata["analysis"]
    assert ("complete", result.build_id) == (told.metadata["status"], told.metadata["build_id"])


async def test_what_was_said_is_remembered_with_what_was_shown(desk: Desk) -> None:
    """Statement and answer are episodic memories of the session, and name the memories that stood in the prompt."""
    memory = ScriptedMemory(recalls=[FERRY])
    recipe = ChatRecipe(namespace="n", universe="u")
    process = desk.process(ScriptedChatModel(["At nine."]), memory=memory, recipe=recipe)
    await process.run(to("I take the ferry. When does it leave?", persona_id="p"), scope=ANNA)
    (user_scope, user), (_, reply) = desk.kept.kept

    assert (ANNA, "I take the ferry.", "At nine.") == (user_scope, user.text, reply.text)
    for each in (user, reply):
        assert (MemoryKind.EPISODIC, "s", "p", "n", "u", NOON, ("m-1",)) == (
            each.kind, each.session_id, each.persona_id, each.namespace, each.universe, each.time, each.injected,
        )  # fmt: skip
    assert user.idempotency_key != reply.idempotency_key


@pytest.mark.parametrize(("arrived", "lost"), [(True, []), (False, ["memory"])])
async def test_a_message_waits_for_what_was_said_before(desk: Desk, *, arrived: bool, lost: list[str]) -> None:
    """Memory is asked only then; a wait that was given up is named, in the result and in what begins a stream."""
    memory, waited = ScriptedMemory(recalls=[FERRY]), []

    async def wait(scope: Scope) -> bool:
        waited.append((scope, len(memory.asked)))
        return arrived

    process = replace(desk.process(ScriptedChatModel(["Yes.", "No."]), memory=memory), arrived=wait)
    result = await process.run(to("Is it so?"), scope=ANNA)
    started, *_ = [step async for step in process.stream(to("Is it?"), scope=ANNA)]

    assert [(ANNA, 0), (ANNA, 1)] == waited
    assert lost == [each.source for each in result.degradations] == [each.source for each in started.degradations]
    assert "Yes." == result.reply


async def test_extracts_are_not_remembered_again(desk: Desk) -> None:
    """An answer made of what is stored adds nothing to it, and neither does the question."""
    process = desk.process(ExtractiveModel(), memory=ScriptedMemory(recalls=[FERRY]))
    result = await process.run(to("When does the ferry leave?"), scope=ANNA)

    assert "The ferry leaves at nine. [1]" == result.reply
    assert not desk.kept.kept


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("Forget what I said about my old address.", '{"matching": "my old address"}'),
        ("Забудь, что я говорил о кошке", '{"matching": "кошке"}'),
    ],
)
async def test_an_order_to_forget_is_answered_with_how_to_do_it(desk: Desk, order: str, said: str) -> None:
    """No model is asked, because it would say that it has forgotten; nothing is remembered of it."""
    model = ScriptedChatModel(["I have forgotten it."])

    result = await desk.process(model).run(ChatRequest(message=order, session_id="s"), scope=ANNA)

    assert said in result.reply
    assert ([], []) == (model.asked, desk.kept.kept)


async def test_a_new_session_gets_a_name(desk: Desk) -> None:
    """Two messages without a session are two conversations."""
    process = desk.process(ScriptedChatModel(["a", "b"]))
    names = [(await process.run(ChatRequest(message="Hi"), scope=ANNA)).session_id for _ in range(2)]

    assert 2 == len({name for name in names if name})
    assert sorted(names) == sorted(await desk.sessions.sessions(ANNA))


async def test_the_model_is_shown_what_was_said_before(desk: Desk) -> None:
    """History is the session's own, oldest first; another user's session of the same name is another one."""
    model = ScriptedChatModel(["one", "two", "three"])
    process = desk.process(model)
    await process.run(to("first"), scope=ANNA)
    await process.run(to("second"), scope=ANNA)
    await process.run(to("third"), scope=Scope(tenant="acme", user="boris"))

    said = [[message["content"] for message in asked[1:]] for asked in model.asked]
    assert [["first"], ["first", "one", "second"], ["third"]] == said


async def test_the_last_twenty_events_are_history(desk: Desk) -> None:
    """By default all of the last twenty events are in the history, as far as the limit allows."""
    model = ScriptedChatModel(["ok"] * 40)
    process = desk.process(model)
    for number in range(30):
        await process.run(to(f"message {number}"), scope=ANNA)
        said = [message["content"] for message in model.asked[-1] if message["role"] == "user"][:-1]
        assert [f"message {before}" for before in range(max(0, number - 10), number)] == said[-10:]
        assert len(said) <= 15


@pytest.mark.parametrize("most", [0, 1])
async def test_history_can_be_short_or_off(desk: Desk, most: int) -> None:
    """The setting bounds it."""
    model = ScriptedChatModel(["one", "two"])
    process = desk.process(model, recipe=ChatRecipe(history_events=most))
    await process.run(to("first"), scope=ANNA)
    await process.run(to("second"), scope=ANNA)

    assert 2 + most == len(model.asked[1])


async def test_every_turn_of_a_session_begins_with_the_same_system_prompt(desk: Desk) -> None:
    """It names the language the session began in, and does not follow each message."""
    model = ScriptedChatModel(["a", "b", "c"])
    process = desk.process(model)
    for message in ("Привет, это Анна", "And in English?", "Спасибо"):
        await process.run(to(message), scope=ANNA)

    (system,) = {asked[0]["content"] for asked in model.asked}
    assert "Russian" in system


async def test_a_denied_message_is_not_stored(desk: Desk) -> None:
    """The policy is asked first, with what it needs to know, and its denial leaves nothing."""
    asked = []

    class Denying:
        async def decide(self, scope, action, resource):
            asked.append((scope, action, dict(resource)))
            return Decision(allowed=False, reason="not today")

    model, memory = ScriptedChatModel(["never"]), ScriptedMemory()
    process = desk.process(model, memory=memory, policy=Denying())
    with pytest.raises(NotPermitted, match="not today"):
        await process.run(to("Hello"), scope=ANNA)
    with pytest.raises(NotPermitted):
        _ = [step async for step in process.stream(to("Hello"), scope=ANNA)]

    assert (ANNA, "message.process", "s") == (asked[0][0], asked[0][1], asked[0][2]["session_id"])
    assert ([], [], [], 0, []) == (
        list(await desk.events()), list(await desk.sessions.sessions(ANNA)), desk.kept.kept, memory.calls, model.asked,
    )  # fmt: skip


@pytest.mark.parametrize("way", ["whole", "stream"])
async def test_a_model_that_fails_leaves_the_message_and_the_error(desk: Desk, way: str) -> None:
    """The user's event is stored, an error event follows, and the next turn goes on from there."""
    process = desk.process(ScriptedChatModel([SourceUnavailable("vendor down"), "fine now"]))
    work = process.run(to("Hello"), scope=ANNA) if way == "whole" else hear(process, [])
    with pytest.raises(SourceUnavailable):
        await work
    asked, failed = await desk.events()

    assert ("Hello", "", "failed") == (asked.message["content"], failed.message["content"], failed.metadata["status"])
    assert "UNAVAILABLE" == failed.metadata["error"]["code"]
    assert [] == desk.kept.kept
    assert "fine now" == (await process.run(to("Again"), scope=ANNA)).reply


@dataclass
class Looker:
    """A model that looks into the session while it is asked."""

    desk: Desk
    seen: list[tuple[str, int]] = field(default_factory=list)
    name: str = "looker"

    async def complete(self, messages, *, max_tokens) -> str:
        """What the session holds by now."""
        self.seen = [(event.message["content"], event.position) for event in await self.desk.events()]
        return "seen"


async def test_a_message_is_in_its_session_before_a_model_is_asked(desk: Desk) -> None:
    """It is not lost when the process ends while a model answers; the answer is appended behind it."""
    model = Looker(desk)
    for number in (1, 2):
        result = await desk.process(model).run(to(f"Hello {number}"), scope=ANNA)

        assert (f"Hello {number}", 2 * number - 1) == model.seen[-1]
        assert [2 * number - 1, 2 * number] == [event.position for event in result.events]
    assert ["Hello 1", "seen", "Hello 2", "seen"] == [event.message["content"] for event in await desk.events()]


async def test_a_message_that_was_never_answered_is_history(desk: Desk) -> None:
    """What an earlier process left without an answer is shown to the next model."""
    alone = SessionEvent(id="x-user", message={"role": "user", "content": "The key is blue."}, time=NOON)
    await desk.sessions.append(ANNA, "s", [alone])
    model = ScriptedChatModel(["Blue."])
    result = await desk.process(model).run(to("Which key?"), scope=ANNA)

    assert ["The key is blue.", "Which key?"] == [each["content"] for each in model.asked[0][1:]]
    assert [2, 3] == [event.position for event in result.events]


async def test_a_stream_that_breaks_keeps_what_was_heard(desk: Desk) -> None:
    """The pieces before the failure are in the failed event."""
    process = desk.process(Pieces(["one ", "two ", SourceUnavailable("line dead")]), ExtractiveModel())
    heard = []
    with pytest.raises(SourceUnavailable, match="line dead"):
        await hear(process, heard)

    assert [Delta("one "), Delta("two ")] == heard[1:]
    assert ("one two ", "failed") == _end(await desk.events())


async def test_a_whole_answer_falls_back_even_in_the_middle(desk: Desk) -> None:
    """What nobody has heard yet can be replaced by another model's answer."""
    process = desk.process(Pieces(["one ", SourceUnavailable("line dead")]), ScriptedChatModel(["whole"]))
    result = await process.run(to("Hello"), scope=ANNA)

    assert ("whole", "scripted") == (result.reply, result.model)
    assert ["model:pieces"] == [lost.source for lost in result.degradations]


def _end(events: Sequence[SessionEvent]) -> tuple[str, str]:
    return events[-1].message["content"], events[-1].metadata["status"]


@pytest.mark.parametrize("after", [0, 1, 2])
async def test_a_listener_that_leaves_aborts_the_answer(desk: Desk, after: int) -> None:
    """The model is stopped, what was shown is kept as aborted, and the session is free again."""
    model = Pieces(["one ", "two ", "three "])
    process = desk.process(model)
    async with aclosing(process.stream(to("Hello"), scope=ANNA)) as steps:
        for _ in range(after + 1):
            await anext(steps)

    assert ("".join(["one ", "two "][:after]), "aborted") == _end(await desk.events())
    assert model.closed is (after > 0)
    assert {} == process.session_locks._locks
    assert [] == desk.kept.kept


async def test_a_cancelled_caller_aborts_the_answer(desk: Desk) -> None:
    """Cancelling while the model thinks keeps the message too."""
    thinking = asyncio.Event()

    class Thinking(Pieces):
        async def complete(self, messages, *, max_tokens):
            thinking.set()
            await asyncio.Event().wait()

    process = desk.process(Thinking([]))
    task = asyncio.create_task(process.run(to("Hello"), scope=ANNA))
    await thinking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ("", "aborted") == _end(await desk.events())


async def test_a_caller_that_leaves_at_the_end_loses_nothing(desk: Desk) -> None:
    """Once the model has answered, events and memories are kept together, whoever still waits for them."""
    answered = asyncio.Event()

    class Slow:
        async def put(self, scope: Scope, *memories: Memory) -> None:
            answered.set()
            for _ in range(5):
                await asyncio.sleep(0)
            await desk.kept.put(scope, *memories)

    process = replace(desk.process(ScriptedChatModel(["fine"])), memories=Slow())
    task = asyncio.create_task(process.run(to("I am back."), scope=ANNA))
    await answered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ("fine", "complete") == _end(await desk.events())
    assert ["I am back.", "fine"] == [memory.text for _, memory in desk.kept.kept]


async def test_a_stream_is_context_pieces_result(desk: Desk) -> None:
    """The joined pieces are the reply, and the result is what `run` would have given."""
    steps = [step async for step in desk.process(Pieces(["a", "b", "c"])).stream(to("Hello"), scope=ANNA)]

    assert [Started, Delta, Delta, Delta, ChatResult] == [type(step) for step in steps]
    assert "abc" == "".join(step.text for step in steps[1:-1]) == steps[-1].reply
    assert steps[0].build_id == steps[-1].build_id
    assert list(steps[-1].events) == list(await desk.events())


@given(data=st.data())
async def test_secrets_are_masked_however_a_stream_is_cut(lasting_folder, data) -> None:
    """What is shown and what is kept are the masked whole, and no known value stands in either."""
    secrets = {"DB": "hunter2hunter3", "KEY": "sk-live-0123456789"}
    text = data.draw(
        st.lists(st.sampled_from([*secrets.values(), "hunter2", " the ", "sk-live-", "<EMAIL_1>"]), max_size=8)
    )
    whole = "x".join(text) + data.draw(st.sampled_from(["", "."]))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(whole) - 1)), max_size=12)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    desk = Desk(SqliteSessions(lasting_folder() / "sessions.sqlite"))
    process = desk.process(Pieces(pieces), secrets=secrets)
    steps = [step async for step in process.stream(to("Hello hunter2hunter3"), scope=ANNA)]
    events = await desk.events()
    desk.sessions.close()

    shown = "".join(step.text for step in steps if isinstance(step, Delta))
    assert mask_secrets(whole, secrets) == shown == steps[-1].reply == events[1].message["content"]
    assert "Hello §§secret(DB)" == events[0].message["content"]
    assert not any(value in repr((steps, events, desk.kept.kept)) for value in secrets.values())


async def test_a_whole_answer_is_masked_too(desk: Desk) -> None:
    """Streaming or not, known values are hidden; placeholders of redaction stay as they are."""
    process = desk.process(ScriptedChatModel(["The key is hunter2, write to <EMAIL_1>."]), secrets={"DB": "hunter2"})
    result = await process.run(to("Which key?"), scope=ANNA)

    assert "The key is §§secret(DB), write to <EMAIL_1>." == result.reply


async def test_messages_of_one_session_wait_for_each_other(desk: Desk) -> None:
    """Ten messages at once are answered in order, each with all the others before it in its history."""
    model = ScriptedChatModel([f"answer {number}" for number in range(10)])
    process = desk.process(model)
    await asyncio.gather(*(process.run(to(f"message {number}"), scope=ANNA) for number in range(10)))

    said = [each.message["content"] for each in await desk.events()]
    assert [text for number in range(10) for text in (f"message {number}", f"answer {number}")] == said
    assert [2 + 2 * number for number in range(10)] == [len(asked) for asked in model.asked]


async def test_a_memory_that_cannot_be_handed_on_is_a_degradation(desk: Desk) -> None:
    """The answer is given and kept all the same."""
    desk.kept.failures = [StoreUnwritable("disk full")]
    result = await desk.process(ScriptedChatModel(["fine"])).run(to("Hello"), scope=ANNA)

    assert ("fine", ["memory"]) == (result.reply, [lost.source for lost in result.degradations])
    assert 2 == len(await desk.events())


async def test_a_prompt_that_cannot_be_built_stores_nothing(desk: Desk) -> None:
    """A limit below the message itself is the caller's to fix."""
    with pytest.raises(BudgetTooSmall):
        await desk.process(ScriptedChatModel([])).run(to("Hello there", max_prompt_tokens=2), scope=ANNA)

    assert [] == list(await desk.events())


async def test_half_a_character_is_mended(desk: Desk) -> None:
    """A message with a lone surrogate is stored and answered."""
    result = await desk.process(ScriptedChatModel(["ok"])).run(to("half \ud83d of it"), scope=ANNA)

    assert result.events[0].message["content"].isprintable()


@pytest.mark.parametrize("name", ["session_id", "persona_id"])
@pytest.mark.parametrize("value", ["half \ud83d", "x" * 257], ids=["half a character", "too long"])
def test_a_name_that_cannot_be_kept_is_refused_before_anything_is(name: str, value: str) -> None:
    """The field is named, and nothing was stored or answered."""
    with pytest.raises(InvalidRequest, match=name):
        ChatRequest(message="Hello", **{name: value})
