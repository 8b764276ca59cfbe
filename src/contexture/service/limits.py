"""A body that is too large is refused before it is read, or as soon as it has grown too large."""

from __future__ import annotations

from fastapi.exceptions import HTTPException
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contexture.errors import InvalidRequest
from contexture.service.problems import TOO_LARGE, problem


class BodyLimit:
    """Answers 413 to bodies of more than `limit` bytes, whatever their headers promise."""

    def __init__(self, app: ASGIApp, *, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through with its body counted."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        promised = Headers(scope=scope).get("content-length", "")
        if promised.isascii() and promised.isdigit() and int(promised[:20]) > self._limit:
            await problem(InvalidRequest(self._sentence()), scope, status=TOO_LARGE)(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._limit:
                raise HTTPException(TOO_LARGE, self._sentence())
            return message

        await self._app(scope, counted, send)

    def _sentence(self) -> str:
        return f"the body is larger than {self._limit} bytes (CONTEXTURE_MAX_BODY_BYTES); send it in parts"
