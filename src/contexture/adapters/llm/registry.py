"""Turns the name of a chat model into the model."""

from __future__ import annotations

from contexture.adapters.llm.extractive import ExtractiveModel
from contexture.errors import UnknownAdapter
from contexture.ports import ChatModel

KNOWN = ("local", "litellm:MODEL")


def load(name: str) -> ChatModel:
    """The model of this name, the extractive one when it is empty; weights are loaded with the first question."""
    kind, _, model = name.partition(":")
    match kind, model:
        case "" | "extractive", "":
            return ExtractiveModel()
        case "local", "":
            from contexture.adapters.llm.local import LocalModel

            return LocalModel()
        case "litellm", str() if model:
            from contexture.adapters.llm.litellm import LiteLLMChat

            return LiteLLMChat(model)
        case _:
            raise UnknownAdapter(
                f"no chat model is called {name!r}; the known ones are {', '.join(KNOWN)} and extractive"
            )
