"""Two services and two workers over one PostgreSQL and one NATS, with and without Qdrant; one of each is killed."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from contexture import Settings, wiring
from contexture.testing.bus import TIMEOUT_SECONDS, Inbox, new_topic
from support.qdrant_server import QdrantCluster

pytest.importorskip("psycopg", reason="psycopg is not installed")
pytest.importorskip("nats", reason="nats-py is not installed")
pytestmark = pytest.mark.integration

SESSIONS = 3
BEFORE, AFTER = 9, 9  # messages sent before and after the kill


@pytest.fixture
def nats_address(new_folder: Callable[[], Path]) -> Any:
    """A broker, started as the tests of brokers start one."""
    path = Path(__file__).parents[1] / "brokers" / "conftest.py"
    spec = importlib.util.spec_from_file_location("brokers", path)
    assert spec is not None
    assert spec.loader is not None
    brokers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(brokers)
    with brokers.nats_server(new_folder()) as address:
        yield address


@asynccontextmanager
async def started(settings: Settings, *words: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, Any]]]:
    """A running command, and what it said when it was ready."""
    given = settings.model_dump(include=settings.model_fields_set, mode="json")
    env = {f"CONTEXTURE_{name.upper()}": str(value) for name, value in given.items()}
    start = [sys.executable, "-c", "from contexture.cli.main import app; app()", *words, "--json"]
    process = await asyncio.create_subprocess_exec(
        *start,
        stdout=subprocess.PIPE,
        env={**os.environ, **env},  # noqa: TID251 - handed on
    )
    try:
        assert process.stdout is not None
        yield process, json.loads(await process.stdout.readline())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def client_of(home: Path) -> httpx.AsyncClient:
    """A client of a service, as its own command line is one."""
    told = json.loads((home / "serve.json").read_text())
    headers = {"Authorization": f"Bearer {told['token']}"}
    return httpx.AsyncClient(base_url=told["url"], headers=headers, timeout=TIMEOUT_SECONDS)


async def send(client: httpx.AsyncClient, number: int) -> None:
    """Hand one message over, and write one memory."""
    place = {"message_id": f"m-{number}", "session_id": f"s-{number % SESSIONS}"}
    handed = await client.post("/v1/chat", json={"message": f"Number {number} of it", "background": True, **place})
    written = await client.post("/memory/remember", json={"id": f"r-{number}", "text": f"Memory {number} of the pump."})
    assert (202, 200) == (handed.status_code, written.status_code)


async def find_by_words(client: httpx.AsyncClient, number: int) -> list[str]:
    """The ids of the memories that a search by the words of one finds; tried once more when it fails."""
    body = {"query": f"Memory {number} of the pump", "collection": "memories", "limit": 100}
    answer = await client.post("/v1/search", json=body)
    if answer.is_error:
        answer = await client.post("/v1/search", json=body)
    assert answer.is_success, answer.text
    return [row["citation"]["record_id"] for row in answer.json()["results"]]


@pytest.fixture(params=["postgres", pytest.param("qdrant", marks=pytest.mark.needs("qdrant"))])
def stored(request: pytest.FixtureRequest, new_url: Callable[[], str]) -> tuple[dict[str, str], Callable[[], None]]:
    """The settings of a shared store, and what kills a node of it, where it has several."""
    if request.param == "postgres":
        return {"store": new_url()}, lambda: None
    cluster = request.getfixturevalue("own_cluster")
    return {"store": cluster.place, "truth": new_url()}, cluster.nodes[0].kill


@pytest.fixture
def own_cluster(new_folder: Callable[[], Path]) -> Iterator[QdrantCluster]:
    """Three nodes of Qdrant that may be killed."""
    with QdrantCluster(new_folder()) as cluster:
        yield cluster


async def test_nothing_is_lost_or_doubled_when_one_of_each_is_killed(
    nats_address: str, stored: tuple[dict[str, str], Callable[[], None]], new_folder: Callable[[], Path]
) -> None:
    """Every message has one turn, in the order of its session, and the service that is left finds every memory."""
    store, kill_node = stored
    topics = {f"bus_{topic}": new_topic() for topic in ("inbound", "outbound", "dead")}
    group = topics["bus_inbound"].replace(".", "-")
    shared = {
        **store, "bus": nats_address, "bus_group": group, "bus_partitions": 4,
        "bus_redeliver_seconds": 1.0, "worker_concurrency": 2,
    }  # fmt: skip
    places = [Settings(home=new_folder(), **shared, **topics) for _ in range(4)]
    bus, inbox = wiring.bus(places[0].model_copy(update={"bus_group": f"heard-{group}"})), Inbox()
    assert bus is not None
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(bus.subscribe(topics["bus_outbound"], inbox.receive))
        words = [("serve", "--port", "0"), ("serve", "--port", "0"), ("worker",), ("worker",)]
        starting = [stack.enter_async_context(started(at, *each)) for at, each in zip(places, words, strict=True)]
        running = await asyncio.gather(*starting)
        doomed, left = [await stack.enter_async_context(client_of(place.home)) for place in places[:2]]
        seen: list[bool] = []
        for number in range(BEFORE):
            await send(doomed, number)
            seen.append(f"r-{number}" in await find_by_words(left, number))
        await inbox.wait_for_messages(2)
        for process, _ in (running[0], running[2]):
            process.send_signal(signal.SIGKILL)
        kill_node()
        for number in range(BEFORE, BEFORE + AFTER):
            await send(left, number)
            seen.append(f"r-{number}" in await find_by_words(left, number))
        told = await inbox.wait_for_replies({f"m-{number}" for number in range(BEFORE + AFTER)})
        sessions = [
            (await left.get(f"/v1/sessions/s-{session}/events", params={"limit": 1_000})).json()["events"]
            for session in range(SESSIONS)
        ]
        found = [(await left.get(f"/v1/records/memories/r-{number}")).status_code for number in range(BEFORE + AFTER)]
    await bus.close()

    assert {"complete"} == {reply["status"] for reply in told.values()}
    assert {200} == set(found)
    assert [True] * (BEFORE + AFTER) == seen
    for session, events in enumerate(sessions):
        spoken = [event["message"] for event in events if event["message"]["content"]]
        asked = [int(each["content"].split()[1]) for each in spoken if each["role"] == "user"]
        assert list(range(session, BEFORE + AFTER, SESSIONS)) == asked
        assert ["user", "assistant"] * len(asked) == [each["role"] for each in spoken]
