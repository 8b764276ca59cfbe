"""Message bus over Kafka, with FastStream on librdkafka.

Messages are consumed in batches of `BusOptions.at_once`, and a batch is committed as a whole when all its messages are
handled: a committed message was handled. The key of a message selects its partition, and a partition is read in order
by one process of a group at a time.

Batches are committed here by their own offsets. FastStream would let the client commit everything it has consumed, in
a thread of its own, possibly after the next batch was consumed.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, cast

from contexture.adapters.bus.registry import BusOptions
from contexture.conversation import Delivery, HealthState
from contexture.errors import InvalidRequest, SourceError, SourceTimeout, SourceUnavailable
from contexture.ports import MessageHandler

try:
    from confluent_kafka import KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic
    from faststream import AckPolicy
    from faststream.confluent import KafkaBroker, Topic
except ImportError as missing:
    raise ImportError('a bus over Kafka needs faststream: pip install "contexture-ai[worker]"') from missing

_LOG = logging.getLogger("contexture.bus")
_TIMEOUT_SECONDS = 5.0  # for one answer of the broker
_HEALTH_TIMEOUT_SECONDS = 1.0  # for one answer in a health check
_POLL_SECONDS = 0.02  # for a batch to fill; a single message waits this long
_MAX_BATCH_MS = 3_600_000
_TOPIC_EXISTS = KafkaError.TOPIC_ALREADY_EXISTS
_MESSAGE_TIMED_OUT = KafkaError._MSG_TIMED_OUT  # noqa: SLF001 - the client names its local errors this way


class KafkaBus:
    """A bus over the brokers at `servers`, such as `one:9092,two:9092`."""

    def __init__(self, servers: str, options: BusOptions) -> None:
        self._servers = servers
        self._options = options
        self._opening = asyncio.Lock()
        self._sender: KafkaBroker | None = None
        self._asking: Any = None

    async def connect(self) -> None:
        """Connect, and create missing topics."""
        await self._connected_broker()

    async def state(self) -> HealthState:
        """Down if no broker answers within a second."""
        try:
            with self._errors():
                await asyncio.to_thread(self._admin().list_topics, timeout=_HEALTH_TIMEOUT_SECONDS)
        except SourceError:
            return HealthState.DOWN
        return HealthState.NORMAL

    async def publish(self, topic: str, key: str, body: bytes) -> None:
        """Publish a message; returns when every in-sync replica has it.

        Raises `SourceTimeout`, `SourceUnavailable`, or `InvalidRequest` for a message that is too large.
        """
        broker = await self._connected_broker()
        with self._errors():
            # The client times a message out and reports it; this timeout is for a client that does not.
            async with asyncio.timeout(_TIMEOUT_SECONDS * 2):
                await broker.publish(body, topic=topic, key=key.encode("utf-8", "surrogatepass"))

    @asynccontextmanager
    async def subscribe(self, topic: str, handle: MessageHandler) -> AsyncGenerator[None]:
        """Pass the messages of a topic to `handle` until the context exits."""
        await self.connect()
        broker = self._broker(self._options.extra)

        async def on_batch(batch: Any) -> None:
            # All keys are finished even when one fails; then the whole batch is redelivered.
            ended = await asyncio.gather(
                *(_handle_in_order(handle, each) for each in _group_by_key(batch.raw_message)), return_exceptions=True
            )
            for failure in ended:
                if failure is not None:
                    await batch.nack()
                    raise failure
            _commit_batch(batch)

        self._make_subscriber(broker, topic)(on_batch)
        try:
            with self._errors():
                await broker.start()
            yield
        finally:
            await broker.stop()

    async def close(self) -> None:
        """Flush pending messages and close the connections."""
        if self._sender is not None:
            await self._sender.stop()
        self._sender = self._asking = None

    def _make_subscriber(self, broker: KafkaBroker, topic: str) -> Any:
        silence = int(self._options.redeliver_seconds * 1_000)
        return cast("Any", broker).subscriber(
            Topic(topic, declare=False),
            group_id=self._options.group,
            batch=True,
            max_records=self._options.at_once,
            polling_interval=_POLL_SECONDS,
            auto_offset_reset="earliest",
            session_timeout_ms=silence,
            heartbeat_interval_ms=max(1, silence // 10),
            max_poll_interval_ms=max(silence, _MAX_BATCH_MS),
            ack_policy=AckPolicy.MANUAL,
            decoder=_keep_raw,
        )

    async def _connected_broker(self) -> KafkaBroker:
        """Broker for publishing; creates missing topics on first use."""
        async with self._opening:
            if self._sender is None:
                with self._errors():
                    await asyncio.to_thread(self._declare)
                    broker = self._broker({**_delivery_timeout(_TIMEOUT_SECONDS), **self._options.extra})
                    await broker.connect()
                self._sender = broker
            return self._sender

    def _declare(self) -> None:
        """Create missing topics; raises `KafkaException` if no broker answers."""
        admin = self._admin()
        there = admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
        wanted = [
            NewTopic(topic, num_partitions=self._options.partitions, replication_factor=-1)
            for topic in self._options.topics
            if topic not in there
        ]
        if not wanted:
            return
        for made in admin.create_topics(wanted, request_timeout=_TIMEOUT_SECONDS).values():
            try:
                made.result(_TIMEOUT_SECONDS)
            except KafkaException as failure:
                if cast("KafkaError", failure.args[0]).code() != _TOPIC_EXISTS:
                    raise

    def _admin(self) -> Any:
        """Admin client; one is shared, because each keeps its own connections."""
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
            raise SourceUnavailable(f"too many messages are queued for the bus at {self._servers}") from failure
        except KafkaException as failure:
            error = cast("KafkaError", failure.args[0])
            if error.code() == _MESSAGE_TIMED_OUT:
                raise SourceTimeout(f"the bus at {self._servers} did not answer in time") from failure
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise InvalidRequest(f"the message is larger than the bus at {self._servers} accepts") from failure
            raise SourceUnavailable(f"the bus at {self._servers} failed: {error.str()}") from failure


def _delivery_timeout(seconds: float) -> Mapping[str, int]:
    """Client settings that time a message out after this many seconds, so that a failed message is not sent later."""
    return {"delivery.timeout.ms": int(seconds * 1_000)}


async def _keep_raw(batch: Any) -> Any:
    """Return the batch undecoded: the handler decodes it and may reject it."""
    return batch


def _group_by_key(batch: Sequence[Any]) -> Iterable[Sequence[Any]]:
    """Messages of a batch grouped by key, in order; a message without a key is its own group."""
    found: dict[object, list[Any]] = {}
    for raw in batch:
        found.setdefault(raw.key() or (raw.partition(), raw.offset()), []).append(raw)
    return found.values()


async def _handle_in_order(handle: MessageHandler, messages: Sequence[Any]) -> None:
    """Handle messages one after the other; after a failure, the rest waits for redelivery."""
    for raw in messages:
        await handle(_to_delivery(raw))


def _commit_batch(batch: Any) -> None:
    """Commit the offsets of a batch asynchronously."""
    ends = {(raw.topic(), raw.partition()): raw.offset() + 1 for raw in batch.raw_message}
    with suppress(KafkaException):  # the partition moved to another process, which gets the batch again
        batch.consumer.consumer.commit(offsets=[TopicPartition(*place, end) for place, end in ends.items()])


def _to_delivery(raw: Any) -> Delivery:
    return Delivery(body=raw.value() or b"", place=f"{raw.topic()}/{raw.partition()}/{raw.offset()}")
