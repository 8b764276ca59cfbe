"""Where a history is cut, and what stays together."""

from __future__ import annotations

import pytest

from contexture.builders.turn._history import (
    count_unread,
    drop_incomplete_calls,
    find_history_cut,
    find_newest_exchange,
)
from support.turns import chat, tool_exchange


def lines(messages):
    """The lines of a history, with those left out forgotten."""
    return drop_incomplete_calls(enumerate(messages))[0]


def test_a_history_that_fits_is_not_cut():
    """Without excess nothing goes."""
    assert 0 == find_history_cut(lines(chat(2)), [10] * 4, 40, 20)


@pytest.mark.parametrize(("room", "start"), [(39, 1), (30, 1), (29, 2), (9, 4), (0, 4)])
def test_without_steps_no_more_goes_than_must(room, start):
    """With a step of 0 the newest messages that fit stay."""
    assert start == find_history_cut(lines(chat(2)), [10] * 4, room, 0)


def test_with_steps_the_same_cut_holds_for_several_turns():
    """As the history grows, the cut moves by whole steps."""
    starts = [find_history_cut(lines(chat(turn)), [10] * (2 * turn), 200, 60) for turn in range(8, 18)]

    assert [0, 0, 0, 6, 6, 6, 12, 12, 12, 18] == starts


def test_a_step_that_would_empty_the_room_is_not_taken():
    """Rather than leave more than half of the room unused, the cut takes only what it must."""
    assert 6 == find_history_cut(lines(chat(5)), [10] * 10, 45, 90)


def test_a_step_never_takes_of_the_newest_exchange():
    """A step that reaches into the last question and its answer ends before them."""
    assert 8 == find_history_cut(lines(chat(5)), [10] * 10, 30, 90)


def test_calls_and_results_are_never_parted():
    """No cut falls between a call and the last of its results."""
    messages = [*chat(1), *tool_exchange("a"), *chat(1)]
    starts = [find_history_cut(lines(messages), [10] * 6, room, 0) for room in range(0, 70, 10)]

    assert [6, 5, 4, 4, 2, 1, 0] == starts


def test_a_result_without_its_call_is_left_out():
    """An orphan is not shown, and is named."""
    orphan = {"role": "tool", "tool_call_id": "x", "content": "?"}

    kept, gone = drop_incomplete_calls(enumerate([orphan, *chat(1)]))

    assert ([1, 2], [0]) == ([line.at for line in kept], gone)


def test_a_call_without_all_of_its_results_is_left_out_with_those_it_has():
    """Two calls in one message need two results."""
    call, result = tool_exchange("a")
    two = {**call, "tool_calls": [*call["tool_calls"], {**call["tool_calls"][0], "id": "b"}]}

    kept, gone = drop_incomplete_calls(enumerate([two, result, *chat(1)]))

    assert ([2, 3], [0, 1]) == ([line.at for line in kept], gone)


def test_a_repeated_call_id_means_the_latest_call():
    """Some models number their calls anew in every message."""
    assert 4 == len(lines([*tool_exchange("call_0"), *tool_exchange("call_0")]))


def test_messages_between_a_call_and_its_result_stay_with_them():
    """A result that comes late holds everything since its call together."""
    call, result = tool_exchange("a")

    assert [True, False, False] == [line.opens for line in lines([call, chat(1)[1], result])]


def test_the_newest_exchange_begins_at_the_last_user_message():
    """Whatever answered the user belongs to the exchange."""
    assert 2 == find_newest_exchange(lines([*chat(1), *chat(1), *tool_exchange("a")]))
    assert 0 == find_newest_exchange(lines(tool_exchange("a")))
    assert 0 == find_newest_exchange([])


def test_what_is_read_of_a_long_history_begins_at_the_same_message_for_many_turns():
    """The messages that are not even read grow in blocks."""
    assert [0, 0, 512, 512, 1_024] == [count_unread(count, 4_096) for count in (10, 1_023, 1_024, 1_535, 1_536)]
