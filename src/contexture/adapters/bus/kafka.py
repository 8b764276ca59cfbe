"""Messages over Kafka, by FastStream on librdkafka.

Messages are taken in batches of as many as are handled at once, and a batch is committed whole when all of them are
done: what is committed was handled. The key of a message chooses its partition, and a partition is read in order by
one process of a group at a time.

FastStream would have the client commit whatever was taken, on a thread of its own that may come to it when the next
batch was taken already; so batches are committed here, by their own offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, cast

from contexture.adapters.bus.registry import BusOptions
from contexture.conversation import Delivery, HealthState
from contexture.errors import InvalidRequest, SourceError, SourceTimeout, SourceUnavailable
from contexture.ports import Handle

try:
    from confluent_kafka import KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic
    from faststream import AckPolicy
    from faststream.confluent import KafkaBroker, Topic
except ImportError as missing:
    raise ImportError('a bus over Kafka needs faststream: pip install "contexture[worker]"') from missing

_LOG = logging.getLogger("contexture.bus")
_PATIENCE = 5.0  # seconds for one answer of the broker
_GLANCE = 1.0  # seconds for the same, when it is asked how it does
_POLL = 0.02  # seconds for a batch to fill; a message that comes alone waits as long
_LONGEST_BATCH_MS = 3_600_000
_KNOWN = KafkaError.TOPIC_ALREADY_EXISTS
_LATE = KafkaError._MSG_TIMED_OUT  # noqa: SLF001 - errors of the client itself are spelt so


class KafkaBus:
    """A bus over the brokers at `servers`, such as `one:9092,two:9092`."""

    def __init__(self, servers: str, options: BusOptions) -> None:
        self._servers = servers
        self._options = options
        self._opening = asyncio.Lock()
        self._sender: KafkaBroker | None = None
        self._asking: Any = None

    async def reach(self) -> None:
        """Connect, and make the topics that are missing."""
        await self._connected()

    async def state(self) -> HealthState:
        """Down while no broker answers at once."""
        try:
            with self._errors():
                await asyncio.to_thread(self._admin().list_topics, timeout=_GLANCE)
        except SourceError:
            return HealthState.DOWN
        return HealthState.NORMAL

    async def publish(self, topic: str, key: str, body: bytes) -> None:
        """Hand a message over; every replica that is in sync has it."""
        broker = await self._connected()
        with self._errors():
            # The client gives a message up by itself, and says so; this is for one that does not.
            async with asyncio.timeout(_PATIENCE * 2):
                await broker.publish(body, topic=topic, key=key.encode("utf-8", "surrogatepass"))

    @asynccontextmanager
    async def delivering(self, topic: str, handle: Handle) -> AsyncGenerator[None]:
        """Give the messages of a topic to `handle` while the context lasts."""
        await self.reach()
        broker = self._broker(self._options.extra)

        async def on_batch(batch: Any) -> None:
            # All keys are finished even when one fails; then the whole batch comes again.
            ended = await asyncio.gather(
                *(_in_order(handle, each) for each in _by_key(batch.raw_message)), return_exceptions=True
            )
            for failure in ended:
                if failure is not None:
                    await batch.nack()
                    raise failure
            _commit(batch)

        self._subscribed(broker, topic)(on_batch)
        try:
            with self._errors():
                await broker.start()
            yield
        finally:
            await broker.stop()

    async def close(self) -> None:
        """Send what waits to be sent, and close the connections."""
        if self._sender is not None:
            await self._sender.stop()
        self._sender = self._asking = None

    def _subscribed(self, broker: KafkaBroker, topic: str) -> Any:
        silence = int(self._options.redeliver_seconds * 1_000)
        return cast("Any", broker).subscriber(
            Topic(topic, declare=False),
            group_id=self._options.group,
            batch=True,
            max_records=self._options.at_once,
            polling_interval=_POLL,
            auto_offset_reset="earliest",
            session_timeout_ms=silence,
            heartbeat_interval_ms=max(1, silence // 10),
            max_poll_interval_ms=max(silence, _LONGEST_BATCH_MS),
            ack_policy=AckPolicy.MANUAL,
            decoder=_undecoded,
        )

    async def _connected(self) -> KafkaBroker:
        """What publishes; the topics that are missing are made first."""
        async with self._opening:
            if self._sender is None:
                with self._errors():
                    await asyncio.to_thread(self._declare)
                    broker = self._broker({**_gives_up_in(_PATIENCE), **self._options.extra})
                    await broker.connect()
                self._sender = broker
            return self._sender

    def _declare(self) -> None:
        """Make the topics that are missing; raises when no broker answers."""
        admin = self._admin()
        there = admin.list_topics(timeout=_PATIENCE).topics
        wanted = [
            NewTopic(topic, num_partitions=self._options.partitions, replication_factor=-1)
            for topic in self._options.topics
            if topic not in there
        ]
        if not wanted:
            return
        for made in admin.create_topics(wanted, request_timeout=_PATIENCE).values():
            try:
                made.result(_PATIENCE)
            except KafkaException as failure:
                if cast("KafkaError", failure.args[0]).code() != _KNOWN:
                    raise

    def _admin(self) -> Any:
        """What asks brokers about themselves; one is enough, because each keeps connections."""
        if self._asking is None:
            self._asking = AdminClient({"bootstrap.servers": self._servers, **self._options.extra}, logger=_LOG)
        return self._asking

    def _broker(self, config: Mapping[str, str | int | bool]) -> KafkaBroker:
        return KafkaBroker(
            self._servers,
            acks="all",
            config=cast("Any", dict(config)),
            apply_types=False,
            logger=_LOG,
            log_level=logging.DEBUG,
            graceful_timeout=self._options.grace_seconds,
        )

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except TimeoutError as failure:
            raise SourceTimeout(f"the bus at {self._servers} did not answer in time") from failure
        except BufferError as failure:
            raise SourceUnavailable(f"too many messages wait for the bus at {self._servers}") from failure
        except KafkaException as failure:
            told = cast("KafkaError", failure.args[0])
            if told.code() == _LATE:
                raise SourceTimeout(f"the bus at {self._servers} did not answer in time") from failure
            if told.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise InvalidRequest(f"the message is larger than the bus at {self._servers} takes") from failure
            raise SourceUnavailable(f"the bus at {self._servers} failed: {told.str()}") from failure


def _gives_up_in(seconds: float) -> Mapping[str, int]:
    """Lets nothing wait longer for a broker: what was reported as a failure must not be published after all."""
    return {"delivery.timeout.ms": int(seconds * 1_000)}


async def _undecoded(batch: Any) -> Any:
    """The messages as they are: what they say is read where a reader may refuse it."""
    return batch


def _by_key(batch: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """The messages of a batch by their keys, in order; one without a key stands alone."""
    found: dict[object, list[Any]] = {}
    for raw in batch:
        found.setdefault(raw.key() or (raw.partition(), raw.offset()), []).append(raw)
    return found.values()


async def _in_order(handle: Handle, messages: Sequence[Any]) -> None:
    """Handle messages one after the other; what follows a failure is left for the next time."""
    for raw in messages:
        await handle(_delivery(raw))


def _commit(batch: Any) -> None:
    """Have the client commit the messages of a batch when it comes to it."""
    ends = {(raw.topic(), raw.partition()): raw.offset() + 1 for raw in batch.raw_message}
    with suppress(KafkaException):  # they are another process's by now, which gets them again
        batch.consumer.consumer.commit(offsets=[TopicPartition(*place, end) for place, end in ends.items()])


def _delivery(raw: Any) -> Delivery:
    return Delivery(body=raw.value() or b"", place=f"{raw.topic()}/{raw.partition()}/{raw.offset()}")
