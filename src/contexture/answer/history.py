"""The messages of a session as a model is shown them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from contexture.conversation import Event
from contexture.types import Message

_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")


def reach(most: int) -> int:
    """How many of the newest events to read, so that `window` can choose."""
    return most + _step(most) - 1 if most else 0


def window(events: Sequence[Event], most: int) -> Sequence[Event]:
    """Of the newest `reach(most)` events those that a turn is shown: the last `most`, and up to half as many before.

    Where it begins moves in steps, so that the turns between two steps begin with the same bytes.
    """
    if not events:
        return ()
    begin = max(0, events[-1].position - most) // _step(most) * _step(most)
    return [event for event in events if event.position > begin]


def to_messages(events: Iterable[Event]) -> list[Message]:
    """The messages of the events, tool calls with their results; what was never answered says nothing.

    A result whose call is not among the events is left out, because no model takes it.
    """
    found = [{name: event.message[name] for name in _FIELDS if event.message.get(name) is not None} for event in events]
    called = {call for message in found for call in _calls(message)}
    return [_whole(message) for message in found if _speaks(message, called)]


def _step(most: int) -> int:
    return max(1, most // 2)


def _calls(message: Message) -> Sequence[str]:
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    return [str(call.get("id")) for call in calls]


def _speaks(message: Message, called: set[str]) -> bool:
    if message.get("role") == "tool":
        return message.get("tool_call_id") in called
    return bool(message.get("content") or message.get("tool_calls"))


def _whole(message: Message) -> Message:
    """Content may be null, but it must be there."""
    return {"role": message["role"], "content": None, **message}
