"""Counts chat messages with the framing that a provider adds around them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from contexture.types import Message

PER_MESSAGE = 3
PER_NAME = 1
PER_CALL = 3
ANSWER = 3

# What a picture of 1,024 pixels square costs at high detail; its bytes are never counted as text.
PER_IMAGE = 765

Count = Callable[[str], int]


def framed(messages: Sequence[Message], count: Count) -> int:
    """Tokens of a whole prompt: every message with its role and name, and the start of the answer."""
    return ANSWER + sum(PER_MESSAGE + _message(message, count) for message in messages)


def _message(message: Message, count: Count) -> int:
    name = message.get("name")
    return (
        count(str(message.get("role", "")))
        + _content(message.get("content"), count)
        + (PER_NAME + count(str(name)) if name else 0)
        + count(str(message.get("tool_call_id") or ""))
        + sum(PER_CALL + _part(call, count) for call in cast("Iterable[Any]", message.get("tool_calls") or ()))
    )


def _content(content: Any, count: Count) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return count(content)
    if isinstance(content, Sequence):
        return sum(_part(part, count) for part in cast("Sequence[Any]", content))
    return count(_json(content))


def _part(part: Any, count: Count) -> int:
    if isinstance(part, str):
        return count(part)
    if not isinstance(part, Mapping):
        return count(_json(part))
    fields = cast("Mapping[str, Any]", part)
    kind = str(fields.get("type", ""))
    if "image" in kind:
        return PER_IMAGE
    text = fields.get("text")
    return count(text) if isinstance(text, str) else count(_json(fields))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
