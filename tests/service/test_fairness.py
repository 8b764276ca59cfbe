"""Tenants, and the users of one, share slots and bytes fairly; a lone caller may use all of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.errors import Overloaded
from contexture.service import _admission
from contexture.service._admission import Caller, Lane, Presence, Slots, reserve_of
from contexture.service._body_limits import BodyBudget
from contexture.types import Record
from support.service import service_client

LOUD, QUIET = Caller("loud", "a"), Caller("quiet", "b")
COLLEAGUE = Caller("loud", "c")


class Requests:
    """Requests in the slots of a lane, each running until it is ended."""

    def __init__(self, *, running=2, waiting=4, reserve=0, share=0):
        lane = Lane(
            name="requests",
            max_running=running,
            max_waiting=waiting,
            timeout_seconds=60,
            share=share or running,
            reserve=reserve,
        )
        self.slots = Slots(lane)
        self.started: list[Caller] = []
        self.refused: list[Caller] = []
        self._ends: list[tuple[Caller, asyncio.Event]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def send(self, *callers):
        """One request of each caller, as far as it gets."""
        for caller in callers:
            self._tasks.append(asyncio.create_task(self._run(caller)))
            await settle()

    async def end(self, caller):
        """End the oldest running request of a caller."""
        found = next(pair for pair in self._ends if pair[0] == caller)
        self._ends.remove(found)
        found[1].set()
        await settle()

    async def close(self):
        """End everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, caller):
        end = asyncio.Event()
        try:
            async with self.slots.acquire(caller):
                self.started.append(caller)
                self._ends.append((caller, end))
                await end.wait()
        except Overloaded:
            self.refused.append(caller)


