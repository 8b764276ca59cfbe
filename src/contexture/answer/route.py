"""Which model answers: the one that was chosen, then the others in order, each failure written down."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from contexture.errors import InvalidRequest, SourceError, SourceUnavailable
from contexture.ledger import Trace
from contexture.ports import ChatModel
from contexture.types import Message

SOURCE = "model"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an answer and the name of the model that gave it."""

    text: str
    model: str


class Route:
    """Models by the names under which they are configured, in the order in which they are tried."""

    def __init__(self, models: Mapping[str, ChatModel]) -> None:
        self._models = dict(models)

    @property
    def names(self) -> Sequence[str]:
        """What the models are called, in the order in which they are tried."""
        return tuple(self._models)

    def starting_with(self, name: str | None) -> Sequence[ChatModel]:
        """The models to try: the named one before the others; a name that is not configured is refused."""
        if name is None:
            return list(self._models.values())
        if name not in self._models:
            known = ", ".join(repr(each) for each in self._models)
            raise InvalidRequest(f"no model {name!r} is configured here; there are {known}")
        return [self._models[name], *(model for other, model in self._models.items() if other != name)]


async def complete(models: Sequence[ChatModel], messages: Sequence[Message], max_tokens: int, trace: Trace) -> Piece:
    """The whole answer of the first model that gives one."""
    for model in models:
        try:
            answer = await model.complete(messages, max_tokens=max_tokens)
        except SourceError as failure:
            trace.degraded(f"{SOURCE}:{model.name}", failure)
        else:
            return Piece(answer, model.name)
    raise _nobody(models)


async def stream(
    models: Sequence[ChatModel], messages: Sequence[Message], max_tokens: int, trace: Trace
) -> AsyncGenerator[Piece]:
    """The answer in pieces, of the first model that begins one.

    A model that fails before its first piece is passed over. One that fails later has been heard already: another
    would begin anew in the middle of a sentence, so the failure is raised.
    """
    for model in models:
        pieces = cast("AsyncGenerator[str]", model.stream(messages, max_tokens=max_tokens))
        begun = False
        async with aclosing(pieces):
            try:
                async for text in pieces:
                    begun = True
                    yield Piece(text, model.name)
            except SourceError as failure:
                if begun:
                    raise
                trace.degraded(f"{SOURCE}:{model.name}", failure)
            else:
                return
    raise _nobody(models)


def _nobody(models: Sequence[ChatModel]) -> SourceUnavailable:
    return SourceUnavailable(f"no model answered: {', '.join(model.name for model in models)} all failed")
