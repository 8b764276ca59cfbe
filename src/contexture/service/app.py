"""The HTTP service over one engine: the application, and how it is served."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import structlog
from fastapi import APIRouter, Depends, FastAPI
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contexture import wiring
from contexture.announcement import ServiceAnnouncement, announce_service, make_token
from contexture.builders.plugin import BuilderPlugin
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.errors import InvalidRequest
from contexture.ports import Bus, Clock, KeyStore
from contexture.service import auth
from contexture.service._admission import AdmissionMiddleware, ConcurrencyMiddleware, LaneSlots
from contexture.service._body_limits import BodyLimitMiddleware
from contexture.service._error_responses import CORRELATION_HEADER, CorrelationMiddleware, add_error_handlers
from contexture.service._gateway import Gateway
from contexture.service._jobs import IngestJobs
from contexture.service._openapi import collect_components, describe_open_routes, describe_operations
from contexture.service.routes import (
    blocks,
    chat,
    contexts,
    forget,
    ingest,
    memory,
    playground,
    records,
    status,
    workspace,
)
from contexture.service.routes.status import IntegrityMonitor, Readiness
from contexture.service.server import run_app, socket_url
from contexture.service.wire.schemas import ERROR_RESPONSES, describe_answers

_UNMATCHED = "unmatched"
_UNLOGGED_ROUTES = frozenset({"/health", "/ready", "/metrics"})  # polled every few seconds, not worth logging
_SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class MetricsMiddleware:
    """Adds `contexture_http_requests_total` and `contexture_http_request_seconds` to a registry.

    Requests that were shed before their body was read are neither logged nor counted here: under overload they are the
    most, and `contexture_http_shed_total` counts them.
    """

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry) -> None:
        self._app = app
        self._requests = Counter(
            "contexture_http_requests_total", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "contexture_http_request_seconds",
            "Time until the response is complete.",
            ("method", "route"),
            buckets=_SECONDS_BUCKETS,
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process the request and record its outcome."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = "500"  # the server's answer if nothing was sent

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        start = time.perf_counter()
        try:
            await self._app(scope, receive, send_and_note_status)
        finally:
            if not scope.get("state", {}).get("shed"):
                self._record(_method_label(scope), _route_label(scope), status, time.perf_counter() - start)

    def _record(self, method: str, route: str, status: str, seconds: float) -> None:
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)
        if route not in _UNLOGGED_ROUTES:
            structlog.get_logger().info(
                "request", method=method, route=route, status=int(status), ms=round(seconds * 1_000, 1)
            )


def _method_label(scope: Scope) -> str:
    known = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
    return scope["method"] if scope["method"] in known else "other"


def _route_label(scope: Scope) -> str:
    found: Any = scope.get("route")
    return getattr(found, "path", _UNMATCHED)


_ALLOWED_HEADERS = (
    "Authorization",
    "Content-Type",
    CORRELATION_HEADER,
    auth.TENANT_HEADER,
    auth.USER_HEADER,
    auth.GROUPS_HEADER,
    auth.TENANT_ALIAS_HEADER,
    "X-Contexture-Session",
)
_EXPOSED_HEADERS = (CORRELATION_HEADER, "Location", "Retry-After", "Server-Timing")


def add_cors(app: FastAPI, origins: Sequence[str]) -> None:
    """Allow pages of these origins to call (CORS); without any, browsers block all other pages."""
    if not origins:
        return
    for origin in origins:
        _check_cors_origin(origin)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["GET", "POST", "PATCH", "DELETE"],
        allow_headers=list(_ALLOWED_HEADERS),
        expose_headers=list(_EXPOSED_HEADERS),
    )


def _check_cors_origin(origin: str) -> None:
    """Refuse anything but a single origin: a wildcard would let any web page call a service without keys."""
    parts = urlsplit(origin)
    if parts.scheme not in {"http", "https"} or origin != f"{parts.scheme}://{parts.netloc}" or "*" in origin:
        raise InvalidRequest(
            f"CONTEXTURE_CORS_ORIGINS contains {origin!r}, which is not an origin such as 'https://app.example'"
        )


ROUTES = (
    status.router,
    records.search_routes,
    contexts.ask_routes,
    contexts.query_routes,
    contexts.turn_routes,
    contexts.command_routes,
    contexts.workspace_routes,
    contexts.execute_routes,
    chat.chat_routes,
    chat.replies_routes,
    chat.openai_routes,
    contexts.builds_routes,
    ingest.documents_routes,
    ingest.articles_routes,
    workspace.router,
    blocks.router,
    memory.router,
    contexts.research_routes,
    records.page_image_routes,
    records.page_region_routes,
    contexts.capsules_routes,
    records.record_routes,
    forget.router,
)


def create_app(
    engine: Contexture,
    *,
    keys: KeyStore | None,
    settings: Settings,
    token: str = "",
    members: Mapping[str, tuple[str, ...]] | None = None,
    clock: Clock | None = None,
    bus: Bus | None = None,
    builders: Sequence[BuilderPlugin[Any]] = (),
) -> FastAPI:
    """Create the application over an open engine, which it does not close.

    `keys` authenticate callers; with None anyone on this machine may call, as long as `settings.host` is a loopback
    address. `token` is what the local command line presents. `members` are the groups of users who name none; if given,
    this is a demonstration: the playground offers these users and can break the memory service, and anyone on this
    machine is answered until the first key is added. Messages for workers are published to `bus`. `builders` are
    those of other packages. The warm-up starts with the application and continues while it accepts requests.
    """
    app = _ServiceApp(
        title="Contexture",
        version=version("contexture-ai"),
        routes=[*_protected_routes(demonstration=members is not None), *_plugin_routes(builders)],
        lifespan=_lifespan,
        redoc_url=None,
    )
    callers = auth.Authenticator(
        keys=keys, settings=settings, clock=clock or wiring.SystemClock(), token=token, members=members
    )
    registry = CollectorRegistry()
    app.state.engine = engine
    app.state.callers = callers
    app.state.gateway = Gateway(bus, settings.bus_inbound)
    app.state.registries = (registry, engine.registry)
    app.state.readiness = Readiness(engine)
    app.state.integrity = IntegrityMonitor(settings, engine.clock)
    app.state.jobs = IngestJobs(engine.clock, settings, engine.requests)
    add_error_handlers(app)
    app.include_router(playground.playground_routes(members or {}))
    lanes = LaneSlots(settings, registry)
    # The middleware added last sees a request first.
    app.add_middleware(ConcurrencyMiddleware, lanes=lanes, requests=engine.requests)
    app.add_middleware(BodyLimitMiddleware, settings=settings, lanes=lanes)
    app.add_middleware(AdmissionMiddleware, settings=settings, lanes=lanes)
    app.add_middleware(auth.AuthMiddleware, callers=callers, keyed=settings.keyed_routes)
    app.add_middleware(MetricsMiddleware, registry=registry)
    app.add_middleware(CorrelationMiddleware)
    # CORS is outermost: a page can read a refusal, and preflight requests are always answered.
    add_cors(app, settings.cors_origins)
    return app


class _ServiceApp(FastAPI):
    """The application; its OpenAPI document describes bodies by the models that parse them, answers by their types."""

    def openapi(self) -> dict[str, Any]:
        """Return the document, made once."""
        if self.openapi_schema is None:
            document = describe_answers(describe_operations(collect_components(super().openapi())))
            settings: Settings = self.state.engine.settings
            self.openapi_schema = describe_open_routes(document, auth.PUBLIC_PATHS - set(settings.keyed_routes))
        return self.openapi_schema


@cache
def _protected_routes(*, demonstration: bool) -> tuple[BaseRoute, ...]:
    """Return the routes that check rights; they hold no engine and are created once, because that takes long."""
    router = _protected_router()
    for make in (*ROUTES, playground.demo_routes) if demonstration else ROUTES:
        router.include_router(make())
    return tuple(router.routes)


def _plugin_routes(builders: Sequence[BuilderPlugin[Any]]) -> list[BaseRoute]:
    router = _protected_router()
    router.include_router(contexts.plugin_routes(builders))
    return router.routes


def _protected_router() -> APIRouter:
    return APIRouter(dependencies=[Depends(auth.check_rights), Depends(auth.BEARER_SCHEME)], responses=ERROR_RESPONSES)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    engine: Contexture = app.state.engine
    readiness: Readiness = app.state.readiness
    integrity: IntegrityMonitor = app.state.integrity
    if not wiring.is_policy_configured(engine.settings):
        structlog.get_logger().warning(
            "no policy is configured: everything inside a caller's scope is allowed", setting="CONTEXTURE_POLICY_FOLDER"
        )
    if lacking := wiring.missing_ocr_library():
        structlog.get_logger().warning("scanned pages are stored without their text", reason=lacking)
    background = [asyncio.create_task(readiness.warm_up()), asyncio.create_task(integrity.run())]
    try:
        yield
    finally:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await app.state.jobs.close()


async def serve(
    engine: Contexture,
    *,
    settings: Settings,
    keys: KeyStore,
    bound: socket.socket,
    members: Mapping[str, tuple[str, ...]] | None = None,
    started: Callable[[str], None] = lambda _: None,
    bus: Bus | None = None,
) -> None:
    """Serve requests on `bound` until SIGTERM or SIGINT; running requests are finished first.

    While it runs, `serve.json` beside the store contains its address. `started` is called with the URL once it can be
    reached. Messages for workers are published to `bus`.
    """
    _ = engine.chat  # a model that cannot be loaded fails now, not at the first request
    wiring.log_broken_plugins()
    token = make_token()
    app = create_app(
        engine,
        keys=keys,
        settings=settings,
        token=token,
        members=members,
        bus=bus,
        builders=wiring.load_other_builders(),
    )
    with announce_service(settings.home, ServiceAnnouncement(pid=os.getpid(), url=socket_url(bound), token=token)):
        await run_app(app, bound, started, grace=settings.shutdown_seconds)
