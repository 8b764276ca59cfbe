"""Loads chat models by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import structlog

from contexture.adapters.llm.extractive import ExtractiveModel
from contexture.errors import MissingLibrary, UnknownAdapter
from contexture.ports import ChatModel
from contexture.types import Message

CHAT_MODEL_NAMES = ("local", "litellm:MODEL")


def load_chat_model(name: str) -> ChatModel:
    """Chat model of this name, or the extractive one if it is empty; weights are loaded on first use.

    Raises `UnknownAdapter` for an unknown name.
    """
    kind, _, model = name.partition(":")
    match kind, model:
        case "" | "extractive", "":
            return ExtractiveModel()
        case "local", "":
            return _load_local()
        case "litellm", str() if model:
            from contexture.adapters.llm.litellm import LiteLLMChat

            return LiteLLMChat(model)
        case _:
            raise UnknownAdapter(
                f"no chat model is called {name!r}; the known ones are {', '.join(CHAT_MODEL_NAMES)} and extractive"
            )


class UnavailableModel:
    """Placeholder for a model that cannot be loaded: every call raises `cause`, so that the next model answers."""

    def __init__(self, name: str, cause: MissingLibrary) -> None:
        self._name = name
        self._cause = cause

    @property
    def name(self) -> str:
        """Configured name of the model."""
        return self._name

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Raises `MissingLibrary`."""
        del messages, max_tokens
        raise MissingLibrary(str(self._cause))  # a new one: raised again, it would keep every caller's frames

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """Raises `MissingLibrary` before the first piece."""
        yield await self.complete(messages, max_tokens=max_tokens)


def _load_local() -> ChatModel:
    try:
        from contexture.adapters.llm.local import LocalModel
    except MissingLibrary as missing:
        structlog.get_logger().error("the local model cannot be loaded; the next model is used", reason=str(missing))
        return UnavailableModel("local", missing)
    return LocalModel()
