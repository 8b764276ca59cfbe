"""`GET /v1/builds/{id}`: why a recent build looks as it does, and what replays it."""

from __future__ import annotations

from fastapi import APIRouter, Response

from contexture.service.depends import Caller, Engine, answer
from contexture.service.shapes import explanation_object, kept_object
from contexture.service.wire.contexts import ExplanationShape, KeptShape


def router() -> APIRouter:
    """The routes of recent builds."""
    routes = APIRouter(prefix="/v1/builds", tags=["builds"])
    routes.get("/{build_id}", response_model=KeptShape)(build)
    routes.get("/{build_id}/explain/{candidate:path}", response_model=ExplanationShape)(explain)
    return routes


async def build(build_id: str, engine: Engine, caller: Caller) -> Response:
    """The ledger and the capsule of one of the caller's own builds; any other is not found."""
    capsule, ledger = await engine.kept(build_id, scope=caller)
    return answer(kept_object(build_id, capsule, ledger))


async def explain(build_id: str, candidate: str, engine: Engine, caller: Caller) -> Response:
    """What became of one candidate, and the smallest change that would have admitted it."""
    found = await engine.explain(build_id, candidate, scope=caller)
    return answer(explanation_object(build_id, found))
