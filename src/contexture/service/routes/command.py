"""`POST /v1/context/command`: the context of a slash command."""

from __future__ import annotations

from fastapi import APIRouter, Response

from contexture.service.depends import Caller, Engine, Moment, answer, permit
from contexture.service.wire.command import CommandBody, command_object
from contexture.service.wire.contexts import CommandShape


def router() -> APIRouter:
    """The route of slash commands."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    routes.post("/command", response_model=CommandShape)(command)
    return routes


async def command(body: CommandBody, engine: Engine, caller: Caller, now: Moment) -> Response:
    """What executing the command takes, as the caller may see it, or the command's error."""
    await permit(engine, caller, "context.build", {"kind": "command"})
    built = await engine.build_command(body.model_dump(exclude_unset=True), scope=caller, now=now)
    return answer(command_object(built), timings=built.timings)
