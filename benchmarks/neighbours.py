"""A quiet tenant beside a loud one: `python -m benchmarks.neighbours` starts a service and floods it.

The quiet tenant sends one request after another: searches, contexts, memories and small loads. First it is alone, then
another tenant floods the service from a process at low priority: searches without a pause, loads, bodies of many
megabytes that never end, and records with very many readers. Reported are the share of the quiet tenant's requests that
are answered, and their times in both parts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

import httpx
from benchmarks.timing import Numbers, percentile

from contexture.adapters.keys import ApiKeys
from contexture.types import Scope

QUIET, LOUD = "quiet", "loud"
_PARTS = ("pump", "valve", "tank", "pipe", "motor", "filter", "seal", "gauge", "hose", "bearing", "shaft", "engine")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
_LOWEST_PRIORITY = 19
_READY_SECONDS = 120.0
_STOP_SECONDS = 30.0

Body = Callable[[int], tuple[str, dict[str, Any]]]

QUIET_REQUESTS: tuple[Body, ...] = (
    lambda at: ("/v1/search", {"query": _text(at)}),
    lambda at: ("/v1/context/query", {"query": _text(at)}),
    lambda at: ("/memory/remember", {"text": _text(at)}),
    lambda at: ("/v1/ingest/documents", {"records": [{"id": f"q{at}", "text": _text(at, 3)}]}),
)
"""What the quiet tenant sends, in turn."""


class Service(NamedTuple):
    """Where the service is, and the key of each tenant."""

    url: str
    keys: dict[str, str]

    def client(self, tenant: str, timeout: float = 60.0) -> httpx.AsyncClient:
        """A client of a tenant."""
        headers = {"Authorization": f"Bearer {self.keys[tenant]}"}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=timeout, limits=limits)


@asynccontextmanager
async def serving(home: Path) -> AsyncGenerator[Service]:
    """A service with a key for each tenant, once it is ready."""
    keys = {name: _add_key(home, name) for name in (QUIET, LOUD)}
    words = ["serve", "--home", str(home), "--port", "0", "--json"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from contexture.cli.main import app; app()",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        if process.stdout is None:
            raise OSError("the service has no standard output")
        service = Service(json.loads(await process.stdout.readline())["url"], keys)
        async with asyncio.timeout(_READY_SECONDS), service.client(QUIET) as client:
            while (await client.get("/ready")).is_error:  # noqa: ASYNC110 - as a monitor does
                await asyncio.sleep(0.1)
        yield service
    finally:
        await _stop(process)


@asynccontextmanager
async def flooding(service: Service) -> AsyncGenerator[None]:
    """A flood of the loud tenant from another process, at the lowest priority."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.neighbours", "--flood", service.url, stdin=asyncio.subprocess.PIPE
    )
    try:
        if process.stdin is None:
            raise OSError("the flood has no standard input")
        process.stdin.write(f"{service.keys[LOUD]}\n".encode())
        await process.stdin.drain()
        yield
    finally:
        await _stop(process)


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def measure_quiet(service: Service, requests: int, first: int, name: str) -> Numbers:
    """Send that many requests of the quiet tenant; the share that is answered with 200, and their times."""
    seconds: list[float] = []
    by_path: dict[str, list[float]] = {}
    answered = 0
    async with service.client(QUIET) as client:
        for at in range(first, first + requests):
            path, body = QUIET_REQUESTS[at % len(QUIET_REQUESTS)](at)
            started = perf_counter()
            answer = await client.post(path, json=body)
            seconds.append(perf_counter() - started)
            by_path.setdefault(path.rpartition("/")[2], []).append(seconds[-1])
            answered += answer.is_success
    return {
        f"{name}_answered_share": answered / requests,
        f"{name}_p50_ms": percentile(seconds, 0.5) * 1_000,
        f"{name}_p95_ms": percentile(seconds, 0.95) * 1_000,
        **{f"{name}_{path}_p95_ms": percentile(some, 0.95) * 1_000 for path, some in by_path.items()},
    }


