"""Memories that the history already says."""

from __future__ import annotations

import pytest

from contexture.builders.turn._history import drop_already_in_history
from contexture.builders.turn.request import HistoryLine
from contexture.ledger import Reason, Trace
from contexture.types import Candidate

SAID = "The ferry to Bergen leaves at 9:40 from the north quay."
LINES = (
    HistoryLine(at=4, message={"role": "user", "content": SAID}),
    HistoryLine(at=5, message={"role": "assistant", "content": None, "tool_calls": []}),
    HistoryLine(at=6, message={"role": "user", "content": [{"type": "text", "text": "ok then"}]}),
)


def memory(text: str) -> Candidate:
    """A recalled memory."""
    return Candidate(id="m", key="m", text=text)


@pytest.mark.parametrize("text", [SAID, SAID.upper(), "leaves at 9:40 from the north quay.", "OK then"])
def test_what_the_history_says_is_not_shown_again(text: str) -> None:
    """A memory that stands in a visible message, whole or as a part of it, names that message as its reason."""
    trace = Trace()
    kept = drop_already_in_history([memory(text)], LINES, trace, share=0.85)
    (entry,) = trace.finish([memory(text)]).entries

    assert [] == kept
    assert Reason.NEAR_DUPLICATE is entry.reason
    assert entry.of in {"history[4]", "history[6]"}


@pytest.mark.parametrize(
    "text", ["The ferry to Oslo leaves at noon.", "then", "", f"{SAID} " + "It takes three hours. " * 4]
)
def test_what_says_more_is_shown(text: str) -> None:
    """A memory that adds something stays, also when it begins with what was said."""
    assert [memory(text)] == drop_already_in_history([memory(text)], LINES, Trace(), share=0.85)
