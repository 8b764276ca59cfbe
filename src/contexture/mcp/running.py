"""Runs the MCP server: over standard input and output, or over streamable HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp

from contexture.config import Settings
from contexture.mcp.server import Server
from contexture.service.callers import Callers, Gate
from contexture.service.serving import answering

PATH = "/mcp"


async def over_stdio(server: Server[Any]) -> None:
    """Serve one client until it closes our standard input; what anything else prints goes to standard error."""
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def http_app(server: Server[Any], *, settings: Settings, callers: Callers | None) -> ASGIApp:
    """The application that speaks streamable HTTP at `/mcp`.

    `callers` decide who is let in; None leaves that to the service to which every request is passed on. Nothing is
    kept between requests. On a loopback address, web pages that reach us under a name of their own are refused.
    """
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        host=settings.host,
        max_request_body_size=settings.max_body_bytes,
    )
    return app if callers is None else Gate(app, callers=callers)


async def over_http(app: ASGIApp, bound: socket.socket, started: Callable[[str], None]) -> None:
    """Serve clients on a socket until SIGTERM or SIGINT; `started` is told the address to give to them."""
    await answering(app, bound, lambda url: started(url + PATH))
