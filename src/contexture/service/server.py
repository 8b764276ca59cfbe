"""Runs an application on a socket with uvicorn until SIGTERM or SIGINT.

Requests that are not valid HTTP are answered in our error form.
"""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from math import ceil
from typing import cast

import uvicorn
from httptools import HttpRequestParser
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.service._error_responses import CORRELATION_HEADER, new_correlation_id
from contexture.service.envelope import encode_json, error_object
from contexture.service.error_log import capture_server_log

SHUTDOWN_SECONDS = 10.0
"""Seconds that running requests have to finish."""


SWITCH_SECONDS = 0.0002
"""After so long a thread leaves the interpreter to others that wait for it.

With Python's default of 5 ms, each step of a request on the event loop waits 5 ms for every thread that computes for
somebody else. Shorter turns cost 2 % of the processor time of threads that compute.
"""


def bind_socket(host: str, port: int) -> socket.socket:
    """Return a socket listening on this address; port 0 takes a free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except OSError as failure:
        raise SourceUnavailable(f"cannot listen on {host!r}: {failure.strerror}") from failure
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(2_048)
    except OSError as failure:
        made.close()
        raise SourceUnavailable(
            f"cannot listen on {host}:{port}: {failure.strerror}; choose another --port"
        ) from failure
    return made


def socket_url(bound: socket.socket) -> str:
    """Return the URL of a socket; a socket on every interface is reached through loopback."""
    host, port = bound.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        host = "127.0.0.1" if bound.family is socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def run_app(
    app: ASGIApp,
    bound: socket.socket,
    started: Callable[[str], None] = lambda _: None,
    *,
    grace: float = SHUTDOWN_SECONDS,
) -> None:
    """Run an application on `bound` until SIGTERM or SIGINT; running requests are finished first."""
    capture_server_log()
    freeze_heap()
    sys.setswitchinterval(SWITCH_SECONDS)
    server = _UvicornServer(_uvicorn_config(app, grace))
    with _stop_on_signals(server):
        started(socket_url(bound))
        await server.serve(sockets=[bound])


def freeze_heap() -> None:
    """Leave what is loaded by now out of garbage collection.

    A full collection walks through every object, modules and models too, and stops all threads meanwhile: 100 to
    400 ms, several times while a large batch is written.
    """
    gc.collect()
    gc.freeze()


class _UvicornServer(uvicorn.Server):
    """Leaves signals to us: uvicorn re-raises them when it stops, which would end us before the store is closed."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture no signals."""
        yield


def _uvicorn_config(app: ASGIApp, grace: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=HttpProtocol,
        log_config=None,
        log_level="error",  # invalid requests are not worth a warning
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=ceil(grace),
    )


@contextmanager
def _stop_on_signals(server: uvicorn.Server) -> Generator[None]:
    """Stop the server gracefully on the first signal, and at once on the second."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop)
    try:
        yield
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)


MAX_HEAD_BYTES = 64 * 1024
"""Maximum size of a request head in bytes."""

_REFUSAL_MESSAGE = "this is not a valid HTTP/1.1 request; it was not processed"
_HTTP_VERSIONS = ("1.0", "1.1")


class HttpProtocol(HttpToolsProtocol):
    """Uvicorn's protocol with our own response to invalid requests, and with more checks.

    Invalid are contradicting lengths, heads that are too long or name no host, and bytes not allowed in a header. The
    connection is closed after the response, so that what follows cannot be taken for a second request (request
    smuggling).
    """

    _in_head = False  # whether a head has started and not ended
    _head_bytes = 0  # its bytes received so far

    def data_received(self, data: bytes) -> None:
        """Parse the data, unless the head of a request is too long."""
        self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_head:
            self._head_bytes = 0
        elif self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("")

    def on_message_begin(self) -> None:
        """Note the start of a head."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Accept a request with a valid head; an exception raised here is answered like a parse error."""
        self._in_head = False
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        self._head_bytes -= size
        version = cast("HttpRequestParser", self.parser).get_http_version()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if (
            size > MAX_HEAD_BYTES
            or version not in _HTTP_VERSIONS
            or hosts > 1
            or (not hosts and version != _HTTP_VERSIONS[0])
        ):
            raise InvalidRequest(_REFUSAL_MESSAGE)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a part of a body."""
        self._head_bytes -= len(body)
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Refuse what could not be parsed; a response to an earlier request is finished first."""
        del msg
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:
            self._refuse()
        elif not cycle.more_body:
            cycle.keep_alive = False
            self.flow.pause_reading()
            return
        else:  # the body of this request cannot be parsed
            if not (cycle.response_started or self.pipeline):
                self._refuse()
            cycle.disconnected = True
        self.transport.close()

    def _refuse(self) -> None:
        name = new_correlation_id()
        body = encode_json(error_object(InvalidRequest(_REFUSAL_MESSAGE), name))
        head = (
            "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"{CORRELATION_HEADER}: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