async def settle():
    """Let every task run as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def requests():
    """A lane with two slots and a queue of four."""
    made = Requests()
    yield made
    await made.close()


async def test_a_lone_caller_uses_every_slot_and_the_whole_queue(requests):
    """Fairness costs nobody anything while nobody else is there."""
    await requests.send(*[LOUD] * 7)

    assert ([LOUD] * 2, [LOUD]) == (requests.started, requests.refused)
    assert 6 == requests.slots.in_flight


async def test_the_next_free_slot_goes_to_the_tenant_with_the_fewest_running(requests):
    """Whoever came first waits, if others have less."""
    await requests.send(*[LOUD] * 4, QUIET)
    await requests.end(LOUD)

    assert [LOUD, LOUD, QUIET] == requests.started


async def test_a_request_to_a_full_queue_replaces_one_of_the_tenant_with_the_most(requests):
    """The newest waiting request of the other tenant is refused in its place."""
    await requests.send(*[LOUD] * 6, QUIET)
    await requests.end(LOUD)

    assert ([LOUD], QUIET) == (requests.refused, requests.started[-1])


async def test_tenants_with_the_same_number_do_not_replace_each_other(requests):
    """Three each: the seventh request is refused, whoever sends it."""
    await requests.send(*[LOUD] * 3, *[QUIET] * 3)
    await requests.send(LOUD, QUIET)

    assert [LOUD, QUIET] == requests.refused


async def test_users_of_one_tenant_share_its_slots(requests):
    """A colleague with nothing running is next, and replaces a waiting request of the one with the most."""
    await requests.send(*[LOUD] * 6, COLLEAGUE)
    await requests.end(LOUD)

    assert ([LOUD], COLLEAGUE) == (requests.refused, requests.started[-1])


async def test_a_tenant_with_nothing_running_does_not_wait_for_long_requests():
    """It uses the reserve at once; a second request of it waits like any other."""
    requests = Requests(reserve=1)
    await requests.send(*[LOUD] * 3, QUIET, QUIET)

    assert [LOUD, LOUD, QUIET] == requests.started
    await requests.close()


async def test_a_colleague_uses_the_reserve_while_the_tenant_is_alone():
    """Where there is one tenant only, its users are those who share."""
    requests = Requests(reserve=1)
    await requests.send(*[LOUD] * 3, COLLEAGUE)

    assert [LOUD, LOUD, COLLEAGUE] == requests.started
    await requests.close()


async def test_a_tenant_that_is_not_alone_uses_its_share():
    """While another was there lately, even if it has nothing running; alone it uses all."""
    requests = Requests(running=4, share=2)
    await requests.send(*[LOUD] * 4)
    alone = list(requests.started)
    await requests.send(QUIET)
    for _ in range(3):
        await requests.end(LOUD)
    await requests.end(QUIET)
    await requests.send(*[LOUD] * 3)

    assert [LOUD] * 4 == alone
    assert [QUIET, LOUD] == requests.started[4:]
    await requests.close()


def test_a_tenant_is_present_for_a_while_after_its_last_request(monkeypatch):
    """Then the others are alone again."""
    now = [100.0]
    monkeypatch.setattr(_admission, "monotonic", lambda: now[0])
    presence = Presence(seconds=10)
    presence.note("quiet")
    presence.note("loud")
    before = presence.is_alone("loud")
    now[0] = 109.0
    presence.note("loud")
    now[0] = 111.0

    assert (False, True, False) == (before, presence.is_alone("loud"), presence.is_alone("quiet"))


async def test_a_cancelled_request_neither_keeps_nor_loses_a_slot(requests):
    """One that is cancelled while it waits, or at the moment it is granted a slot, leaves it to the next."""
    await requests.send(LOUD, LOUD, QUIET, LOUD)
    waiting = requests._tasks[2]
    requests._ends[0][1].set()
    await asyncio.sleep(0)  # the slot is free, and the next request may be granted
    waiting.cancel()
    await settle()

    assert [LOUD] * 3 == requests.started
    assert 2 == requests.slots.in_flight


@given(calls=st.lists(st.sampled_from([LOUD, QUIET, COLLEAGUE, None]), max_size=40), reserve=st.integers(0, 2))
def test_slots_are_never_over_used_and_none_stays_free(calls, reserve):
    """At most the limit and the reserve run, requests wait only while the limit is reached, and no slot is lost."""

    async def run():
        requests = Requests(reserve=reserve)
        for call in calls:
            if call is not None:
                await requests.send(call)
            elif requests._ends:
                await requests.end(requests._ends[0][0])
            running, lane = len(requests._ends), requests.slots.lane
            waiting = requests.slots.in_flight - running
            assert running <= lane.max_running + lane.reserve
            assert not waiting or running >= lane.max_running
            assert waiting <= lane.max_waiting
        await requests.close()
        assert 0 == requests.slots.in_flight

    asyncio.run(run())


@pytest.mark.parametrize(("limit", "share", "reserve"), [(4, 0.5, 2), (2, 0.5, 1), (1, 0.5, 1), (4, 1.0, 0)])
def test_the_reserve_is_what_one_tenant_may_not_use(limit, share, reserve):
    """At least one slot, and none where one tenant may use all."""
    assert reserve == reserve_of(limit, share)


async def test_a_lone_caller_may_hold_all_bytes_and_no_more():
    """The limit holds for everybody together, and bytes are free again at the end."""
    budget = BodyBudget(100, 0.5)
    with budget.claim(LOUD) as first, budget.claim(LOUD) as second:
        budget.grow(first, 60)
        budget.grow(second, 40)
        with budget.claim(LOUD) as third, pytest.raises(Overloaded):
            budget.grow(third, 1)

    assert 0 == budget.total


async def test_incomplete_bodies_above_a_share_are_dropped_for_a_tenant_below_it():
    """The newest goes first, and only as many as are needed."""
    budget = BodyBudget(100, 0.5)
    with budget.claim(LOUD) as old, budget.claim(LOUD) as new, budget.claim(QUIET) as other:
        with suppress(TimeoutError):
            async with asyncio.timeout(60) as old.arriving, asyncio.timeout(60) as new.arriving:
                budget.grow(old, 50)
                budget.grow(new, 50)
                budget.grow(other, 30)
                await asyncio.Event().wait()  # until it is dropped

        assert (50, 0, 30) == (old.size, new.size, other.size)
        assert (False, True) == (old.lost, new.lost)


async def test_a_tenant_below_its_share_is_not_refused_for_bodies_being_processed():
    """They are complete and cannot be dropped: the reserve is there for it, and no further."""
    budget = BodyBudget(100, 0.5)
    with budget.claim(LOUD) as first, budget.claim(QUIET) as other, budget.claim(LOUD) as second:
        budget.grow(first, 100)
        budget.grow(other, 50)
        for claim, size in ((other, 51), (second, 1)):
            with pytest.raises(Overloaded):
                budget.grow(claim, size)

        assert 150 == budget.total


async def unfinished(size):
    """A chunked body that never ends."""
    yield b" " * size
    yield b" "
    await asyncio.Event().wait()


async def test_chunked_bodies_count_as_they_arrive(engine):
    """One that never ends loses its bytes to another tenant's, and is told to retry."""
    limits = {"max_body_bytes": 300_000, "max_bytes_in_flight": 400_000, "max_share": 0.5}
    engine.settings = engine.settings.model_copy(update=limits)
    loud, quiet = ({"X-Contexture-Tenant": name, "Content-Type": "application/json"} for name in ("loud", "quiet"))
    async with service_client(engine) as client:
        stuck = [
            asyncio.create_task(client.post("/v1/search", content=unfinished(190_000), headers=loud)) for _ in range(2)
        ]
        await settle()
        answer = await client.post("/v1/search", content=b'{"query": "pump"}' + b" " * 150_000, headers=quiet)
        done, pending = await asyncio.wait(stuck, return_when=asyncio.FIRST_COMPLETED)
        shown = (await client.get("/metrics")).text
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        refused = done.pop().result()

    assert (200, 503, "1") == (answer.status_code, refused.status_code, refused.headers["retry-after"])
    assert 'contexture_http_shed_total{lane="requests",reason="bytes"} 1.0' in shown
    assert 1 == len(pending)


