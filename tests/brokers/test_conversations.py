"""Messages through a real broker: handed over, answered, repeated, refused, and drained."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from contextlib import asynccontextmanager
from dataclasses import replace

import nats
import pytest
from typer.testing import CliRunner

from contexture import Settings, wiring
from contexture.answer.route import ModelRoute
from contexture.cli.main import app
from contexture.errors import InvalidRequest, SourceError, UnknownAdapter
from contexture.testing.bus import Inbox
from contexture.testing.doubles import ScriptedChatModel
from contexture.worker import answer_in_process, create_worker
from support.service import service_client, small_engine

pytestmark = pytest.mark.integration


@pytest.fixture
def settings(topics, new_folder):
    """Settings of a tenant called acme, with topics of their own on a real broker."""
    return Settings(
        home=new_folder(), tenant="acme", user="anna", bus_redeliver_seconds=1.0, worker_retry_seconds=0.0, **topics
    )


def hello(name: str, session: str = "s") -> bytes:
    """A message of Anna's."""
    said = {"id": name, "tenant_id": "acme", "user_id": "anna", "message": "hello", "session_id": session}
    return json.dumps(said).encode()


@pytest.fixture
async def engine(settings):
    """An empty engine whose model counts its answers."""
    async with small_engine(settings) as found:
        model = ScriptedChatModel([f"answer {number}" for number in range(100)])
        found.__dict__["chat"] = replace(found.chat, route=ModelRoute({"scripted": model}))
        yield found


@asynccontextmanager
async def heard(settings, topic):
    """What is published to a topic, to a group of its own."""
    bus, inbox = wiring.bus(settings.model_copy(update={"bus_group": f"heard-{topic.replace('.', '-')}"})), Inbox()
    async with bus.subscribe(topic, inbox.receive):
        yield inbox
    await bus.close()


@pytest.fixture
async def bus(settings):
    """The bus of the settings."""
    found = wiring.bus(settings)
    yield found
    await found.close()


async def test_a_conversation_goes_through_the_broker(settings, engine, bus):
    """Replies come in the order of their session; a repeated id, nonsense and a refusal do no harm to the others."""
    asked = [{"message": f"n {n}", "session_id": "s", "message_id": f"m-{n}", "background": True} for n in range(4)]
    refused = {"id": "m-9", "tenant_id": "acme", "user_id": "anna", "message": "hello", "model": "nobody's"}
    async with (
        service_client(engine, bus=bus) as client,
        heard(settings, settings.bus_outbound) as replies,
        heard(settings, settings.bus_dead) as dead,
    ):
        await bus.publish(settings.bus_inbound, "s", b"\xff nonsense")
        await bus.publish(settings.bus_inbound, "t", json.dumps(refused).encode())
        places = [(await client.post("/v1/chat", json=each)).headers["Location"] for each in [*asked, asked[0]]]
        async with create_worker(settings, bus, answer_in_process(engine)).consume():
            told = [json.loads(body) for body in await replies.wait_for_messages(6)]
            letters = [json.loads(body) for body in await dead.wait_for_messages(2)]
        found = [(await client.get(place)).json() for place in places]

    ours = [each for each in told if each["id"] != "m-9"]
    assert ["m-0", "m-1", "m-2", "m-3", "m-0"] == [each["id"] for each in ours]
    assert ours[0] == ours[4]
    assert [each["reply"] for each in ours] == [each["reply"] for each in found]
    assert ["answer 0", "answer 1", "answer 2", "answer 3"] == [each["reply"]["reply"] for each in ours[:4]]
    assert {"VALIDATION_FAILED"} == {letter["reason"]["code"] for letter in letters}
    assert 8 == len(await engine.sessions.list_events(engine.scope, "s", limit=100))


