"""What routes ask for: the engine, who calls, the clock, and whether a policy allows it.

Dependencies are coroutines, because the framework would send plain functions to another thread and wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, cast

from fastapi import Depends, Request, Response

from contexture.engine import Contexture
from contexture.errors import NotPermitted
from contexture.ingestion.rows import parse_time
from contexture.service.callers import Callers, Identity
from contexture.service.envelope import encoded
from contexture.types import Json, Scope

NOW = "X-Contexture-Now"


async def engine(request: Request) -> Contexture:
    """The engine that the application was made for."""
    return request.app.state.engine


async def caller(request: Request) -> Scope:
    """Who asks; see `callers.Callers`."""
    callers: Callers = request.app.state.callers
    identity: Identity = request.state.identity
    body = {} if identity.scope is not None else await _body(request)
    return callers.scope(identity, request.headers, body)


async def moment(request: Request) -> datetime | None:
    """The clock that a request asks to be answered by, where it may choose one."""
    given = request.headers.get(NOW)
    identity: Identity = request.state.identity
    if given is None:
        return None
    if identity.scope is not None:
        raise NotPermitted(f"the clock is not yours to set: leave out {NOW}")
    return parse_time(given)


async def permit(engine: Contexture, scope: Scope, action: str, resource: Mapping[str, Json]) -> None:
    """Raise `NotPermitted`, with the policy's reason, unless the policy allows the action."""
    decision = await engine.policy.decide(scope, action, resource)
    if not decision.allowed:
        raise NotPermitted(decision.reason or f"the policy does not allow {action!r}")


def answer(found: object, *, status: int = 200, timings: Mapping[str, float] | None = None) -> Response:
    """A JSON answer in the bytes that the command line prints; timings go into a header."""
    spent = ", ".join(f"{name};dur={seconds * 1000:.3f}" for name, seconds in (timings or {}).items())
    headers = {"Server-Timing": spent} if spent else {}
    return Response(encoded(found), status, headers, media_type="application/json")


Engine = Annotated[Contexture, Depends(engine)]
Caller = Annotated[Scope, Depends(caller)]
Moment = Annotated[datetime | None, Depends(moment)]


async def _body(request: Request) -> dict[str, Any]:
    """The JSON object in the body; the framework has parsed it already where a route takes one."""
    if "json" not in request.headers.get("content-type", "") or not await request.body():
        return {}
    try:
        found: object = await request.json()
    except ValueError:
        return {}  # a route that takes a body has refused this one; the others do not care
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
