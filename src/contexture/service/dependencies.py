"""FastAPI dependencies of the routes: engine, caller's scope, clock and policy check; and JSON responses.

Dependencies are coroutines, because FastAPI runs plain functions in a thread pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, cast

from fastapi import Depends, Request, Response

from contexture.engine import Contexture
from contexture.errors import NotPermitted
from contexture.ingestion.records import parse_time
from contexture.service.auth import Authenticator, Identity
from contexture.service.envelope import encode_json
from contexture.types import Json, Scope

NOW_HEADER = "X-Contexture-Now"


async def get_engine(request: Request) -> Contexture:
    """Return the engine of the application."""
    return request.app.state.engine


async def get_caller(request: Request) -> Scope:
    """Return the caller's scope; see `auth.Authenticator`."""
    callers: Authenticator = request.app.state.callers
    identity: Identity = request.state.identity
    body = {} if identity.scope is not None else await _json_body(request)
    return callers.scope(identity, request.headers, body)


async def get_now(request: Request) -> datetime | None:
    """Return the time that a request sets as its clock; raises `NotPermitted` for callers with a key."""
    given = request.headers.get(NOW_HEADER)
    identity: Identity = request.state.identity
    if given is None:
        return None
    if identity.scope is not None:
        raise NotPermitted(f"you may not set the clock; leave out {NOW_HEADER}")
    return parse_time(given)


async def require_permission(engine: Contexture, scope: Scope, action: str, resource: Mapping[str, Json]) -> None:
    """Raise `NotPermitted`, with the policy's reason, unless the policy allows the action."""
    decision = await engine.policy.decide(scope, action, resource)
    if not decision.allowed:
        raise NotPermitted(decision.reason or f"the policy does not allow {action!r}")


def json_response(found: object, *, status: int = 200, timings: Mapping[str, float] | None = None) -> Response:
    """Return a JSON response in the same bytes that the command line prints; timings go into a header."""
    spent = ", ".join(f"{name};dur={seconds * 1000:.3f}" for name, seconds in (timings or {}).items())
    headers = {"Server-Timing": spent} if spent else {}
    return Response(encode_json(found), status, headers, media_type="application/json")


EngineDep = Annotated[Contexture, Depends(get_engine)]
CallerDep = Annotated[Scope, Depends(get_caller)]
NowDep = Annotated[datetime | None, Depends(get_now)]


async def _json_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body; if the route takes a body, the framework has parsed it already."""
    if "json" not in request.headers.get("content-type", "") or not await request.body():
        return {}
    try:
        found: object = await request.json()
    except ValueError:
        return {}  # a route with a body has refused it already; the others ignore it
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
