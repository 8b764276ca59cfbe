"""`/health`, `/ready` and `/metrics`, and the warm-up that `/ready` reports."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import cast

import structlog
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.responses import PlainTextResponse

from contexture import wiring
from contexture.config import Settings
from contexture.conversation import HealthState
from contexture.engine import Contexture
from contexture.errors import ContextError, SourceError, StoreDamaged
from contexture.ports import Clock
from contexture.service._dependencies import EngineDep, json_response
from contexture.service._gateway import Gateway
from contexture.service.wire import schemas
from contexture.wiring import DamagedDatabase

_UNAVAILABLE = 503


def router() -> APIRouter:
    """Return the routes that need no key."""
    routes = APIRouter(tags=["status"])
    for path, kind, read in (("/health", schemas.HealthResponse, health), ("/ready", schemas.ReadyResponse, ready)):
        routes.get(path, responses={**schemas.json_answer(kind), **schemas.json_answer(kind, _UNAVAILABLE)})(read)
    routes.get("/metrics", response_class=PlainTextResponse)(metrics)
    return routes


async def health(request: Request, engine: EngineDep) -> Response:
    """Return the state of each component; the status is 503 if the store is down or one of its databases is damaged."""
    readiness: Readiness = request.app.state.readiness
    integrity: IntegrityMonitor = request.app.state.integrity
    components: dict[str, schemas.ComponentHealth] = {
        "store": await _store_state(engine),
        "integrity": integrity.state(),
        "embedders": {"state": readiness.embedder_state, "names": sorted(engine.vectors)},
        "policy": await _policy_state(engine),
        "memory": _memory_state(engine),
        "outbox": await _outbox_state(engine),
        **await asyncio.to_thread(_library_states, engine),
        **await _bus_state(request.app.state.gateway),
    }
    worst = max((each["state"] for each in components.values()), key=list(HealthState).index)
    is_down = HealthState.DOWN in (components["store"]["state"], components["integrity"]["state"])
    status = _UNAVAILABLE if is_down else 200
    return json_response(schemas.HealthResponse(status=worst, components=components), status=status)


async def ready(request: Request) -> Response:
    """Return 200 once the warm-up is done, and 503 before."""
    readiness: Readiness = request.app.state.readiness
    body = schemas.ReadyResponse(ready=readiness.is_ready, steps=readiness.steps)
    return json_response(body, status=200 if readiness.is_ready else _UNAVAILABLE)


async def metrics(request: Request) -> Response:
    """Return all metrics in the Prometheus format."""
    registries = cast("tuple[CollectorRegistry, ...]", request.app.state.registries)
    return Response(b"".join(map(generate_latest, registries)), media_type=CONTENT_TYPE_LATEST)


async def _store_state(engine: EngineDep) -> schemas.ComponentHealth:
    try:
        failed_search = await engine.index.check_health()
    except SourceError as failure:
        return {"state": HealthState.DOWN, "reason": str(failure)}
    # On a full disk everything can be read and nothing written.
    reason = wiring.disk_space_problem(engine.settings) or failed_search
    return {"state": HealthState.DEGRADED, "reason": reason} if reason else {"state": HealthState.NORMAL}


async def _bus_state(gateway: Gateway) -> dict[str, schemas.ComponentHealth]:
    """Return the bus state, if there is a bus; at worst it is degraded, since only queued messages need it."""
    state = await gateway.state()
    if state is None:
        return {}
    if state is HealthState.NORMAL:
        return {"bus": {"state": state}}
    return {"bus": {"state": HealthState.DEGRADED, "reason": "the bus does not answer; messages are queued"}}


async def _policy_state(engine: EngineDep) -> schemas.ComponentHealth:
    """Return the policy state; a policy that cannot report one counts as normal, and fails when it decides."""
    ask = getattr(engine.policy, "state", None)
    state = HealthState.NORMAL if ask is None else await ask()
    reasons = {
        HealthState.DOWN: "the policy denies everything",
        HealthState.DEGRADED: "the policy does not answer in time",
    }
    found: schemas.ComponentHealth = {"state": state, "kind": type(engine.policy).__name__}
    if state is HealthState.NORMAL:
        return found
    return {**found, "reason": getattr(engine.policy, "reason", reasons[state])}


def _memory_state(engine: Contexture) -> schemas.ComponentHealth:
    """Return the memory state: at best degraded while the service refuses our key or user."""
    state = engine.health.state()
    if not engine.memory_refusal:
        return {"state": state}
    return {"state": max(state, HealthState.DEGRADED, key=list(HealthState).index), "reason": engine.memory_refusal}


async def _outbox_state(engine: EngineDep) -> schemas.ComponentHealth:
    """Return the outbox state: degraded while memories are parked, because they need manual attention."""
    try:
        status = await engine.outbox.status()
    except SourceError as failure:
        return {"state": HealthState.DOWN, "reason": str(failure)}
    counts: schemas.ComponentHealth = {"state": HealthState.NORMAL, "parked": status.parked, "damaged": status.damaged}
    if status.set_aside:
        reason = f"its file was damaged and replaced; what could not be read is in {status.set_aside!r}"
        return {**counts, "state": HealthState.DEGRADED, "reason": reason}
    return {**counts, "state": HealthState.DEGRADED} if status.parked or status.damaged else counts


def _library_states(engine: Contexture) -> dict[str, schemas.ComponentHealth]:
    """Return the states of chat models and of text recognition, which may lack a system library."""
    settings = engine.settings
    names = [settings.chat_model or "extractive", *settings.chat_fallbacks]
    models: schemas.ComponentHealth = {"state": HealthState.NORMAL, "names": names}
    if missing := wiring.missing_model_libraries(settings):
        models = {**models, "state": HealthState.DEGRADED, "reason": "; ".join(missing.values())}
    kind, lacking = wiring.ocr_state()
    ocr: schemas.ComponentHealth = {"state": HealthState.DEGRADED if lacking else HealthState.NORMAL, "kind": kind}
    return {"models": models, "ocr": {**ocr, "reason": lacking} if lacking else ocr}


class IntegrityMonitor:
    """Checks the databases of the store in the background; `state` is what the last check found.

    A damaged database that a request meets is reported at once, and checked again.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._damaged: tuple[DamagedDatabase, ...] = ()
        self._reported = ""
        self._checked: datetime | None = None
        self._wake_up = asyncio.Event()
        self._stopped = threading.Event()

    def state(self) -> schemas.ComponentHealth:
        """Return `down` with the way back if a database is damaged, and `degraded` if only caches are."""
        checked: schemas.ComponentHealth = {"state": HealthState.NORMAL}
        if self._checked is not None:
            checked = {**checked, "checked": self._checked}
        known = [each.sentence for each in self._damaged] or ([self._reported] if self._reported else [])
        sentences = [each.replace(f"{self._settings.home}/", "") for each in known]  # callers need no paths
        if not sentences:
            return checked
        only_caches = self._damaged and all(each.is_cache for each in self._damaged)
        worst = HealthState.DEGRADED if only_caches else HealthState.DOWN
        return {**checked, "state": worst, "reason": "; ".join(sentences)}

    def report(self, failure: StoreDamaged) -> None:
        """Report damage that a request met; the next check confirms or withdraws it."""
        self._reported = str(failure)
        self._wake_up.set()

    async def run(self) -> None:
        """Check quickly, then thoroughly, then again after a while, until cancelled."""
        try:
            await self._check(quick=True)
            while True:
                self._wake_up.clear()
                await self._check()
                await self._wait()
        finally:
            self._stopped.set()  # ends the check that a thread is running

    async def _wait(self) -> None:
        seconds = self._settings.integrity_seconds
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds or None):
                await self._wake_up.wait()

    async def _check(self, *, quick: bool = False) -> None:
        known = self._damaged
        try:
            found = await asyncio.to_thread(
                wiring.find_store_damage, self._settings, quick=quick, stop=self._stopped.is_set
            )
        except (SourceError, OSError) as failure:  # locked, or removed meanwhile; the next check will tell
            structlog.get_logger().warning("the databases could not be checked", reason=str(failure))
            return
        self._damaged, self._reported = tuple(found), ""
        if not quick:
            self._checked = self._clock.now()
        for each in self._damaged:
            if each not in known:
                structlog.get_logger().error("a database is damaged", reason=each.sentence)


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
