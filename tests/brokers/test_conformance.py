"""One contract for every bus."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Consumer, TopicPartition
from faststream.confluent.helpers.client import AsyncConfluentConsumer

from contexture.adapters.bus.registry import BusOptions, load_bus
from contexture.testing.bus import TIMEOUT_SECONDS, BusConformance, InMemoryBus, new_topic


@pytest.fixture
def topic():
    """A topic that nobody has used."""
    return new_topic()


class TestLocalBus(BusConformance):
    """Inside one process."""

    @pytest.fixture
    def bus(self):
        """An empty one."""
        return InMemoryBus()


@pytest.mark.integration
class TestNatsBus(BusConformance):
    """Over a real NATS server."""

    @pytest.fixture
    async def bus(self, nats_address, topic):
        """One that makes the topic."""
        found = load_bus(nats_address, BusOptions(topics=(topic,), partitions=2, redeliver_seconds=1.0))
        yield found
        await found.close()


@pytest.mark.integration
class TestKafkaBus(BusConformance):
    """Over Kafka's protocol."""

    @pytest.fixture
    async def bus(self, kafka, topic):
        """One with the topic; keys "one" and "two" are in different partitions."""
        kafka.make(topic)
        found = load_bus(f"kafka://{kafka.address}", BusOptions(topics=(topic,), group=topic, redeliver_seconds=1.0))
        yield found
        await found.close()

    async def test_what_is_being_handled_is_not_committed_with_what_was(self, bus, topic, kafka, monkeypatch):
        """Even where FastStream commits one message after it has taken the next."""
        late, first, second = [], asyncio.Event(), asyncio.Event()

        async def postponed(consumer: AsyncConfluentConsumer) -> None:
            late.append(consumer)

        async def handle(delivery) -> None:
            if delivery.body == b"first":
                return first.set()
            for consumer in late:
                await asyncio.to_thread(consumer.consumer.commit, asynchronous=False)
            second.set()
            raise ConnectionError

        monkeypatch.setattr(AsyncConfluentConsumer, "commit", postponed)
        await bus.publish(topic, "one", b"first")
        async with bus.subscribe(topic, handle):
            await asyncio.wait_for(first.wait(), TIMEOUT_SECONDS)
            await bus.publish(topic, "one", b"second")
            await asyncio.wait_for(second.wait(), TIMEOUT_SECONDS)

        assert [1] == committed(kafka.address, topic)


def committed(address: str, topic: str) -> list[int]:
    """How far the group named as a topic has committed each of its partitions."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic})
    found = consumer.committed([TopicPartition(topic, number) for number in range(4)], timeout=TIMEOUT_SECONDS)
    consumer.close()
    return [each.offset for each in found if each.offset >= 0]
