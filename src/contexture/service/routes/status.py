"""`/health`, `/ready` and `/metrics`: for those who watch over a service."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.responses import PlainTextResponse

from contexture.adapters.index.room import NEEDED, has_room
from contexture.conversation import HealthState
from contexture.errors import SourceError
from contexture.service.depends import Engine, answer
from contexture.service.gateway import Gateway
from contexture.service.readiness import Readiness
from contexture.service.wire.answers import HealthShape, ReadyShape

_UNAVAILABLE = 503


def router() -> APIRouter:
    """The routes that answer anyone."""
    routes = APIRouter(tags=["status"])
    routes.get("/health", response_model=HealthShape, responses={_UNAVAILABLE: {"model": HealthShape}})(health)
    routes.get("/ready", response_model=ReadyShape, responses={_UNAVAILABLE: {"model": ReadyShape}})(ready)
    routes.get("/metrics", response_class=PlainTextResponse)(metrics)
    return routes


async def health(request: Request, engine: Engine) -> Response:
    """How each component is doing; 503 when the store is down, without which nothing works."""
    readiness: Readiness = request.app.state.readiness
    components: dict[str, dict[str, Any]] = {
        "store": await _store(engine),
        "embedders": {"state": readiness.embedders, "names": sorted(engine.vectors)},
        "policy": await _policy(engine),
        "memory": {"state": engine.health.state()},
        "outbox": await _outbox(engine),
        **await _bus(request.app.state.gateway),
    }
    worst = max((each["state"] for each in components.values()), key=list(HealthState).index)
    status = _UNAVAILABLE if components["store"]["state"] is HealthState.DOWN else 200
    return answer({"status": worst, "components": components}, status=status)


async def ready(request: Request) -> Response:
    """200 once the warm-up is done, 503 before."""
    readiness: Readiness = request.app.state.readiness
    return answer({"ready": readiness.done, "steps": readiness.steps}, status=200 if readiness.done else _UNAVAILABLE)


async def metrics(request: Request) -> Response:
    """Everything measured, in the format of Prometheus."""
    registries = cast("tuple[CollectorRegistry, ...]", request.app.state.registries)
    return Response(b"".join(map(generate_latest, registries)), media_type=CONTENT_TYPE_LATEST)


async def _store(engine: Engine) -> dict[str, Any]:
    try:
        await engine.index.names()  # how many there are is not for everyone: it would tell who else has a name
    except SourceError as failure:
        return {"state": HealthState.DOWN, "reason": str(failure)}
    found = {"state": HealthState.NORMAL}
    ailing = engine.index.ailing  # what is stored can be read all the same
    trouble = {"state": HealthState.DEGRADED, "reason": ailing} if ailing else {}
    return {**found, **trouble, **_room(engine.settings.home)}


def _room(home: Path) -> dict[str, Any]:
    """What is to be said of the disk: without room everything can be read, and nothing written."""
    if has_room(home):
        return {}
    return {"state": HealthState.DEGRADED, "reason": f"its disk has less than {NEEDED >> 20} MB left"}


async def _bus(gateway: Gateway) -> dict[str, dict[str, Any]]:
    """The bus, where there is one: only messages that are handed over need it, so it degrades the whole at worst."""
    state = await gateway.state()
    if state is None:
        return {}
    if state is HealthState.NORMAL:
        return {"bus": {"state": state}}
    return {"bus": {"state": HealthState.DEGRADED, "reason": "it does not answer; messages wait"}}


async def _policy(engine: Engine) -> dict[str, Any]:
    """A policy that cannot say how it does is taken to work: it answers for itself with every decision."""
    ask = getattr(engine.policy, "state", None)
    state = HealthState.NORMAL if ask is None else await ask()
    reasons = {HealthState.DOWN: "its files allow nothing", HealthState.DEGRADED: "it does not answer in time"}
    found = {"state": state, "kind": type(engine.policy).__name__}
    if state is HealthState.NORMAL:
        return found
    return {**found, "reason": getattr(engine.policy, "reason", reasons[state])}


async def _outbox(engine: Engine) -> dict[str, Any]:
    """Degraded while memories are parked: they wait for somebody to look."""
    try:
        status = await engine.outbox.status()
    except SourceError as failure:
        return {"state": HealthState.DOWN, "reason": str(failure)}
    return {"state": HealthState.DEGRADED if status.parked else HealthState.NORMAL, "parked": status.parked}
