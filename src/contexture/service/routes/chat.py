"""Chat routes.

`POST /v1/chat`, sessions, and replies to queued messages.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, cast
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response

from contexture.answer.chat_types import ChatRequest, ChatResultJson, ChatStep, event_to_json
from contexture.answer.idempotency import decode_result
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
from contexture.service.wire import schemas
from contexture.types import Scope

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
