"""`POST /v1/chat/completions`: messages of clients that speak to OpenAI, answered with context; `GET /v1/models`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from fastapi import APIRouter, Response

from contexture.answer.completions import Begun, Completion, Completions, CompletionStep
from contexture.service.callers import own
from contexture.service.depends import Caller, Engine, Moment, answer
from contexture.service.sse import EventStream, ServerEvent
from contexture.service.wire.answers import EVENTS, CompletionShape, ModelsShape
from contexture.service.wire.completions import (
    USUAL,
    CompletionBody,
    chunk_object,
    completion_object,
    models_object,
    usage_object,
)


class End(ServerEvent):
    """What clients of such streams take for their end; it is not JSON."""

    def encode(self) -> bytes:
        """The event as it is sent."""
        return b"data: [DONE]\n\n"


def router() -> APIRouter:
    """The routes that speak as OpenAI does."""
    routes = APIRouter(prefix="/v1", tags=["chat"])
    routes.post("/chat/completions", response_model=CompletionShape, responses=EVENTS)(complete)
    routes.get("/models", response_model=ModelsShape)(models)
    return routes


async def complete(body: CompletionBody, engine: Engine, caller: Caller, now: Moment) -> Response:
    """The answer to a caller's own messages, with what is remembered added to them; no session is written.

    The policy is asked by the engine itself. What goes wrong before the first event has the status of its error.
    """
    own(caller, user_id=body.user)
    completions = Completions(engine.chat)
    if not body.stream:
        return answer(completion_object(await completions.run(body.request(), scope=caller, now=now)))
    steps = cast("AsyncGenerator[CompletionStep]", completions.stream(body.request(), scope=caller, now=now))
    counted = body.stream_options is not None and body.stream_options.include_usage
    return EventStream(_events(cast("Begun", await anext(steps)), steps, counted=counted))


async def models(engine: Engine, caller: Caller) -> Response:
    """The models that may be named."""
    del caller
    return answer(models_object((USUAL, *engine.chat.route.names)))


async def _events(begun: Begun, steps: AsyncGenerator[CompletionStep], *, counted: bool) -> AsyncIterator[ServerEvent]:
    async with aclosing(steps):
        yield ServerEvent(data=chunk_object(begun))
        async for step in steps:
            if isinstance(step, Completion):
                yield ServerEvent(data=chunk_object(begun, done=step))
                if counted:
                    yield ServerEvent(data=usage_object(begun, step))
            elif isinstance(step, str):
                yield ServerEvent(data=chunk_object(begun, text=step))
        yield End(data=None)
