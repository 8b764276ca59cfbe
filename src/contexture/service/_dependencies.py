"""FastAPI dependencies of the routes: engine, caller's scope, clock, body and policy check; and JSON responses.

Dependencies are coroutines, because FastAPI runs plain functions in a thread pool.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, cast

from fastapi import Depends, Request, Response

from contexture.answer import permissions
from contexture.engine import Contexture
from contexture.errors import InvalidRequest, NotPermitted
from contexture.ingestion.records import parse_time
from contexture.service._error_responses import is_openai_path
from contexture.service._jobs import IngestJobs
from contexture.service.auth import Authenticator, Identity
from contexture.service.envelope import encode_json
from contexture.types import Json, Scope

NOW_HEADER = "X-Contexture-Now"


async def get_engine(request: Request) -> Contexture:
    """Return the engine of the application."""
    return request.app.state.engine


async def get_jobs(request: Request) -> IngestJobs:
    """Return the jobs of the application."""
    return request.app.state.jobs


async def get_caller(request: Request) -> Scope:
    """Return the caller's scope; see `auth.Authenticator`."""
    callers: Authenticator = request.app.state.callers
    identity: Identity = request.state.identity
    is_fixed = identity.scope is not None and not identity.acts_for_others
    body = {} if is_fixed else await _json_body(request)
    if identity.acts_for_others and is_openai_path(request.url.path):
        body = {**body, "user_id": body.get("user")}
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
    await permissions.require_permission(engine.policy, scope, action, resource)


def json_response(found: object, *, status: int = 200, timings: Mapping[str, float] | None = None) -> Response:
    """Return a JSON response in the same bytes that the command line prints; timings go into a header."""
    spent = ", ".join(f"{name};dur={seconds * 1000:.3f}" for name, seconds in (timings or {}).items())
    headers = {"Server-Timing": spent} if spent else {}
    return Response(encode_json(found), status, headers, media_type="application/json")


async def read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body; raises `InvalidRequest` if there is none."""
    if "json" not in request.headers.get("content-type", ""):
        raise InvalidRequest("send the request as JSON, with the header Content-Type: application/json")
    if not await request.body():
        raise InvalidRequest("the request has no body")
    try:
        found: object = await request.json()
    except json.JSONDecodeError as failure:
        raise InvalidRequest(f"the body is not JSON: {failure.msg} at character {failure.pos}") from failure
    except (ValueError, RecursionError) as failure:
        raise InvalidRequest("the body cannot be read as JSON in UTF-8, or is nested too deeply") from failure
    if not isinstance(found, dict):
        raise InvalidRequest("the body is not a JSON object")
    return cast("dict[str, Any]", found)


EngineDep = Annotated[Contexture, Depends(get_engine)]
JobsDep = Annotated[IngestJobs, Depends(get_jobs)]
CallerDep = Annotated[Scope, Depends(get_caller)]
NowDep = Annotated[datetime | None, Depends(get_now)]
BodyDep = Annotated[dict[str, Any], Depends(read_object)]
"""The body of a route whose model parses it; the last parameter, so that rights are checked first."""


async def _json_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in the body, to see whom it names; one that cannot be read is refused where it matters."""
    try:
        return await read_object(request)
    except InvalidRequest:
        return {}