async def test_a_body_that_says_its_length_counts_before_it_arrives(engine):
    """Bodies whose bytes are only announced are refused beyond the limit, without waiting for them."""
    limits = {"max_body_bytes": 300_000, "max_bytes_in_flight": 400_000}
    engine.settings = engine.settings.model_copy(update=limits)
    headers = {"Content-Length": "300000", "Content-Type": "application/json"}
    async with service_client(engine) as client:
        stuck = asyncio.create_task(client.post("/v1/search", content=unfinished(10), headers=headers))
        await settle()
        refused = await client.post("/v1/search", content=unfinished(10), headers=headers)
        small = await client.post("/v1/search", json={"query": "pump"})
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)

    assert (503, 200) == (refused.status_code, small.status_code)


READERS = [f"user:u{number}" for number in range(300)]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/ingest/documents", {"records": [], "acl": READERS}),
        ("/v1/ingest/articles", {"articles": [], "readers": READERS}),
        ("/v1/ingest/memories", {"memories": [{"text": "The pump leaks.", "readers": READERS}]}),
        ("/memory/remember", {"text": "The pump leaks.", "readers": READERS}),
        ("/v1/ingest/blocks", {"blocks": [{"id": "b", "text": "The pump leaks.", "readers": READERS}]}),
        ("/v1/ingest/blocks", {"blocks": [{"id": "b", "text": "The pump leaks.", "editors": READERS}]}),
        ("/v1/ingest/blocks", {"blocks": [{"id": "b", "text": "The pump leaks.", "managers": READERS}]}),
    ],
)
async def test_a_write_names_at_most_as_many_readers_as_allowed(client, path, body):
    """422 says how many there are, how many may be, and to use a group."""
    answer = await client.post(path, json=body)

    assert 422 == answer.status_code
    message = answer.json()["error"]["user_message"]
    assert "300 readers" in message
    assert "256 are allowed (CONTEXTURE_MAX_READERS)" in message
    assert "group:NAME" in message


async def test_a_row_with_too_many_readers_is_reported_and_the_others_are_stored(client):
    """As any row that cannot be stored."""
    rows = [{"id": "a", "text": "x", "acl": READERS}, {"id": "b", "text": "y"}]
    report = (await client.post("/v1/ingest/documents", json={"records": rows})).json()

    assert (1, 1) == (report["added"], len(report["failed"]))
    assert "300 readers" in report["failed"][0]["message"]


async def test_a_stored_record_above_the_limit_stays_readable(engine):
    """The limit is for writes: what was stored under a higher one is searched, read and removed."""
    readers = ("user:anna", *READERS)
    engine._preparer._max_readers = 1_000
    await engine.add([Record(id="crowd", text="The crowd sees it.", acl=readers)])
    engine._preparer._max_readers = 256
    async with service_client(engine) as client:
        found = (await client.post("/v1/search", json={"query": "crowd"})).json()
        read = await client.get("/v1/records/documents/crowd")
        removed = await client.request("DELETE", "/v1/ingest/documents", json={"ids": ["crowd"]})

    assert "crowd" == found["results"][0]["citation"]["record_id"]
    assert (200, 1) == (read.status_code, removed.json()["deleted"])


async def test_the_memories_of_one_tenant_do_not_wait_for_a_batch_of_another(engine, monkeypatch):
    """While one tenant's batch is embedded, another's is stored."""
    begun, go, prepare = asyncio.Event(), asyncio.Event(), engine._preparer.prepare

    async def held(records, *context):
        if records[0].text.startswith("loud"):
            begun.set()
            await go.wait()
        return await prepare(records, *context)

    monkeypatch.setattr(engine._preparer, "prepare", held)
    async with service_client(engine) as client:
        loud, quiet = (
            client.post("/memory/remember", json={"text": f"{name} pump"}, headers={"X-Contexture-Tenant": name})
            for name in ("loud", "quiet")
        )
        first = asyncio.create_task(loud)
        await asyncio.wait([first, asyncio.ensure_future(begun.wait())], return_when=asyncio.FIRST_COMPLETED)
        second = await quiet
        go.set()

        assert (200, 200) == ((await first).status_code, second.status_code)
