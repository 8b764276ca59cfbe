"""Server-sent events from an async iterator; a client that leaves stops the work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from contexture.errors import ContextError
from contexture.service.correlation import correlation_of
from contexture.service.envelope import encoded, error_object

KEEP_ALIVE = 15.0
"""Seconds of silence after which a comment is sent, so that nobody between us and the client hangs up."""

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # proxies that collect answers would hold the stream back
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerEvent:
    """One event: `data` becomes JSON, and a text stays a JSON text, so that no line of it can end the event."""

    data: Any
    event: str = ""
    id: str = ""

    def encode(self) -> bytes:
        """The event as it is sent."""
        names = (("event", self.event), ("id", self.id))
        head = "".join(f"{name}: {_line(value)}\n" for name, value in names if value)
        return head.encode() + b"data: " + encoded(self.data) + b"\n\n"


class EventStream(StreamingResponse):
    """An answer that sends events as they come.

    An error of ours after the first event becomes an `error` event in our error shape, and ends the stream. When the
    client leaves, the iterator is cancelled where it stands and closed.

    return EventStream(events())
    """

    def __init__(self, events: AsyncIterator[ServerEvent], *, keep_alive: float = KEEP_ALIVE) -> None:
        self._events = events
        self._keep_alive = keep_alive
        super().__init__(self._chunks(), headers=_HEADERS, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the events end or the client leaves."""
        leaving = asyncio.ensure_future(_left(receive))
        sending = asyncio.ensure_future(self._send_all(scope, send))
        try:
            await asyncio.wait({leaving, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leaving, sending):
                task.cancel()
            done = await asyncio.gather(leaving, sending, return_exceptions=True)
        if isinstance(done[1], Exception) and not isinstance(done[1], OSError):  # an OSError: the client is gone
            raise done[1]

    async def _send_all(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for chunk in self.body_iterator:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except ContextError as failure:
            told = ServerEvent(event="error", data=error_object(failure, correlation_of(scope)))
            await send({"type": "http.response.body", "body": told.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Encoded events, and a comment whenever none came for a while."""
        pending: asyncio.Future[ServerEvent] | None = None
        try:
            while True:
                pending = pending or asyncio.ensure_future(anext(self._events))
                await asyncio.wait({pending}, timeout=self._keep_alive)
                if not pending.done():
                    yield b": keep-alive\n\n"
                    continue
                try:
                    found = pending.result()
                except StopAsyncIteration:
                    return
                pending = None
                yield found.encode()
        finally:
            await _stopped(pending, self._events)


async def _stopped(pending: asyncio.Future[ServerEvent] | None, events: AsyncIterator[ServerEvent]) -> None:
    """Cancel what is under way, wait until it has let go, and close the iterator."""
    if pending is not None and not pending.done():
        pending.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await pending
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _line(text: str) -> str:
    return " ".join(text.split())
