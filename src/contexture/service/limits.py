"""A body is read whole before anything is done with it, and refused when it is too large, too deep or too slow."""

from __future__ import annotations

import asyncio
import re

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contexture.config import Settings
from contexture.errors import InvalidRequest
from contexture.service.problems import TOO_LARGE, TOO_SLOW, problem

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


class BodyLimit:
    """Answers 413 to bodies of more than `max_body_bytes`, whatever their headers promise, and 408 to slow ones.

    JSON with lists and objects more than `max_json_depth` deep is answered with 422 before it is parsed.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self._app = app
        self._largest = settings.max_body_bytes
        self._deepest = settings.max_json_depth
        self._seconds = settings.request_timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through with its body, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(Headers(scope=scope), receive)
        except _Refused as refusal:
            await problem(InvalidRequest(str(refusal)), scope, status=refusal.status)(scope, receive, send)
        except ClientDisconnect:
            return
        else:
            await self._app(scope, _replayed(body, receive), send)

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        promised = headers.get("content-length", "")
        if promised.isascii() and promised.isdigit() and int(promised[:20]) > self._largest:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._joined(receive)
        except TimeoutError:
            raise _Refused(f"the body did not come whole within {self._seconds:g} seconds", TOO_SLOW) from None
        if is_deeper(body, self._deepest):
            raise _Refused(f"the body has more than {self._deepest} lists and objects within each other", None)
        return body

    async def _joined(self, receive: Receive) -> bytes:
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

    def _too_large(self) -> _Refused:
        told = f"the body is larger than {self._largest} bytes (CONTEXTURE_MAX_BODY_BYTES); send it in parts"
        return _Refused(told, TOO_LARGE)


class _Refused(Exception):
    """A body that is not read on; `status` is what HTTP calls it."""

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


def is_deeper(body: bytes, most: int) -> bool:
    """Whether JSON has more than `most` lists and objects within each other; nothing is parsed to find out."""
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    level = 0
    for found in _BRACKET.finditer(_STRING.sub(b"", body)):
        level += 1 if found[0] in b"[{" else -1
        if level > most:
            return True
    return False


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read, then whatever else comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
