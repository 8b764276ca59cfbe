"""A plain function as a token counter."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, cast

from contexture.ports import TokenCounter
from contexture.types import Message

CountText = Callable[[str], int]


class CountedBy:
    """Counts with a function of one text.

    Such a function knows nothing of roles and framing, so a prompt costs what its contents and tool calls do;
    leave room for the rest. Capsules cannot name the function, so these builds cannot be replayed.
    """

    encoding = "function"
    exact = False

    def __init__(self, function: CountText) -> None:
        self._count = function

    def count(self, text: str) -> int:
        """What the function says; an empty text counts nothing."""
        return self._count(text) if text else 0

    def count_messages(self, messages: Sequence[Message]) -> int:
        """The contents and tool calls of all messages."""
        return sum(
            self._content(message.get("content")) + sum(self._json(call) for call in message.get("tool_calls", ()))
            for message in messages
        )

    def prefix(self, text: str, limit: int) -> str:
        """The longest prefix found by halving that counts at most `limit`."""
        if self.count(text) <= limit:
            return text
        low, high = 0, len(text)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.count(text[:middle]) <= limit else (low, middle)
        return text[:low]

    def _content(self, content: object) -> int:
        if content is None or isinstance(content, str):
            return self.count(content or "")
        parts = cast("Sequence[dict[str, Any]]", content)
        return sum(self.count(part["text"]) if "text" in part else self._json(part) for part in parts)

    def _json(self, value: object) -> int:
        return self.count(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def counter_of(given: TokenCounter | CountText) -> TokenCounter:
    """The counter itself, or a function made into one."""
    return CountedBy(given) if callable(given) and not hasattr(given, "count_messages") else cast("TokenCounter", given)
