"""ASGI middleware: body limits, request metrics and logs, and CORS."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import structlog
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contexture.config import Settings
from contexture.errors import InvalidRequest
from contexture.service.auth import GROUPS_HEADER, TENANT_HEADER, USER_HEADER
from contexture.service.error_responses import CORRELATION_HEADER, TOO_LARGE, TOO_SLOW, error_response

_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_QUOTE = ord('"')
_INLINE_BYTES = 2**18  # searched for brackets in 5 ms; in a larger body a thread does it, whose steps others interrupt


class BodyLimitMiddleware:
    """Answers 413 to bodies larger than `max_body_bytes`, whatever their headers say, and 408 to slow ones.

    JSON nested deeper than `max_json_depth` is answered with 422 before it is parsed.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self._app = app
        self._largest = settings.max_body_bytes
        self._deepest = settings.max_json_depth
        self._seconds = settings.request_timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read_body(Headers(scope=scope), receive)
        except _BodyRefused as refusal:
            await error_response(InvalidRequest(str(refusal)), scope, status=refusal.status)(scope, receive, send)
        except ClientDisconnect:
            return
        else:
            await self._app(scope, _replay_body(body, receive), send)

    async def _read_body(self, headers: Headers, receive: Receive) -> bytes:
        promised = headers.get("content-length", "")
        if promised.isascii() and promised.isdigit() and int(promised[:20]) > self._largest:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._read_chunks(receive)
        except TimeoutError:
            raise _BodyRefused(f"the body did not arrive within {self._seconds:g} seconds", TOO_SLOW) from None
        if await self._is_too_deep(body):
            raise _BodyRefused(f"the body is nested more than {self._deepest} levels deep", None)
        return body

    async def _is_too_deep(self, body: bytes) -> bool:
        if len(body) <= _INLINE_BYTES:
            return is_nested_deeper(body, self._deepest)
        return await asyncio.to_thread(is_nested_deeper, body, self._deepest)

    async def _read_chunks(self, receive: Receive) -> bytes:
        pieces: list[bytes] = []
        read, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
            read += len(pieces[-1])
            if read > self._largest:
                raise self._too_large()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _too_large(self) -> _BodyRefused:
        told = f"the body is larger than {self._largest} bytes (CONTEXTURE_MAX_BODY_BYTES); send it in parts"
        return _BodyRefused(told, TOO_LARGE)


class _BodyRefused(Exception):
    """A body that is not read to its end; `status` is the HTTP status."""

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


def is_nested_deeper(body: bytes, most: int) -> bool:
    """Whether JSON has more than `most` nested lists and objects; found without parsing."""
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    level = 0
    for found in _STRING_OR_BRACKET.finditer(body):
        sign = body[found.start()]
        if sign != _QUOTE:
            level += 1 if sign in b"[{" else -1
            if level > most:
                return True
    return False


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that yields the body already read, then passes on further messages."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


_UNMATCHED = "unmatched"
_UNLOGGED_ROUTES = frozenset({"/health", "/ready", "/metrics"})  # polled every few seconds, not worth logging
_SECONDS_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class MetricsMiddleware:
    """Adds `contexture_http_requests_total` and `contexture_http_request_seconds` to a registry."""

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