async def test_what_a_worker_was_cut_off_from_comes_to_the_next(settings, engine, bus):
    """A worker that does not come to an end in time acknowledges nothing; the next one gives the answer."""
    begun = asyncio.Event()
    hasty = wiring.bus(settings.model_copy(update={"shutdown_seconds": 0.1}))
    body = {"id": "m-1", "tenant_id": "acme", "user_id": "anna", "message": "hello", "session_id": "s"}

    async def endless(_):
        begun.set()
        await asyncio.Event().wait()

    await bus.publish(settings.bus_inbound, "s", json.dumps(body).encode())
    async with create_worker(settings, hasty, endless).consume(), asyncio.timeout(30):
        await begun.wait()
    async with (
        create_worker(settings, bus, answer_in_process(engine)).consume(),
        heard(settings, settings.bus_outbound) as replies,
    ):
        (told,) = await replies.wait_for_messages(1)
    await hasty.close()

    assert "answer 0" == json.loads(told)["reply"]["reply"]


async def test_workers_share_the_messages_and_keep_the_order_of_sessions(settings, bus):
    """One comes while messages are answered, the other leaves: all have an answer, those of a session in order."""
    first, second = (wiring.bus(settings) for _ in range(2))
    busy = set()

    async def echo(inbound):
        assert inbound.session_id not in busy
        busy.add(inbound.session_id)
        await asyncio.sleep(0)
        busy.remove(inbound.session_id)
        return json.dumps(inbound.id).encode()

    async def publish(numbers):
        for number in numbers:
            await bus.publish(settings.bus_inbound, f"s-{number % 6}", hello(f"m-{number}", f"s-{number % 6}"))

    async with heard(settings, settings.bus_outbound) as replies:
        async with create_worker(settings, second, echo).consume():
            async with create_worker(settings, first, echo).consume():
                await publish(range(12))
                await replies.wait_for_messages(3)
            await publish(range(12, 24))
            while len(set(replies.bodies)) < 24:
                await replies.wait_for_messages(len(replies.bodies) + 1)
        told = [json.loads(body) for body in dict.fromkeys(replies.bodies)]
    await asyncio.gather(first.close(), second.close())

    for session in range(6):
        wanted = [f"m-{number}" for number in range(session, 24, 6)]
        assert wanted == [each["id"] for each in told if each["session_id"] == f"s-{session}"]


@pytest.mark.parametrize("topics", ["nats"], indirect=True)
@pytest.mark.parametrize("words", [["worker"], ["serve", "--worker", "--port", "0"]])
def test_the_commands_answer_with_a_store_of_their_own(settings, words, monkeypatch):
    """Where no service holds the store; told to stop, they end well."""
    for name in settings.model_fields_set:
        monkeypatch.setenv(f"CONTEXTURE_{name.upper()}", str(getattr(settings, name)))
    told = []

    async def ask():
        bus, replies = wiring.bus(settings), Inbox()
        await bus.publish(settings.bus_inbound, "s", hello("m-1"))
        async with bus.subscribe(settings.bus_outbound, replies.receive):
            told.extend(await replies.wait_for_messages(1))
        await bus.close()

    def stop_when_told():
        asyncio.run(ask())
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=stop_when_told)
    asking.start()
    result = CliRunner().invoke(app, [*words, "--json"])
    asking.join()

    assert 0 == result.exit_code, result.output
    assert "complete" == json.loads(told[0])["status"]
    assert json.loads(result.stdout.splitlines()[0])


@pytest.mark.parametrize("topics", ["nats"], indirect=True)
async def test_a_stream_that_somebody_made_is_used_as_it_is(settings, bus):
    """Its limits are not ours to change; one that takes our subjects away is a failure."""
    topic, client = settings.bus_inbound, await nats.connect(settings.bus)
    streams = client.jetstream()
    await streams.add_stream(name=topic.replace(".", "_"), subjects=[f"{topic}.*"], max_age=60)
    await bus.connect()
    kept = (await streams.stream_info(topic.replace(".", "_"))).config.max_age
    await streams.add_stream(name="thief", subjects=["stolen.*"])
    robbed = wiring.bus(settings.model_copy(update={"bus_dead": "stolen"}))
    with pytest.raises(SourceError, match="subjects overlap"):
        await robbed.connect()
    await streams.delete_stream("thief")
    await robbed.close()
    await client.close()

    assert 60 == kept


