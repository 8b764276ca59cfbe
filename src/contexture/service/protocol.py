"""The protocol below the application: what is not even HTTP is answered in our shape too."""

from __future__ import annotations

from typing import cast

from httptools import HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from contexture.errors import InvalidRequest
from contexture.service.correlation import HEADER, new_id
from contexture.service.envelope import encoded, error_object

LONGEST_HEAD = 64 * 1024
"""Bytes that the head of a request may have."""

_SENTENCE = "this is not a request in HTTP/1.1 that can be read, so nothing was done"
_VERSIONS = ("1.0", "1.1")


class Protocol(HttpToolsProtocol):
    """Uvicorn's protocol with one answer of our own, and two more reasons to give it.

    Lengths that contradict each other, heads that are too long or name no host, bytes that no header may hold: the
    connection is closed after the answer, so that nothing behind it can be taken for a second request.
    """

    _open = False  # whether a head has begun and not ended
    _head = 0  # bytes of it that came so far

    def data_received(self, data: bytes) -> None:
        """Read on, unless the head of a request does not end."""
        self._head += len(data)
        super().data_received(data)
        if not self._open:
            self._head = 0
        elif self._head > LONGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """A head begins."""
        self._open = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Let a request begin whose head we take; what is raised here is answered like what cannot be parsed."""
        self._open = False
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        self._head -= size
        version = cast("HttpRequestParser", self.parser).get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if size > LONGEST_HEAD or version not in _VERSIONS or hosts > 1 or (not hosts and version != _VERSIONS[0]):
            raise InvalidRequest(_SENTENCE)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass a part of a body on."""
        self._head -= len(body)
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Refuse what could not be parsed; an answer to what came before it is finished first."""
        del msg
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:
            self._refuse()
        elif not cycle.more_body:
            cycle.keep_alive = False
            self.flow.pause_reading()
            return
        else:  # it is the body of this request that cannot be read
            if not (cycle.response_started or self.pipeline):
                self._refuse()
            cycle.disconnected = True
        self.transport.close()

    def _refuse(self) -> None:
        name = new_id()
        body = encoded(error_object(InvalidRequest(_SENTENCE), name))
        head = (
            "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"{HEADER}: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
