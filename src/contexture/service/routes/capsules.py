"""`GET /v1/builds/{id}/capsule`: a recent build as the file that `contexture replay` takes."""

from __future__ import annotations

from fastapi import APIRouter, Response

from contexture.capsule import pack_capsule
from contexture.service.depends import Caller, Engine


def router() -> APIRouter:
    """The route of capsules."""
    routes = APIRouter(prefix="/v1/builds", tags=["builds"])
    routes.get("/{build_id}/capsule")(capsule)
    return routes


async def capsule(build_id: str, engine: Engine, caller: Caller) -> Response:
    """The capsule of one of the caller's own builds, byte for byte: read and written again it might lose its seal."""
    found = await engine.capsule(build_id, scope=caller)
    name = f"ctx-{found.seal[:12]}.json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(pack_capsule(found), headers=headers, media_type="application/json")
