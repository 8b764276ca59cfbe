"""An in-process bus, and the contract of a bus as a test class."""
# ruff: noqa: S101, PLR2004 - a conformance suite asserts

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

from contexture.conversation import Delivery
from contexture.ports import Bus, MessageHandler

TIMEOUT_SECONDS = 120.0
"""Seconds after which a message that does not come is a failure."""


class InMemoryBus:
    """A bus in memory: messages of one key are delivered in order, keys concurrently."""

    def __init__(self) -> None:
        self.published: dict[str, list[bytes]] = defaultdict(list)
        self._queues: dict[tuple[str, str], asyncio.Queue[Delivery]] = {}
        self._published_message = asyncio.Condition()

    async def connect(self) -> None:
        """Do nothing: there is no connection."""

    async def publish(self, topic: str, key: str, body: bytes) -> None:
        """Append a message and wake the subscribers."""
        place = f"{topic}/{len(self.published[topic])}"
        self.published[topic].append(body)
        self._queues.setdefault((topic, key), asyncio.Queue()).put_nowait(Delivery(body=body, place=place))
        async with self._published_message:
            self._published_message.notify_all()

    async def wait_for_messages(self, topic: str, count: int) -> list[bytes]:
        """The messages of a topic, once there are at least `count`."""
        async with asyncio.timeout(TIMEOUT_SECONDS), self._published_message:
            await self._published_message.wait_for(lambda: len(self.published[topic]) >= count)
        return self.published[topic]

    @asynccontextmanager
    async def subscribe(self, topic: str, handle: MessageHandler) -> AsyncGenerator[None]:
        """Call `handle` with the messages of a topic until the context is left."""
        stopping = asyncio.Event()
        dispatcher = asyncio.create_task(self._dispatch(topic, handle, stopping))
        try:
            yield
        finally:
            stopping.set()
            async with self._published_message:
                self._published_message.notify_all()
            await dispatcher

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    async def _dispatch(self, topic: str, handle: MessageHandler, stopping: asyncio.Event) -> None:
        """Start a task for each key that has messages; returns when all of them have ended."""
        readers: dict[str, asyncio.Task[None]] = {}
        while not stopping.is_set():
            for at, key in list(self._queues):
                if at == topic and (key not in readers or readers[key].done()):
                    readers[key] = asyncio.create_task(self._deliver(self._queues[at, key], handle, stopping))
            async with self._published_message:
                await self._published_message.wait()
        await asyncio.gather(*readers.values())

    async def _deliver(self, queue: asyncio.Queue[Delivery], handle: MessageHandler, stopping: asyncio.Event) -> None:
        while not queue.empty() and not stopping.is_set():
            delivery, failed = queue.get_nowait(), True
            while failed and not stopping.is_set():  # redelivered until it succeeds
                ended = await asyncio.gather(handle(delivery), return_exceptions=True)
                failed = any(ended)


class Inbox:
    """Collects deliveries; pass its `receive` as the handler."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.places: list[str] = []
        self._changed = asyncio.Condition()

    async def receive(self, delivery: Delivery) -> None:
        """Store a delivery."""
        self.bodies.append(delivery.body)
        self.places.append(delivery.place)
        async with self._changed:
            self._changed.notify_all()

    async def wait_for_messages(self, count: int) -> list[bytes]:
        """The bodies received, once there are at least `count`."""
        async with asyncio.timeout(TIMEOUT_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.bodies) >= count)
        return self.bodies

    async def wait_for_replies(self, wanted: set[str]) -> dict[str, dict[str, Any]]:
        """A worker's replies by id, once all of the wanted ones have come; a repeated one must be equal."""
        count, found = 0, dict[str, dict[str, Any]]()
        while not wanted <= found.keys():
            count = len(await self.wait_for_messages(count + 1))
            for body in self.bodies:
                reply = json.loads(body)
                assert found.setdefault(reply["id"], reply) == reply
        return found


class BusConformance:
    """What every bus promises: subclass it and provide the fixtures `bus` and `topic`, a new one for every test."""

    async def test_messages_of_a_key_are_delivered_in_order(self, bus: Bus, topic: str) -> None:
        """Messages published before the subscription are delivered too, and bytes are unchanged."""
        inbox, sent = Inbox(), [f"{number} ж\0".encode() for number in range(20)]
        await bus.publish(topic, "one", sent[0])
        async with bus.subscribe(topic, inbox.receive):
            for body in sent[1:]:
                await bus.publish(topic, "one", body)
            found = await inbox.wait_for_messages(20)

        assert found == sent
        assert len(set(inbox.places)) == 20

    async def test_a_failed_message_is_redelivered_before_the_next(self, bus: Bus, topic: str) -> None:
        """The message is delivered again, with the same place, and the next one of its key after it."""
        inbox = Inbox()

        async def fail_once(delivery: Delivery) -> None:
            await inbox.receive(delivery)
            if len(inbox.bodies) == 1:
                raise RuntimeError("the first try fails")

        async with bus.subscribe(topic, fail_once):
            await bus.publish(topic, "one", b"first")
            await bus.publish(topic, "one", b"second")
            found = await inbox.wait_for_messages(3)

        assert found == [b"first", b"first", b"second"]
        assert inbox.places[0] == inbox.places[1]

    async def test_unsubscribing_waits_for_running_handlers(self, bus: Bus, topic: str) -> None:
        """A running handler finishes and its message is acknowledged; other messages go to the next subscriber."""
        begun, go_on, ended, later = asyncio.Event(), asyncio.Event(), Inbox(), Inbox()

        async def slow(delivery: Delivery) -> None:
            begun.set()
            await go_on.wait()
            await ended.receive(delivery)

        async with bus.subscribe(topic, slow):
            await bus.publish(topic, "one", b"first")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await begun.wait()
            asyncio.get_running_loop().call_later(0.1, go_on.set)
        await bus.publish(topic, "one", b"second")
        async with bus.subscribe(topic, later.receive):
            found = await later.wait_for_messages(1)

        assert (ended.bodies, found) == ([b"first"], [b"second"])

    async def test_keys_do_not_wait_for_each_other(self, bus: Bus, topic: str) -> None:
        """Two messages of different keys are handled at the same time."""
        both = asyncio.Barrier(2)
        inbox = Inbox()

        async def together(delivery: Delivery) -> None:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await both.wait()
            await inbox.receive(delivery)

        await bus.publish(topic, "one", b"first")
        await bus.publish(topic, "two", b"second")
        async with bus.subscribe(topic, together):
            found = await inbox.wait_for_messages(2)

        assert sorted(found) == [b"first", b"second"]


def new_topic() -> str:
    """A topic that nobody has used."""
    return f"test.{uuid4().hex}"
