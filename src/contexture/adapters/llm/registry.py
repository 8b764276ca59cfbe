"""Turns the name of a chat model into the model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import structlog

from contexture.adapters.llm.extractive import ExtractiveModel
from contexture.errors import MissingLibrary, UnknownAdapter
from contexture.ports import ChatModel
from contexture.types import Message

KNOWN = ("local", "litellm:MODEL")


def load(name: str) -> ChatModel:
    """The model of this name, the extractive one when it is empty; weights are loaded with the first question."""
    kind, _, model = name.partition(":")
    match kind, model:
        case "" | "extractive", "":
            return ExtractiveModel()
        case "local", "":
            return _local()
        case "litellm", str() if model:
            from contexture.adapters.llm.litellm import LiteLLMChat

            return LiteLLMChat(model)
        case _:
            raise UnknownAdapter(
                f"no chat model is called {name!r}; the known ones are {', '.join(KNOWN)} and extractive"
            )


class UnavailableModel:
    """Stands for a model that cannot be loaded: every question raises `cause`, so that the next model answers."""

    def __init__(self, name: str, cause: MissingLibrary) -> None:
        self._name = name
        self._cause = cause

    @property
    def name(self) -> str:
        """The name under which the model is configured."""
        return self._name

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Raises `MissingLibrary`."""
        del messages, max_tokens
        raise self._cause

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """Raises `MissingLibrary` before the first piece."""
        yield await self.complete(messages, max_tokens=max_tokens)


def _local() -> ChatModel:
    try:
        from contexture.adapters.llm.local import LocalModel
    except MissingLibrary as missing:
        structlog.get_logger().error("the local model cannot be loaded; other models answer", reason=str(missing))
        return UnavailableModel("local", missing)
    return LocalModel()
