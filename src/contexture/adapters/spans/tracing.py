"""`TracedModel`, a chat model that records a span per call, and `NoopTracer`, which records nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, cast

from contexture.ports import ChatModel, SetAttributes, ToolCallingModel, Tracer
from contexture.types import Json, Message, Scalar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class TracedModel:
    """Wraps a chat model; each call is a span with model and token limit, never with prompt or answer."""

    def __init__(self, inner: ChatModel, spans: Tracer, *, provider: str) -> None:
        self._inner = inner
        self._spans = spans
        self._provider = provider

    @property
    def name(self) -> str:
        """Name of the inner model."""
        return self._inner.name

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Return the whole answer."""
        with self._spans.span("chat", self.name, self._request_attributes(max_tokens)):
            return await self._inner.complete(messages, max_tokens=max_tokens)

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """Yield the answer in pieces; the span ends with the last piece or when the consumer stops."""
        attributes = {**self._request_attributes(max_tokens), "gen_ai.request.stream": True}
        pieces = cast("AsyncGenerator[str]", self._inner.stream(messages, max_tokens=max_tokens))
        with self._spans.span("chat", self.name, attributes):
            async with aclosing(pieces):
                async for piece in pieces:
                    yield piece

    def _request_attributes(self, max_tokens: int | None) -> dict[str, Scalar]:
        limit: dict[str, Scalar] = {} if max_tokens is None else {"gen_ai.request.max_tokens": max_tokens}
        return {
            "gen_ai.provider.name": self._provider,
            "gen_ai.request.model": self.name,
            **limit,
            "gen_ai.output.type": "text",
        }


class TracedToolModel(TracedModel):
    """Wraps a model that takes the options of chat APIs."""

    def __init__(self, inner: ToolCallingModel, spans: Tracer, *, provider: str) -> None:
        super().__init__(inner, spans, provider=provider)
        self._tools = inner

    async def complete_choice(
        self, messages: Sequence[Message], *, max_tokens: int | None, options: Mapping[str, Json]
    ) -> dict[str, Any]:
        """Return the whole answer."""
        with self._spans.span("chat", self.name, self._request_attributes(max_tokens)):
            return await self._tools.complete_choice(messages, max_tokens=max_tokens, options=options)

    async def stream_choices(
        self, messages: Sequence[Message], *, max_tokens: int | None, options: Mapping[str, Json]
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the answer in pieces; the span ends with the last piece or when the consumer stops."""
        attributes = {**self._request_attributes(max_tokens), "gen_ai.request.stream": True}
        answer = self._tools.stream_choices(messages, max_tokens=max_tokens, options=options)
        with self._spans.span("chat", self.name, attributes):
            async with aclosing(cast("AsyncGenerator[dict[str, Any]]", answer)) as pieces:
                async for piece in pieces:
                    yield piece


class NoopTracer:
    """Implements `Tracer` by recording nothing."""

    @contextmanager
    def span(self, operation: str, target: str, attributes: Mapping[str, Scalar]) -> Generator[SetAttributes]:
        """Record nothing."""
        del operation, target, attributes
        yield _discard_attributes


def _discard_attributes(_: Mapping[str, Scalar]) -> None:
    """Ignore attributes."""
