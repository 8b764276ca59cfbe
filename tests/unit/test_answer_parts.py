"""The parts of processing a message: analysis, history, ordering, routes."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.answer import route
from contexture.answer.analyse import Intent, analyse, session_language, system_prompt
from contexture.answer.exchange import ChatRequest
from contexture.answer.history import reach, to_messages, window
from contexture.answer.ordering import Ordering
from contexture.answer.route import Route
from contexture.conversation import Event
from contexture.errors import InvalidRequest, SourceTimeout, SourceUnavailable
from contexture.ledger import Trace
from contexture.testing.doubles import NOON, ScriptedChatModel

ASKED = [{"role": "user", "content": "?"}]


@pytest.mark.parametrize(
    ("message", "intent", "lang"),
    [
        ("When does the ferry leave?", Intent.QUESTION, "en"),
        ("when does the ferry leave", Intent.QUESTION, "en"),
        ("The ferry leaves at nine, doesn't it?", Intent.QUESTION, "en"),
        ("Please summarise the report", Intent.COMMAND, "en"),
        ("Remind me to call Boris", Intent.COMMAND, "en"),
        ("Hi there!", Intent.SMALLTALK, "en"),
        ("thank you very much", Intent.SMALLTALK, "en"),
        ("My boat is called Albatross.", Intent.STATEMENT, "en"),
        ("Когда отходит паром?", Intent.QUESTION, "ru"),
        ("когда отходит паром", Intent.QUESTION, "ru"),
        ("Найди отчёт за май", Intent.COMMAND, "ru"),
        ("Спасибо большое!", Intent.SMALLTALK, "ru"),
        ("Моя лодка называется Альбатрос.", Intent.STATEMENT, "ru"),
        ("123 !!!", Intent.STATEMENT, "und"),
    ],
)
def test_a_message_is_told_by_its_form(message: str, intent: Intent, lang: str) -> None:
    """Language and intent follow from the words, in English and in Russian."""
    found = analyse(message)

    assert (intent, lang) == (found.intent, found.lang)


def test_keywords_are_the_words_that_say_something() -> None:
    """Empty words are left out, each other word stands once, in order, and there are not too many."""
    assert ("ferry", "leave", "bergen") == analyse("When does the ferry leave for Bergen, the ferry?").keywords
    assert 8 == len(analyse(" ".join(f"word{number}" for number in range(30))).keywords)


@given(st.text(max_size=200))
def test_equal_messages_have_equal_analyses(message: str) -> None:
    """Any text can be analysed, and always in the same way."""
    assert analyse(message) == analyse(message)


def test_the_system_prompt_depends_on_the_session_alone() -> None:
    """A session keeps the language it began in, whatever its later messages are written in."""
    first = session_language("", analyse("Привет, как дела?"))
    later = session_language(first, analyse("And in English?"))

    assert (
        system_prompt("S", first)
        == system_prompt("S", later)
        == ("S\nAnswer in Russian unless you are asked for another language.")
    )
    assert "S" == system_prompt("S", "en") == system_prompt("S", "und")
    assert "en" == session_language("und", analyse("Now I speak"))


def events(count: int) -> list[Event]:
    """Messages of the user's, numbered."""
    return [
        Event(id=str(at), message={"role": "user", "content": f"m{at}"}, time=NOON, position=at)
        for at in range(1, count + 1)
    ]


@given(count=st.integers(0, 80), most=st.integers(0, 30))
def test_the_window_holds_the_last_events_and_moves_in_steps(count: int, most: int) -> None:
    """The last `most` events are in it, at most half as many more, and its beginning is a multiple of the step."""
    said = events(count)
    shown = window(said[len(said) - min(len(said), reach(most)) :], most)

    assert said[max(0, count - most) :] == list(shown)[-most:] if most else not shown
    assert len(shown) <= reach(most)
    if shown and shown[0].position > 1:
        assert 0 == (shown[0].position - 1) % max(1, most // 2)


def test_turns_between_two_steps_begin_alike() -> None:
    """Over forty turns the beginning of the history changes every fifth turn at most."""
    begins = [window(events(2 * turn)[-reach(20) :], 20)[0].position for turn in range(1, 41)]

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
    said = [Event(id=str(at), message=message, time=NOON) for at, message in enumerate(messages)]

    assert [
        {"role": "user", "content": "Look it up"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "found", "tool_call_id": "c1"},
    ] == to_messages(said)


async def test_holders_of_one_key_come_one_after_the_other() -> None:
    """In order of arrival; other keys do not wait; and nothing is remembered afterwards."""
    ordering, seen, gate = Ordering(), [], asyncio.Event()

    async def hold(key: str, name: str) -> None:
        async with ordering.of(key):
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
    found = Route({"a": one, "b": two})

    assert [one, two] == list(found.starting_with(None))
    assert [two, one] == list(found.starting_with("b"))
    with pytest.raises(InvalidRequest, match=r"'c'.*'a', 'b'"):
        found.starting_with("c")


@pytest.mark.parametrize(
    "bad",
    [{"message": " "}, {"message": "x", "max_tokens": 0}, {"message": "x", "session_id": "s" * 257}],
    ids=lambda bad: next(reversed(bad)),
)
def test_a_request_that_cannot_be_meant_is_refused(bad: dict) -> None:
    """An empty message, an answer of no length and an endless name are refused."""
    with pytest.raises(InvalidRequest):
        ChatRequest(**bad)
