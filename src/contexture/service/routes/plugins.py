"""Routes of the builders of other packages: `POST /v1/context/KIND`, with the request model of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from fastapi import APIRouter, Response
from pydantic import BaseModel

from contexture.builders.plugin import BuilderPlugin, PluginContextJson
from contexture.service.dependencies import BodyDep, CallerDep, EngineDep, NowDep, json_response, require_permission
from contexture.service.openapi import describe_plugin_body
from contexture.service.wire.schemas import json_answer


def plugin_routes(builders: Sequence[BuilderPlugin[Any]]) -> APIRouter:
    """Return a route for each of these builders."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    for builder in builders:
        described = describe_plugin_body(builder.kind, cast("type[BaseModel]", builder.request))
        routes.post(f"/{builder.kind}", responses=json_answer(PluginContextJson), openapi_extra=described)(
            _make_handler(builder)
        )
    return routes


def _make_handler(builder: BuilderPlugin[Any]) -> Callable[..., Awaitable[Response]]:
    async def build(engine: EngineDep, caller: CallerDep, now: NowDep, body: BodyDep) -> Response:
        await require_permission(engine, caller, "context.build", {"kind": builder.kind})
        return json_response((await engine.build_kind(builder.kind, body, scope=caller, now=now)).json_form())

    build.__name__ = f"build_{builder.kind}"
    build.__doc__ = getattr(builder.build, "__doc__", None)
    return build
