"""`POST /v1/context/turn`: the prompt of a chat turn."""

from __future__ import annotations

from fastapi import APIRouter, Response

from contexture.engine import Contexture
from contexture.service.depends import Caller, Engine, Moment, answer, permit
from contexture.service.rights import MayWrite
from contexture.service.wire.contexts import TurnShape
from contexture.service.wire.turn import TurnBody, turn_object
from contexture.types import Scope


def router() -> APIRouter:
    """The route of chat turns."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    routes.post("/turn", response_model=TurnShape)(turn)
    return routes


async def turn(body: TurnBody, engine: Engine, caller: Caller, now: Moment, writes: MayWrite) -> Response:
    """The prompt as the caller may see it: history within the limit, memories, and why each is there.

    A summary of what no longer fits is remembered for callers who may also remember it themselves.
    """
    await permit(engine, caller, "context.build", {"kind": "turn"})
    remember = bool(body.history) and writes and await _may_remember(engine, caller)
    built = await engine.build_turn(body.model_dump(), scope=caller, now=now, remember=remember)
    return answer(turn_object(built), timings=built.timings)


async def _may_remember(engine: Contexture, caller: Scope) -> bool:
    decision = await engine.policy.decide(caller, "memory.remember", {"memories": 1})
    return decision.allowed
