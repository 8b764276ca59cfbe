"""`GET /v1/chat/replies/{id}`: what became of a message that was handed over."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from contexture.answer.exchange import ChatRequest
from contexture.conversation import ReplyState
from contexture.engine import Contexture
from contexture.service.depends import Caller, Engine, answer, permit
from contexture.service.gateway import Gateway
from contexture.service.wire.answers import HandedOverShape, ReplyShape
from contexture.service.wire.handover import handed_over_object, reply_object
from contexture.types import Scope

ACCEPTED = 202
PREFIX = "/v1/chat/replies"
HANDED_OVER: dict[int | str, dict[str, Any]] = {
    ACCEPTED: {"model": HandedOverShape, "description": "Handed over; `Location` says where to read the answer."}
}
"""What `POST /v1/chat` may answer besides."""

_WAITING: dict[int | str, dict[str, Any]] = {ACCEPTED: {"model": ReplyShape, "description": "There is no answer yet."}}


def router() -> APIRouter:
    """The route of replies."""
    routes = APIRouter(prefix=PREFIX, tags=["chat"])
    routes.get("/{message_id:path}", response_model=ReplyShape, responses=_WAITING)(reply)
    return routes


async def reply(message_id: str, engine: Engine, caller: Caller) -> Response:
    """What became of a message of the caller's: its answer, its error, or 202 while there is neither."""
    await permit(engine, caller, "session.read", {"message_id": message_id})
    found = await engine.once.find(message_id, scope=caller)
    waiting = found.state is ReplyState.ACCEPTED
    told = answer(reply_object(found), status=ACCEPTED if waiting else 200)
    if waiting:
        told.headers["Retry-After"] = "1"
    return told


async def handed_over(
    request: Request, message: ChatRequest, *, engine: Contexture, caller: Scope, now: datetime | None
) -> Response:
    """202 with the place of the answer, once the bus has the message."""
    gateway: Gateway = request.app.state.gateway
    taken = await gateway.hand_over(message, once=engine.once, scope=caller, now=now)
    place = f"{PREFIX}/{quote(taken.message_id, safe='')}"
    told = answer(handed_over_object(taken, place), status=ACCEPTED)
    told.headers["Location"] = place
    return told
