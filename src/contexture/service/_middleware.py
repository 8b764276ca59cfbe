"""ASGI middleware: request metrics and logs, and CORS."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import structlog
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contexture.errors import InvalidRequest
from contexture.service._error_responses import CORRELATION_HEADER
from contexture.service.auth import GROUPS_HEADER, TENANT_HEADER, USER_HEADER

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


_ALLOWED_HEADERS = ("Authorization", "Content-Type", CORRELATION_HEADER, TENANT_HEADER, USER_HEADER, GROUPS_HEADER)
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
        allow_methods=["GET", "POST", "DELETE"],
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
