"""Runs the application on a socket until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from math import ceil

import uvicorn
from starlette.types import ASGIApp

from contexture.adapters.announcement import Announcement, announced
from contexture.adapters.keys import ApiKeys
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.errors import NotPermitted, SourceUnavailable
from contexture.ports import Bus
from contexture.service.app import create_app
from contexture.service.callers import is_loopback
from contexture.service.failures import hear_server
from contexture.service.protocol import Protocol

GRACE = 10.0
"""Seconds that requests under way may take to end."""


def check_exposure(settings: Settings, keys: ApiKeys) -> None:
    """Refuse to let a network in while there is no key."""
    if keys.empty() and not is_loopback(settings.host):
        raise NotPermitted(
            f"without keys the service listens on this machine only, not on {settings.host!r}; "
            "make a key first: contexture keys add NAME"
        )


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one."""
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


def url_of(bound: socket.socket) -> str:
    """The address to type; a socket on every interface is reached through loopback."""
    host, port = bound.getsockname()[:2]
    if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
        host = "127.0.0.1" if bound.family is socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(
    engine: Contexture,
    *,
    settings: Settings,
    keys: ApiKeys,
    bound: socket.socket,
    members: Mapping[str, tuple[str, ...]] | None = None,
    started: Callable[[str], None] = lambda _: None,
    bus: Bus | None = None,
) -> None:
    """Answer requests on `bound` until SIGTERM or SIGINT; those under way are finished first.

    While it runs, `serve.json` beside the store says where. `started` is told the address once it can be reached. On
    `bus` messages are handed over to workers.
    """
    _ = engine.chat  # a model that cannot be loaded is told now, not to the first who asks it
    token = secrets.token_urlsafe(32)
    app = create_app(engine, keys=keys, settings=settings, token=token, members=members, bus=bus)
    with announced(settings.home, Announcement(pid=os.getpid(), url=url_of(bound), token=token)):
        await answering(app, bound, started, grace=settings.shutdown_seconds)


async def answering(
    app: ASGIApp, bound: socket.socket, started: Callable[[str], None] = lambda _: None, *, grace: float = GRACE
) -> None:
    """Run an application on `bound` until SIGTERM or SIGINT; requests under way are finished first."""
    hear_server()
    server = _Server(_config(app, grace))
    with _stopped_by_signals(server):
        started(url_of(bound))
        await server.serve(sockets=[bound])


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn raises them again when it is done, which would end us before the store closes."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Nothing to capture."""
        yield


def _config(app: ASGIApp, grace: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Protocol,
        log_config=None,
        log_level="error",  # requests that cannot be read are no news
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=ceil(grace),
    )


@contextmanager
def _stopped_by_signals(server: uvicorn.Server) -> Generator[None]:
    """The first signal stops the server gracefully, a second one at once."""
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