async def test_a_worker_outlives_its_broker(new_folder, start_nats):
    """What was published before a server was killed, and after it came back, is answered by the same worker."""
    folder, replies = new_folder(), Inbox()
    with start_nats(folder) as address:
        settings = Settings(bus=address, bus_partitions=1, bus_redeliver_seconds=1.0, worker_retry_seconds=0.05)
        bus = wiring.bus(settings)
        answering, stopped = asyncio.Event(), asyncio.Event()

        async def echo(inbound):
            answering.set()
            await stopped.wait()
            return json.dumps(inbound.id).encode()

        working = create_worker(settings, bus, echo).consume()
        await working.__aenter__()
        await bus.publish(settings.bus_inbound, "s", hello("m-1"))
        await answering.wait()
    stopped.set()
    with start_nats(folder, int(address.rpartition(":")[2])):
        async with bus.subscribe(settings.bus_outbound, replies.receive):
            await replies.wait_for_messages(1)
            await bus.publish(settings.bus_inbound, "s", hello("m-2"))
            while "m-2" not in [json.loads(body)["reply"] for body in replies.bodies]:
                await replies.wait_for_messages(len(replies.bodies) + 1)
        await working.__aexit__(None, None, None)
        await bus.close()


@pytest.mark.parametrize("address", ["nats://127.0.0.1:1", "kafka://127.0.0.1:1"])
async def test_a_broker_that_is_not_there_is_a_source_that_fails(address, monkeypatch):
    """The error says where it was looked for, without the password."""
    from contexture.adapters.bus import kafka
    from contexture.adapters.bus import nats as jetstream

    for module in (kafka, jetstream):
        monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.2)
        monkeypatch.setattr(module, "_HEALTH_TIMEOUT_SECONDS", 0.2)
    bus = wiring.bus(Settings(bus=address.replace("nats://", "nats://anna:secret@")))
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1") as failure:
        await bus.publish("conversation.inbound", "s", b"{}")
    state = await bus.state()
    await bus.close()

    assert ("down", False) == (state, "secret" in str(failure.value))


async def test_a_broker_says_how_it_does(bus):
    """Before anything was published, and without publishing anything."""
    assert "normal" == await bus.state()


async def test_what_a_bus_did_not_take_does_not_turn_up_later(own_kafka, monkeypatch):
    """A publisher that was told of a failure publishes again: were the first one kept too, it would come twice."""
    from contexture.adapters.bus import kafka

    monkeypatch.setattr(kafka, "_TIMEOUT_SECONDS", 1.0)
    own_kafka.make(*(names := ["conversation.inbound", "conversation.outbound", "conversation.dead"]))
    settings, inbox = Settings(bus=f"kafka://{own_kafka.address}", bus_redeliver_seconds=6.0), Inbox()
    bus = wiring.bus(settings)
    states = [await bus.state()]
    await bus.connect()
    with own_kafka.down():
        for _ in range(2):
            with pytest.raises(SourceError):
                await bus.publish(names[1], "s", b"told of a failure")
        states.append(await bus.state())
        async with asyncio.timeout(60):  # to wait for messages that nobody takes would take minutes
            await bus.close()
    await bus.publish(names[1], "s", b"taken")
    async with bus.subscribe(names[1], inbox.receive):
        await inbox.wait_for_messages(1)
    await bus.close()

    assert ([b"taken"], ["normal", "down"]) == (inbox.bodies, states)


@pytest.mark.parametrize("topics", ["nats"], indirect=True)
async def test_a_message_that_is_too_large_is_the_callers_to_fix(settings, bus):
    """The broker's own limit is told as such."""
    with pytest.raises(InvalidRequest, match="larger than the bus"):
        await bus.publish(settings.bus_inbound, "s", b"x" * (2 << 20))


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"bus": "localhost:4222"}, InvalidRequest),
        ({"bus": "redis://localhost"}, UnknownAdapter),
        ({"bus": "nats://localhost", "bus_inbound": "a b"}, InvalidRequest),
        ({"bus": "nats://localhost", "bus_options": {"acks": "all"}}, InvalidRequest),
        ({"bus": "nats://localhost", "bus_dead": "conversation.inbound"}, InvalidRequest),
    ],
)
def test_settings_that_make_no_bus_are_told_at_once(given, wrong):
    """Before anything is reached."""
    with pytest.raises(wrong):
        wiring.bus(Settings(**given))
