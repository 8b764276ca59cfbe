"""How many are served at once, who waits, who is sent away, and how long anything may take."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from prometheus_client import CollectorRegistry

from contexture.adapters.keys import ApiKeys
from contexture.service import _admission
from contexture.service._admission import REFUSAL_SECONDS, Caller, LaneSlots, lane_name
from contexture.testing.doubles import NOON
from contexture.types import Scope
from support.service import service_client

QUERY = {"query": "pump"}


class Held:
    """Holds every search until it is let go, and knows how many there are and were."""

    def __init__(self, engine, monkeypatch):
        self.now, self.most, self.begun = 0, 0, asyncio.Event()
        self.go = asyncio.Event()
        self._search = engine.search
        monkeypatch.setattr(engine, "search", self.search)

    async def search(self, *words, **named):
        """Wait, then search."""
        self.now += 1
        self.most = max(self.most, self.now)
        self.begun.set()
        try:
            await self.go.wait()
        finally:
            self.now -= 1
        return await self._search(*words, **named)


@pytest.fixture
def held(engine, monkeypatch):
    """Searches that wait."""
    return Held(engine, monkeypatch)


def limited(engine, **limits):
    """A client of a service with these limits."""
    engine.settings = engine.settings.model_copy(update=limits)
    return service_client(engine)


async def searches(client, number, headers=None):
    """That many searches under way, each as far as it gets without the others."""
    tasks = [asyncio.create_task(client.post("/v1/search", json=QUERY, headers=headers)) for _ in range(number)]
    for _ in range(50):
        await asyncio.sleep(0)
    return tasks


async def test_those_beyond_the_places_are_sent_away_and_the_others_served(engine, held):
    """Two at once, three behind them; of ten, five are answered with 503 at once, with when to try again."""
    async with limited(engine, max_requests=2, max_waiting=3) as client:
        tasks = await searches(client, 10)
        refused = [task.result() for task in tasks if task.done()]
        held.go.set()
        served = [answer for answer in await asyncio.gather(*tasks) if answer not in refused]

    assert ([503] * 5, [200] * 5) == ([each.status_code for each in refused], [each.status_code for each in served])
    assert {"1"} == {each.headers["retry-after"] for each in refused}
    assert {("UNAVAILABLE", True)} == {
        (each.json()["error"]["code"], each.json()["error"]["retryable"]) for each in refused
    }
    assert 2 == held.most


async def test_a_place_is_free_again_once_its_request_is_done(engine, held):
    """Nothing is counted twice, also not those that were sent away."""
    held.go.set()
    async with limited(engine, max_requests=1, max_waiting=0) as client:
        answers = [await client.post("/v1/search", json=QUERY) for _ in range(5)]

    assert [200] * 5 == [each.status_code for each in answers]


async def test_one_who_leaves_while_waiting_leaves_the_place(engine, held):
    """The next in line gets it."""
    async with limited(engine, max_requests=1, max_waiting=1) as client:
        first, second = await searches(client, 2)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        (third,) = await searches(client, 1)
        held.go.set()

        assert [200, 200] == [(await each).status_code for each in (first, third)]


async def test_health_is_answered_in_a_full_house(engine, held):
    """Whoever watches must not take a crowd for an outage."""
    async with limited(engine, max_requests=1, max_waiting=0) as client:
        await searches(client, 1)
        full = await client.post("/v1/search", json=QUERY)
        watched = [(await client.get(path)).status_code for path in ("/health", "/metrics")]
        shown = (await client.get("/metrics")).text
        held.go.set()

    assert (503, [200, 200]) == (full.status_code, watched)
    assert 'contexture_http_shed_total{lane="requests",reason="full"} 1.0' in shown
    assert 'contexture_http_inside{lane="requests"} 1.0' in shown


async def test_one_kind_does_not_keep_the_others_waiting(engine, held):
    """While searches take every place of theirs, messages are answered and data is loaded."""
    async with limited(engine, max_requests=1, max_waiting=0) as client:
        await searches(client, 1)
        asked = await client.post("/v1/chat", json={"message": "pump"})
        loaded = await client.post("/v1/ingest/documents", json={"records": [{"id": "a", "text": "b"}]})
        held.go.set()

    assert (200, 200) == (asked.status_code, loaded.status_code)


@pytest.mark.parametrize(
    ("path", "lane"),
    [
        ("/v1/chat", "answers"),
        ("/v1/chat/completions", "answers"),
        ("/v1/commands", "answers"),
        ("/api/research/ask", "answers"),
        ("/v1/ingest/documents", "loads"),
        ("/v1/ingest/memories", "loads"),
        ("/memory/remember/batch", "loads"),
        ("/v1/context/turn", "requests"),
        ("/memory/remember", "requests"),
        ("/nowhere", "requests"),
    ],
)
def test_every_path_has_a_lane(path, lane):
    """What waits for a model, what loads, and all the rest."""
    assert lane == lane_name(path)


def test_both_names_of_a_batch_of_memories_share_slots_and_time_limit(settings):
    """Whoever sends a batch by one name waits with those who use the other, and has as long."""
    chosen = settings.model_copy(update={"load_timeout_seconds": 700.0})
    lanes = LaneSlots(chosen, CollectorRegistry())
    first, second = (lanes.for_path(path) for path in ("/v1/ingest/memories", "/memory/remember/batch"))

    assert first is second
    assert 700.0 == second.lane.timeout_seconds


async def test_refusals_are_delayed_while_another_tenant_is_present(settings):
    """A client that asks again as soon as it is refused uses the processor for refusals alone; a lone one may."""
    slept: list[float] = []

    async def wait(seconds):
        slept.append(seconds)

    lanes = LaneSlots(settings, CollectorRegistry(), wait)
    slots = lanes.for_path("/v1/search")
    slots.refusal(Caller("loud", "a"))
    await lanes.delay_refusal(Caller("loud", "a"))
    assert not slept

    slots.refusal(Caller("quiet", "b"))
    await lanes.delay_refusal(Caller("loud", "a"))
    assert [REFUSAL_SECONDS] == slept


async def test_only_so_many_refusals_are_delayed_at_once(settings, monkeypatch):
    """What waits to be refused holds a connection."""
    monkeypatch.setattr(_admission, "MAX_DELAYED", 1)
    begun, go = asyncio.Event(), asyncio.Event()

    async def wait(_):
        begun.set()
        await go.wait()

    lanes = LaneSlots(settings, CollectorRegistry(), wait)
    for tenant in ("loud", "quiet"):
        lanes.for_path("/v1/search").refusal(Caller(tenant, ""))
    first = asyncio.create_task(lanes.delay_refusal(Caller("loud", "")))
    await begun.wait()
    await lanes.delay_refusal(Caller("loud", ""))

    assert not first.done()
    go.set()
    await first


async def test_batches_of_memories_wait_for_each_other(engine, monkeypatch):
    """With one slot and nobody waiting, a batch by the other name is sent away, and a single memory is not."""
    begun, go, remember = asyncio.Event(), asyncio.Event(), engine.memory.remember

    async def held_batch(scope, memories):
        if len(memories) > 1:
            begun.set()
            await go.wait()
        return await remember(scope, memories)

    monkeypatch.setattr(engine.memory, "remember", held_batch)
    batch = {"memories": [{"text": "The pump leaks."}, {"text": "The valve does not."}]}
    async with limited(engine, max_loads=1, max_waiting=0) as client:
        first = asyncio.create_task(client.post("/v1/ingest/memories", json=batch))
        await begun.wait()
        second = await client.post("/memory/remember/batch", json=batch)
        single = await client.post("/memory/remember", json={"text": "The tank is full."})
        go.set()

        assert (200, 503, 200) == ((await first).status_code, second.status_code, single.status_code)


async def test_a_caller_with_too_many_under_way_is_told_so_and_others_are_served(engine, held, settings):
    """429 is for the one, not for the house."""
    keys = ApiKeys(settings.home / "keys.sqlite")
    tokens = [keys.add(user, Scope(tenant="acme", user=user), now=NOON)[1] for user in ("anna", "boris")]
    anna, boris = ({"Authorization": f"Bearer {token}"} for token in tokens)
    engine.settings = engine.settings.model_copy(update={"max_per_caller": 2})
    async with service_client(engine, keys=keys) as client:
        mine = await searches(client, 3, anna)
        theirs = await searches(client, 1, boris)
        refused = [task.result() for task in mine if task.done()]
        held.go.set()
        answers = await asyncio.gather(*mine, *theirs)
    keys.close()

    assert [(429, "LIMITED", "1")] == [
        (each.status_code, each.json()["error"]["code"], each.headers["retry-after"]) for each in refused
    ]
    assert 3 == sum(each.status_code == 200 for each in answers)


async def test_what_takes_too_long_is_stopped(engine, held):
    """The work itself is cancelled, and the caller is told that another try may help."""
    async with limited(engine, request_timeout_seconds=0.05) as client:
        answer = await client.post("/v1/search", json=QUERY)

    assert (503, True, "1") == (answer.status_code, answer.json()["error"]["retryable"], answer.headers["retry-after"])
    assert "more than 0.05 seconds" in answer.json()["error"]["user_message"]
    assert 0 == held.now


async def test_a_body_that_comes_too_slowly_is_refused(engine):
    """Nobody holds a place by sending nothing."""

    async def never():
        yield b'{"query": '
        await asyncio.Event().wait()

    async with limited(engine, request_timeout_seconds=0.05) as client:
        answer = await client.post("/v1/search", content=never(), headers={"Content-Type": "application/json"})

    assert (408, "VALIDATION_FAILED") == (answer.status_code, answer.json()["error"]["code"])


async def test_a_body_whose_sender_left_is_no_request(engine):
    """Half a request is not worked on."""
    sent: list[httpx.Response] = []
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive():
        return next(messages)

    async def send(message):
        sent.append(message)

    async with service_client(engine) as client:
        app = client._transport.app
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/search", "headers": headers, "query_string": b""}
        await app(scope, receive, send)

    assert [] == sent


async def test_who_comes_to_a_full_lane_is_refused_before_the_body_is_read(engine, held, settings):
    """A key is checked first, because a caller with fewer requests is let in; the answer has its id."""
    keys = ApiKeys(settings.home / "keys.sqlite")
    anna = {"Authorization": f"Bearer {keys.add('anna', Scope(tenant='acme', user='anna'), now=NOON)[1]}"}
    engine.settings = engine.settings.model_copy(update={"max_requests": 1, "max_waiting": 0})

    async def unread():
        raise AssertionError("the body was read")
        yield b""

    async with service_client(engine, keys=keys) as client:
        stranger = await client.post("/v1/search", json=QUERY)
        (first,) = await searches(client, 1, anna)
        late = await client.post("/v1/search", content=unread(), headers=anna)
        held.go.set()
        await first
    keys.close()

    assert (401, 503) == (stranger.status_code, late.status_code)
    assert late.headers["x-correlation-id"] == late.json()["meta"]["correlation_id"]
