"""Model routing: asks the chosen model, then the fallbacks in order, and records each failure."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from contexture.errors import InvalidRequest, SourceError, SourceUnavailable
from contexture.ledger import Trace
from contexture.ports import ChatModel, ToolCallingModel
from contexture.types import Json, Message

MODEL_SOURCE = "model"


@dataclass(frozen=True, slots=True)
class ModelOutput:
    """Text of an answer, whole or a streamed chunk, and the name of the model that produced it."""

    text: str
    model: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChoiceOptions:
    """The options of a chat API for one answer: its length in tokens if the caller limits it, and all others.

    `default_tokens` is the limit for models that need one.
    """

    max_tokens: int | None
    default_tokens: int
    passed: Mapping[str, Json]


class UnknownModel(InvalidRequest):
    """A model that is not configured is named."""


class ModelRoute:
    """The configured models by name, in the order in which they are tried."""

    def __init__(self, models: Mapping[str, ChatModel]) -> None:
        self._models = dict(models)

    @property
    def names(self) -> Sequence[str]:
        """The names of the models, in the order in which they are tried."""
        return tuple(self._models)

    def order_models(self, name: str | None) -> Sequence[ChatModel]:
        """Return the models to try, the named one first; raises `UnknownModel` for a name that is not configured.

        A hosted model may be named without its adapter: `gpt-5` is `litellm:gpt-5`.
        """
        if name is None:
            return list(self._models.values())
        if name not in self._models:
            name = next((full for full in self._models if full.partition(":")[2] == name), name)
        if name not in self._models:
            known = ", ".join(repr(each) for each in self._models)
            raise UnknownModel(f"model {name!r} is not configured; the configured models are {known}")
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


async def complete_choice(
    models: Sequence[ChatModel], messages: Sequence[Message], options: ChoiceOptions, trace: Trace
) -> tuple[dict[str, Any], str]:
    """Return the choice of the first model that gives one, and the model's name."""
    usable = _usable_models(models, options, trace)
    for model in usable:
        try:
            if isinstance(model, ToolCallingModel):
                return await model.complete_choice(
                    messages, max_tokens=options.max_tokens, options=options.passed
                ), model.name
            text = await model.complete(messages, max_tokens=options.max_tokens or options.default_tokens)
        except SourceError as failure:
            trace.add_degradation(f"{MODEL_SOURCE}:{model.name}", failure)
        else:
            return {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}, model.name
    raise _no_model_error(usable)


async def stream_choices(
    models: Sequence[ChatModel], messages: Sequence[Message], options: ChoiceOptions, trace: Trace
) -> AsyncGenerator[tuple[dict[str, Any], str]]:
    """Stream the choice of the first model that starts one, each piece with the model's name; see `stream`."""
    usable = _usable_models(models, options, trace)
    for model in usable:
        begun = False
        async with aclosing(_choice_pieces(model, messages, options)) as pieces:
            try:
                async for piece in pieces:
                    begun = True
                    yield piece, model.name
            except SourceError as failure:
                if begun:
                    raise
                trace.add_degradation(f"{MODEL_SOURCE}:{model.name}", failure)
            else:
                return
    raise _no_model_error(usable)


async def _choice_pieces(
    model: ChatModel, messages: Sequence[Message], options: ChoiceOptions
) -> AsyncGenerator[dict[str, Any]]:
    if isinstance(model, ToolCallingModel):
        answer = model.stream_choices(messages, max_tokens=options.max_tokens, options=options.passed)
        async with aclosing(cast("AsyncGenerator[dict[str, Any]]", answer)) as pieces:
            async for piece in pieces:
                yield piece
        return
    limit = options.max_tokens or options.default_tokens
    async with aclosing(cast("AsyncGenerator[str]", model.stream(messages, max_tokens=limit))) as texts:
        async for text in texts:
            yield {"delta": {"content": text}}
    yield {"delta": {}, "finish_reason": "stop"}


def _usable_models(models: Sequence[ChatModel], options: ChoiceOptions, trace: Trace) -> Sequence[ChatModel]:
    """The models that can do what is asked: no model without tools stands in for one with tools.

    A model that only writes text is asked all the same if it is the first, and the answer says what it ignores.
    """
    if not options.passed.keys() & {"tools", "response_format"}:
        return models
    if isinstance(models[0], ToolCallingModel):
        return [each for each in models if isinstance(each, ToolCallingModel)]
    reason = "it only writes text: `tools` and `response_format` are ignored"
    trace.add_degradation(f"{MODEL_SOURCE}:{models[0].name}", reason)
    return models[:1]


def _no_model_error(models: Sequence[ChatModel]) -> SourceUnavailable:
    return SourceUnavailable(f"no model answered: {', '.join(model.name for model in models)} all failed")
