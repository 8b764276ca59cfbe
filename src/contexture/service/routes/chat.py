"""Chat routes, and those of OpenAI's API: chat completions, models and embeddings.

The latter answer with the statuses and errors that OpenAI's clients know.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, cast
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request, Response

from contexture.answer.chat_types import ChatRequest, ChatResultJson, ChatStep, event_to_json
from contexture.answer.completions import Completion, Completions, CompletionStarted, CompletionStep
from contexture.answer.idempotency import decode_result
from contexture.answer.route import UnknownModel
from contexture.conversation import ReplyState
from contexture.engine import Contexture
from contexture.errors import InvalidRequest
from contexture.json_objects import parse_object
from contexture.service._dependencies import BodyDep, CallerDep, EngineDep, NowDep, json_response, require_permission
from contexture.service._gateway import Gateway
from contexture.service._openapi import describe_body
from contexture.service._sse import EventStream, ServerEvent
from contexture.service.auth import check_same_identity
from contexture.service.wire import chat as wire
from contexture.service.wire import openai, schemas
from contexture.types import Scope
from contexture.wiring import counter_for

EVENT_STREAM = "text/event-stream"

LimitParam = Annotated[int, Query(ge=1, le=1_000)]


def chat_routes() -> APIRouter:
    """Return the routes of chat."""
    routes = APIRouter(prefix="/v1", tags=["chat"])
    routes.post(
        "/chat",
        responses=schemas.merge_answers(schemas.json_answer(ChatResultJson), schemas.CHAT_EVENTS, ENQUEUED_RESPONSE),
        openapi_extra=describe_body(wire.ChatBody),
    )(chat)
    routes.get("/sessions", responses=schemas.json_answer(schemas.SessionsResponse))(list_sessions)
    routes.get("/sessions/{session_id:path}/events", responses=schemas.json_answer(schemas.SessionEventsResponse))(
        list_events
    )
    return routes


async def chat(request: Request, engine: EngineDep, caller: CallerDep, now: NowDep, given: BodyDep) -> Response:
    """Answer a message, as JSON, or as an event stream with `stream` or `Accept: text/event-stream`.

    With `background` the message is put on the bus, and 202 with `Location` tells where to read the answer. With
    `message_id` it is answered only once, even if it is sent again. An error before the first event sets the status of
    the response.
    """
    body = parse_object(wire.ChatBody, given, what="a message")
    check_same_identity(caller, tenant_id=body.tenant_id, user_id=body.user_id)
    streamed = body.stream or EVENT_STREAM in request.headers.get("accept", "")
    if streamed and (body.background or body.message_id):
        raise InvalidRequest("a message with `background` or `message_id` cannot be streamed; leave out `stream`")
    if body.background:
        return await enqueue_message(request, body.to_request(), engine=engine, caller=caller, now=now)
    if not streamed:
        doing = engine.answer_once if body.message_id else engine.chat
        return json_response((await doing.run(body.to_request(), scope=caller, now=now)).json_form())
    steps = cast("AsyncGenerator[ChatStep]", engine.chat.stream(body.to_request(), scope=caller, now=now))
    return EventStream(_chat_events(await anext(steps), steps))


async def list_sessions(engine: EngineDep, caller: CallerDep, limit: LimitParam = 50) -> Response:
    """List the caller's sessions, most recently written first."""
    await require_permission(engine, caller, "session.read", {})
    return json_response(schemas.SessionsResponse(sessions=list(await engine.sessions.sessions(caller, limit=limit))))


async def list_events(session_id: str, engine: EngineDep, caller: CallerDep, limit: LimitParam = 20) -> Response:
    """List the newest events of one of the caller's sessions, oldest first; any other session is empty."""
    await require_permission(engine, caller, "session.read", {"session_id": session_id})
    found = await engine.sessions.list_events(caller, session_id, limit=limit)
    return json_response(schemas.SessionEventsResponse(session_id=session_id, events=list(map(event_to_json, found))))


async def _chat_events(first: ChatStep, steps: AsyncGenerator[ChatStep]) -> AsyncIterator[ServerEvent]:
    async with aclosing(steps):
        yield _chat_event(first)
        async for step in steps:
            yield _chat_event(step)


def _chat_event(step: ChatStep) -> ServerEvent:
    name, data = wire.chat_step_event(step)
    return ServerEvent(event=name, data=data)


ACCEPTED = 202
REPLIES_PREFIX = "/v1/chat/replies"
ENQUEUED_RESPONSE = schemas.json_answer(
    wire.EnqueuedJson, ACCEPTED, "Accepted; `Location` is where the answer can be read."
)
"""The additional responses of `POST /v1/chat`."""

_REPLY_RESPONSES = {
    **schemas.json_answer(wire.ReplyJson),
    **schemas.json_answer(wire.ReplyJson, ACCEPTED, "The answer is not ready yet."),
}


def replies_routes() -> APIRouter:
    """Return the route of replies."""
    routes = APIRouter(prefix=REPLIES_PREFIX, tags=["chat"])
    routes.get("/{message_id:path}", responses=_REPLY_RESPONSES)(read_reply)
    return routes


