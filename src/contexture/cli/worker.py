"""`contexture worker`: answers the messages of a bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from contexture.cli.common import Common, command
from contexture.cli.output import emit, say
from contexture.errors import InvalidRequest

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from contexture.config import Settings
    from contexture.engine import Contexture
    from contexture.ports import Bus
    from contexture.worker.work import Answer


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "worker")(worker)


def worker(
    common: Common,
    service: Annotated[
        bool, typer.Option("--service", help="Never hold the store: wait for a service that does.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", metavar="N", min=1, max=65_535, help="Port where Prometheus reads its metrics."),
    ] = None,
) -> None:
    """Answer the messages of the bus until interrupted.

    CONTEXTURE_BUS says where the bus is. Each message says on whose behalf it is answered, so let only those write to
    the bus whom you would give any user's key. Where a service holds the store, every message is answered by it;
    otherwise this process holds the store.
    """
    from contexture.cli.logs import to_stderr

    to_stderr()
    settings = common.settings()
    if settings.url:
        raise InvalidRequest(
            "a worker acts for many users, which no key may: leave out CONTEXTURE_URL, and run it where the service "
            "runs, with the same --home"
        )
    asyncio.run(_work(settings, service=service, metrics_port=metrics_port, as_json=common.as_json))


async def _work(settings: Settings, *, service: bool, metrics_port: int | None, as_json: bool) -> None:
    from contexture.service.failures import hear_bus
    from contexture.worker.running import measured, needed_bus, until_stopped, worker_of

    hear_bus()
    bus = needed_bus(settings)
    try:
        async with _answering(settings, service=service) as (answer, place, registry):
            shown = measured(registry, settings.host, metrics_port) if metrics_port else nullcontext()
            worker = worker_of(settings, bus, answer, registry=registry)
            with shown:
                await until_stopped(worker, lambda: _say(settings, place, as_json=as_json))
    finally:
        await bus.close()


@asynccontextmanager
async def _answering(settings: Settings, *, service: bool) -> AsyncGenerator[tuple[Answer, str, CollectorRegistry]]:
    """What answers, how to say where, and what it is measured in: a service that holds the store, or our own engine."""
    from prometheus_client import CollectorRegistry

    from contexture.adapters.announcement import read_announcement
    from contexture.cli.remote import remote
    from contexture.engine import open_store
    from contexture.wiring import worker_retries
    from contexture.worker.answers import inside, through

    served = remote(settings)
    if service or served is not None:
        async with through(lambda: read_announcement(settings.home), worker_retries(settings)) as answer:
            yield answer, served.url if served else f"the service of {settings.home}", CollectorRegistry()
        return
    async with open_store(settings) as engine:
        _ = engine.chat  # a model that cannot be loaded is told now
        yield inside(engine), str(settings.home), engine.registry


@asynccontextmanager
async def working(engine: Contexture, *, worker: bool) -> AsyncGenerator[Bus | None]:
    """The bus that a service hands messages over to, if it has one; with `worker` they are answered here too."""
    from contexture.worker.answers import inside
    from contexture.worker.running import worker_of

    bus = bus_of(engine.settings, needed=worker)
    if bus is None:
        yield None
        return
    try:
        if worker:
            made = worker_of(engine.settings, bus, inside(engine), registry=engine.registry)
            async with made.running():
                yield bus
        else:
            yield bus
    finally:
        await bus.close()


def bus_of(settings: Settings, *, needed: bool) -> Bus | None:
    """The bus that the settings name, whose log is ours; raises where one is needed and none is named."""
    from contexture.service.failures import hear_bus
    from contexture.wiring import bus
    from contexture.worker.running import needed_bus

    hear_bus()
    return needed_bus(settings) if needed else bus(settings)


def _say(settings: Settings, place: str, *, as_json: bool) -> None:
    where = settings.bus.rpartition("@")[2]  # an address may hold a password
    if as_json:
        emit({"bus": where, "inbound": settings.bus_inbound, "answers": place})
    else:
        say(f"answering {settings.bus_inbound} of {where} from {place}")
