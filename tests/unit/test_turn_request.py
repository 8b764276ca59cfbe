"""Envelopes: what is wrong is named, what can be meant is built."""

from __future__ import annotations

import math

import pytest

from contexture.builders.turn.request import MAX_PROMPT_TOKENS, Turn, parse_turn, resolve_scope
from contexture.errors import InvalidRequest, NotPermitted
from contexture.types import Scope
from support.turns import TurnBench, chat, tool_exchange

LOCAL = Scope.local()
CALL = {"id": "c", "function": {"name": "f", "arguments": "{}"}}


def history(*messages: object) -> dict[str, object]:
    """An envelope with this history."""
    return {"user_message": "hi", "history": list(messages)}


@pytest.mark.parametrize(
    ("envelope", "named"),
    [
        ({}, "user_message"),
        ({"user_message": None}, "user_message"),
        ({"user_message": "  "}, "user_message"),
        ({"user_message": []}, "user_message"),
        ({"user_message": 7}, "user_message"),
        ({"user_message": {"text": "hi"}}, "user_message"),
        ({"user_message": [{"text": "hi"}]}, r"user_message\[0\].type"),
        ({"user_message": [{"type": "text", "text": 7}]}, r"user_message\[0\].text"),
        ({"user_message": "hi", "tenant_id": 7}, "tenant_id"),
        ({"user_message": "hi", "system_prompt": ["x"]}, "system_prompt"),
        ({"user_message": "hi", "history": "hello"}, "history"),
        ({"user_message": "hi", "history": {"role": "user"}}, "history"),
        ({"user_message": "hi", "colour": "red"}, "colour"),
        ({"user_message": "hi", "max_prompt_tokens": 0}, "max_prompt_tokens"),
        ({"user_message": "hi", "max_prompt_tokens": -4}, "max_prompt_tokens"),
        ({"user_message": "hi", "max_prompt_tokens": 10**30}, "max_prompt_tokens"),
        ({"user_message": "hi", "max_prompt_tokens": 4096.5}, "max_prompt_tokens"),
        ({"user_message": "hi", "max_prompt_tokens": True}, "max_prompt_tokens"),
        ({"user_message": "hi", "max_prompt_tokens": "4096"}, "max_prompt_tokens"),
        (history("hello"), r"history\[0\] must be an object"),
        (history({"role": "user", "content": "a"}, {"role": "pirate", "content": "b"}), r"history\[1\].role"),
        (history({"content": "a"}), r"history\[0\].role"),
        (history({"role": ["user"], "content": "a"}), r"history\[0\].role"),
        (history({"role": "user", "content": None}), r"history\[0\].content"),
        (history({"role": "assistant"}), r"history\[0\].content"),
        (history({"role": "user", "content": 7}), r"history\[0\].content"),
        (history({"role": "user", "content": [7]}), r"history\[0\].content\[0\]"),
        (history({"role": "user", "content": "a", "timestamp": "yesterday"}), r"history\[0\].timestamp"),
        (history({"role": "user", "content": "a", "name": 7}), r"history\[0\].name"),
        (history({"role": "user", "content": "a", "tool_calls": [CALL]}), r"history\[0\].tool_calls"),
        (history({"role": "assistant", "content": None, "tool_calls": "f"}), r"history\[0\].tool_calls"),
        (history({"role": "assistant", "content": None, "tool_calls": [{}]}), r"history\[0\].tool_calls\[0\].id"),
        (history({"role": "assistant", "tool_calls": [{"id": "c"}]}), r"history\[0\].tool_calls\[0\].function"),
        (history({"role": "assistant", "tool_calls": [{**CALL, "type": {}}]}), r"history\[0\].tool_calls\[0\].type"),
        (history({"role": "tool", "content": "a"}), r"history\[0\].tool_call_id"),
        (history({"role": "user", "content": [{"type": "x", "n": math.nan}]}), r"history\[0\].content\[0\]"),
        (history({"role": "user", "content": [{"type": "x", "n": {1, 2}}]}), r"history\[0\].content\[0\]"),
        (history({1: "user"}), r"history\[0\] has a field 1"),
    ],
)
def test_what_is_wrong_with_a_turn_is_named(envelope, named):
    """A missing, unknown or wrong field is refused by its own name."""
    with pytest.raises(InvalidRequest, match=named):
        parse_turn(envelope)


