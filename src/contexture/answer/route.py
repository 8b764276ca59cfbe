"""Model routing: asks the chosen model, then the fallbacks in order, and records each failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from contexture.errors import InvalidRequest, SourceError, SourceUnavailable
from contexture.ledger import Trace
from contexture.ports import ChatModel
from contexture.types import Message

MODEL_SOURCE = "model"


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """Text of an answer, whole or a streamed chunk, and the name of the model that produced it."""

    text: str
    model: str


class ModelRoute:
    """The configured models by name, in the order in which they are tried."""

    def __init__(self, models: Mapping[str, ChatModel]) -> None:
        self._models = dict(models)

    @property
    def names(self) -> Sequence[str]:
        """The names of the models, in the order in which they are tried."""
        return tuple(self._models)

    def order_models(self, name: str | None) -> Sequence[ChatModel]:
        """Return the models to try, the named one first; raises `InvalidRequest` for a name that is not configured."""
        if name is None:
            return list(self._models.values())
        if name not in self._models:
            known = ", ".join(repr(each) for each in self._models)
            raise InvalidRequest(f"model {name!r} is not configured; the configured models are {known}")
        return [self._models[name], *(model for other, model in self._models.items() if other != name)]


async def complete(
    models: Sequence[ChatModel], messages: Sequence[Message], max_tokens: int, trace: Trace
) -> ModelOutput:
    """Return the whole answer of the first model that gives one."""
    for model in models:
        try:
            answer = await model.complete(messages, max_tokens=max_tokens)
        except SourceError as failure:
            trace.add_degradation(f"{MODEL_SOURCE}:{model.name}", failure)
        else:
            return ModelOutput(answer, model.name)
    raise _no_model_error(models)


async def stream(
    models: Sequence[ChatModel], messages: Sequence[Message], max_tokens: int, trace: Trace
) -> AsyncGenerator[ModelOutput]:
    """Stream the answer of the first model that starts one.

    A model that fails before its first chunk is skipped. If it fails later, the error is raised: part of its text was
    already shown, and another model would start over in the middle of a sentence.
    """
    for model in models:
        pieces = cast("AsyncGenerator[str]", model.stream(messages, max_tokens=max_tokens))
        begun = False
        async with aclosing(pieces):
            try:
                async for text in pieces:
                    begun = True
                    yield ModelOutput(text, model.name)
            except SourceError as failure:
                if begun:
                    raise
                trace.add_degradation(f"{MODEL_SOURCE}:{model.name}", failure)
            else:
                return
    raise _no_model_error(models)


def _no_model_error(models: Sequence[ChatModel]) -> SourceUnavailable:
    return SourceUnavailable(f"no model answered: {', '.join(model.name for model in models)} all failed")