async def read_reply(message_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return the answer to one of the caller's messages, its error, or 202 while there is neither."""
    await require_permission(engine, caller, "session.read", {"message_id": message_id})
    found = await engine.answer_once.find(message_id, scope=caller)
    if found.state is ReplyState.COMPLETE:
        await require_permission(engine, caller, "builds.read", {"build": decode_result(found).build_id})
    waiting = found.state is ReplyState.ACCEPTED
    response = json_response(wire.reply_object(found), status=ACCEPTED if waiting else 200)
    if waiting:
        response.headers["Retry-After"] = "1"
    return response


async def enqueue_message(
    request: Request, message: ChatRequest, *, engine: Contexture, caller: Scope, now: datetime | None
) -> Response:
    """Return 202 with the location of the answer, once the bus has accepted the message."""
    gateway: Gateway = request.app.state.gateway
    taken = await gateway.enqueue(message, once=engine.answer_once, scope=caller, now=now)
    place = f"{REPLIES_PREFIX}/{quote(taken.message_id, safe='')}"
    response = json_response(wire.enqueued_object(taken, place), status=ACCEPTED)
    response.headers["Location"] = place
    return response


SessionHeader = Annotated[
    str, Header(alias="X-Contexture-Session", max_length=512, description="Store the exchange in this session.")
]


class StreamEnd(ServerEvent):
    """The end marker that clients of such streams expect; it is not JSON."""

    def encode(self) -> bytes:
        """Return the bytes of the event."""
        return b"data: [DONE]\n\n"


def openai_routes() -> APIRouter:
    """Return the OpenAI-compatible routes."""
    routes = APIRouter(prefix="/v1", tags=["openai"])
    answers = schemas.merge_answers(schemas.json_answer(openai.CompletionJson), schemas.COMPLETION_EVENTS)
    routes.post("/chat/completions", responses=answers)(create_completion)
    routes.get("/models", responses=schemas.json_answer(openai.ModelsJson))(list_models)
    routes.get("/models/{name:path}", responses=schemas.json_answer(openai.ModelJson))(get_model)
    routes.post("/embeddings", responses=schemas.json_answer(openai.EmbeddingsJson))(create_embeddings)
    return routes


async def create_completion(
    body: openai.CompletionBody, engine: EngineDep, caller: CallerDep, now: NowDep, session: SessionHeader = ""
) -> Response:
    """Answer the caller's messages with memories added to them; tools and other options are passed to the model.

    Nothing is stored unless `store` or the header `X-Contexture-Session` asks for it. An error before the first event
    sets the status of the response.
    """
    completions = Completions(engine.chat)
    request = body.to_request(session_id=session, acted_for=body.user == caller.user)
    if not body.stream:
        return json_response(openai.completion_object(await completions.run(request, scope=caller, now=now)))
    steps = cast("AsyncGenerator[CompletionStep]", completions.stream(request, scope=caller, now=now))
    counted = body.stream_options is not None and body.stream_options.include_usage is True
    begun = cast("CompletionStarted", await anext(steps))
    # The first piece too, so that a request that every model refuses has the status of its error.
    first = await anext(steps)
    return EventStream(_completion_events(begun, first, steps, counted=counted))


async def list_models(engine: EngineDep, caller: CallerDep) -> Response:
    """List the models that a request may name."""
    del caller
    names = (openai.DEFAULT_MODEL, *engine.chat.route.names, *engine.embedders)
    return json_response(openai.ModelsJson(object="list", data=[openai.model_object(name) for name in names]))


async def get_model(name: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return one of the models that a request may name."""
    del caller
    if name != openai.DEFAULT_MODEL and name not in engine.embedders:
        engine.chat.route.order_models(name)
    return json_response(openai.model_object(name))


async def create_embeddings(body: openai.EmbeddingsBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Embed texts with one of the embedders of the store."""
    del caller
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not 0 < len(texts) <= openai.MAX_EMBEDDED_TEXTS or not all(text.strip() for text in texts):
        raise InvalidRequest(f"`input` must be a text, or 1 to {openai.MAX_EMBEDDED_TEXTS:,} texts, none of them empty")
    name = next(iter(engine.embedders)) if body.model == openai.DEFAULT_MODEL else body.model
    if name not in engine.embedders:
        known = ", ".join(map(repr, engine.embedders))
        raise UnknownModel(f"embedder {name!r} is not configured; the embedders are {known}")
    embedder = engine.embedders[name]
    if body.dimensions not in (None, embedder.dimensions):
        raise InvalidRequest(f"`dimensions` of {name!r} is {embedder.dimensions} and cannot be changed")
    counter = counter_for(engine.settings.counted_model)
    tokens = sum(map(counter.count, texts))
    return json_response(openai.embeddings_object(await embedder.embed(texts), body, tokens))


async def _completion_events(
    begun: CompletionStarted, first: CompletionStep, steps: AsyncGenerator[CompletionStep], *, counted: bool
) -> AsyncIterator[ServerEvent]:
    async with aclosing(steps):
        yield ServerEvent(data=openai.chunk_object(begun, {"delta": {"role": "assistant", "content": ""}}))
        last: dict[str, object] = {"delta": {}, "finish_reason": "stop"}
        async for step in _chain(first, steps):
            if isinstance(step, dict) and step.get("finish_reason"):
                last = step  # held back, to be sent with the context of the answer
            elif isinstance(step, dict):
                if delta := {name: value for name, value in step["delta"].items() if name != "role"}:
                    yield ServerEvent(data=openai.chunk_object(begun, {**step, "delta": delta}))
            elif isinstance(step, Completion):
                yield ServerEvent(data=openai.chunk_object(begun, last, done=step))
                if counted:
                    yield ServerEvent(data=openai.usage_object(begun, step))
        yield StreamEnd(data=None)


async def _chain(first: CompletionStep, steps: AsyncGenerator[CompletionStep]) -> AsyncIterator[CompletionStep]:
    yield first
    async for step in steps:
        yield step
