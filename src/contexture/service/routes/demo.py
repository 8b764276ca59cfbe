"""`POST /v1/demo/memory`: breaks the memory service of a demonstration, and mends it; served nowhere else."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from contexture.service.depends import Engine, answer


class MemoryBody(BaseModel):
    """Whether the memory service shall fail."""

    model_config = ConfigDict(extra="forbid", strict=True)

    broken: bool


def router() -> APIRouter:
    """The routes of a demonstration."""
    routes = APIRouter(prefix="/v1/demo", tags=["demo"])
    routes.get("/memory")(show)
    routes.post("/memory")(change)
    return routes


async def show(engine: Engine) -> Response:
    """Whether the memory service is broken, and what the health monitor makes of it."""
    return answer({"broken": engine.memory_broken, "state": engine.health.state()})


async def change(body: MemoryBody, engine: Engine) -> Response:
    """The same after the change; the monitor and the breaker take the time they take."""
    engine.break_memory(broken=body.broken)
    return await show(engine)
