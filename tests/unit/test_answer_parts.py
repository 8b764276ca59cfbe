"""The parts of processing a message: analysis, history, ordering, routes."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.answer import route
from contexture.answer._chat_turn import (
    MessageIntent,
    analyse_message,
    build_system_prompt,
    history_read_limit,
    resolve_session_language,
    select_history,
    to_messages,
)
from contexture.answer.chat import KeyedLock
from contexture.answer.chat_types import ChatRequest
from contexture.answer.route import ModelRoute
from contexture.conversation import SessionEvent
from contexture.errors import InvalidRequest, SourceTimeout, SourceUnavailable
from contexture.ledger import Trace
from contexture.testing.doubles import NOON, ScriptedChatModel

ASKED = [{"role": "user", "content": "?"}]


@pytest.mark.parametrize(
    ("message", "intent", "lang"),
    [
        ("When does the ferry leave?", MessageIntent.QUESTION, "en"),
        ("when does the ferry leave", MessageIntent.QUESTION, "en"),
        ("The ferry leaves at nine, doesn't it?", MessageIntent.QUESTION, "en"),
        ("Please summarise the report", MessageIntent.COMMAND, "en"),
        ("Remind me to call Boris", MessageIntent.COMMAND, "en"),
        ("Hi there!", MessageIntent.SMALLTALK, "en"),
        ("thank you very much", MessageIntent.SMALLTALK, "en"),
        ("My boat is called Albatross.", MessageIntent.STATEMENT, "en"),
        ("Когда отходит паром?", MessageIntent.QUESTION, "ru"),
        ("когда отходит паром", MessageIntent.QUESTION, "ru"),
        ("Найди отчёт за май", MessageIntent.COMMAND, "ru"),
        ("Спасибо большое!", MessageIntent.SMALLTALK, "ru"),
        ("Моя лодка называется Альбатрос.", MessageIntent.STATEMENT, "ru"),
        ("123 !!!", MessageIntent.STATEMENT, "und"),
    ],
)
def test_a_message_is_told_by_its_form(message: str, intent: MessageIntent, lang: str) -> None:
    """Language and intent follow from the words, in English and in Russian."""
    found = analyse_message(message)

    assert (intent, lang) == (found.intent, found.lang)


def test_keywords_are_the_words_that_say_something() -> None:
    """Empty words are left out, each other word stands once, in order, and there are not too many."""
    assert ("ferry", "leave", "bergen") == analyse_message("When does the ferry leave for Bergen, the ferry?").keywords
    assert 8 == len(analyse_message(" ".join(f"word{number}" for number in range(30))).keywords)


@given(st.text(max_size=200))
def test_equal_messages_have_equal_analyses(message: str) -> None:
    """Any text can be analysed, and always in the same way."""
    assert analyse_message(message) == analyse_message(message)


def test_the_system_prompt_depends_on_the_session_alone() -> None:
    """A session keeps the language it began in, whatever its later messages are written in."""
    first = resolve_session_language("", analyse_message("Привет, как дела?"))
    later = resolve_session_language(first, analyse_message("And in English?"))

    assert (
        build_system_prompt("S", first)
        == build_system_prompt("S", later)
        == ("S\nAnswer in Russian unless you are asked for another language.")
    )
    assert "S" == build_system_prompt("S", "en") == build_system_prompt("S", "und")
    assert "en" == resolve_session_language("und", analyse_message("Now I speak"))


def events(count: int) -> list[SessionEvent]:
    """Messages of the user's, numbered."""
    return [
        SessionEvent(id=str(at), message={"role": "user", "content": f"m{at}"}, time=NOON, position=at)
        for at in range(1, count + 1)
    ]


