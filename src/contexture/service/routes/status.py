"""`/health`, `/ready` and `/metrics`, and the warm-up that `/ready` reports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import structlog
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.responses import PlainTextResponse

from contexture import wiring
from contexture.conversation import HealthState
from contexture.engine import Contexture
from contexture.errors import ContextError, SourceError
from contexture.service.dependencies import EngineDep, json_response
from contexture.service.gateway import Gateway
from contexture.service.wire.schemas import ComponentHealth, HealthResponse, ReadyResponse, json_answer

_UNAVAILABLE = 503


def router() -> APIRouter:
    """Return the routes that need no key."""
    routes = APIRouter(tags=["status"])
    for path, kind, read in (("/health", HealthResponse, health), ("/ready", ReadyResponse, ready)):
        routes.get(path, responses={**json_answer(kind), **json_answer(kind, _UNAVAILABLE)})(read)
    routes.get("/metrics", response_class=PlainTextResponse)(metrics)
    return routes


async def health(request: Request, engine: EngineDep) -> Response:
    """Return the state of each component; the status is 503 if the store is down."""
    readiness: Readiness = request.app.state.readiness
    components: dict[str, ComponentHealth] = {
        "store": await _store_state(engine),
        "embedders": {"state": readiness.embedder_state, "names": sorted(engine.vectors)},
        "policy": await _policy_state(engine),
        "memory": {"state": engine.health.state()},
        "outbox": await _outbox_state(engine),
        **await _bus_state(request.app.state.gateway),
    }
    worst = max((each["state"] for each in components.values()), key=list(HealthState).index)
    status = _UNAVAILABLE if components["store"]["state"] is HealthState.DOWN else 200
    return json_response(HealthResponse(status=worst, components=components), status=status)


async def ready(request: Request) -> Response:
    """Return 200 once the warm-up is done, and 503 before."""
    readiness: Readiness = request.app.state.readiness
    told = ReadyResponse(ready=readiness.is_ready, steps=readiness.steps)
    return json_response(told, status=200 if readiness.is_ready else _UNAVAILABLE)


async def metrics(request: Request) -> Response:
    """Return all metrics in the Prometheus format."""
    registries = cast("tuple[CollectorRegistry, ...]", request.app.state.registries)
    return Response(b"".join(map(generate_latest, registries)), media_type=CONTENT_TYPE_LATEST)


async def _store_state(engine: EngineDep) -> ComponentHealth:
    try:
        failed_search = await engine.index.check_health()
    except SourceError as failure:
        return {"state": HealthState.DOWN, "reason": str(failure)}
    # On a full disk everything can be read and nothing written.
    reason = wiring.disk_space_problem(engine.settings) or failed_search
    return {"state": HealthState.DEGRADED, "reason": reason} if reason else {"state": HealthState.NORMAL}


async def _bus_state(gateway: Gateway) -> dict[str, ComponentHealth]:
    """Return the bus state, if there is a bus; at worst it is degraded, since only queued messages need it."""
    state = await gateway.state()
    if state is None:
        return {}
    if state is HealthState.NORMAL:
        return {"bus": {"state": state}}
    return {"bus": {"state": HealthState.DEGRADED, "reason": "the bus does not answer; messages are queued"}}


async def _policy_state(engine: EngineDep) -> ComponentHealth:
    """Return the policy state; a policy that cannot report one counts as normal, and fails when it decides."""
    ask = getattr(engine.policy, "state", None)
    state = HealthState.NORMAL if ask is None else await ask()
    reasons = {
        HealthState.DOWN: "the policy denies everything",
        HealthState.DEGRADED: "the policy does not answer in time",
    }
    found: ComponentHealth = {"state": state, "kind": type(engine.policy).__name__}
    if state is HealthState.NORMAL:
        return found
    return {**found, "reason": getattr(engine.policy, "reason", reasons[state])}


async def _outbox_state(engine: EngineDep) -> ComponentHealth:
    """Return the outbox state: degraded while memories are parked, because they need manual attention."""
    try:
        status = await engine.outbox.status()
    except SourceError as failure:
        return {"state": HealthState.DOWN, "reason": str(failure)}
    return {"state": HealthState.DEGRADED if status.parked else HealthState.NORMAL, "parked": status.parked}


class Readiness:
    """`is_ready` is True once the index is read and each embedder has run."""

    def __init__(self, engine: Contexture) -> None:
        self._parts: dict[str, Callable[[], Awaitable[object]]] = {
            "index": engine.index.warm,
            "embedders": engine.warm_embedders,
        }
        self.steps: dict[str, str] = dict.fromkeys(self._parts, "waiting")

    @property
    def is_ready(self) -> bool:
        """Whether everything is loaded for the first request."""
        return all(step == "done" for step in self.steps.values())

    @property
    def embedder_state(self) -> HealthState:
        """Down if the embedders could not be loaded, degraded while that is unknown."""
        said = self.steps["embedders"]
        if said == "done":
            return HealthState.NORMAL
        return HealthState.DEGRADED if said == "waiting" else HealthState.DOWN

    async def warm_up(self) -> None:
        """Run every step; one that fails is logged, and the others continue."""
        for name, step in self._parts.items():
            try:
                await step()
            except ContextError as failure:
                self.steps[name] = f"failed: {failure}"
                structlog.get_logger().error("warm-up failed", part=name, reason=str(failure))
            else:
                self.steps[name] = "done"
            await asyncio.sleep(0)
