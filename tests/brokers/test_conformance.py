"""One contract for every bus."""

from __future__ import annotations

import pytest

from contexture.adapters.bus.registry import BusOptions, load
from contexture.testing.bus import BusConformance, LocalBus, new_topic


@pytest.fixture
def topic():
    """A topic that nobody has used."""
    return new_topic()


class TestLocalBus(BusConformance):
    """Inside one process."""

    @pytest.fixture
    def bus(self):
        """An empty one."""
        return LocalBus()


@pytest.mark.integration
class TestNatsBus(BusConformance):
    """Over a real NATS server."""

    @pytest.fixture
    async def bus(self, nats_address, topic):
        """One that makes the topic."""
        found = load(nats_address, BusOptions(topics=(topic,), partitions=2, redeliver_seconds=1.0))
        yield found
        await found.close()


@pytest.mark.integration
class TestKafkaBus(BusConformance):
    """Over Kafka's protocol."""

    @pytest.fixture
    async def bus(self, kafka, topic):
        """One with the topic; keys "one" and "two" are in different partitions."""
        kafka.make(topic)
        found = load(f"kafka://{kafka.address}", BusOptions(topics=(topic,), group=topic, redeliver_seconds=1.0))
        yield found
        await found.close()
