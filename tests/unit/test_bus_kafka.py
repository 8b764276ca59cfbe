"""Topics of Kafka that are missing: the broker inside librdkafka does not take the request to make them."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from contexture.adapters.bus import kafka
from contexture.adapters.bus.registry import BusOptions, load_bus
from contexture.errors import InvalidRequest, SourceError, SourceUnavailable

OPTIONS = BusOptions(topics=("in", "out"), partitions=3, extra={"security.protocol": "ssl"})


def admin_of(made, *, there=(), failure=None):
    """A client of a broker that has topics, and makes others or fails to."""

    class Admin:
        def __init__(self, config, *, logger):
            made["config"] = config
            made["logger"] = logger

        def list_topics(self, timeout):
            return SimpleNamespace(topics=dict.fromkeys(there))

        def create_topics(self, topics, **_):
            made["topics"] = {topic.topic: (topic.num_partitions, topic.replication_factor) for topic in topics}
            ended = {topic.topic: Future() for topic in topics}
            for each in ended.values():
                each.set_exception(failure) if failure else each.set_result(None)
            return ended

    return Admin


def test_topics_that_are_missing_are_made_with_the_brokers_replication(monkeypatch):
    """One that is there is left as it is, and options reach the client."""
    made = {}
    monkeypatch.setattr(kafka, "AdminClient", admin_of(made, there=["out"]))
    load_bus("kafka://one:9092,two:9092", OPTIONS)._declare()

    assert {"in": (3, -1)} == made["topics"]
    assert {"bootstrap.servers": "one:9092,two:9092", "security.protocol": "ssl"} == made["config"]


def test_topics_that_another_process_made_meanwhile_are_there(monkeypatch):
    """Who was first does not matter."""
    made = {}
    known = KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))
    monkeypatch.setattr(kafka, "AdminClient", admin_of(made, failure=known))
    load_bus("kafka://one:9092", OPTIONS)._declare()

    assert {"in", "out"} == set(made["topics"])


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), SourceUnavailable),
        (KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), InvalidRequest),
        (BufferError("queue full"), SourceUnavailable),
        (TimeoutError(), SourceError),
    ],
)
def test_failures_of_the_client_are_ours(failure, kind):
    """Whoever publishes need not know the library."""
    bus = load_bus("kafka://one:9092", OPTIONS)
    with pytest.raises(kind, match="one:9092"), bus._errors():
        raise failure
