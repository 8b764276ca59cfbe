"""Messages with an id: one turn, one answer, whatever was cut off in between."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from contexture.adapters.conversation.sqlite import SqliteReplies, SqliteSessions
from contexture.adapters.policy.open import OpenPolicy
from contexture.answer.chat import ProcessMessage
from contexture.answer.chat_types import ChatRequest
from contexture.answer.idempotency import AnswerOnce, assign_session, decode_failure, decode_result
from contexture.answer.route import ModelRoute
from contexture.conversation import Decision, Recalled, ReplyState, StoredReply
from contexture.errors import InvalidRequest, NotFound, NotPermitted, SourceUnavailable, StoreUnwritable
from contexture.testing.doubles import NOON, FixedClock, ScriptedChatModel, ScriptedMemory, WordCounter
from contexture.types import Scope
from support.turns import KeptSummaries, KnownSecrets, TurnBench

ANNA = Scope(tenant="acme", user="anna")
BORIS = Scope(tenant="acme", user="boris")
FERRY = Recalled(id="r-1", text="The ferry leaves at nine.", score=0.9, time=NOON, label="chat")
ASKED = ChatRequest(message="The ferry to Bergen. When does it leave?", session_id="s", message_id="m-1")


class Killed(Exception):
    """The process ends here."""


class Failing:
    """A part of the use case in which one method ends the process, or fails; the others are those of `inner`."""

    def __init__(self, inner, name, failure, *, after=False):
        self._inner, self._name, self._failure, self._after = inner, name, failure, after

    def __getattr__(self, name):
        work = getattr(self._inner, name)
        if name != self._name:
            return work

        async def fail(*words, **named):
            if self._after:
                await work(*words, **named)
            raise self._failure

        return fail


@pytest.fixture
def home(new_folder):
    """An empty folder."""
    return new_folder()


@pytest.fixture
def make(home):
    """Makes the use case over one folder, as a process would that was started again."""
    opened = []

    def made(*answers, policy=None, kept=None, sessions=None, replies=None) -> AnswerOnce:
        files = SqliteSessions(home / "sessions.sqlite"), SqliteReplies(home / "replies.sqlite", days=7)
        opened.extend(files)
        model = ScriptedChatModel(answers)
        process = ProcessMessage(
            policy=policy or OpenPolicy(),
            sessions=sessions(files[0]) if sessions else files[0],
            build=TurnBench(memory=ScriptedMemory(recalls=[FERRY] * 9)).builder().build_for_turn,
            route=ModelRoute({model.name: model}),
            memories=KeptSummaries() if kept is None else kept,
            secrets=KnownSecrets({}),
            counter=WordCounter(),
            clock=FixedClock(),
        )
        return AnswerOnce(process=process, replies=replies(files[1]) if replies else files[1])

    yield made
    for each in opened:
        each.close()


async def turns(once: AnswerOnce, session="s") -> list[tuple[str, str]]:
    """What a session holds: who said what."""
    found = await once.process.sessions.list_events(ANNA, session, limit=100)
    return [(event.message["role"], event.message["content"]) for event in found]


async def test_a_message_that_comes_again_gets_the_same_answer(make):
    """Also from another process: the model is asked once, and there is one turn."""
    first = await make("At nine [1].").run(ASKED, scope=ANNA)
    again = make()
    second = await again.run(ASKED, scope=ANNA)

    assert first == second
    assert msgspec.json.encode(first) == msgspec.json.encode(second)
    assert [("user", ASKED.message), ("assistant", "At nine [1].")] == await turns(again)


async def test_two_at_the_same_moment_are_one_turn(make):
    """The second waits for the first."""
    once = make("At nine.")
    first, second = await asyncio.gather(*(once.run(ASKED, scope=ANNA) for _ in range(2)))

    assert first == second
    assert 2 == len(await turns(once))


@pytest.mark.parametrize("part", ["asked", "told", "memories", "reply"])
async def test_a_process_that_ends_anywhere_leaves_one_turn(make, part):
    """Killed behind the message, the answer, its memories or its reply: the next process ends with one of each."""
    kept = KeptSummaries()
    killed = Killed()
    if part == "asked":
        first = make(killed, kept=kept)
    elif part == "told":
        first = make("At nine [1].", kept=Failing(kept, "put", killed))
    elif part == "memories":
        first = make("At nine [1].", kept=kept, replies=lambda inner: Failing(inner, "put", killed))
    else:
        first = make("At nine [1].", kept=kept, replies=lambda inner: Failing(inner, "put", killed, after=True))
    with pytest.raises(Killed):
        await first.run(ASKED, scope=ANNA)
    second = make("At nine [1]." if part == "asked" else RuntimeError("asked again"), kept=kept)
    result = await second.run(ASKED, scope=ANNA)

    assert [("user", ASKED.message), ("assistant", "At nine [1].")] == await turns(second)
    assert ("At nine [1].", [("r-1", True)]) == (result.reply, [(c.memory_id, c.cited) for c in result.citations])
    remembered = {memory.idempotency_key: memory for _, memory in kept.kept}
    assert ["The ferry to Bergen.", "At nine [1]."] == [memory.text for memory in remembered.values()]
    assert {("r-1",)} == {memory.injected for memory in remembered.values()}
    assert result == await second.run(ASKED, scope=ANNA)


async def test_a_message_that_was_cut_off_is_not_in_its_own_history(make):
    """The model is shown it once."""
    model = ScriptedChatModel(["At nine."])
    with pytest.raises(Killed):
        await make(Killed()).run(ASKED, scope=ANNA)
    once = make()
    once = replace(once, process=replace(once.process, route=ModelRoute({"scripted": model})))
    await once.run(ASKED, scope=ANNA)

    (shown,) = model.asked
    assert 1 == sum(ASKED.message in str(message["content"]) for message in shown)


@pytest.mark.parametrize("ended", [True, False])
async def test_an_id_that_another_message_has_is_refused(make, ended):
    """Whether that one was answered or cut off: nothing of the second is kept, and the first can be ended."""
    first = make("At nine." if ended else Killed())
    with suppress(Killed):
        await first.run(ASKED, scope=ANNA)
    once = make("At nine.")
    others = [replace(ASKED, message="And back?"), *([replace(ASKED, session_id="t")] if ended else [])]
    for other in others:
        with pytest.raises(InvalidRequest, match="'m-1' belongs to another"):
            await once.run(other, scope=ANNA)

    assert "At nine." == (await once.run(ASKED, scope=ANNA)).reply
    assert [("user", ASKED.message), ("assistant", "At nine.")] == await turns(once)


async def test_a_message_with_a_secret_is_known_again_when_the_secrets_have_changed(make):
    """What was masked then may not be masked now, and the other way round."""
    asked = replace(ASKED, message="The password is hunter2.")
    once = make("I see.")
    masking = replace(once, process=replace(once.process, secrets=KnownSecrets({"DB": "hunter2"})))
    first = await masking.run(asked, scope=ANNA)

    assert first == await once.run(asked, scope=ANNA)


async def test_a_failure_is_kept_and_tried_anew(make):
    """Until another try succeeds, the error is what became of the message; a retry adds no second message."""
    once = make(SourceUnavailable("the model is down"), "At nine.")
    with pytest.raises(SourceUnavailable):
        await once.run(ASKED, scope=ANNA)
    failed = await once.find("m-1", scope=ANNA)
    result = await once.run(ASKED, scope=ANNA)
    found = await once.find("m-1", scope=ANNA)

    assert ("UNAVAILABLE", True) == (decode_failure(failed).code, decode_failure(failed).retryable)
    assert (ReplyState.FAILED, ReplyState.COMPLETE) == (failed.state, found.state)
    assert result == decode_result(found)
    assert [("user", ASKED.message), ("assistant", ""), ("assistant", "At nine.")] == await turns(once)


async def test_a_denied_message_leaves_no_turn_but_an_answer(make):
    """The policy's reason is what became of it."""

    class Closed:
        async def decide(self, scope, action, resource):
            return Decision(allowed=False, reason="closed")

    once = make(policy=Closed())
    with pytest.raises(NotPermitted):
        await once.run(ASKED, scope=ANNA)
    with pytest.raises(NotPermitted):
        await once.accept(replace(ASKED, message_id="m-2"), scope=ANNA)

    assert ("FORBIDDEN", "closed") == (
        (told := decode_failure(await once.find("m-1", scope=ANNA))).code, told.message,
    )  # fmt: skip
    assert [] == await turns(once)
    with pytest.raises(NotFound):
        await once.find("m-2", scope=ANNA)


