"""`contexture serve`: the HTTP service over the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli.common import Common, command
from contexture.cli.output import emit, note, say

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.engine import Contexture


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "serve", acting=True)(serve)


def serve(
    common: Common,
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="N", min=0, max=65_535, help="Port to listen on; 0 for a free one.")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Serve the sample corpus, from a store of its own.")] = False,
    worker: Annotated[bool, typer.Option("--worker", help="Answer the messages of the bus too.")] = False,
) -> None:
    """Serve the store over HTTP until interrupted.

    Callers present a key made by `contexture keys add`; the command line of this store's owner needs none. With --demo,
    and before the first key is made, anyone on this machine is answered: then --tenant, --user and --group say as whom
    those act who do not say so themselves.
    """
    settings = common.settings()
    given = {"host": host, "port": port}
    chosen = settings.model_copy(update={name: value for name, value in given.items() if value is not None})
    if demo:
        from contexture.cli.demo import GROUPS, filled, settings_of

        run(settings_of(chosen), as_json=common.as_json, members=GROUPS, first=filled, worker=worker)
    else:
        run(chosen, as_json=common.as_json, worker=worker)


def run(
    settings: Settings,
    *,
    as_json: bool,
    members: Mapping[str, tuple[str, ...]] | None = None,
    first: Callable[[Contexture], Awaitable[object]] | None = None,
    worker: bool = False,
) -> None:
    """Do what comes `first` with the open store, then serve it until told to stop, and the bus with a `worker`."""
    from contexture.cli.logs import to_stderr
    from contexture.cli.worker import bus_of, working
    from contexture.engine import open_store
    from contexture.service import serving
    from contexture.wiring import api_keys

    to_stderr()
    bus_of(settings, needed=worker)  # what the settings get wrong is told before anything is opened
    keys = api_keys(settings)
    serving.check_exposure(settings, keys)
    bound = serving.listening(settings.host, settings.port)

    def started(url: str) -> None:
        _say(settings, url, keyless=keys.empty(), demo=members is not None, as_json=as_json)

    async def work() -> None:
        async with open_store(settings) as engine:
            if first is not None:
                await first(engine)
            async with working(engine, worker=worker) as bus:
                await serving.serve(
                    engine, settings=settings, keys=keys, bound=bound, members=members, started=started, bus=bus
                )

    try:
        asyncio.run(work())
    finally:
        bound.close()
        keys.close()


def _say(settings: Settings, url: str, *, keyless: bool, demo: bool, as_json: bool) -> None:
    if as_json:
        answer: dict[str, Any] = {"url": url, "home": settings.home, "keys": not keyless}
        emit(answer)
        return
    say(f"serving {settings.home} at {url}")
    if keyless:
        who = "anyone on this machine is answered" if demo else "only your own command line is answered"
        note(f"no key was made yet, so {who}; make one: contexture keys add NAME")
