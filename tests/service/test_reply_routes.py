"""Messages that are handed over: 202 with a place to read the reply, for whoever asked and nobody else."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import msgspec
import pytest

from contexture.adapters.keys import ApiKeys
from contexture.answer.route import ModelRoute
from contexture.conversation import Decision
from contexture.errors import SourceUnavailable
from contexture.service.wire.chat import EnqueuedJson, ReplyJson
from contexture.testing.bus import InMemoryBus
from contexture.testing.doubles import NOON, ScriptedChatModel
from contexture.types import Scope
from contexture.worker import answer_in_process, create_worker
from support.service import service_client

ASKED = {"message": "When does the ferry leave?", "session_id": "s", "background": True}
INBOUND, OUTBOUND, DEAD = "conversation.inbound", "conversation.outbound", "conversation.dead"


def use(engine, *answers, **parts):
    """Let the engine's chat work with these answers, and with other parts."""
    route = ModelRoute({"scripted": ScriptedChatModel(answers)})
    engine.__dict__["chat"] = replace(engine.chat, route=route, **parts)


@pytest.fixture
def bus():
    """A bus in this process."""
    return InMemoryBus()


@pytest.fixture
async def client(engine, bus):
    """A client of a service without keys, and with a bus."""
    async with service_client(engine, bus=bus) as found:
        yield found


async def test_a_message_is_handed_over_and_its_reply_read_where_the_answer_says(engine, client, bus):
    """First 202 and no reply yet, then 200 and what `POST /v1/chat` would have answered."""
    use(engine, "At nine.")
    taken = await client.post("/v1/chat", json=ASKED)
    place = taken.headers["Location"]
    waiting = await client.get(place)
    async with create_worker(engine.settings, bus, answer_in_process(engine)).consume():
        (told,) = await bus.wait_for_messages(OUTBOUND, 1)
    found = await client.get(place)

    assert (202, place, "s") == (taken.status_code, taken.json()["reply_url"], taken.json()["session_id"])
    assert (202, "accepted", None, "1") == (
        waiting.status_code, waiting.json()["status"], waiting.json()["reply"], waiting.headers["Retry-After"],
    )  # fmt: skip
    assert (200, "complete", "At nine.") == (
        found.status_code, found.json()["status"], found.json()["reply"]["reply"],
    )  # fmt: skip
    assert json.loads(told)["reply"] == found.json()["reply"]
    assert json.loads(bus.published[INBOUND][0])["user_id"] == "anna"
    msgspec.convert(taken.json(), EnqueuedJson)
    msgspec.convert(waiting.json(), ReplyJson)
    msgspec.convert(found.json(), ReplyJson)


async def test_the_same_message_twice_is_one_turn(engine, client, bus):
    """Handed over twice, or sent once more to be answered at once: the reply is the same, and asked for once."""
    use(engine, "At nine.")
    asked = {**ASKED, "message_id": "m/1 ж"}
    for _ in range(2):
        assert 202 == (await client.post("/v1/chat", json=asked)).status_code
    async with create_worker(engine.settings, bus, answer_in_process(engine)).consume():
        told = await bus.wait_for_messages(OUTBOUND, 2)
    late = await client.post("/v1/chat", json=asked)
    direct = await client.post("/v1/chat", json={**asked, "background": False})
    events = (await client.get("/v1/sessions/s/events")).json()["events"]

    assert told[0] == told[1]
    assert ("complete", 2) == (late.json()["status"], len(bus.published[INBOUND]))
    assert direct.json() == json.loads(told[0])["reply"] == (await client.get(late.headers["Location"])).json()["reply"]
    assert ["user", "assistant"] == [event["message"]["role"] for event in events]


async def test_an_id_that_another_message_has_is_refused(engine, client, bus):
    """At once where that is known, and as a dead letter where it is not; the message that came first is answered."""
    use(engine, "At nine.")
    first, other = {**ASKED, "message_id": "m-1"}, {**ASKED, "message_id": "m-1", "message": "And back?"}
    taken = [(await client.post("/v1/chat", json=asked)).status_code for asked in (first, other)]
    async with create_worker(engine.settings, bus, answer_in_process(engine)).consume():
        told = [json.loads(body)["status"] for body in await bus.wait_for_messages(OUTBOUND, 2)]
    late = [
        (await client.post("/v1/chat", json={**first, **changed})).status_code
        for changed in ({}, other, {**other, "background": False}, {"session_id": "t"})
    ]
    found = (await client.get("/v1/chat/replies/m-1")).json()

    assert ([202, 202], ["complete", "failed"]) == (taken, told)
    assert [202, 422, 422, 422] == late
    assert "belongs to another" in json.loads(bus.published[DEAD][0])["reason"]["user_message"]
    assert ("complete", "At nine.") == (found["status"], found["reply"]["reply"])


