"""`POST /v1/commands`: a slash command, executed."""

from __future__ import annotations

from fastapi import APIRouter, Response

from contexture.service.depends import Caller, Engine, Moment, answer
from contexture.service.wire.answers import CommandAnswerShape
from contexture.service.wire.command import CommandBody
from contexture.service.wire.commands import answer_object


def router() -> APIRouter:
    """The route that executes slash commands."""
    routes = APIRouter(prefix="/v1", tags=["commands"])
    routes.post("/commands", response_model=CommandAnswerShape)(execute)
    return routes


async def execute(body: CommandBody, engine: Engine, caller: Caller, now: Moment) -> Response:
    """The answer with the evidence for each statement, or the command's error; the engine asks the policy itself."""
    found = await engine.execute.run(body.model_dump(exclude_unset=True), scope=caller, now=now)
    return answer(answer_object(found))
