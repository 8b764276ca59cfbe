"""Real brokers: a NATS server from a wheel, and the Kafka brokers that librdkafka has inside."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from contexture.testing.bus import new_topic

PRODUCER = 0
LISTENING = re.compile(r"Listening for client connections on (\S+)")


@contextmanager
def nats_server(folder: Path, port: int = -1) -> Iterator[str]:
    """A NATS server with JetStream in a folder, and its address; -1 takes a free port."""
    program = Path(sys.executable).with_name("nats-server")
    words = [program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            address = ""
            for line in server.stderr:
                if found := LISTENING.search(line):
                    address = found[1]
                if "Server is ready" in line:
                    break
            yield f"nats://{address}"
        finally:
            server.kill()


class KafkaBroker:
    """A broker that speaks Kafka's protocol inside this process; librdkafka has it for tests."""

    def __init__(self) -> None:
        import confluent_kafka

        (library,) = Path(confluent_kafka.__file__).parent.with_suffix(".libs").glob("librdkafka*.so*")
        self._kafka = kafka = ctypes.CDLL(str(library))
        for name in ("conf_new", "new", "mock_cluster_new", "mock_cluster_bootstraps"):
            getattr(kafka, f"rd_kafka_{name}").restype = ctypes.c_void_p
        conf = ctypes.c_void_p(kafka.rd_kafka_conf_new())
        self._client = ctypes.c_void_p(kafka.rd_kafka_new(PRODUCER, conf, None, 0))
        self._cluster = ctypes.c_void_p(kafka.rd_kafka_mock_cluster_new(self._client, 1))
        # Members of a group would be given some seconds to turn up.
        kafka.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.address = ctypes.string_at(kafka.rd_kafka_mock_cluster_bootstraps(self._cluster)).decode()

    def make(self, *topics: str, partitions: int = 4) -> None:
        """Make topics: this broker does not take the request that clients make for it."""
        for topic in topics:
            self._kafka.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Answer nobody while the context lasts."""
        self._kafka.rd_kafka_mock_broker_set_down(self._cluster, 1)
        try:
            yield
        finally:
            self._kafka.rd_kafka_mock_broker_set_up(self._cluster, 1)

    def close(self) -> None:
        """Let go of it."""
        self._kafka.rd_kafka_mock_cluster_destroy(self._cluster)
        self._kafka.rd_kafka_destroy(self._client)


@pytest.fixture
def start_nats() -> Callable[..., AbstractContextManager[str]]:
    """Starts NATS servers that a test has for itself."""
    return nats_server


@pytest.fixture(scope="session")
def nats_address(lasting_folder) -> Iterator[str]:
    """A NATS server that tests share."""
    with nats_server(lasting_folder()) as address:
        yield address


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A Kafka broker that tests share."""
    broker = KafkaBroker()
    yield broker
    broker.close()


@pytest.fixture
def own_kafka() -> Iterator[KafkaBroker]:
    """A Kafka broker that a test has for itself."""
    broker = KafkaBroker()
    yield broker
    broker.close()


@pytest.fixture(params=["nats", "kafka"])
def topics(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings that name a real broker, topics of their own on it, and a group that nobody else is in."""
    names = {f"bus_{topic}": new_topic() for topic in ("inbound", "outbound", "dead")}
    if request.param == "kafka":
        broker: KafkaBroker = request.getfixturevalue("kafka")
        broker.make(*names.values())
        address = f"kafka://{broker.address}"
    else:
        address = request.getfixturevalue("nats_address")
    return {"bus": address, "bus_group": names["bus_inbound"].replace(".", "-"), "bus_partitions": 4, **names}