async def test_replies_belong_to_whoever_asked(make):
    """The same id of another user is another message, and an unknown one to those who read."""
    once = make("For Anna.", "For Boris.")
    mine = await once.run(ASKED, scope=ANNA)
    with pytest.raises(NotFound) as foreign:
        await once.find("m-1", scope=BORIS)
    theirs = await once.run(ASKED, scope=BORIS)

    assert ("For Anna.", "For Boris.") == (mine.reply, theirs.reply)
    assert "there is no message 'm-1'" == str(foreign.value)


async def test_accepting_does_not_undo_an_answer(make):
    """A message that is handed over again after it was answered stays answered."""
    once = make("At nine.")
    before = await once.accept(ASKED, scope=ANNA)
    await once.run(ASKED, scope=ANNA)
    after = await once.accept(ASKED, scope=ANNA)

    assert (ReplyState.ACCEPTED, ReplyState.COMPLETE) == (before.state, after.state)


async def test_a_store_that_cannot_be_written_answers_nothing(make):
    """The caller gets the error, and nothing was acknowledged."""
    refusal = StoreUnwritable("the disk is full")
    once = make("At nine.", replies=lambda inner: Failing(inner, "put", refusal))
    with pytest.raises(StoreUnwritable):
        await once.run(ASKED, scope=ANNA)


async def test_old_replies_go(home):
    """A reply is kept for its days, counted from when it was written."""
    replies = SqliteReplies(home / "replies.sqlite", days=7)
    first = StoredReply(message_id="a", session_id="s", state=ReplyState.COMPLETE, time=NOON, body=b"{}")
    await replies.put(ANNA, first)
    await replies.put(ANNA, replace(first, message_id="b", time=NOON + timedelta(days=6)))
    early = await replies.get(ANNA, "a")
    await replies.put(ANNA, replace(first, message_id="c", time=NOON + timedelta(days=8)))
    found = [await replies.get(ANNA, name) for name in "abc"]
    replies.close()

    assert early == first
    assert [None, "b", "c"] == [reply and reply.message_id for reply in found]


async def test_a_damaged_reply_is_told_as_such(make):
    """It is not answered as something else."""
    once = make("At nine.")
    broken = StoredReply(message_id="m-1", session_id="s", state=ReplyState.COMPLETE, time=NOON, body=b"{")
    await once.replies.put(ANNA, broken)
    with pytest.raises(SourceUnavailable, match="damaged"):
        await once.run(ASKED, scope=ANNA)


def test_only_messages_with_an_id_can_be_answered_once():
    """Without one there is nothing to know them by."""
    with pytest.raises(InvalidRequest, match="message_id"):
        assign_session(ChatRequest(message="Hello"))
