"""Makes a worker from settings, and runs one until it is told to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server

from contexture import wiring
from contexture.adapters.metrics.worker import WorkerMetrics
from contexture.config import Settings
from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.ports import Bus
from contexture.worker.work import Answer, Topics, Worker


def needed_bus(settings: Settings) -> Bus:
    """The bus; there is no worker without one."""
    found = wiring.bus(settings)
    if found is None:
        raise InvalidRequest("a worker needs a bus: set CONTEXTURE_BUS, such as nats://127.0.0.1:4222")
    return found


def worker_of(settings: Settings, bus: Bus, answer: Answer, *, registry: CollectorRegistry | None = None) -> Worker:
    """A worker that takes messages from the bus as the settings say, and is measured in `registry`."""
    return Worker(
        bus=bus,
        answer=answer,
        topics=Topics(inbound=settings.bus_inbound, outbound=settings.bus_outbound, dead=settings.bus_dead),
        retries=wiring.worker_retries(settings),
        at_once=settings.worker_concurrency,
        tally=WorkerMetrics(registry) if registry is not None else None,
    )


async def until_stopped(worker: Worker, started: Callable[[], None]) -> None:
    """Run a worker until SIGTERM or SIGINT; messages under way are finished, then acknowledged."""
    stop = asyncio.Event()
    with _signals(stop):
        async with worker.running():
            started()
            await stop.wait()


@contextmanager
def measured(registry: CollectorRegistry, host: str, port: int) -> Generator[None]:
    """Let Prometheus read a registry at `/metrics` while the context lasts."""
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as failure:
        raise SourceUnavailable(
            f"cannot listen on {host}:{port}: {failure.strerror}; choose another --metrics-port"
        ) from failure
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _signals(stop: asyncio.Event) -> Generator[None]:
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    try:
        yield
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
