"""Cleaning of everything a turn request contains: known secrets masked, then secrets and personal data redacted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from contexture.builders.turn.request import Content
from contexture.errors import RedactionFailed
from contexture.pipeline.masking import SecretMask
from contexture.pipeline.redaction import RedactionOperator, redact_text
from contexture.ports import Redactor
from contexture.types import Message

_MAX_DEPTH = 64
_INVALID_NAME_CHARS = re.compile(r"[^\w-]+")


class TurnCleaner:
    """Masks and redacts the texts of one build; equal values get equal placeholders.

    Raises `RedactionFailed` for a text that cannot be scanned and must not be shown.
    """

    def __init__(self, redactor: Redactor, operator: RedactionOperator, mask: SecretMask) -> None:
        self._redactor = redactor
        self._operator = operator
        self._mask = mask

    def clean_text(self, text: str) -> str:
        """A text with known secrets masked and personal data redacted."""
        return redact_text(self._mask.mask(text), self._redactor, self._operator).text

    def clean_content(self, content: Content) -> Content:
        """A content with its texts cleaned; parts without text are unchanged."""
        if isinstance(content, str):
            return self.clean_text(content)
        return [{**part, "text": self.clean_text(part["text"])} if "text" in part else part for part in content]

    def clean_message(self, message: Message) -> Message:
        """A message with its content, its name and the arguments of its calls cleaned."""
        clean = dict(message)
        if message["content"] is not None:
            clean["content"] = self.clean_content(message["content"])
        if "name" in message:
            clean["name"] = self._clean_name(message["name"])
        if "tool_calls" in message:
            clean["tool_calls"] = [self._clean_call(call) for call in message["tool_calls"]]
        return clean

    def clean_metadata(self, value: object, levels: int = _MAX_DEPTH) -> Any:
        """Metadata with every text and key cleaned; raises `RedactionFailed` when nested deeper than `levels`."""
        if isinstance(value, str):
            return self.clean_text(value)
        if not isinstance(value, Mapping | list | tuple):
            return value
        if not levels:
            raise RedactionFailed("metadata is nested too deeply")
        if isinstance(value, Mapping):
            inside = cast("Mapping[str, object]", value).items()
            return {self.clean_text(name): self.clean_metadata(held, levels - 1) for name, held in inside}
        return [self.clean_metadata(held, levels - 1) for held in cast("Sequence[object]", value)]

    def _clean_name(self, name: str) -> str:
        """A cleaned name, valid for chat APIs: the brackets of a placeholder become underscores."""
        clean = self.clean_text(name)
        return name if clean == name else _INVALID_NAME_CHARS.sub("_", clean).strip("_")

    def _clean_call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        return {**call, "function": {**function, "arguments": self.clean_text(function["arguments"])}}
