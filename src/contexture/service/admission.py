"""Admission control: limits on running and waiting requests per lane, and a time limit for each request.

Requests beyond the limits are answered with 503 or 429.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contexture.config import Settings
from contexture.errors import ContextError, Overloaded, SourceTimeout, TooManyRequests
from contexture.service.auth import MODEL_ROUTES, Identity, is_public_path
from contexture.service.error_responses import error_response

_INGEST_PREFIX = "/v1/ingest/"
_BATCH_ROUTES = frozenset({"/memory/remember/batch"})  # another name of `/v1/ingest/memories`


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """One kind of request: how many run at once, how many wait for a slot, and the time limit of each."""

    name: str
    max_running: int
    max_waiting: int
    timeout_seconds: float


class Slots:
    """The slots of one lane, assigned first come, first served."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.in_flight = 0
        self._free = asyncio.Semaphore(lane.max_running)

    def refusal(self) -> Overloaded | None:
        """Return the error for one more request; None while there is a free slot or room in the queue."""
        if self.in_flight < self.lane.max_running + self.lane.max_waiting:
            return None
        return Overloaded(f"the limit of {self.in_flight} concurrent requests is reached; retry later")

    @asynccontextmanager
    async def acquire(self) -> AsyncGenerator[None]:
        """Hold a slot, waiting until one is free; raises `Overloaded` if the queue is full."""
        if (refusal := self.refusal()) is not None:
            raise refusal
        self.in_flight += 1
        try:
            async with self._free:
                yield
        finally:
            self.in_flight -= 1


class LaneSlots:
    """The slots of every lane, and the number of requests that were shed.

    Adds `contexture_http_shed_total` and `contexture_http_inside` to a registry.
    """

    def __init__(self, settings: Settings, registry: CollectorRegistry) -> None:
        self._slots = {lane.name: Slots(lane) for lane in make_lanes(settings)}
        self._shed = prometheus_client.Counter(
            "contexture_http_shed_total", "Rejected requests.", ("lane", "reason"), registry=registry
        )
        inside = Gauge("contexture_http_inside", "Requests in progress or waiting.", ("lane",), registry=registry)
        for name, slots in self._slots.items():
            inside.labels(name).set_function(lambda slots=slots: float(slots.in_flight))

    def for_path(self, path: str) -> Slots:
        """Return the slots for requests of a path."""
        return self._slots[lane_name(path)]

    def count_shed(self, lane: Lane, refusal: ContextError) -> None:
        """Count a request that was shed."""
        self._shed.labels(lane.name, _SHED_REASONS[type(refusal)]).inc()


class AdmissionMiddleware:
    """Refuses a request before any work is done for it, while its lane and queue are full.

    Under overload most requests are refused, and the cost of refusing them reduces what is left for the others.
    """

    def __init__(self, app: ASGIApp, *, lanes: LaneSlots) -> None:
        self._app = app
        self._lanes = lanes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "http" and not is_public_path(scope["path"]):
            slots = self._lanes.for_path(scope["path"])
            if (refusal := slots.refusal()) is not None:
                self._lanes.count_shed(slots.lane, refusal)
                await error_response(refusal, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class ConcurrencyMiddleware:
    """Runs each request in a slot of its lane, within the lane's time limit and the caller's own limit.

    Requests that call a model, requests that load data, and all others have separate slots, so that none of these
    groups blocks another. Beyond the limits the answer is 503, or 429 for a caller with too many running requests, both
    with `Retry-After`.
    """

    def __init__(self, app: ASGIApp, *, lanes: LaneSlots, most: int) -> None:
        self._app = app
        self._most = most
        self._callers: Counter[tuple[str, str]] = Counter()
        self._lanes = lanes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process the request when a slot is free."""
        if scope["type"] != "http" or is_public_path(scope["path"]):
            await self._app(scope, receive, send)
            return
        slots = self._lanes.for_path(scope["path"])
        sent = _SendTracker(send)
        limit = asyncio.timeout(slots.lane.timeout_seconds)
        try:
            async with self._count_caller(scope), limit, slots.acquire():
                await self._app(scope, receive, sent)
        except (TooManyRequests, Overloaded) as refusal:
            await self._send_refusal(refusal, slots, scope, receive, sent)
        except TimeoutError:
            if not limit.expired():
                raise
            late = SourceTimeout(f"the request took more than {slots.lane.timeout_seconds:g} seconds and was cancelled")
            await self._send_refusal(late, slots, scope, receive, sent)

    async def _send_refusal(
        self, refusal: ContextError, slots: Slots, scope: Scope, receive: Receive, sent: _SendTracker
    ) -> None:
        self._lanes.count_shed(slots.lane, refusal)
        if not sent.begun:  # otherwise the connection is closed, so that the client sees an incomplete answer
            await error_response(refusal, scope)(scope, receive, sent)

    @asynccontextmanager
    async def _count_caller(self, scope: Scope) -> AsyncGenerator[None]:
        """Refuse a caller with too many running requests; callers without a key are not told apart."""
        identity: Identity | None = scope.get("state", {}).get("identity")
        if identity is None or identity.scope is None:
            yield
            return
        caller = identity.scope.tenant, identity.scope.user
        if self._callers[caller] >= self._most:
            raise TooManyRequests(f"you have {self._most} requests in progress, which is the limit per user")
        self._callers[caller] += 1
        try:
            yield
        finally:
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]


_SHED_REASONS: Mapping[type[ContextError], str] = {
    TooManyRequests: "caller",
    Overloaded: "full",
    SourceTimeout: "timeout",
}


class _SendTracker:
    """Passes messages on and records whether a response has started."""

    def __init__(self, send: Send) -> None:
        self.begun = False
        self._send = send

    async def __call__(self, message: Message) -> None:
        self.begun = True
        await self._send(message)


def lane_name(path: str) -> str:
    """The name of the lane that a path belongs to."""
    if path in MODEL_ROUTES:
        return "answers"
    return "loads" if path.startswith(_INGEST_PREFIX) or path in _BATCH_ROUTES else "requests"


def make_lanes(settings: Settings) -> tuple[Lane, ...]:
    """Return the lanes from the settings."""
    kinds = (
        ("requests", settings.max_requests, settings.request_timeout_seconds),
        ("answers", settings.max_answers, settings.answer_timeout_seconds),
        ("loads", settings.max_loads, settings.load_timeout_seconds),
    )
    waiting = settings.max_waiting
    return tuple(
        Lane(name=name, max_running=most, max_waiting=waiting, timeout_seconds=seconds) for name, most, seconds in kinds
    )
