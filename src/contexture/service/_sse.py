"""Server-sent events from an async iterator; the work stops when the client disconnects."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from contexture.errors import ContextError
from contexture.service._error_responses import error_body
from contexture.service.envelope import encode_json

KEEP_ALIVE_SECONDS = 15.0
"""Seconds without an event after which a comment is sent, so that no proxy closes the connection."""

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # buffering proxies would delay the stream
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerEvent:
    """One event: `data` is encoded as JSON, text too, so that no line break in it can end the event."""

    data: Any
    event: str = ""
    id: str = ""

    def encode(self) -> bytes:
        """Return the bytes of the event."""
        names = (("event", self.event), ("id", self.id))
        head = "".join(f"{name}: {_single_line(value)}\n" for name, value in names if value)
        return head.encode() + b"data: " + encode_json(self.data) + b"\n\n"


class EventStream(StreamingResponse):
    """A response that sends events as they come.

    A `ContextError` after the first event becomes an `error` event in our error form, and ends the stream. When the
    client disconnects, the iterator is cancelled and closed.

    return EventStream(events())
    """

    def __init__(self, events: AsyncIterator[ServerEvent], *, keep_alive: float = KEEP_ALIVE_SECONDS) -> None:
        self._events = events
        self._keep_alive = keep_alive
        super().__init__(self._encode_events(), headers=_HEADERS, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the events end or the client disconnects."""
        leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
        sending = asyncio.ensure_future(self._send_all(scope, send))
        try:
            await asyncio.wait({leaving, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leaving, sending):
                task.cancel()
            done = await asyncio.gather(leaving, sending, return_exceptions=True)
        if isinstance(done[1], Exception) and not isinstance(done[1], OSError):  # OSError: the client has disconnected
            raise done[1]

    async def _send_all(self, scope: Scope, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for chunk in self.body_iterator:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except ContextError as failure:
            problem = ServerEvent(event="error", data=error_body(failure, scope))
            await send({"type": "http.response.body", "body": problem.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _encode_events(self) -> AsyncIterator[bytes]:
        """Yield encoded events, and a comment after each `keep_alive` seconds without one."""
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
            await _close_events(pending, self._events)


async def _close_events(pending: asyncio.Future[ServerEvent] | None, events: AsyncIterator[ServerEvent]) -> None:
    """Cancel the pending read, wait until it has ended, and close the iterator."""
    if pending is not None and not pending.done():
        pending.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await pending
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _single_line(text: str) -> str:
    return " ".join(text.split())