@pytest.mark.parametrize("value", ["hello", None, 7, [1]])
def test_a_turn_that_is_no_object_is_refused(value):
    """Anything but an object or a `Turn` is refused."""
    with pytest.raises(InvalidRequest, match="a turn must be an object"):
        parse_turn(value)


def test_nulls_stand_for_what_is_left_out():
    """A field that is null is as if it were not there."""
    names = ("tenant_id", "session_id", "persona_id", "user_id", "system_prompt", "history", "max_prompt_tokens")

    assert Turn(user_message="hi") == parse_turn({"user_message": "hi", **dict.fromkeys(names)})


def test_a_typed_turn_is_checked_too():
    """A `Turn` made by hand is held to the same rules."""
    with pytest.raises(InvalidRequest, match=r"history\[0\].role"):
        parse_turn(Turn(user_message="hi", history=({"role": "pirate", "content": "a"},)))


def test_fields_that_hold_nothing_are_left_out_of_messages():
    """What chat APIs answer with nulls can be sent back."""
    answered = {"role": "assistant", "content": "a", "refusal": None, "annotations": [], "tool_calls": None}

    assert ({"role": "assistant", "content": "a"},) == parse_turn(history(answered)).history


def test_half_a_character_is_mended():
    """A lone surrogate becomes a replacement character instead of a crash later."""
    turn = parse_turn(history({"role": "user", "content": "a\ud800", "name": "b\udfff"}))

    assert {"role": "user", "content": "a\ufffd", "name": "b\ufffd"} == turn.history[0]


@pytest.mark.parametrize(
    ("turn", "scope", "expected"),
    [
        (Turn(user_message="hi"), None, LOCAL),
        (Turn(user_message="hi", tenant_id="acme"), None, Scope(tenant="acme", user="local")),
        (Turn(user_message="hi", tenant_id="acme", user_id="a"), None, Scope(tenant="acme", user="a")),
        (Turn(user_message="hi", tenant_id="acme"), Scope(tenant="acme", user="b"), Scope(tenant="acme", user="b")),
    ],
)
def test_who_asks(turn, scope, expected):
    """A given scope decides; without one the turn says who asks, and otherwise the local user does."""
    assert expected == resolve_scope(turn, scope, LOCAL)


@pytest.mark.parametrize("names", [{"tenant_id": "globex"}, {"user_id": "boris"}])
def test_a_turn_may_not_contradict_its_scope(names):
    """A turn that names another tenant or user than the scope is not permitted."""
    with pytest.raises(NotPermitted):
        resolve_scope(Turn(user_message="hi", **names), Scope(tenant="acme", user="anna"), LOCAL)


def test_the_groups_of_the_default_speaker_are_kept_only_for_it():
    """Naming somebody else loses the groups of whoever runs the engine."""
    staff = Scope(tenant="acme", user="anna", groups=("staff",))

    assert staff == resolve_scope(Turn(user_message="hi", user_id="anna"), None, staff)
    assert () == resolve_scope(Turn(user_message="hi", user_id="boris"), None, staff).groups


async def test_a_huge_limit_builds():
    """The largest limit there is takes everything."""
    built = await TurnBench().builder().build_for_turn(history(*chat(3)), max_prompt_tokens=MAX_PROMPT_TOKENS)

    assert 6 == built.debug["history_count"]


async def test_ten_thousand_messages_build():
    """A history far too long is cut to its newest end, and the ledger still accounts for all of it."""
    built = await TurnBench().builder().build_for_turn(history(*chat(5_000, words=3)))
    bulk = built.ledger.entries[0]

    assert 4_096 >= built.tokens
    assert built.history == tuple(chat(5_000, words=3)[-len(built.history) :])
    assert 10_000 == int(bulk.id.removeprefix("history[0:").removesuffix("]")) + len(built.ledger.entries) - 1


@pytest.mark.parametrize("words", [1, 400])
async def test_a_history_of_tool_calls_only_builds(words):
    """Calls and results without a user between them are a history like any other."""
    calls = [message for at in range(30) for message in tool_exchange(f"c{at}", result="word " * words)]

    built = await TurnBench().builder().build_for_turn(history(*calls), max_prompt_tokens=500)

    assert 500 >= built.tokens
    assert 0 == len(built.history) % 2
