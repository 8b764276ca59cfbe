"""Everything that came with the request, made fit to be shown: known secrets masked, then redacted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from contexture.builders.turn.messages import Content
from contexture.errors import RedactionFailed
from contexture.pipeline.mask import Mask
from contexture.pipeline.operators import Operator
from contexture.pipeline.redact import redact_text
from contexture.ports import Redactor
from contexture.types import Message

_LEVELS = 64
_NOT_IN_NAMES = re.compile(r"[^\w-]+")


class Cleaner:
    """Cleans the texts of one build; one value has one placeholder in all of them.

    Raises `RedactionFailed` for a text that cannot be read, which must then not be shown.
    """

    def __init__(self, redactor: Redactor, operator: Operator, mask: Mask) -> None:
        self._redactor = redactor
        self._operator = operator
        self._mask = mask

    def text(self, text: str) -> str:
        """A text without secrets and personal data."""
        return redact_text(self._mask.mask(text), self._redactor, self._operator).text

    def content(self, content: Content) -> Content:
        """A content with its texts cleaned; parts of other kinds stay as they are."""
        if isinstance(content, str):
            return self.text(content)
        return [{**part, "text": self.text(part["text"])} if "text" in part else part for part in content]

    def message(self, message: Message) -> Message:
        """A message with its content, its name and the arguments of its calls cleaned."""
        clean = dict(message)
        if message["content"] is not None:
            clean["content"] = self.content(message["content"])
        if "name" in message:
            clean["name"] = self._name(message["name"])
        if "tool_calls" in message:
            clean["tool_calls"] = [self._call(call) for call in message["tool_calls"]]
        return clean

    def value(self, value: object, levels: int = _LEVELS) -> Any:
        """Metadata with every text in it cleaned, names too; nested deeper than `levels` it cannot be read."""
        if isinstance(value, str):
            return self.text(value)
        if not isinstance(value, Mapping | list | tuple):
            return value
        if not levels:
            raise RedactionFailed("metadata is nested too deeply")
        if isinstance(value, Mapping):
            inside = cast("Mapping[str, object]", value).items()
            return {self.text(name): self.value(held, levels - 1) for name, held in inside}
        return [self.value(held, levels - 1) for held in cast("Sequence[object]", value)]

    def _name(self, name: str) -> str:
        """A placeholder's brackets are not allowed in a name."""
        clean = self.text(name)
        return name if clean == name else _NOT_IN_NAMES.sub("_", clean).strip("_")

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        return {**call, "function": {**function, "arguments": self.text(function["arguments"])}}
