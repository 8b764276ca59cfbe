"""`POST /v1/context/turn`: the prompt of a chat turn."""

from __future__ import annotations

from fastapi import APIRouter, Response

from contexture.service.depends import Caller, Engine, Moment, answer, permit
from contexture.service.wire.contexts import TurnShape
from contexture.service.wire.turn import TurnBody, turn_object


def router() -> APIRouter:
    """The route of chat turns."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    routes.post("/turn", response_model=TurnShape)(turn)
    return routes


async def turn(body: TurnBody, engine: Engine, caller: Caller, now: Moment) -> Response:
    """The prompt as the caller may see it: history within the limit, memories, and why each is there."""
    await permit(engine, caller, "context.build", {"kind": "turn"})
    built = await engine.build_turn(body.model_dump(), scope=caller, now=now)
    return answer(turn_object(built), timings=built.timings)
