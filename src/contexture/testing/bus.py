"""A bus inside one process, and the contract that every bus keeps."""
# ruff: noqa: S101, PLR2004 - a conformance suite asserts

from __future__ import annotations

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
        self._waiting: dict[tuple[str, str], asyncio.Queue[Delivery]] = {}
        self._arrived = asyncio.Condition()

    async def connect(self) -> None:
        """It is here."""

    async def publish(self, topic: str, key: str, body: bytes) -> None:
        """Keep a message."""
        place = f"{topic}/{len(self.published[topic])}"
        self.published[topic].append(body)
        self._waiting.setdefault((topic, key), asyncio.Queue()).put_nowait(Delivery(body=body, place=place))
        async with self._arrived:
            self._arrived.notify_all()

    async def wait_for_messages(self, topic: str, count: int) -> list[bytes]:
        """The messages of a topic, once there are at least `count`."""
        async with asyncio.timeout(TIMEOUT_SECONDS), self._arrived:
            await self._arrived.wait_for(lambda: len(self.published[topic]) >= count)
        return self.published[topic]

    @asynccontextmanager
    async def subscribe(self, topic: str, handle: MessageHandler) -> AsyncGenerator[None]:
        """Give the messages of a topic to `handle` while the context lasts."""
        stopping = asyncio.Event()
        looking = asyncio.create_task(self._dispatch(topic, handle, stopping))
        try:
            yield
        finally:
            stopping.set()
            async with self._arrived:
                self._arrived.notify_all()
            await looking

    async def close(self) -> None:
        """Nothing to let go of."""

    async def _dispatch(self, topic: str, handle: MessageHandler, stopping: asyncio.Event) -> None:
        """Start a task for each key that has messages; returns when all of them have ended."""
        readers: dict[str, asyncio.Task[None]] = {}
        while not stopping.is_set():
            for at, key in list(self._waiting):
                if at == topic and (key not in readers or readers[key].done()):
                    readers[key] = asyncio.create_task(self._deliver(self._waiting[at, key], handle, stopping))
            async with self._arrived:
                await self._arrived.wait()
        await asyncio.gather(*readers.values())

    async def _deliver(self, queue: asyncio.Queue[Delivery], handle: MessageHandler, stopping: asyncio.Event) -> None:
        while not queue.empty() and not stopping.is_set():
            delivery, failed = queue.get_nowait(), True
            while failed and not stopping.is_set():  # it comes again
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
                told = json.loads(body)
                assert found.setdefault(told["id"], told) == told
        return found


class BusConformance:
    """Subclass it, give fixtures `bus` and `topic`, which no other test uses, and inherit the contract."""

    async def test_messages_of_a_key_are_delivered_in_order(self, bus: Bus, topic: str) -> None:
        """What was published before anyone listened comes too, and bytes are not changed."""
        inbox, said = Inbox(), [f"{number} ж\0".encode() for number in range(20)]
        await bus.publish(topic, "one", said[0])
        async with bus.subscribe(topic, inbox.receive):
            for body in said[1:]:
                await bus.publish(topic, "one", body)
            found = await inbox.wait_for_messages(20)

        assert found == said
        assert len(set(inbox.places)) == 20

    async def test_a_failed_message_is_redelivered_before_the_next(self, bus: Bus, topic: str) -> None:
        """The same message comes a second time, from the same place, and the next one of its key after it."""
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
        """Work that has begun is finished and acknowledged; what was not begun comes to whoever listens next."""
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
        """While one message is being handled, one of another key is too; both end."""
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