@given(count=st.integers(0, 80), most=st.integers(0, 30))
def test_the_window_holds_the_last_events_and_moves_in_steps(count: int, most: int) -> None:
    """The last `most` events are in it, at most half as many more, and its beginning is a multiple of the step."""
    said = events(count)
    shown = select_history(said[len(said) - min(len(said), history_read_limit(most)) :], most)

    assert said[max(0, count - most) :] == list(shown)[-most:] if most else not shown
    assert len(shown) <= history_read_limit(most)
    if shown and shown[0].position > 1:
        assert 0 == (shown[0].position - 1) % max(1, most // 2)


def test_turns_between_two_steps_begin_alike() -> None:
    """Over forty turns the beginning of the history changes every fifth turn at most."""
    begins = [select_history(events(2 * turn)[-history_read_limit(20) :], 20)[0].position for turn in range(1, 41)]

    assert 4 >= len(set(begins[:20]))
    assert sum(now != later for now, later in pairwise(begins)) <= 40 / 5


def test_history_keeps_tool_calls_with_their_results() -> None:
    """Calls and results come through, a result without its call does not, and neither does an empty answer."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "tool", "tool_call_id": "lost", "content": "orphan"},
        {"role": "user", "content": "Look it up", "secret_field": 1},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "assistant", "content": ""},
    ]
    said = [SessionEvent(id=str(at), message=message, time=NOON) for at, message in enumerate(messages)]

    assert [
        {"role": "user", "content": "Look it up"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "found", "tool_call_id": "c1"},
    ] == to_messages(said)


async def test_holders_of_one_key_come_one_after_the_other() -> None:
    """In order of arrival; other keys do not wait; and nothing is remembered afterwards."""
    ordering, seen, gate = KeyedLock(), [], asyncio.Event()

    async def hold(key: str, name: str) -> None:
        async with ordering.hold(key):
            seen.append(f"+{name}")
            if name != "other":
                await gate.wait()
            seen.append(f"-{name}")

    tasks = [asyncio.create_task(hold("k", name)) for name in "abc"] + [asyncio.create_task(hold("l", "other"))]
    for _ in range(5):
        await asyncio.sleep(0)
    assert ["+a", "+other", "-other"] == seen
    tasks[1].cancel()
    gate.set()
    await asyncio.gather(*tasks, return_exceptions=True)

    assert ["-a", "+c", "-c"] == seen[3:]
    assert {} == ordering._locks


async def test_models_are_tried_in_order() -> None:
    """Each failure is a degradation that names its model; the first answer ends it."""
    down, slow = ScriptedChatModel([SourceUnavailable("x")], "down"), ScriptedChatModel([SourceTimeout("y")], "slow")
    trace = Trace()
    found = await route.complete([down, slow, ScriptedChatModel(["good"], "up")], ASKED, 5, trace)

    assert ("good", "up") == (found.text, found.model)
    assert [("model:down", "SourceUnavailable: x"), ("model:slow", "SourceTimeout: y")] == [
        (lost.source, lost.reason) for lost in trace.finish(()).degradations
    ]


async def test_when_nobody_answers_all_are_named() -> None:
    """The error says who was asked, in both ways of asking."""

    def models() -> list[ScriptedChatModel]:
        return [ScriptedChatModel([SourceUnavailable("x")], "one"), ScriptedChatModel([SourceUnavailable("y")], "two")]

    with pytest.raises(SourceUnavailable, match="one, two"):
        await route.complete(models(), ASKED, 5, Trace())
    with pytest.raises(SourceUnavailable, match="one, two"):
        _ = [piece async for piece in route.stream(models(), ASKED, 5, Trace())]


def test_a_named_model_is_tried_first() -> None:
    """The others remain its fallbacks; a name that is not configured is refused with those that are."""
    one, two = ScriptedChatModel([], "one"), ScriptedChatModel([], "two")
    found = ModelRoute({"a": one, "b": two})

    assert [one, two] == list(found.order_models(None))
    assert [two, one] == list(found.order_models("b"))
    with pytest.raises(InvalidRequest, match=r"'c'.*'a', 'b'"):
        found.order_models("c")


@pytest.mark.parametrize(
    "bad",
    [{"message": " "}, {"message": "x", "max_tokens": 0}, {"message": "x", "session_id": "s" * 257}],
    ids=lambda bad: next(reversed(bad)),
)
def test_a_request_that_cannot_be_meant_is_refused(bad: dict) -> None:
    """An empty message, an answer of no length and an endless name are refused."""
    with pytest.raises(InvalidRequest):
        ChatRequest(**bad)
