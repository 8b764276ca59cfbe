"""`contexture mcp`: the tools of an assistant, over standard input or streamable HTTP."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from contexture.cli.common import Common, command
from contexture.cli.output import emit, note, say
from contexture.cli.remote import claims, remote
from contexture.errors import SourceUnavailable

if TYPE_CHECKING:
    from contexture.adapters.keys import ApiKeys
    from contexture.config import Settings
    from contexture.mcp.link import Link, Place

PORT = 8_421


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "mcp", acting=True)(mcp)


def mcp(
    common: Common,
    http: Annotated[bool, typer.Option("--http", help="Speak streamable HTTP instead of standard input.")] = False,
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65_535, help="Port to listen on; 0 for a free one.")
    ] = PORT,
) -> None:
    """Give an assistant the tools of the store over MCP.

    Without --http it talks over standard input and output and acts as --tenant, --user and --group say. With --http
    callers present a key made by `contexture keys add`, as to `contexture serve`. When a service holds the store,
    every request goes through it.
    """
    from contexture.cli.logs import to_stderr

    to_stderr()
    settings = common.settings()
    if not http:
        asyncio.run(_stdio(settings))
        return
    settings = settings.model_copy(update={"host": host or settings.host, "port": port})
    _http(settings, as_json=common.as_json)


async def _stdio(settings: Settings) -> None:
    from contexture.mcp.running import over_stdio
    from contexture.mcp.server import create_server

    async with _linked(settings, None) as link:
        await over_stdio(create_server(link, keyless={}))


def _http(settings: Settings, *, as_json: bool) -> None:
    from contexture.mcp.running import http_app, over_http
    from contexture.mcp.server import create_server
    from contexture.service.callers import Callers
    from contexture.service.serving import check_exposure, listening
    from contexture.wiring import SystemClock, api_keys

    keys = None if settings.url else api_keys(settings)
    if keys is not None:
        check_exposure(settings, keys)
    callers = Callers(keys=keys, settings=settings, clock=SystemClock()) if keys else None
    bound = listening(settings.host, settings.port)

    def started(url: str) -> None:
        if as_json:
            emit({"url": url})
        else:
            say(f"MCP at {url}")
        if keys is not None and keys.empty():
            note("no key was made yet, so nobody is answered; make one: contexture keys add NAME")

    async def work() -> None:
        async with _linked(settings, keys) as link:
            app = http_app(create_server(link, keyless=claims(settings)), settings=settings, callers=callers)
            await over_http(app, bound, started)

    try:
        asyncio.run(work())
    finally:
        bound.close()
        if keys is not None:
            keys.close()


@asynccontextmanager
async def _linked(settings: Settings, keys: ApiKeys | None) -> AsyncGenerator[Link]:
    """A link to the service that holds the store, or to one of our own where none does."""
    from contexture.mcp.link import inside, outside

    if remote(settings) is not None:
        async with outside(lambda: _place(settings)) as link:
            yield link
        return
    from contexture.engine import open_store
    from contexture.service.app import create_app

    token = secrets.token_urlsafe(32)
    async with open_store(settings) as engine:
        app = create_app(engine, keys=keys, settings=settings, token=token)
        async with inside(app, {"Authorization": f"Bearer {token}", **claims(settings)}) as link:
            yield link


def _place(settings: Settings) -> Place:
    """Where the service is now: it may have been started again, with another token."""
    from contexture.mcp.link import Place

    door = remote(settings)
    if door is None:
        raise SourceUnavailable(f"the service that held {str(settings.home)!r} is gone; start it: contexture serve")
    return Place(url=door.url, headers=door.headers)
