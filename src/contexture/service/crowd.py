"""How many requests are worked on at once, how many wait, and how long each may take; the others are sent away."""

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
from contexture.service.callers import Identity, answers_anyone
from contexture.service.problems import problem
from contexture.service.rights import ASKS

_LOADS = "/v1/ingest/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """Requests of one kind: how many are worked on at once, how many wait behind them, and how long each may take."""

    name: str
    most: int
    waiting: int
    seconds: float


class Places:
    """The places of one lane, given in the order in which they were asked for."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.inside = 0
        self._free = asyncio.Semaphore(lane.most)

    def refusal(self) -> Overloaded | None:
        """What is said to one more; None while there is a place, or room to wait for one."""
        if self.inside < self.lane.most + self.lane.waiting:
            return None
        return Overloaded(f"{self.inside} requests are under way here, which is all we take; try again soon")

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[None]:
        """A place, once there is one; raises at once when as many wait already as may."""
        if (refusal := self.refusal()) is not None:
            raise refusal
        self.inside += 1
        try:
            async with self._free:
                yield
        finally:
            self.inside -= 1


class Lanes:
    """The places of every kind of request, and how many were sent away.

    Adds `contexture_http_shed_total` and `contexture_http_inside` to a registry.
    """

    def __init__(self, settings: Settings, registry: CollectorRegistry) -> None:
        self._places = {lane.name: Places(lane) for lane in lanes(settings)}
        self._shed = prometheus_client.Counter(
            "contexture_http_shed_total", "Requests that were sent away.", ("lane", "reason"), registry=registry
        )
        inside = Gauge(
            "contexture_http_inside", "Requests that are worked on or wait for it.", ("lane",), registry=registry
        )
        for name, places in self._places.items():
            inside.labels(name).set_function(lambda places=places: float(places.inside))

    def of(self, path: str) -> Places:
        """The places for requests of a path."""
        return self._places[lane_of(path)]

    def shed(self, lane: Lane, refusal: ContextError) -> None:
        """Count a request that was sent away."""
        self._shed.labels(lane.name, _REASONS[type(refusal)]).inc()


class Door:
    """Sends requests away before anything is done for them, while every place of theirs is taken.

    Under a flood most are; what each of them costs is taken from those that are served.
    """

    def __init__(self, app: ASGIApp, *, lanes: Lanes) -> None:
        self._app = app
        self._lanes = lanes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request in, or answer it."""
        if scope["type"] == "http" and not answers_anyone(scope["path"]):
            places = self._lanes.of(scope["path"])
            if (refusal := places.refusal()) is not None:
                self._lanes.shed(places.lane, refusal)
                await problem(refusal, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Crowd:
    """Gives each request a place and a time limit.

    Those that wait for a model, those that load data and all others have places of their own, so that none of them
    keeps the others waiting. Beyond them 503 is answered, and 429 to a caller who has too many under way, both with
    `Retry-After`.
    """

    def __init__(self, app: ASGIApp, *, lanes: Lanes, most: int) -> None:
        self._app = app
        self._most = most
        self._callers: Counter[tuple[str, str]] = Counter()
        self._lanes = lanes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Work on the request when there is a place for it."""
        if scope["type"] != "http" or answers_anyone(scope["path"]):
            await self._app(scope, receive, send)
            return
        places = self._lanes.of(scope["path"])
        sent = _Sent(send)
        limit = asyncio.timeout(places.lane.seconds)
        try:
            async with self._counted(scope), limit, places.one():
                await self._app(scope, receive, sent)
        except (TooManyRequests, Overloaded) as refusal:
            await self._refused(refusal, places, scope, receive, sent)
        except TimeoutError:
            if not limit.expired():
                raise
            late = SourceTimeout(f"this took more than {places.lane.seconds:g} seconds and was stopped")
            await self._refused(late, places, scope, receive, sent)

    async def _refused(
        self, refusal: ContextError, places: Places, scope: Scope, receive: Receive, sent: _Sent
    ) -> None:
        self._lanes.shed(places.lane, refusal)
        if not sent.begun:  # else the connection is closed in the middle of the answer, which nobody takes for its end
            await problem(refusal, scope)(scope, receive, sent)

    @asynccontextmanager
    async def _counted(self, scope: Scope) -> AsyncGenerator[None]:
        """Refuse a caller who has too many requests under way; those who need no key are not told apart."""
        identity: Identity | None = scope.get("state", {}).get("identity")
        if identity is None or identity.scope is None:
            yield
            return
        caller = identity.scope.tenant, identity.scope.user
        if self._callers[caller] >= self._most:
            raise TooManyRequests(f"you have {self._most} requests under way, which is all we take of one user")
        self._callers[caller] += 1
        try:
            yield
        finally:
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]


_REASONS: Mapping[type[ContextError], str] = {
    TooManyRequests: "caller",
    Overloaded: "full",
    SourceTimeout: "timeout",
}


class _Sent:
    """Passes messages on and remembers whether an answer has begun."""

    def __init__(self, send: Send) -> None:
        self.begun = False
        self._send = send

    async def __call__(self, message: Message) -> None:
        self.begun = True
        await self._send(message)


def lane_of(path: str) -> str:
    """The name of the lane that a path belongs to."""
    return "answers" if path in ASKS else "loads" if path.startswith(_LOADS) else "requests"


def lanes(settings: Settings) -> tuple[Lane, ...]:
    """The lanes as the settings have them."""
    kinds = (
        ("requests", settings.max_requests, settings.request_timeout_seconds),
        ("answers", settings.max_answers, settings.answer_timeout_seconds),
        ("loads", settings.max_loads, settings.load_timeout_seconds),
    )
    waiting = settings.max_waiting
    return tuple(Lane(name=name, most=most, waiting=waiting, seconds=seconds) for name, most, seconds in kinds)
