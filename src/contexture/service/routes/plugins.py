"""Routes of the builders of other packages: `POST /v1/context/KIND`, with the request model of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from contexture.builders.plugin import BuilderPlugin, PluginContextJson
from contexture.service.dependencies import CallerDep, EngineDep, NowDep, json_response, require_permission
from contexture.service.wire.schemas import json_answer


def plugin_routes(builders: Sequence[BuilderPlugin[Any]]) -> APIRouter:
    """Return a route for each of these builders."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    for builder in builders:
        routes.post(f"/{builder.kind}", responses=json_answer(PluginContextJson))(_make_handler(builder))
    return routes


def _make_handler(builder: BuilderPlugin[Any]) -> Callable[..., Awaitable[Response]]:
    async def build(body: BaseModel, engine: EngineDep, caller: CallerDep, now: NowDep) -> Response:
        await require_permission(engine, caller, "context.build", {"kind": builder.kind})
        return json_response((await engine.build_kind(builder.kind, body, scope=caller, now=now)).json_form())

    build.__name__ = f"build_{builder.kind}"
    build.__doc__ = getattr(builder.build, "__doc__", None)
    build.__annotations__["body"] = builder.request  # from which the framework parses the body and writes OpenAPI
    return build
