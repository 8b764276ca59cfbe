"""Where a worker's answers come from: the engine here, or the service that holds the store."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace

import pytest
import uvicorn
from typer.testing import CliRunner

from contexture import worker
from contexture.announcement import ServiceAnnouncement
from contexture.answer.route import ModelRoute
from contexture.cli.main import app as commands
from contexture.conversation import Decision
from contexture.errors import (
    ContractError,
    InvalidRequest,
    NotPermitted,
    Overloaded,
    SourceTimeout,
    SourceUnavailable,
    StoreUnwritable,
    TooManyRequests,
)
from contexture.resilience import RetryPolicy
from contexture.service._admission import Slots
from contexture.service.app import create_app
from contexture.service.server import bind_socket, socket_url
from contexture.service.wire.chat import parse_inbound
from contexture.testing.doubles import ScriptedChatModel
from contexture.types import Scope
from contexture.worker import answer_in_process, answer_via_service

BORIS = Scope(tenant="acme", user="boris", groups=("sales", "a,b"))


def message(**more):
    """A message of Boris's."""
    said = {"id": "m-1", "tenant_id": "acme", "user_id": "boris", "groups": ["sales", "a,b"], "message": "Hello"}
    return parse_inbound(json.dumps({**said, "session_id": "s", **more}).encode())


def use(engine, *said, **parts):
    """Let the engine's chat work with these answers, and with other parts."""
    engine.__dict__["chat"] = replace(engine.chat, route=ModelRoute({"scripted": ScriptedChatModel(said)}), **parts)


@pytest.fixture
async def place(engine):
    """A running service over the engine, as it announces itself."""
    bound = bind_socket("127.0.0.1", 0)
    application = create_app(engine, keys=None, settings=engine.settings, token="secret")  # noqa: S106 - made up
    server = uvicorn.Server(uvicorn.Config(application, log_config=None, lifespan="off"))
    running = asyncio.create_task(server.serve(sockets=[bound]))
    yield ServiceAnnouncement(pid=os.getpid(), url=socket_url(bound), token="secret")  # noqa: S106 - made up
    server.should_exit = True
    await running
    bound.close()


async def test_a_service_answers_as_the_engine_does(engine, place):
    """On behalf of the user whom the message names, once, and with the same bytes."""
    asked = []

    class Noting:
        async def decide(self, scope, action, resource):
            asked.append((scope, action))
            return Decision(allowed=True)

    use(engine, "Good day.", policy=Noting())
    async with answer_via_service(lambda: place, RetryPolicy()) as answer:
        first = await answer(message())
    second = await answer_in_process(engine)(message())

    assert first == second
    assert [(BORIS, "message.process"), (BORIS, "memory.remember")] == asked
    assert 2 == len(await engine.sessions.list_events(BORIS, "s"))


@pytest.mark.parametrize("way", ["inside", "through"])
async def test_errors_are_the_same_either_way(engine, place, way):
    """A denial is a denial, and an unknown model the sender's fault."""

    class Closed:
        async def decide(self, scope, action, resource):
            return Decision(allowed=resource["model"] is not None, reason="closed")

    use(engine, policy=Closed())
    async with answer_via_service(lambda: place, RetryPolicy()) as remote:
        answer = answer_in_process(engine) if way == "inside" else remote
        with pytest.raises(NotPermitted, match="closed"):
            await answer(message())
        with pytest.raises(InvalidRequest, match="nobody's"):
            await answer(message(id="m-2", model="nobody's"))


async def test_messages_wait_for_a_service_that_is_not_there(engine, place):
    """None at all, one that is gone, and one with another token by now: all are waited for, with growing pauses."""
    use(engine, "Good day.")
    gone = ServiceAnnouncement(pid=place.pid, url="http://127.0.0.1:1", token=place.token)
    other = ServiceAnnouncement(pid=place.pid, url=place.url, token="ctx_local_another")  # noqa: S106 - made up
    found, naps = iter([None, gone, other, place]), []

    async def nap(seconds):
        naps.append(seconds)

    async with answer_via_service(lambda: next(found), RetryPolicy(base_seconds=1.0, sleep=nap)) as answer:
        told = json.loads(await answer(message()))

    assert ("Good day.", 3) == (told["reply"], len(naps))
    assert naps[0] < 2 < naps[2] < 8


async def test_a_service_that_is_full_says_so_to_the_worker(engine, place, monkeypatch):
    """Nothing was looked at, so that the message may wait for its turn."""
    monkeypatch.setattr(Slots, "refusal", lambda *_: Overloaded("that is all we take"))
    async with answer_via_service(lambda: place, RetryPolicy()) as answer:
        with pytest.raises(Overloaded, match="that is all we take"):
            await answer(message())


async def test_a_service_that_does_not_answer_in_time_is_tried_again_later(engine, place, monkeypatch):
    """The worker is told that it took too long."""
    never = asyncio.Event()

    class Slow:
        async def decide(self, scope, action, resource):
            await never.wait()
            return Decision(allowed=False)

    use(engine, policy=Slow())
    monkeypatch.setattr(worker, "_HTTP_TIMEOUT", 0.1)
    async with answer_via_service(lambda: place, RetryPolicy()) as answer:
        with pytest.raises(SourceTimeout):
            await answer(message())
    never.set()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>", SourceUnavailable),
        (b"{}", SourceUnavailable),
        (b'{"error": {"code": "LIMITED", "user_message": "slower"}}', TooManyRequests),
        (b'{"error": {"code": "UNAVAILABLE", "user_message": "later"}}', SourceUnavailable),
        (b'{"error": {"code": "UNAVAILABLE", "user_message": "", "tech_message": "Overloaded: x"}}', Overloaded),
        (
            b'{"error": {"code": "UNAVAILABLE", "user_message": "", "tech_message": "StoreUnwritable:"}}',
            StoreUnwritable,
        ),
        (b'{"error": "away"}', SourceUnavailable),
        (b'{"error": {"code": "INTERNAL", "user_message": "ours"}}', ContractError),
    ],
)
def test_an_answer_that_is_an_error_is_raised_as_one(body, kind):
    """One that cannot be read may come from a proxy before a service that starts."""
    assert type(worker._parse_error(body)) is kind


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (["worker"], {}, "a worker needs a bus: set CONTEXTURE_BUS"),
        (["serve", "--worker", "--port", "0"], {}, "a worker needs a bus: set CONTEXTURE_BUS"),
        (["serve", "--port", "0"], {"CONTEXTURE_BUS": "redis://one"}, "unknown bus 'redis'"),
        (["worker"], {"CONTEXTURE_URL": "http://127.0.0.1:1"}, "unset CONTEXTURE_URL"),
    ],
)
def test_a_worker_that_cannot_work_says_what_to_do(tmp_path, words, env, said):
    """At once, and without making a store."""
    result = CliRunner().invoke(commands, [*words, "--home", str(tmp_path / "home")], env=env)

    assert 2 == result.exit_code
    assert said in " ".join(result.output.split())
    assert not (tmp_path / "home" / "truth.sqlite").exists()


@pytest.mark.parametrize("bus", ["nats://anna:hunter2@127.0.0.1:4222", "kafka://127.0.0.1:9092"])
def test_settings_do_not_show_the_password_of_a_bus(bus):
    """An address without one is shown."""
    env = {"CONTEXTURE_BUS": bus, "CONTEXTURE_BUS_OPTIONS": '{"sasl.password": "hunter2"}'}
    shown = CliRunner().invoke(commands, ["settings", "--json"], env=env).stdout

    assert "hunter2" not in shown
    assert ("@" in bus) != (bus in shown)
