"""A worker over a bus in memory: order, retries, dead letters, doubles, bounds and draining."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import closing, suppress
from dataclasses import dataclass, field
from random import Random

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from contexture.adapters.prometheus import WorkerMetrics
from contexture.errors import (
    InvalidRequest,
    NotPermitted,
    Overloaded,
    SourceTimeout,
    SourceUnavailable,
    StoreUnwritable,
)
from contexture.resilience import RetryPolicy
from contexture.service.server import bind_socket
from contexture.service.wire.chat import InboundMessage, parse_inbound
from contexture.testing.bus import InMemoryBus
from contexture.worker import MAX_PAUSE_SECONDS, Topics, Worker, run_until_stopped, serve_metrics

TOPICS = Topics(inbound="in", outbound="out", dead="dead")


def said(number=1, *, session="s", **more) -> bytes:
    """A message on the bus."""
    told = {"id": f"m-{number}", "tenant_id": "acme", "user_id": "anna", "message": "Hello", "session_id": session}
    return json.dumps({**told, **more}).encode()


@dataclass
class Answers:
    """Gives each message the next item of its script, or its own id; failures among them are raised."""

    script: dict[str, list[Exception | None]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def __call__(self, inbound: InboundMessage) -> bytes:
        """The answer, or a failure."""
        self.asked.append(inbound.id)
        left = self.script.get(inbound.id)
        failure = left.pop(0) if left else None
        await asyncio.sleep(0)
        if failure is not None:
            raise failure
        return json.dumps({"to": inbound.id}).encode()


@dataclass
class Naps:
    """Pauses that take no time."""

    taken: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        """Note the pause."""
        self.taken.append(seconds)
        await asyncio.sleep(0)


class Flat(Random):
    """Dice that always say one."""

    def uniform(self, _low, _high):
        """One."""
        return 1.0


def worker(bus, answer, *, naps=None, most=2, at_once=8) -> Worker:
    """A worker whose pauses take no time."""
    retries = RetryPolicy(max_retries=most, base_seconds=1.0, rng=Flat(), sleep=naps or Naps())
    return Worker(bus=bus, answer=answer, topics=TOPICS, retries=retries, at_once=at_once)


async def heard(bus: InMemoryBus, topic: str, count: int) -> list[dict]:
    """The messages of a topic, once there are so many."""
    return [json.loads(body) for body in await bus.wait_for_messages(topic, count)]


async def test_a_message_is_answered_on_the_topic_of_answers():
    """The answer names its message, its user and its session."""
    bus = InMemoryBus()
    async with worker(bus, Answers()).consume():
        await bus.publish("in", "s", said())
        (told,) = await heard(bus, "out", 1)

    assert told == {
        "id": "m-1", "tenant_id": "acme", "user_id": "anna", "session_id": "s", "status": "complete",
        "reply": {"to": "m-1"}, "error": None,
    }  # fmt: skip
    assert not bus.published["dead"]


async def test_a_failure_that_may_pass_is_tried_again_with_growing_pauses():
    """Two failures and two pauses later there is an answer, and no dead letter."""
    bus, naps = InMemoryBus(), Naps()
    answers = Answers({"m-1": [SourceUnavailable("busy"), SourceTimeout("late")]})
    async with worker(bus, answers, naps=naps).consume():
        await bus.publish("in", "s", said())
        (told,) = await heard(bus, "out", 1)

    assert ("complete", [1.0, 2.0], 3) == (told["status"], naps.taken, len(answers.asked))
    assert not bus.published["dead"]


@pytest.mark.parametrize("full", [Overloaded("64 requests are under way"), StoreUnwritable("the disk is full")])
async def test_what_no_message_is_to_blame_for_is_waited_for(full):
    """However long it takes, with pauses that stop growing, and there is no dead letter."""
    bus, naps = InMemoryBus(), Naps()
    answers = Answers({"m-1": [full] * 8})
    async with worker(bus, answers, naps=naps).consume():
        await bus.publish("in", "s", said())
        (told,) = await heard(bus, "out", 1)

    assert ("complete", [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]) == (told["status"], naps.taken)
    assert not bus.published["dead"]


async def test_a_message_that_fails_too_often_is_a_dead_letter_with_its_reason():
    """It says why, after how many tries, and all that it said; whoever waits for the answer is told too."""
    bus = InMemoryBus()
    async with worker(bus, Answers({"m-1": [SourceUnavailable("the model is down")] * 3})).consume():
        await bus.publish("in", "s", said())
        (told,) = await heard(bus, "out", 1)
    (letter,) = await heard(bus, "dead", 1)

    assert ("UNAVAILABLE", "the model is down") == (letter["reason"]["code"], letter["reason"]["user_message"])
    assert (3, "in/0", said().decode()) == (letter["tries"], letter["place"], letter["body"])
    assert {"code": "UNAVAILABLE", "message": "the model is down", "retryable": True} == told["error"]
    assert ("failed", None) == (told["status"], told["reply"])


async def test_what_will_not_pass_is_not_tried_again():
    """A policy that denies is asked once."""
    bus, answers = InMemoryBus(), Answers({"m-1": [NotPermitted("not after six")]})
    async with worker(bus, answers).consume():
        await bus.publish("in", "s", said())
        (letter,) = await heard(bus, "dead", 1)

    assert ("FORBIDDEN", 1, ["m-1"]) == (letter["reason"]["code"], letter["tries"], answers.asked)


async def test_what_nobody_foresaw_is_a_dead_letter_that_tells_nothing_of_it():
    """The worker goes on, and a value inside the failure is not repeated."""
    bus = InMemoryBus()
    async with worker(bus, Answers({"m-1": [KeyError("a secret")]})).consume():
        await bus.publish("in", "s", said(1))
        await bus.publish("in", "s", said(2))
        first, second = await heard(bus, "out", 2)
    (letter,) = await heard(bus, "dead", 1)

    assert ("INTERNAL", "failed", "complete") == (letter["reason"]["code"], first["status"], second["status"])
    assert "a secret" not in json.dumps([letter["reason"], first])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[]", "the message"),
        (b"[" * 100_000, "JSON"),
        (said(**{"x" * 5_000: 1}), "xxx…: Extra"),
        (said().replace(b"Hello", b"\\ud800"), "JSON"),
        (b"{}", "id: Field required"),
        (said(extra=1), "extra: Extra"),
        (said(message=7), "message: Input"),
        (said(message=" "), "empty"),
        (said(user_id=""), "user_id"),
        (said(session="s" * 300), "session_id"),
        (said(max_tokens=0), "max_tokens"),
    ],
)
async def test_what_cannot_be_read_is_a_dead_letter(body, why):
    """Its reason names what is wrong; the next message is answered."""
    bus, answers = InMemoryBus(), Answers()
    async with worker(bus, answers).consume():
        await bus.publish("in", "a", body)
        await bus.publish("in", "b", said())
        await heard(bus, "out", 1)
        (letter,) = await heard(bus, "dead", 1)

    assert ("VALIDATION_FAILED", 0, ["m-1"]) == (letter["reason"]["code"], letter["tries"], answers.asked)
    assert why in letter["reason"]["user_message"]
    assert len(letter["reason"]["user_message"]) < 1_200
    assert (letter["body"] is None) == (b"\xff" in body)
    assert (letter["body_base64"] is not None) == (b"\xff" in body)


@given(body=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_message_or_a_refusal(body):
    """Reading raises nothing but an error that can be told."""
    with suppress(InvalidRequest):
        assert parse_inbound(body).id


@given(
    sessions=st.lists(st.sampled_from("abc"), min_size=1, max_size=12),
    failing=st.sets(st.integers(0, 11), max_size=4),
    at_once=st.integers(1, 4),
)
def test_a_session_is_answered_in_order(sessions, failing, at_once):
    """Whatever fails and however many are answered at once, the answers of a session come in the order of its messages.

    Nobody's message is lost, and no more are worked on at once than may be.
    """
    script = {f"m-{number}": [SourceUnavailable("busy")] for number in failing}
    inside, most = 0, 0
    answers = Answers(script)

    async def counted(inbound):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        try:
            return await answers(inbound)
        finally:
            inside -= 1

    async def talk():
        bus = InMemoryBus()
        async with worker(bus, counted, at_once=at_once).consume():
            for number, session in enumerate(sessions):
                await bus.publish("in", str(number), said(number, session=session))  # as if nobody set a key
            return await heard(bus, "out", len(sessions))

    told = asyncio.run(talk())

    for session in "abc":
        wanted = [f"m-{number}" for number, each in enumerate(sessions) if each == session]
        assert wanted == [each["id"] for each in told if each["session_id"] == session]
    assert most <= at_once


async def test_leaving_finishes_what_is_under_way_and_begins_nothing():
    """The message being answered gets its answer; the one behind it stays on the bus."""
    bus, begun, go_on = InMemoryBus(), asyncio.Event(), asyncio.Event()

    async def slow(inbound):
        begun.set()
        await go_on.wait()
        return b"{}"

    async with worker(bus, slow).consume():
        await bus.publish("in", "s", said(1))
        await bus.publish("in", "s", said(2))
        await begun.wait()
        asyncio.get_running_loop().call_soon(go_on.set)

    assert ["m-1"] == [each["id"] for each in await heard(bus, "out", 1)]


async def test_sigterm_finishes_what_is_under_way():
    """The worker ends by itself, and the message that it was answering has its answer."""
    bus = InMemoryBus()
    await bus.publish("in", "s", said())

    async def told_to_stop(inbound):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        return b"{}"

    started = []
    async with asyncio.timeout(30):
        await run_until_stopped(worker(bus, told_to_stop), lambda: started.append("said so"))

    assert ["said so"] == started
    assert ["m-1"] == [each["id"] for each in await heard(bus, "out", 1)]


class Moody(InMemoryBus):
    """Refuses what it is told to refuse, in order."""

    def __init__(self, *refusals):
        super().__init__()
        self.refusals = list(refusals)

    async def publish(self, topic, key, body):
        """Keep a message, or refuse it."""
        if topic != "in" and self.refusals and (refusal := self.refusals.pop(0)):
            raise refusal
        await super().publish(topic, key, body)


async def test_an_answer_waits_for_a_bus_that_is_away():
    """It is published when the bus is back, with pauses that stop growing, and the model is asked once."""
    bus, naps, answers = Moody(*[SourceUnavailable("away")] * 8), Naps(), Answers()
    async with worker(bus, answers, naps=naps).consume():
        await bus.publish("in", "s", said())
        (told,) = await heard(bus, "out", 1)

    assert ("complete", ["m-1"]) == (told["status"], answers.asked)
    assert [1, 2, 4, 8, 16, MAX_PAUSE_SECONDS, MAX_PAUSE_SECONDS, MAX_PAUSE_SECONDS] == naps.taken


async def test_an_answer_that_the_bus_finds_too_large_is_a_failure():
    """The one who asked is told so, and there is a dead letter."""
    bus = Moody(InvalidRequest("too large"))
    async with worker(bus, Answers()).consume():
        await bus.publish("in", "s", said())
        (told,) = await heard(bus, "out", 1)
    (letter,) = await heard(bus, "dead", 1)

    assert ("failed", "too large") == (told["status"], told["error"]["message"])
    assert "too large" == letter["reason"]["user_message"]


async def test_a_dead_letter_that_is_too_large_leaves_out_what_was_said():
    """Its reason and its place are still there."""
    bus = Moody(InvalidRequest("too large"))
    async with worker(bus, Answers()).consume():
        await bus.publish("in", "s", b"nonsense")
        (letter,) = await heard(bus, "dead", 1)

    assert (None, None, "in/0") == (letter["body"], letter["body_base64"], letter["place"])


async def test_messages_are_counted_by_how_they_end():
    """Answered, failed and unreadable ones, and every further try."""
    bus, registry = InMemoryBus(), CollectorRegistry()
    answers = Answers({"m-1": [SourceUnavailable("busy")], "m-2": [NotPermitted("no")]})
    measured = Worker(
        bus=bus, answer=answers, topics=TOPICS, retries=RetryPolicy(sleep=Naps()), tally=WorkerMetrics(registry)
    )
    async with measured.consume():
        for body in (said(1), said(2), b""):
            await bus.publish("in", "s", body)
        await heard(bus, "out", 2)
        await heard(bus, "dead", 2)
    counted = {
        outcome: registry.get_sample_value("contexture_worker_seconds_count", {"outcome": outcome})
        for outcome in ("complete", "failed", "unreadable")
    }

    assert {"complete": 1, "failed": 1, "unreadable": 1} == counted
    assert 1 == registry.get_sample_value("contexture_worker_retries_total")


def test_a_message_without_a_session_has_one_of_its_own():
    """It is the same one each time the message comes."""
    first, again, other = (parse_inbound(said(number, session="")).to_request().session_id for number in (1, 1, 2))

    assert first == again != other
    assert first


def test_prometheus_reads_a_worker_of_its_own():
    """While it runs; a port that is taken is told as such."""
    registry = CollectorRegistry()
    WorkerMetrics(registry).message_retried()
    with closing(bind_socket("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        taken = pytest.raises(SourceUnavailable, match="choose another --metrics-port")
        with taken, serve_metrics(registry, "127.0.0.1", port):
            pass
    with serve_metrics(registry, "127.0.0.1", port):
        shown = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text

    assert "contexture_worker_retries_total 1.0" in shown
