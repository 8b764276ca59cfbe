"""`POST /v1/context/workspace`: the context of a request over the workspace."""

from __future__ import annotations

from fastapi import APIRouter, Response

from contexture.adapters.tokens.models import counter_for
from contexture.service.depends import Caller, Engine, Moment, answer, permit
from contexture.service.wire.contexts import WorkspaceShape
from contexture.service.wire.workspace import WorkspaceBody, workspace_object


def router() -> APIRouter:
    """The route of workspaces."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    routes.post("/workspace", response_model=WorkspaceShape)(workspace)
    return routes


async def workspace(body: WorkspaceBody, engine: Engine, caller: Caller, now: Moment) -> Response:
    """The context as the caller may see it: sections, text, and why each block is there."""
    await permit(engine, caller, "context.build", {"kind": "workspace"})
    built = await engine.build_workspace(body.model_dump(exclude_unset=True), scope=caller, now=now)
    return answer(workspace_object(built, counter_for(engine.settings.model)), timings=built.timings)
