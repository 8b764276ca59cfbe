"""The contract of a chat model as a test class: subclass it, provide a `model` fixture, inherit the tests.

class TestMyModel(ChatModelConformance):
    @pytest.fixture
    def model(self):
        return MyModel(...)
"""
# ruff: noqa: S101 - a conformance suite asserts

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, cast

from contexture.ports import ChatModel
from contexture.types import Message

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PROMPT: tuple[Message, ...] = (
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Hello, my boat is called Albatross."},
    {"role": "assistant", "content": "A good name for a boat."},
    {"role": "system", "name": "memory", "content": "Relevant memory:\n[1] (conversation)\nThe boat lies in Bergen."},
    {"role": "user", "content": "Where does my boat lie?"},
)
"""A prompt as the turn builder makes them."""


class ChatModelConformance:
    """What every chat model promises."""

    async def test_it_has_a_name(self, model: ChatModel) -> None:
        """Ledgers and metrics name it."""
        assert model.name.strip()

    async def test_it_answers(self, model: ChatModel) -> None:
        """A prompt with history and memory has an answer."""
        assert (await model.complete(PROMPT, max_tokens=24)).strip()

    async def test_a_stream_has_text(self, model: ChatModel) -> None:
        """The pieces of a stream are a text."""
        pieces = [piece async for piece in model.stream(PROMPT, max_tokens=24)]

        assert "".join(pieces).strip()

    async def test_a_stream_can_be_closed_early(self, model: ChatModel) -> None:
        """After closing a stream at its first piece, the next call is answered."""
        stream = cast("AsyncGenerator[str]", model.stream(PROMPT, max_tokens=200))
        async with aclosing(stream) as pieces:
            async for _ in pieces:
                break

        assert (await model.complete(PROMPT, max_tokens=8)).strip()

    async def test_concurrent_calls_are_answered(self, model: ChatModel) -> None:
        """Every one of them gets an answer."""
        answers = await asyncio.gather(*(model.complete(PROMPT, max_tokens=4) for _ in range(3)))

        assert all(answer.strip() for answer in answers)

    async def test_the_prompt_is_not_modified(self, model: ChatModel) -> None:
        """A model does not change what it is given."""
        given = [dict(message) for message in PROMPT]
        await model.complete(given, max_tokens=4)

        assert given == [dict(message) for message in PROMPT]