async def test_a_message_that_fails_says_why_where_its_reply_would_be(engine, client, bus):
    """The policy lets it in and denies it later: the reply is an error, and there is a dead letter."""
    allowed = iter([True, False])

    class Changing:
        async def decide(self, scope, action, resource):
            return Decision(allowed=action != "message.process" or next(allowed), reason="closed by now")

    use(engine, "At nine.", policy=Changing())
    place = (await client.post("/v1/chat", json=ASKED)).headers["Location"]
    async with create_worker(engine.settings, bus, answer_in_process(engine)).consume():
        await bus.wait_for_messages(OUTBOUND, 1)
    found = await client.get(place)
    msgspec.convert(found.json(), ReplyJson)

    assert (200, "failed") == (found.status_code, found.json()["status"])
    assert {"code": "FORBIDDEN", "message": "closed by now", "retryable": False} == found.json()["error"]
    assert "FORBIDDEN" == json.loads(bus.published[DEAD][0])["reason"]["code"]


async def test_a_denied_message_is_not_handed_over(engine, client, bus):
    """The policy is asked before anything is published."""

    class Closed:
        async def decide(self, scope, action, resource):
            return Decision(allowed=False, reason="closed")

    use(engine, policy=Closed())
    refused = await client.post("/v1/chat", json=ASKED)

    assert (403, "closed") == (refused.status_code, refused.json()["error"]["user_message"])
    assert not bus.published[INBOUND]


async def test_a_reply_is_for_whoever_asked(engine, bus, tmp_path):
    """Another user's reply, another tenant's, and one that never was are answered alike."""
    keys = ApiKeys(tmp_path / "keys.json")
    scopes = {"anna": ("acme", "anna"), "boris": ("acme", "boris"), "eve": ("evil", "anna")}
    tokens = {
        name: keys.add(name, Scope(tenant=tenant, user=user), now=NOON)[1] for name, (tenant, user) in scopes.items()
    }
    use(engine, "At nine.")

    def bearer(name):
        return {"Authorization": f"Bearer {tokens[name]}"}

    async with service_client(engine, keys=keys, bus=bus) as client:
        taken = await client.post("/v1/chat", json={**ASKED, "message_id": "m-1"}, headers=bearer("anna"))
        own = await client.get(taken.headers["Location"], headers=bearer("anna"))
        foreign = [await client.get(taken.headers["Location"], headers=bearer(name)) for name in ("boris", "eve")]
        unknown = await client.get("/v1/chat/replies/m-2", headers=bearer("anna"))
        nobody = await client.get(taken.headers["Location"])
    keys.close()

    assert (202, 401) == (own.status_code, nobody.status_code)
    assert [404, 404, 404] == [each.status_code for each in (*foreign, unknown)]
    told = [each.json()["error"] for each in (*foreign, unknown)]
    assert {"NO_DATA"} == {each["code"] for each in told}
    assert told[0] == told[1] == json.loads(json.dumps(told[2]).replace("m-2", "m-1"))


@pytest.mark.parametrize("more", [{"stream": True}, {"stream": True, "background": False, "message_id": "m-1"}])
async def test_what_is_answered_once_is_not_streamed(client, more):
    """The two ways to wait for an answer exclude each other."""
    refused = await client.post("/v1/chat", json={**ASKED, **more})

    assert (422, True) == (refused.status_code, "leave out `stream`" in refused.json()["error"]["user_message"])


async def test_without_a_bus_nothing_is_handed_over(engine):
    """The caller is told what to leave out."""
    async with service_client(engine) as client:
        refused = await client.post("/v1/chat", json=ASKED)

    assert (422, True) == (refused.status_code, "no message bus" in refused.json()["error"]["user_message"])


async def test_a_bus_that_is_away_takes_nothing(engine):
    """503 says to try again; nothing was promised."""

    class Away(InMemoryBus):
        async def publish(self, topic, key, body):
            raise SourceUnavailable("the bus at 10.0.0.1 failed")

    async with service_client(engine, bus=Away()) as client:
        refused = await client.post("/v1/chat", json={**ASKED, "message_id": "m-1"})
        found = (await client.get("/v1/chat/replies/m-1")).json()

    assert (503, "1") == (refused.status_code, refused.headers["Retry-After"])
    assert ("failed", True) == (found["status"], found["error"]["retryable"])


async def test_many_sessions_at_once_end_in_one_turn_for_each_message(engine, client, bus):
    """Forty messages of eight sessions, each handed over twice: every session has its five turns, in order."""
    use(engine, *[f"answer {number}" for number in range(100)])
    sent = [{**ASKED, "message": f"n {n}", "session_id": f"s-{n % 8}", "message_id": f"m-{n}"} for n in range(40)]
    for asked in [*sent, *sent]:
        await client.post("/v1/chat", json=asked)
    async with create_worker(engine.settings, bus, answer_in_process(engine)).consume():
        await bus.wait_for_messages(OUTBOUND, 80)
    found = await asyncio.gather(*(engine.sessions.list_events(engine.scope, f"s-{n}", limit=100) for n in range(8)))

    for number, events in enumerate(found):
        said = [event.message["content"] for event in events if event.message["role"] == "user"]
        assert [f"n {n}" for n in range(number, 40, 8)] == said
        assert ["user", "assistant"] * 5 == [event.message["role"] for event in events]
