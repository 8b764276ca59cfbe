"""`POST /v1/chat`: a message and its answer, whole or as it comes; and the sessions that messages belong to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, cast

from fastapi import APIRouter, Query, Request, Response

from contexture.answer.exchange import Step
from contexture.errors import InvalidRequest
from contexture.service.callers import own
from contexture.service.depends import Caller, Engine, Moment, answer, permit
from contexture.service.routes.replies import HANDED_OVER, handed_over
from contexture.service.sse import EventStream, ServerEvent
from contexture.service.wire.answers import EVENTS, ChatShape, EventsShape, SessionsShape
from contexture.service.wire.chat import ChatBody, events_object, result_object, step_object

EVENT_STREAM = "text/event-stream"

Limit = Annotated[int, Query(ge=1, le=1_000)]


def router() -> APIRouter:
    """The routes of chat."""
    routes = APIRouter(prefix="/v1", tags=["chat"])
    routes.post("/chat", response_model=ChatShape, responses={**EVENTS, **HANDED_OVER})(chat)
    routes.get("/sessions", response_model=SessionsShape)(sessions)
    routes.get("/sessions/{session_id:path}/events", response_model=EventsShape)(events)
    return routes


async def chat(request: Request, body: ChatBody, engine: Engine, caller: Caller, now: Moment) -> Response:
    """The answer to a message, as JSON; as events with `stream`, or when the client accepts nothing else.

    With `background` it is handed over to the bus instead, and 202 says where to read the answer. With `message_id` it
    is answered once, however often it is sent. The policy is asked by the engine itself. What goes wrong before the
    first event has the status of its error.
    """
    own(caller, tenant_id=body.tenant_id, user_id=body.user_id)
    streamed = body.stream or EVENT_STREAM in request.headers.get("accept", "")
    if streamed and (body.background or body.message_id):
        raise InvalidRequest("a message with `background` or `message_id` is answered whole: leave out `stream`")
    if body.background:
        return await handed_over(request, body.request(), engine=engine, caller=caller, now=now)
    if not streamed:
        doing = engine.once if body.message_id else engine.chat
        return answer(result_object(await doing.run(body.request(), scope=caller, now=now)))
    steps = cast("AsyncGenerator[Step]", engine.chat.stream(body.request(), scope=caller, now=now))
    return EventStream(_events(await anext(steps), steps))


async def sessions(engine: Engine, caller: Caller, limit: Limit = 50) -> Response:
    """The caller's sessions, the one last written to first."""
    await permit(engine, caller, "session.read", {})
    return answer({"sessions": await engine.sessions.sessions(caller, limit=limit)})


async def events(session_id: str, engine: Engine, caller: Caller, limit: Limit = 20) -> Response:
    """The newest events of a session of the caller's, oldest first; any other session is an empty one."""
    await permit(engine, caller, "session.read", {"session_id": session_id})
    found = await engine.sessions.list_events(caller, session_id, limit=limit)
    return answer(events_object(session_id, found))


async def _events(first: Step, steps: AsyncGenerator[Step]) -> AsyncIterator[ServerEvent]:
    async with aclosing(steps):
        yield _event(first)
        async for step in steps:
            yield _event(step)


def _event(step: Step) -> ServerEvent:
    name, data = step_object(step)
    return ServerEvent(event=name, data=data)
