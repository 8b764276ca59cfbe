"""The HTTP service over one engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version

import structlog
from fastapi import APIRouter, Depends, FastAPI
from prometheus_client import CollectorRegistry
from starlette.routing import BaseRoute

from contexture.adapters.keys import ApiKeys
from contexture.adapters.policy.open import OpenPolicy
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.ports import Bus, Clock
from contexture.service import problems
from contexture.service.callers import Callers, Gate
from contexture.service.correlation import Correlation
from contexture.service.crowd import Crowd, Door, Lanes
from contexture.service.gateway import Gateway
from contexture.service.limits import BodyLimit
from contexture.service.measured import Measured
from contexture.service.origins import install as install_origins
from contexture.service.readiness import Readiness
from contexture.service.rights import BEARER, check_rights
from contexture.service.routes import (
    articles,
    blocks,
    builds,
    capsules,
    chat,
    command,
    commands,
    completions,
    demo,
    documents,
    memory,
    page_images,
    page_regions,
    playground,
    query,
    records,
    replies,
    research,
    search,
    status,
    turn,
    workspace,
)
from contexture.service.wire.parts import PROBLEMS
from contexture.wiring import SystemClock
from contexture.wiring.documents import missing_for_ocr

ROUTES = (
    status,
    search,
    query,
    turn,
    command,
    workspace,
    commands,
    chat,
    replies,
    completions,
    builds,
    documents,
    articles,
    blocks,
    memory,
    research,
    page_images,
    page_regions,
    capsules,
    records,
)


def create_app(
    engine: Contexture,
    *,
    keys: ApiKeys | None,
    settings: Settings,
    token: str = "",
    members: Mapping[str, tuple[str, ...]] | None = None,
    clock: Clock | None = None,
    bus: Bus | None = None,
) -> FastAPI:
    """The application over an open engine, which it does not close.

    `keys` say who may call; with None anyone on this machine may, as long as `settings.host` is a loopback address.
    `token` is what the local command line presents, and `members` are the groups of users who name none: with them,
    this is a demonstration, whose users the playground offers and whose memory service it can break, and which
    answers anyone on this machine before the first key is added. On `bus` messages are handed over to workers. The
    warm-up starts with the application and goes on while it listens.
    """
    app = FastAPI(
        title="Contexture",
        version=version("contexture"),
        routes=list(_guarded(demonstration=members is not None)),
        lifespan=_lifespan,
        redoc_url=None,
    )
    callers = Callers(keys=keys, settings=settings, clock=clock or SystemClock(), token=token, members=members)
    registry = CollectorRegistry()
    app.state.engine = engine
    app.state.callers = callers
    app.state.gateway = Gateway(bus, settings.bus_inbound)
    app.state.registries = (registry, engine.registry)
    app.state.readiness = Readiness(engine)
    problems.install(app)
    app.include_router(playground.router(members or {}))
    lanes = Lanes(settings, registry)
    # The last one added is the first to see a request.
    app.add_middleware(Crowd, lanes=lanes, most=settings.max_per_caller)
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(Gate, callers=callers)
    app.add_middleware(Measured, registry=registry)
    app.add_middleware(Correlation)
    app.add_middleware(Door, lanes=lanes)
    # Outside the door: a page is let read that it was sent away, and its browser may always ask whether it may call.
    install_origins(app, settings.cors_origins)
    return app


@cache
def _guarded(*, demonstration: bool) -> tuple[BaseRoute, ...]:
    """The routes that check rights; they hold no engine, and are made once, for that takes longer than all the rest."""
    router = APIRouter(dependencies=[Depends(check_rights), Depends(BEARER)], responses=PROBLEMS)
    for group in (*ROUTES, demo) if demonstration else ROUTES:
        router.include_router(group.router())
    return tuple(router.routes)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    engine: Contexture = app.state.engine
    readiness: Readiness = app.state.readiness
    if isinstance(engine.policy, OpenPolicy):
        structlog.get_logger().warning(
            "no policy is configured: everything inside a caller's scope is allowed", setting="CONTEXTURE_POLICY_FOLDER"
        )
    if lacking := missing_for_ocr():
        structlog.get_logger().warning("scanned pages are stored without their words", reason=lacking)
    warming = asyncio.create_task(readiness.warm())
    try:
        yield
    finally:
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)
