"""The HTTP service over one engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

import structlog
from fastapi import APIRouter, Depends, FastAPI
from prometheus_client import CollectorRegistry
from starlette.routing import BaseRoute

from contexture.adapters.keys import ApiKeys
from contexture.adapters.policy.open import OpenPolicy
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.ports import Bus, Clock
from contexture.service import error_responses
from contexture.service.admission import AdmissionMiddleware, ConcurrencyMiddleware, LaneSlots
from contexture.service.auth import BEARER_SCHEME, Authenticator, AuthMiddleware, check_rights
from contexture.service.error_responses import CorrelationMiddleware
from contexture.service.gateway import Gateway
from contexture.service.middleware import BodyLimitMiddleware, MetricsMiddleware, add_cors
from contexture.service.openapi import collect_components
from contexture.service.routes import blocks, chat, contexts, ingest, memory, playground, records, status
from contexture.service.routes.status import Readiness
from contexture.service.wire.schemas import ERROR_RESPONSES, describe_answers
from contexture.wiring import SystemClock
from contexture.wiring.content import missing_ocr_library

ROUTES = (
    status.router,
    records.search_routes,
    contexts.query_routes,
    contexts.turn_routes,
    contexts.command_routes,
    contexts.workspace_routes,
    contexts.execute_routes,
    chat.chat_routes,
    chat.replies_routes,
    chat.completions_routes,
    contexts.builds_routes,
    ingest.documents_routes,
    ingest.articles_routes,
    blocks.router,
    memory.router,
    contexts.research_routes,
    records.page_image_routes,
    records.page_region_routes,
    contexts.capsules_routes,
    records.record_routes,
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
    """Create the application over an open engine, which it does not close.

    `keys` authenticate callers; with None anyone on this machine may call, as long as `settings.host` is a loopback
    address. `token` is what the local command line presents. `members` are the groups of users who name none; if given,
    this is a demonstration: the playground offers these users and can break the memory service, and anyone on this
    machine is answered until the first key is added. Messages for workers are published to `bus`. The warm-up starts
    with the application and continues while it accepts requests.
    """
    app = _ServiceApp(
        title="Contexture",
        version=version("contexture"),
        routes=list(_protected_routes(demonstration=members is not None)),
        lifespan=_lifespan,
        redoc_url=None,
    )
    callers = Authenticator(keys=keys, settings=settings, clock=clock or SystemClock(), token=token, members=members)
    registry = CollectorRegistry()
    app.state.engine = engine
    app.state.callers = callers
    app.state.gateway = Gateway(bus, settings.bus_inbound)
    app.state.registries = (registry, engine.registry)
    app.state.readiness = Readiness(engine)
    error_responses.add_error_handlers(app)
    app.include_router(playground.playground_routes(members or {}))
    lanes = LaneSlots(settings, registry)
    # The middleware added last sees a request first.
    app.add_middleware(ConcurrencyMiddleware, lanes=lanes, most=settings.max_per_caller)
    app.add_middleware(BodyLimitMiddleware, settings=settings)
    app.add_middleware(AuthMiddleware, callers=callers)
    app.add_middleware(MetricsMiddleware, registry=registry)
    app.add_middleware(CorrelationMiddleware)
    app.add_middleware(AdmissionMiddleware, lanes=lanes)
    # CORS is outermost: a page can read a refusal, and preflight requests are always answered.
    add_cors(app, settings.cors_origins)
    return app


class _ServiceApp(FastAPI):
    """The application; its OpenAPI document describes bodies by the models that parse them, answers by their types."""

    def openapi(self) -> dict[str, Any]:
        """Return the document, made once."""
        if self.openapi_schema is None:
            self.openapi_schema = describe_answers(collect_components(super().openapi()))
        return self.openapi_schema


@cache
def _protected_routes(*, demonstration: bool) -> tuple[BaseRoute, ...]:
    """Return the routes that check rights; they hold no engine and are created once, because that takes long."""
    router = APIRouter(dependencies=[Depends(check_rights), Depends(BEARER_SCHEME)], responses=ERROR_RESPONSES)
    for make in (*ROUTES, playground.demo_routes) if demonstration else ROUTES:
        router.include_router(make())
    return tuple(router.routes)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    engine: Contexture = app.state.engine
    readiness: Readiness = app.state.readiness
    if isinstance(engine.policy, OpenPolicy):
        structlog.get_logger().warning(
            "no policy is configured: everything inside a caller's scope is allowed", setting="CONTEXTURE_POLICY_FOLDER"
        )
    if lacking := missing_ocr_library():
        structlog.get_logger().warning("scanned pages are stored without their text", reason=lacking)
    warming = asyncio.create_task(readiness.warm_up())
    try:
        yield
    finally:
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)