async def measure(requests: int, warm_seconds: float) -> Numbers:
    """Every figure of one run."""
    with TemporaryDirectory(prefix="contexture-bench-", ignore_cleanup_errors=True) as folder:
        async with serving(Path(folder)) as service:
            await measure_quiet(service, requests // 4, 0, "warm")
            numbers = await measure_quiet(service, requests, requests, "alone")
            async with flooding(service):
                await asyncio.sleep(warm_seconds)
                numbers |= await measure_quiet(service, requests, 2 * requests, "flooded")
    allowed = max(3 * numbers["alone_p95_ms"], 100.0)
    return {**numbers, "flooded_allowed_p95_ms": allowed}


async def flood(service: Service) -> None:
    """Flood the service until the process is stopped."""
    at = count()
    async with service.client(LOUD, timeout=30.0) as client, asyncio.TaskGroup() as tasks:
        for _ in range(12):
            tasks.create_task(_repeat(client, lambda: ("/v1/search", {"query": _text(next(at))})))
        for _ in range(4):
            tasks.create_task(_repeat(client, lambda: ("/v1/context/query", {"query": _text(next(at))})))
        for _ in range(4):
            tasks.create_task(_repeat(client, lambda: ("/v1/ingest/documents", {"records": _rows(next(at), 500)})))
        for _ in range(2):
            tasks.create_task(_repeat(client, lambda: ("/v1/ingest/documents", _crowded(next(at), 100_000))))
        for _ in range(2):
            tasks.create_task(_repeat(client, lambda: ("/v1/ingest/documents", _crowded(next(at), 256))))
        for _ in range(2):
            tasks.create_task(_repeat(client, lambda: ("/v1/ingest/documents", {"records": _rows(next(at), 10_000)})))
        for _ in range(40):
            tasks.create_task(_hang(client))


async def _repeat(client: httpx.AsyncClient, make: Callable[[], tuple[str, dict[str, Any]]]) -> None:
    while True:
        path, body = make()
        try:
            await client.post(path, json=body)
        except httpx.HTTPError:  # a body that was refused before it was sent
            await asyncio.sleep(0.1)


async def _hang(client: httpx.AsyncClient) -> None:
    """Send 20 of 25 announced megabytes, again and again, and then nothing."""
    headers = {"Content-Length": str(25 << 20), "Content-Type": "application/json"}
    while True:
        with suppress(httpx.HTTPError):
            await client.post("/v1/ingest/documents", content=_unfinished(20), headers=headers)
        await asyncio.sleep(0.5)


async def _unfinished(megabytes: int) -> AsyncIterator[bytes]:
    for _ in range(megabytes):
        yield b" " * (1 << 20)
    await asyncio.Event().wait()


def _add_key(home: Path, tenant: str) -> str:
    keys = ApiKeys(home / "keys.sqlite")
    try:
        return keys.add(tenant, Scope(tenant=tenant, user=tenant), now=datetime.now(UTC))[1]
    finally:
        keys.close()


def _text(at: int, sentences: int = 1) -> str:
    """English sentences, others for each number."""
    return " ".join(
        f"The {_PARTS[each % 12]} of ship {each} leaks near the {_PARTS[each // 12 % 12]}, and the crew of dock "
        f"{each % 31} repairs it on {_DAYS[each % 5]}."
        for each in range(at * 7, at * 7 + sentences)
    )


def _rows(at: int, number: int) -> list[dict[str, Any]]:
    return [{"id": f"l{at}-{row}", "text": _text(at + row, 4)} for row in range(number)]


def _crowded(at: int, readers: int) -> dict[str, Any]:
    names = [f"user:u{at}-{number}" for number in range(readers)]
    return {"records": [{"id": f"c{at}", "text": _text(at), "acl": ["user:loud", *names[1:]]}]}


def main(arguments: Sequence[str]) -> None:
    """Measure, and print one figure a line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neighbours", description=__doc__)
    parser.add_argument("--requests", type=int, default=400, help="of the quiet tenant in each part")
    parser.add_argument("--warm", type=float, default=10.0, help="seconds of flood before it is measured")
    parser.add_argument("--flood", metavar="URL", help="flood this service; the key is read from standard input")
    given = parser.parse_args(arguments)
    if given.flood:
        os.nice(_LOWEST_PRIORITY)
        asyncio.run(flood(Service(given.flood, {LOUD: sys.stdin.readline().strip()})))
        return
    for name, value in asyncio.run(measure(given.requests, given.warm)).items():
        print(f"{name:28} {value:10.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
