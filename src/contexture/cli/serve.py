"""`contexture serve`, `worker` and `mcp`: the processes that run until they are interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli._client import find_service, identity_headers
from contexture.cli._common import Common, register_command
from contexture.cli._output import print_json, print_line, print_note
from contexture.errors import InvalidRequest, SourceUnavailable

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from contexture.config import Settings
    from contexture.engine import Contexture
    from contexture.mcp.service_client import ServiceAddress, ServiceClient
    from contexture.ports import Bus, KeyStore
    from contexture.worker import AnswerFunction


def register_serve(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "serve", with_identity=True)(serve)


def serve(
    common: Common,
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="N", min=0, max=65_535, help="Port to listen on; 0 for a free one.")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Serve the samples from a separate store.")] = False,
    worker: Annotated[bool, typer.Option("--worker", help="Also answer the messages of the bus.")] = False,
) -> None:
    """Serve the store over HTTP until interrupted.

    Callers need a key created with `contexture keys add`; the command line of the store's owner needs none. While there
    is no key, --demo admits anyone on this machine, and --tenant, --user and --group are the default identity of
    callers.
    """
    settings = common.settings()
    given = {"host": host, "port": port}
    chosen = settings.model_copy(update={name: value for name, value in given.items() if value is not None})
    if demo:
        from contexture.cli.demo import GROUPS, demo_settings, load_samples

        run_service(demo_settings(chosen), as_json=common.as_json, members=GROUPS, prepare=load_samples, worker=worker)
    else:
        run_service(chosen, as_json=common.as_json, worker=worker)


def run_service(
    settings: Settings,
    *,
    as_json: bool,
    members: Mapping[str, tuple[str, ...]] | None = None,
    prepare: Callable[[Contexture], Awaitable[object]] | None = None,
    worker: bool = False,
) -> None:
    """Run `prepare` on the open store, then serve it until stopped; with `worker`, messages of the bus too."""
    from contexture.cli._output import log_to_stderr
    from contexture.engine import open_store
    from contexture.service import app, server
    from contexture.service.auth import check_exposure
    from contexture.wiring import api_keys

    log_to_stderr()
    load_bus(settings, needed=worker)  # report invalid settings before anything is opened
    keys = api_keys(settings)
    check_exposure(settings, keys)
    bound = server.bind_socket(settings.host, settings.port)

    def announce(url: str) -> None:
        _print_service_started(settings, url, keyless=keys.is_empty(), demo=members is not None, as_json=as_json)

    async def work() -> None:
        async with open_store(settings) as engine:
            if prepare is not None:
                await prepare(engine)
            async with open_bus(engine, worker=worker) as bus:
                await app.serve(
                    engine, settings=settings, keys=keys, bound=bound, members=members, started=announce, bus=bus
                )

    try:
        asyncio.run(work())
    finally:
        bound.close()
        keys.close()


def _print_service_started(settings: Settings, url: str, *, keyless: bool, demo: bool, as_json: bool) -> None:
    if as_json:
        answer: dict[str, Any] = {"url": url, "home": settings.home, "keys": not keyless}
        print_json(answer)
        return
    print_line(f"serving {settings.home} at {url}")
    if keyless:
        who = (
            "anyone on this machine can call the service"
            if demo
            else "only your own command line and clients of OpenAI on this machine can call the service"
        )
        print_note(f"there is no key yet, so {who}; create one: contexture keys add NAME")


def register_worker(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "worker")(worker)


def worker(
    common: Common,
    service: Annotated[
        bool, typer.Option("--service", help="Never open the store; wait for a service that has it open.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", metavar="N", min=1, max=65_535, help="Port of the metrics for Prometheus."),
    ] = None,
) -> None:
    """Answer the messages of the bus until interrupted.

    CONTEXTURE_BUS is the address of the bus. Each message names its user, so give write access to the bus only to
    those who may act as any user. If a service has the store open, it answers the messages; otherwise this process
    opens the store.
    """
    from contexture.cli._output import log_to_stderr

    log_to_stderr()
    settings = common.settings()
    if settings.url:
        raise InvalidRequest(
            "a worker acts for many users, which no key allows: unset CONTEXTURE_URL, and run it where the service "
            "runs, with the same --home"
        )
    asyncio.run(_run_worker(settings, service=service, metrics_port=metrics_port, as_json=common.as_json))


async def _run_worker(settings: Settings, *, service: bool, metrics_port: int | None, as_json: bool) -> None:
    from contexture.service.error_log import capture_bus_log
    from contexture.worker import create_worker, require_bus, run_until_stopped, serve_metrics

    capture_bus_log()
    bus = require_bus(settings)
    try:
        async with _open_answerer(settings, service=service) as (answer, place, registry):
            shown = serve_metrics(registry, settings.host, metrics_port) if metrics_port else nullcontext()
            worker = create_worker(settings, bus, answer, registry=registry)
            with shown:
                await run_until_stopped(worker, lambda: _print_worker_started(settings, place, as_json=as_json))
    finally:
        await bus.close()


@asynccontextmanager
async def _open_answerer(
    settings: Settings, *, service: bool
) -> AsyncGenerator[tuple[AnswerFunction, str, CollectorRegistry]]:
    """Yield the answer function, a name for where it runs, and its metrics registry.

    Answers come from a service that holds the store, or else from an engine in this process.
    """
    from prometheus_client import CollectorRegistry

    from contexture.announcement import read_announcement
    from contexture.cli._client import find_service
    from contexture.engine import open_store
    from contexture.wiring import worker_retries
    from contexture.worker import answer_in_process, answer_via_service

    served = find_service(settings)
    if service or served is not None:
        async with answer_via_service(lambda: read_announcement(settings.home), worker_retries(settings)) as answer:
            yield answer, served.url if served else f"the service of {settings.home}", CollectorRegistry()
        return
    async with open_store(settings) as engine:
        _ = engine.chat  # a model that cannot be loaded fails now
        yield answer_in_process(engine), str(settings.home), engine.registry


@asynccontextmanager
async def open_bus(engine: Contexture, *, worker: bool) -> AsyncGenerator[Bus | None]:
    """Yield the bus to which the service publishes messages, or None; with `worker` they are also answered here."""
    from contexture.worker import answer_in_process, create_worker

    bus = load_bus(engine.settings, needed=worker)
    if bus is None:
        yield None
        return
    try:
        if worker:
            made = create_worker(engine.settings, bus, answer_in_process(engine), registry=engine.registry)
            async with made.consume():
                yield bus
        else:
            yield bus
    finally:
        await bus.close()


def load_bus(settings: Settings, *, needed: bool) -> Bus | None:
    """Return the configured bus, with its log captured; raises `InvalidRequest` if one is needed and there is none."""
    from contexture.service.error_log import capture_bus_log
    from contexture.wiring import bus
    from contexture.worker import require_bus

    capture_bus_log()
    return require_bus(settings) if needed else bus(settings)


def _print_worker_started(settings: Settings, place: str, *, as_json: bool) -> None:
    where = settings.bus.rpartition("@")[2]  # the address may contain a password
    if as_json:
        print_json({"bus": where, "inbound": settings.bus_inbound, "answers": place})
    else:
        print_line(f"answering {settings.bus_inbound} of {where} from {place}")


MCP_PORT = 8_421


def register_mcp(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "mcp", with_identity=True)(mcp)


def mcp(
    common: Common,
    http: Annotated[
        bool, typer.Option("--http", help="Use streamable HTTP instead of standard input and output.")
    ] = False,
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65_535, help="Port to listen on; 0 for a free one.")
    ] = MCP_PORT,
) -> None:
    """Serve the tools of the store over MCP.

    Without --http the server uses standard input and output, and acts as --tenant, --user and --group. With --http
    callers need a key created with `contexture keys add`, as for `contexture serve`. If a service has the store open,
    every request goes through it.
    """
    from contexture.cli._output import log_to_stderr

    log_to_stderr()
    settings = common.settings()
    if not http:
        asyncio.run(_run_stdio(settings))
        return
    settings = settings.model_copy(update={"host": host or settings.host, "port": port})
    _run_http(settings, as_json=common.as_json)


async def _run_stdio(settings: Settings) -> None:
    from contexture.mcp.server import create_server, serve_stdio

    async with _open_link(settings, None) as link:
        await serve_stdio(create_server(link, keyless={}))


def _run_http(settings: Settings, *, as_json: bool) -> None:
    from contexture.mcp.server import create_http_app, create_server, serve_http
    from contexture.service.auth import Authenticator, check_exposure
    from contexture.service.server import bind_socket
    from contexture.wiring import SystemClock, api_keys

    keys = None if settings.url else api_keys(settings)
    if keys is not None:
        check_exposure(settings, keys)
    callers = Authenticator(keys=keys, settings=settings, clock=SystemClock()) if keys else None
    bound = bind_socket(settings.host, settings.port)

    def announce(url: str) -> None:
        if as_json:
            print_json({"url": url})
        else:
            print_line(f"MCP at {url}")
        if keys is not None and keys.is_empty():
            print_note("there is no key yet, so nobody can call it; create one: contexture keys add NAME")

    async def work() -> None:
        async with _open_link(settings, keys) as link:
            app = create_http_app(
                create_server(link, keyless=identity_headers(settings)), settings=settings, callers=callers
            )
            await serve_http(app, bound, announce)

    try:
        asyncio.run(work())
    finally:
        bound.close()
        if keys is not None:
            keys.close()


@asynccontextmanager
async def _open_link(settings: Settings, keys: KeyStore | None) -> AsyncGenerator[ServiceClient]:
    """Yield a client of the service that holds the store, or else of an application in this process."""
    from contexture.mcp.service_client import connect_in_process, connect_over_http

    if find_service(settings) is not None:
        async with connect_over_http(lambda: _service_place(settings)) as link:
            yield link
        return
    from contexture import wiring
    from contexture.announcement import make_token
    from contexture.engine import open_store
    from contexture.service.app import create_app

    token = make_token()
    async with open_store(settings) as engine:
        app = create_app(engine, keys=keys, settings=settings, token=token, builders=wiring.load_other_builders())
        async with connect_in_process(app, {"Authorization": f"Bearer {token}", **identity_headers(settings)}) as link:
            yield link


def _service_place(settings: Settings) -> ServiceAddress:
    """Return the current address of the service, which may have restarted with another token."""
    from contexture.mcp.service_client import ServiceAddress

    service = find_service(settings)
    if service is None:
        raise SourceUnavailable(f"the service of {str(settings.home)!r} has stopped; start it: contexture serve")
    return ServiceAddress(url=service.url, headers=service.headers)
