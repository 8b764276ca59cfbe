"""OpenAI's routes: chat completions, models and embeddings, with the statuses and errors that its clients know."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, cast

from fastapi import APIRouter, Header, Response

from contexture.answer.completions import Completion, Completions, CompletionStarted, CompletionStep
from contexture.answer.route import UnknownModel
from contexture.errors import InvalidRequest
from contexture.service._dependencies import CallerDep, EngineDep, NowDep, json_response
from contexture.service._sse import EventStream, ServerEvent
from contexture.service.wire import openai as wire
from contexture.service.wire import schemas
from contexture.wiring import counter_for

SessionHeader = Annotated[
    str, Header(alias="X-Contexture-Session", max_length=512, description="Store the exchange in this session.")
]


class StreamEnd(ServerEvent):
    """The end marker that clients of such streams expect; it is not JSON."""

    def encode(self) -> bytes:
        """Return the bytes of the event."""
        return b"data: [DONE]\n\n"


def router() -> APIRouter:
    """Return the OpenAI-compatible routes."""
    routes = APIRouter(prefix="/v1", tags=["openai"])
    answers = schemas.merge_answers(schemas.json_answer(wire.CompletionJson), schemas.COMPLETION_EVENTS)
    routes.post("/chat/completions", responses=answers)(create_completion)
    routes.get("/models", responses=schemas.json_answer(wire.ModelsJson))(list_models)
    routes.get("/models/{name:path}", responses=schemas.json_answer(wire.ModelJson))(get_model)
    routes.post("/embeddings", responses=schemas.json_answer(wire.EmbeddingsJson))(create_embeddings)
    return routes


async def create_completion(
    body: wire.CompletionBody, engine: EngineDep, caller: CallerDep, now: NowDep, session: SessionHeader = ""
) -> Response:
    """Answer the caller's messages with memories added to them; tools and other options are passed to the model.

    Nothing is stored unless `store` or the header `X-Contexture-Session` asks for it. An error before the first event
    sets the status of the response.
    """
    completions = Completions(engine.chat)
    request = body.to_request(session_id=session, acted_for=body.user == caller.user)
    if not body.stream:
        return json_response(wire.completion_object(await completions.run(request, scope=caller, now=now)))
    steps = cast("AsyncGenerator[CompletionStep]", completions.stream(request, scope=caller, now=now))
    counted = body.stream_options is not None and body.stream_options.include_usage is True
    begun = cast("CompletionStarted", await anext(steps))
    # The first piece too, so that a request that every model refuses has the status of its error.
    first = await anext(steps)
    return EventStream(_completion_events(begun, first, steps, counted=counted))


async def list_models(engine: EngineDep, caller: CallerDep) -> Response:
    """List the models that a request may name."""
    del caller
    names = (wire.DEFAULT_MODEL, *engine.chat.route.names, *engine.embedders)
    return json_response(wire.ModelsJson(object="list", data=[wire.model_object(name) for name in names]))


async def get_model(name: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return one of the models that a request may name."""
    del caller
    if name != wire.DEFAULT_MODEL and name not in engine.embedders:
        engine.chat.route.order_models(name)
    return json_response(wire.model_object(name))


async def create_embeddings(body: wire.EmbeddingsBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Embed texts with one of the embedders of the store."""
    del caller
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not 0 < len(texts) <= wire.MAX_EMBEDDED_TEXTS or not all(text.strip() for text in texts):
        raise InvalidRequest(f"`input` must be a text, or 1 to {wire.MAX_EMBEDDED_TEXTS:,} texts, none of them empty")
    name = next(iter(engine.embedders)) if body.model == wire.DEFAULT_MODEL else body.model
    if name not in engine.embedders:
        known = ", ".join(map(repr, engine.embedders))
        raise UnknownModel(f"embedder {name!r} is not configured; the embedders are {known}")
    embedder = engine.embedders[name]
    if body.dimensions not in (None, embedder.dimensions):
        raise InvalidRequest(f"`dimensions` of {name!r} is {embedder.dimensions} and cannot be changed")
    counter = counter_for(engine.settings.counted_model)
    tokens = sum(map(counter.count, texts))
    return json_response(wire.embeddings_object(await embedder.embed(texts), body, tokens))


async def _completion_events(
    begun: CompletionStarted, first: CompletionStep, steps: AsyncGenerator[CompletionStep], *, counted: bool
) -> AsyncIterator[ServerEvent]:
    async with aclosing(steps):
        yield ServerEvent(data=wire.chunk_object(begun, {"delta": {"role": "assistant", "content": ""}}))
        last: dict[str, object] = {"delta": {}, "finish_reason": "stop"}
        async for step in _chain(first, steps):
            if isinstance(step, dict) and step.get("finish_reason"):
                last = step  # held back, to be sent with the context of the answer
            elif isinstance(step, dict):
                if delta := {name: value for name, value in step["delta"].items() if name != "role"}:
                    yield ServerEvent(data=wire.chunk_object(begun, {**step, "delta": delta}))
            elif isinstance(step, Completion):
                yield ServerEvent(data=wire.chunk_object(begun, last, done=step))
                if counted:
                    yield ServerEvent(data=wire.usage_object(begun, step))
        yield StreamEnd(data=None)


async def _chain(first: CompletionStep, steps: AsyncGenerator[CompletionStep]) -> AsyncIterator[CompletionStep]:
    yield first
    async for step in steps:
        yield step
