"""Admission control: running and waiting requests per lane, shared fairly between tenants, and time limits.

Requests beyond the limits are answered with 503 or 429.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from math import floor
from time import monotonic
from typing import NamedTuple, cast

import prometheus_client
from prometheus_client import CollectorRegistry, Gauge
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contexture.config import Settings
from contexture.errors import ContextError, Overloaded, SourceTimeout, TooManyRequests
from contexture.retrieval.compute_thread import RequestsInProgress
from contexture.service._error_responses import error_response
from contexture.service.auth import MODEL_ROUTES, TENANT_HEADER, USER_HEADER, Identity, is_public_path

PRESENT_SECONDS = 10.0
"""So long after its last request a tenant counts as present."""

REFUSAL_SECONDS = 0.25
"""So long an overload is not answered while another tenant is present.

A client that sends the next request as soon as one is refused would otherwise use the processor for refusals alone.
"""

MAX_DELAYED = 1_024
"""So many refusals are delayed at once; any further one is sent immediately."""

_INGEST_PREFIX = "/v1/ingest/"
_BATCH_ROUTES = frozenset({"/memory/remember/batch"})  # another name of `/v1/ingest/memories`


class Caller(NamedTuple):
    """Whose share of the slots and bytes a request uses."""

    tenant: str
    user: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """One kind of request: how many run at once, how many wait for a slot, and the time limit of each.

    `share` is how many of one tenant run while others are present too. `reserve` are further slots, for tenants without
    a running request only.
    """

    name: str
    max_running: int
    max_waiting: int
    timeout_seconds: float
    share: int
    reserve: int = 0


@dataclass(eq=False, slots=True)
class _Ticket:
    """A request that waits for a slot; `granted` ends with the slot, or with `Overloaded`."""

    caller: Caller
    granted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Presence:
    """Which tenants have sent a request in the last seconds.

    A processor is shared by all that runs: those who wait for nobody are still slowed down by somebody's many requests.
    """

    def __init__(self, seconds: float = PRESENT_SECONDS) -> None:
        self._seconds = seconds
        self._last: dict[str, float] = {}  # by tenant, in order of time

    def note(self, tenant: str) -> None:
        """Note a request of a tenant now."""
        self._last.pop(tenant, None)
        self._last[tenant] = monotonic()

    def is_alone(self, tenant: str) -> bool:
        """Whether no other tenant has sent a request lately."""
        since = monotonic() - self._seconds
        while self._last and (oldest := next(iter(self._last.items())))[1] < since:
            del self._last[oldest[0]]
        return not self._last.keys() - {tenant}


class Slots:
    """The slots of one lane, shared fairly between tenants, and inside a tenant between its users.

    A lone tenant may use all slots, and one that is not alone its share of them. A free slot goes to the waiting tenant
    with the fewest running requests, in it to such a user, then to whoever came first. A tenant without a running
    request may use the lane's reserve, so that it does not wait for the long requests of others; while a tenant is
    alone in the lane, this holds for its users. When the queue is full, a request replaces the newest waiting one of a
    tenant that has at least two more in the lane.
    """

    def __init__(self, lane: Lane, presence: Presence | None = None) -> None:
        self.lane = lane
        self._presence = presence or Presence()
        self._waiting: list[_Ticket] = []  # in order of arrival
        self._running: Counter[Caller] = Counter()
        self._running_by_tenant: Counter[str] = Counter()

    @property
    def in_flight(self) -> int:
        """Number of requests that run or wait."""
        return self._running.total() + len(self._waiting)

    def refusal(self, caller: Caller) -> Overloaded | None:
        """Return the error for one more request of a caller; None while it could run or wait."""
        self._presence.note(caller.tenant)
        if self._has_slot(caller) or self._has_queue_space() or self._ticket_to_replace(caller) is not None:
            return None
        return self._make_overloaded()

    @asynccontextmanager
    async def acquire(self, caller: Caller) -> AsyncGenerator[None]:
        """Hold a slot, waiting until one is free; raises `Overloaded` if the queue is full or the place is lost."""
        self._presence.note(caller.tenant)
        if self._has_slot(caller):
            self._start(caller)
        else:
            await self._wait(caller)
        try:
            yield
        finally:
            self._finish(caller)

    async def _wait(self, caller: Caller) -> None:
        if not self._has_queue_space():
            replaced = self._ticket_to_replace(caller)
            if replaced is None:
                raise self._make_overloaded()
            self._waiting.remove(replaced)
            replaced.granted.set_exception(self._make_overloaded())
        ticket = _Ticket(caller)
        self._waiting.append(ticket)
        try:
            await ticket.granted
        except asyncio.CancelledError:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            elif not ticket.granted.cancelled() and ticket.granted.exception() is None:  # granted at the same moment
                self._finish(caller)
            raise

    def _start(self, caller: Caller) -> None:
        self._running[caller] += 1
        self._running_by_tenant[caller.tenant] += 1

    def _finish(self, caller: Caller) -> None:
        self._running -= Counter((caller,))  # drops what is 0
        self._running_by_tenant -= Counter((caller.tenant,))
        while (ticket := self._next_ticket()) is not None:
            self._waiting.remove(ticket)
            self._start(ticket.caller)
            ticket.granted.set_result(None)

    def _next_ticket(self) -> _Ticket | None:
        """Return the waiting request whose turn it is, if it may start; one that was cancelled is skipped."""

        def turn(ticket: _Ticket) -> tuple[int, int]:
            return self._running_by_tenant[ticket.caller.tenant], self._running[ticket.caller]

        able = (each for each in self._waiting if not each.granted.done() and self._has_slot(each.caller))
        return min(able, key=turn, default=None)  # the first of equals came first

    def _has_slot(self, caller: Caller) -> bool:
        running, mine = self._running.total(), self._running_by_tenant[caller.tenant]
        if running < self.lane.max_running:
            return mine < self.lane.share or self._presence.is_alone(caller.tenant)
        has_nothing = not mine or (mine == running and not self._running[caller])
        return has_nothing and running < self.lane.max_running + self.lane.reserve

    def _has_queue_space(self) -> bool:
        return len(self._waiting) < self.lane.max_waiting

    def _ticket_to_replace(self, caller: Caller) -> _Ticket | None:
        """Return the newest waiting request of the tenant, or user of the same tenant, with the most in the lane.

        None unless it has at least two more than the caller, so that two callers do not replace each other for ever.
        """
        waiting = [each for each in self._waiting if not each.granted.done()]
        users = self._running + Counter(ticket.caller for ticket in waiting)
        tenants: Counter[str] = Counter()
        for user, number in users.items():
            tenants[user.tenant] += number
        greediest = max(waiting, key=lambda each: (tenants[each.caller.tenant], users[each.caller]), default=None)
        if greediest is None:
            return None
        same = greediest.caller.tenant == caller.tenant
        theirs = users[greediest.caller] if same else tenants[greediest.caller.tenant]
        mine = users[caller] if same else tenants[caller.tenant]
        if theirs < mine + 2:
            return None
        return next(each for each in reversed(waiting) if each.caller == greediest.caller)

    def _make_overloaded(self) -> Overloaded:
        return Overloaded(f"the limit of {self.in_flight} concurrent requests is reached; retry later")


class LaneSlots:
    """The slots of every lane, and the number of requests that were shed.

    Adds `contexture_http_shed_total` and `contexture_http_inside` to a registry.
    """

    def __init__(
        self, settings: Settings, registry: CollectorRegistry, wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._presence = Presence()
        self._slots = {lane.name: Slots(lane, self._presence) for lane in make_lanes(settings)}
        self._wait = wait
        self._delayed = 0
        self._shed = prometheus_client.Counter(
            "contexture_http_shed_total", "Rejected requests.", ("lane", "reason"), registry=registry
        )
        inside = Gauge("contexture_http_inside", "Requests in progress or waiting.", ("lane",), registry=registry)
        for name, slots in self._slots.items():
            inside.labels(name).set_function(lambda slots=slots: float(slots.in_flight))

    def for_path(self, path: str) -> Slots:
        """Return the slots for requests of a path."""
        return self._slots[lane_name(path)]

    async def delay_refusal(self, caller: Caller) -> None:
        """Wait before a refusal is sent, if another tenant is present."""
        if self._presence.is_alone(caller.tenant) or self._delayed >= MAX_DELAYED:
            return
        self._delayed += 1
        try:
            await self._wait(REFUSAL_SECONDS)
        finally:
            self._delayed -= 1

    def count_shed(self, path: str, refusal: ContextError, reason: str = "") -> None:
        """Count a request that was shed."""
        self._shed.labels(lane_name(path), reason or _SHED_REASONS[type(refusal)]).inc()


class AdmissionMiddleware:
    """Refuses a request of a known caller before its body is read, while its lane and queue are full for that caller.

    A caller with a key has at most `most` requests in progress, those included whose body is still arriving.
    """

    def __init__(self, app: ASGIApp, *, lanes: LaneSlots, settings: Settings) -> None:
        self._app = app
        self._lanes = lanes
        self._most = settings.max_per_caller
        self._settings = settings
        self._callers: Counter[Caller] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = self._identify_caller(scope)
        scope.setdefault("state", {})["caller"] = caller
        if is_public_path(scope["path"]):
            await self._app(scope, receive, send)
            return
        try:
            with self._count_caller(scope, caller):
                if (refusal := self._lanes.for_path(scope["path"]).refusal(caller)) is not None:
                    raise refusal
                await self._app(scope, receive, send)
        except (TooManyRequests, Overloaded) as refusal:
            self._lanes.count_shed(scope["path"], refusal)
            scope["state"]["shed"] = True
            await self._lanes.delay_refusal(caller)
            await error_response(refusal, scope)(scope, receive, send)

    def _identify_caller(self, scope: Scope) -> Caller:
        """Return the identity of a request; without a key it is the one that its headers name."""
        identity: Identity | None = scope.get("state", {}).get("identity")
        if identity is None:
            return _ANONYMOUS
        if identity.scope is not None:
            return Caller(identity.scope.tenant, identity.scope.user)
        headers = Headers(scope=scope)
        return Caller(
            headers.get(TENANT_HEADER, self._settings.tenant),
            headers.get(USER_HEADER, self._settings.user),
        )

    @contextmanager
    def _count_caller(self, scope: Scope, caller: Caller) -> Generator[None]:
        """Refuse a caller with too many requests in progress; callers without a key are not limited."""
        identity: Identity | None = scope["state"].get("identity")
        if identity is None or identity.scope is None:
            yield
            return
        if self._callers[caller] >= self._most:
            raise TooManyRequests(f"you have {self._most} requests in progress, which is the limit per user")
        self._callers[caller] += 1
        try:
            yield
        finally:
            self._callers -= Counter((caller,))


class ConcurrencyMiddleware:
    """Runs each request in a slot of its lane, within the lane's time limit.

    Requests that call a model, requests that load data, and all others have separate slots, so that none of these
    groups blocks another. Beyond the limits the answer is 503 with `Retry-After`.
    """

    def __init__(self, app: ASGIApp, *, lanes: LaneSlots, requests: RequestsInProgress) -> None:
        self._app = app
        self._lanes = lanes
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Process the request when a slot is free."""
        if scope["type"] != "http" or is_public_path(scope["path"]):
            await self._app(scope, receive, send)
            return
        slots = self._lanes.for_path(scope["path"])
        caller = get_caller(scope)
        sent = _SendTracker(send)
        limit = asyncio.timeout(slots.lane.timeout_seconds)
        try:
            with self._requests.enter(caller.tenant):  # waiting counts, so that long work of others ends a piece early
                async with limit, slots.acquire(caller):
                    await self._app(scope, receive, sent)
        except Overloaded as refusal:
            await self._lanes.delay_refusal(caller)
            await self._send_refusal(refusal, scope, receive, sent)
        except TimeoutError:
            if not limit.expired():
                raise
            late = SourceTimeout(f"the request took more than {slots.lane.timeout_seconds:g} seconds and was cancelled")
            await self._send_refusal(late, scope, receive, sent)

    async def _send_refusal(self, refusal: ContextError, scope: Scope, receive: Receive, sent: _SendTracker) -> None:
        self._lanes.count_shed(scope["path"], refusal)
        if not sent.begun:  # otherwise the connection is closed, so that the client sees an incomplete answer
            await error_response(refusal, scope)(scope, receive, sent)


_ANONYMOUS = Caller("", "")

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


def get_caller(scope: Scope) -> Caller:
    """Return the caller that `AdmissionMiddleware` has found."""
    return cast("Caller", scope.get("state", {}).get("caller", _ANONYMOUS))


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
    return tuple(
        Lane(
            name=name,
            max_running=most,
            max_waiting=settings.max_waiting,
            timeout_seconds=seconds,
            share=max(1, floor(most * settings.max_share)),
            reserve=reserve_of(most, settings.max_share),
        )
        for name, most, seconds in kinds
    )


def reserve_of(limit: int, share: float) -> int:
    """What is kept above a limit for tenants with nothing in flight: what one tenant may not use, at least 1.

    Nothing if one tenant may use all (`share` is 1).
    """
    return 0 if share >= 1 else max(1, limit - floor(limit * share))
