"""Counts, times and logs requests by route; paths that callers make up share one label."""

from __future__ import annotations

import time
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NOWHERE = "unmatched"
_WATCHED = frozenset({"/health", "/ready", "/metrics"})  # asked every few seconds, and nothing to learn from
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Measured:
    """Adds `contexture_http_requests_total` and `contexture_http_request_seconds` to a registry."""

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry) -> None:
        self._app = app
        self._requests = Counter(
            "contexture_http_requests_total", "Requests answered.", ("method", "route", "status"), registry=registry
        )
        self._seconds = Histogram(
            "contexture_http_request_seconds",
            "Time until an answer was complete.",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request and note how it ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = "500"  # what the server answers when nothing was sent

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        start = time.perf_counter()
        try:
            await self._app(scope, receive, noted)
        finally:
            self._note(_method(scope), _route(scope), status, time.perf_counter() - start)

    def _note(self, method: str, route: str, status: str, seconds: float) -> None:
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)
        if route not in _WATCHED:
            structlog.get_logger().info(
                "request", method=method, route=route, status=int(status), ms=round(seconds * 1_000, 1)
            )


def _method(scope: Scope) -> str:
    known = {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
    return scope["method"] if scope["method"] in known else "other"


def _route(scope: Scope) -> str:
    found: Any = scope.get("route")
    return getattr(found, "path", _NOWHERE)
