"""The local model, or a placeholder while a system library that it needs is missing."""

from collections.abc import AsyncIterator, Sequence

import structlog

from contexture.errors import MissingLibrary
from contexture.ports import ChatModel
from contexture.types import Message


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


def load_local() -> ChatModel:
    """The local model; without its system library, an `UnavailableModel`, and the log says so."""
    try:
        from contexture.adapters.llm.local import LocalModel
    except MissingLibrary as missing:
        structlog.get_logger().error("the local model cannot be loaded; the next model is used", reason=str(missing))
        return UnavailableModel("local", missing)
    return LocalModel()
