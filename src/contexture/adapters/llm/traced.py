"""A chat model whose every call is a span."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from contexture.ports import ChatModel, Spans
from contexture.types import Message, Scalar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class TracedModel:
    """Answers as `inner` does; a span says which model was asked for how many tokens, and never what was said."""

    def __init__(self, inner: ChatModel, spans: Spans, *, provider: str) -> None:
        self._inner = inner
        self._spans = spans
        self._provider = provider

    @property
    def name(self) -> str:
        """The model's name."""
        return self._inner.name

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """The whole answer."""
        with self._spans.span("chat", self.name, self._told(max_tokens)):
            return await self._inner.complete(messages, max_tokens=max_tokens)

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """The answer in pieces; the span lasts until the last one, or until nobody wants more."""
        told = {**self._told(max_tokens), "gen_ai.request.stream": True}
        pieces = cast("AsyncGenerator[str]", self._inner.stream(messages, max_tokens=max_tokens))
        with self._spans.span("chat", self.name, told):
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece

    def _told(self, max_tokens: int) -> dict[str, Scalar]:
        return {
            "gen_ai.provider.name": self._provider,
            "gen_ai.request.model": self.name,
            "gen_ai.request.max_tokens": max_tokens,
            "gen_ai.output.type": "text",
        }
