"""Real processes, really killed: what was acknowledged is there when they are started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from contexture import Settings, wiring
from contexture.testing.bus import TIMEOUT_SECONDS, Inbox

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SESSIONS = 3
MESSAGES = 15
ENOUGH = 5


@pytest.fixture
def settings(topics, new_folder) -> Settings:
    """Settings of processes that share a broker, with topics of their own."""
    # A consumer of Kafka that falls silent on a busy machine would be taken for dead.
    silence = 3.0 if topics["bus"].startswith("kafka") else 1.0
    return Settings(home=new_folder(), bus_redeliver_seconds=silence, worker_concurrency=2, **topics)


@contextmanager
def started(settings: Settings, *words: str) -> Iterator[tuple[subprocess.Popen, dict]]:
    """A running command, and what it said when it was ready."""
    given = settings.model_dump(include=settings.model_fields_set, mode="json")
    env = {f"CONTEXTURE_{name.upper()}": str(value) for name, value in given.items()}
    start = [sys.executable, "-c", "from contexture.cli.main import app; app()", *words, "--json"]
    with subprocess.Popen(
        start,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},  # noqa: TID251 - handed on
    ) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            if process.poll() is None:
                process.kill()


@contextmanager
def client_of(home: Path) -> Iterator[httpx.Client]:
    """A client of the service that holds a store, as its own command line is one."""
    told = json.loads((home / "serve.json").read_text())
    headers = {"Authorization": f"Bearer {told['token']}"}
    with httpx.Client(base_url=told["url"], headers=headers, timeout=TIMEOUT_SECONDS) as client:
        yield client


def message(number: int) -> dict:
    """A message to be handed over."""
    place = {"message_id": f"m-{number}", "session_id": f"s-{number % SESSIONS}"}
    return {"message": f"Number {number} of the session", "background": True, **place}


class Load:
    """Goes on sending, `most` times or until nobody answers, and notes what was acknowledged."""

    def __init__(self, home: Path, path: str, body, most: int = 10_000) -> None:
        self.acknowledged: list[int] = []
        self._most = most
        self._home, self._path, self._body = home, path, body
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        with client_of(self._home) as client:
            for number in range(self._most):
                try:
                    answer = client.post(self._path, json=self._body(number))
                except httpx.HTTPError:
                    return
                assert answer.status_code in (200, 202), answer.text
                self.acknowledged.append(number)
                if len(self.acknowledged) >= ENOUGH:
                    self._enough.set()

    def reached(self) -> None:
        """Wait until enough was acknowledged."""
        assert self._enough.wait(TIMEOUT_SECONDS)

    def ended(self) -> None:
        """Wait until it has noticed that nobody answers."""
        self._thread.join(TIMEOUT_SECONDS)
        assert not self._thread.is_alive()


def check_turns(client: httpx.Client, told: dict[str, dict]) -> None:
    """Every reply is complete and can be read; every session has one turn for each of its messages, in order."""
    for name, reply in told.items():
        assert client.get(f"/v1/chat/replies/{name}").json()["reply"] == reply["reply"] is not None
    for session in range(SESSIONS):
        events = client.get(f"/v1/sessions/s-{session}/events", params={"limit": 1_000}).json()["events"]
        spoken = [event for event in events if event["message"]["content"]]
        asked = [int(event["message"]["content"].split()[1]) for event in spoken if event["message"]["role"] == "user"]
        assert asked == sorted(set(asked))
        assert ["user", "assistant"] * len(asked) == [event["message"]["role"] for event in spoken]


@pytest.mark.parametrize("topics", ["nats"], indirect=True)
async def test_a_killed_service_loses_nothing_it_acknowledged(settings: Settings) -> None:
    """Memories and documents that were acknowledged under load are found after a restart, and messages answered."""
    home, inbox = settings.home, Inbox()
    bus = wiring.bus(settings.model_copy(update={"bus_group": f"heard-{settings.bus_group}"}))
    with started(settings, "serve", "--worker", "--port", "0") as (process, _):
        loads = {
            "memories": Load(home, "/memory/remember", lambda n: {"id": f"r-{n}", "text": f"Memory {n} of the pump."}),
            "documents": Load(
                home, "/v1/ingest/documents", lambda n: {"records": [{"id": f"r-{n}", "text": f"Page {n} of it."}]}
            ),
            "messages": Load(home, "/v1/chat", message, MESSAGES),
        }
        for load in loads.values():
            await asyncio.to_thread(load.reached)
        process.send_signal(signal.SIGKILL)
        for load in loads.values():
            await asyncio.to_thread(load.ended)
    sent = {f"m-{number}" for number in loads.pop("messages").acknowledged}
    async with bus.subscribe(settings.bus_outbound, inbox.receive):
        with started(settings, "serve", "--worker", "--port", "0") as (process, _), client_of(home) as client:
            told = await inbox.wait_for_replies(sent)
            await asyncio.to_thread(check_turns, client, {name: told[name] for name in sent})
            for kind, load in loads.items():
                paths = [f"/v1/records/{kind}/r-{number}" for number in load.acknowledged]
                found = [(await asyncio.to_thread(client.get, path)).status_code for path in paths]
                assert [200] * len(paths) == found
            process.send_signal(signal.SIGTERM)
            assert 0 == await asyncio.to_thread(process.wait, TIMEOUT_SECONDS)
    await bus.close()


async def test_a_killed_worker_loses_no_message_and_answers_none_twice(settings: Settings) -> None:
    """The next worker goes on behind what was answered; a service that was killed meanwhile is waited for."""
    inbox, wanted = Inbox(), {f"m-{number}" for number in range(MESSAGES)}
    bus = wiring.bus(settings.model_copy(update={"bus_group": f"heard-{settings.bus_group}"}))
    async with bus.subscribe(settings.bus_outbound, inbox.receive):
        with started(settings, "serve", "--port", "0") as (service, said), client_of(settings.home) as client:
            for number in range(MESSAGES):
                assert 202 == client.post("/v1/chat", json=message(number)).status_code
            with started(settings, "worker") as (worker, told):
                await inbox.wait_for_messages(3)
                worker.send_signal(signal.SIGKILL)
            assert said["url"] == told["answers"]
            with started(settings, "worker") as (worker, _):
                await inbox.wait_for_messages(len(inbox.bodies) + 1)
                service.send_signal(signal.SIGKILL)
                await asyncio.to_thread(service.wait, TIMEOUT_SECONDS)
                with started(settings, "serve", "--port", "0"), client_of(settings.home) as again:
                    found = await inbox.wait_for_replies(wanted)
                    await asyncio.to_thread(check_turns, again, found)
                    worker.send_signal(signal.SIGTERM)
                    assert 0 == await asyncio.to_thread(worker.wait, TIMEOUT_SECONDS)
    await bus.close()

    assert {"complete"} == {reply["status"] for reply in found.values()}
