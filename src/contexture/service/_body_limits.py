"""Limits on request bodies: size, nesting, time to arrive, and bytes in flight, shared fairly between tenants."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contexture.config import Settings
from contexture.errors import InvalidRequest, Overloaded
from contexture.service._admission import Caller, LaneSlots, get_caller
from contexture.service._error_responses import TOO_LARGE, TOO_SLOW, error_response

_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_QUOTE = ord('"')
_INLINE_BYTES = 2**18  # searched for brackets in 5 ms; in a larger body a thread does it, whose steps others interrupt
_UNCOUNTED_BYTES = 2**16  # a body of one piece is there at once, and a small request is never refused for others' bytes


@dataclass(eq=False, slots=True)
class BodyClaim:
    """The bytes that one request holds; `arriving` is set while its body is incomplete."""

    caller: Caller
    size: int = 0
    arriving: asyncio.Timeout | None = None
    lost: bool = False


class BodyBudget:
    """The bytes of all bodies in flight, at most `limit`, by tenant.

    A lone caller may hold all of them. A tenant that holds at most its `share` may take bytes from one that holds more:
    the newest incomplete bodies of the largest holder are dropped. If that is not enough, because complete bodies are
    being processed, it may exceed the limit by what `share` leaves to others. Inside a tenant the same holds for users.
    """

    def __init__(self, limit: int, share: float) -> None:
        self._limit = limit
        self._share = int(limit * share)
        self._claims: list[BodyClaim] = []  # in order of arrival
        self.total = 0

    @contextmanager
    def claim(self, caller: Caller) -> Generator[BodyClaim]:
        """Hold bytes for one request until the end of the block."""
        made = BodyClaim(caller)
        self._claims.append(made)
        try:
            yield made
        finally:
            self._release(made)
            self._claims.remove(made)

    def grow(self, claim: BodyClaim, size: int) -> None:
        """Let a claim hold `size` bytes; raises `Overloaded` if there is no space for them."""
        more = size - claim.size
        if more <= 0:
            return
        while self.total + more > self._limit:
            dropped = self._claim_to_drop(claim, more)
            if dropped is None:
                break
            _drop_claim(dropped)
            self._release(dropped)
        modest = self._count_claimed_bytes(claim.caller.tenant) + more <= self._limit - self._share
        if self.total + more > self._limit + (self._limit - self._share if modest else 0):
            raise Overloaded(f"request bodies of {self.total} bytes are in progress; retry later")
        claim.size += more
        self.total += more

    def _release(self, claim: BodyClaim) -> None:
        self.total -= claim.size
        claim.size = 0

    def _claim_to_drop(self, claim: BodyClaim, more: int) -> BodyClaim | None:
        """Return the newest incomplete body of the largest holder above its share; None if that is the caller."""
        caller = claim.caller
        by_tenant = Counter[str]()
        by_user = Counter[Caller]()
        for each in self._claims:
            by_tenant[each.caller.tenant] += each.size
            by_user[each.caller] += each.size
        arriving = [each for each in self._claims if each.arriving is not None and each.size and each is not claim]
        largest = max(arriving, key=lambda each: (by_tenant[each.caller.tenant], by_user[each.caller]), default=None)
        if largest is None or largest.caller == caller:
            return None
        same = largest.caller.tenant == caller.tenant
        theirs = by_user[largest.caller] if same else by_tenant[largest.caller.tenant]
        mine = by_user[caller] if same else by_tenant[caller.tenant]
        if theirs <= self._share or mine + more > self._share:
            return None
        return next(each for each in reversed(arriving) if each.caller == largest.caller)

    def _count_claimed_bytes(self, tenant: str) -> int:
        return sum(each.size for each in self._claims if each.caller.tenant == tenant)


def _drop_claim(claim: BodyClaim) -> None:
    claim.lost = True
    if claim.arriving is not None:
        claim.arriving.reschedule(asyncio.get_running_loop().time())


class BodyLimitMiddleware:
    """Answers 413 to bodies larger than `max_body_bytes`, whatever their headers say, and 408 to slow ones.

    JSON nested deeper than `max_json_depth` is answered with 422 before it is parsed, and a body for which there is no
    space in the `BodyBudget` with 503.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings, lanes: LaneSlots) -> None:
        self._app = app
        self._largest = settings.max_body_bytes
        self._deepest = settings.max_json_depth
        self._seconds = settings.request_timeout_seconds
        self._budget = BodyBudget(max(settings.max_bytes_in_flight, self._largest), settings.max_share)
        self._lanes = lanes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with self._budget.claim(get_caller(scope)) as claim:
            try:
                body = await self._read_body(Headers(scope=scope), receive, claim)
            except _BodyRefused as refusal:
                await error_response(InvalidRequest(str(refusal)), scope, status=refusal.status)(scope, receive, send)
            except Overloaded as refusal:
                self._lanes.count_shed(scope["path"], refusal, "bytes")
                await self._lanes.delay_refusal(claim.caller)
                await error_response(refusal, scope)(scope, receive, send)
            except ClientDisconnect:
                return
            else:
                await self._app(scope, _replay_body(body, receive), send)

    async def _read_body(self, headers: Headers, receive: Receive, claim: BodyClaim) -> bytes:
        promised = headers.get("content-length", "")
        size = int(promised[:20]) if promised.isascii() and promised.isdigit() else 0
        if size > self._largest:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._seconds) as claim.arriving:
                if size > _UNCOUNTED_BYTES:
                    self._budget.grow(claim, size)
                body = await self._read_chunks(receive, claim)
        except TimeoutError:
            if claim.lost:
                raise Overloaded("the bodies of other requests need the space; retry later") from None
            raise _BodyRefused(f"the body did not arrive within {self._seconds:g} seconds", TOO_SLOW) from None
        finally:
            claim.arriving = None
        if await self._is_too_deep(body):
            raise _BodyRefused(f"the body is nested more than {self._deepest} levels deep", None)
        return body

    async def _is_too_deep(self, body: bytes) -> bool:
        if len(body) <= _INLINE_BYTES:
            return is_nested_deeper(body, self._deepest)
        return await asyncio.to_thread(is_nested_deeper, body, self._deepest)

    async def _read_chunks(self, receive: Receive, claim: BodyClaim) -> bytes:
        body, more = await _next_piece(receive)
        if not more:
            return body
        grown = bytearray(body)  # one block of memory, which goes back to the system as a whole; many pieces do not
        while more:
            piece, more = await _next_piece(receive)
            grown += piece
            if len(grown) > self._largest:
                raise self._too_large()
            if len(grown) > _UNCOUNTED_BYTES:
                self._budget.grow(claim, len(grown))
        return bytes(grown)

    def _too_large(self) -> _BodyRefused:
        text = f"the body is larger than {self._largest} bytes (CONTEXTURE_MAX_BODY_BYTES); send it in parts"
        return _BodyRefused(text, TOO_LARGE)


class _BodyRefused(Exception):
    """A body that is not read to its end; `status` is the HTTP status."""

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


async def _next_piece(receive: Receive) -> tuple[bytes, bool]:
    """Return a piece of the body, and whether more follow; raises `ClientDisconnect`."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


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
