"""Message bus over NATS JetStream, with FastStream.

A topic is a stream with subjects `TOPIC.0` to `TOPIC.N-1`; the key of a message selects one. Each subject has one
durable consumer with at most one unacknowledged message, so messages of a key stay in order however many processes
share the topic, and even if one of them fails.
"""

import asyncio
import logging
import zlib
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

from contexture.adapters.bus.registry import BusOptions
from contexture.conversation import Delivery, HealthState
from contexture.errors import InvalidRequest, SourceError, SourceTimeout, SourceUnavailable
from contexture.ports import MessageHandler

try:
    from faststream import AckPolicy
    from faststream.nats import JStream, NatsBroker, PullSub
    from nats.errors import Error as NatsError
    from nats.errors import MaxPayloadError
    from nats.errors import TimeoutError as NatsTimeout
    from nats.js.api import ConsumerConfig, StreamConfig
    from nats.js.errors import BadRequestError
except ImportError as missing:
    raise ImportError('a bus over NATS needs faststream: pip install "contexture-ai[worker]"') from missing

RETENTION_DAYS = 7
_TIMEOUT_SECONDS = 5.0  # for one answer of the server
_HEALTH_TIMEOUT_SECONDS = 1.0  # for one answer in a health check
_STREAM_EXISTS = 10_058  # a stream of this name exists with another configuration


class NatsBus:
    """A bus over the NATS servers at `addresses`."""

    def __init__(self, addresses: Sequence[str], options: BusOptions) -> None:
        if options.extra:
            raise InvalidRequest("CONTEXTURE_BUS_OPTIONS is for Kafka; for NATS, add user:password@ to the address")
        for topic in options.topics:
            _check_topic(topic)
        self._options = options
        self._where = ", ".join(address.rpartition("@")[2] for address in addresses)
        self._addresses = list(addresses)
        self._opening = asyncio.Lock()
        self._sender: NatsBroker | None = None

    async def connect(self) -> None:
        """Connect, and create missing streams."""
        await self._connected_broker()

    async def state(self) -> HealthState:
        """Down if the server does not answer, or cannot be connected to, within a second."""
        try:
            async with asyncio.timeout(_HEALTH_TIMEOUT_SECONDS):
                broker = await self._connected_broker()
        except (TimeoutError, SourceError):
            return HealthState.DOWN
        return HealthState.NORMAL if await broker.ping(_HEALTH_TIMEOUT_SECONDS) else HealthState.DOWN

    async def publish(self, topic: str, key: str, body: bytes) -> None:
        """Publish a message; returns when the server has stored it on disk, or in the replicas of its stream.

        Raises `SourceTimeout`, `SourceUnavailable`, or `InvalidRequest` for a message that is too large.
        """
        broker = await self._connected_broker()
        subject = f"{topic}.{partition_for(key, self._options.partitions)}"
        with self._errors():
            await broker.publish(body, subject=subject, stream=_stream_name(topic), timeout=_TIMEOUT_SECONDS)

    @asynccontextmanager
    async def subscribe(self, topic: str, handle: MessageHandler) -> AsyncGenerator[None]:
        """Pass the messages of a topic to `handle` until the context exits."""
        await self.connect()
        broker = self._broker()

        async def on_message(message: Any) -> None:
            async with _keep_in_progress(message, self._options.redeliver_seconds / 3):
                raw = message.raw_message
                await handle(Delivery(body=bytes(raw.data), place=f"{raw.subject}/{raw.metadata.sequence.stream}"))

        for part in range(self._options.partitions):
            self._make_subscriber(broker, topic, part)(on_message)
        try:
            with self._errors():
                async with asyncio.timeout(_TIMEOUT_SECONDS):
                    await broker.start()
            yield
        finally:
            # Stopped concurrently: while one waits for its running message, the others must not start new ones.
            await asyncio.gather(*(each.stop() for each in broker.subscribers))
            await broker.stop()

    async def close(self) -> None:
        """Close the connection."""
        if self._sender is not None:
            await self._sender.stop()
            self._sender = None

    def _make_subscriber(self, broker: NatsBroker, topic: str, part: int) -> Any:
        options = self._options
        return cast("Any", broker).subscriber(
            f"{topic}.{part}",
            stream=JStream(_stream_name(topic), declare=False),
            durable=f"{options.group}-{_stream_name(topic)}-{part}",
            pull_sub=PullSub(batch_size=1, timeout=_TIMEOUT_SECONDS),
            config=ConsumerConfig(ack_wait=options.redeliver_seconds, max_ack_pending=1, max_deliver=-1),
            ack_policy=AckPolicy.NACK_ON_ERROR,
            decoder=_keep_raw,
        )

    async def _connected_broker(self) -> NatsBroker:
        """Broker for publishing; connects and creates missing streams on first use, then reconnects automatically."""
        async with self._opening:
            if self._sender is None:
                broker = self._broker()
                with self._errors():
                    async with asyncio.timeout(_TIMEOUT_SECONDS):
                        client = await broker.connect()
                    for topic in self._options.topics:
                        await _declare_stream(cast("Any", client).jetstream(), topic)
                self._sender = broker
            return self._sender

    def _broker(self) -> NatsBroker:
        return NatsBroker(
            self._addresses,
            max_reconnect_attempts=-1,  # a connection that gave up would never deliver again
            reconnect_time_wait=1,
            apply_types=False,
            logger=logging.getLogger("contexture.bus"),
            log_level=logging.DEBUG,
            graceful_timeout=self._options.grace_seconds,
        )

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except (TimeoutError, NatsTimeout) as failure:
            raise SourceTimeout(f"the bus at {self._where} did not answer in time") from failure
        except MaxPayloadError as failure:
            raise InvalidRequest(f"the message is larger than the bus at {self._where} accepts") from failure
        except (NatsError, OSError) as failure:
            raise SourceUnavailable(f"the bus at {self._where} failed: {failure}") from failure


def partition_for(key: str, parts: int) -> int:
    """Partition number of a key."""
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % parts


async def _keep_raw(message: Any) -> Any:
    """Return the message undecoded: the handler decodes it and may reject it."""
    return message


@asynccontextmanager
async def _keep_in_progress(message: Any, every: float) -> AsyncGenerator[None]:
    """Report to the server every `every` seconds that the message is in progress, so that it is not redelivered."""

    async def tell() -> None:
        while True:
            await asyncio.sleep(every)
            await message.in_progress()

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


async def _declare_stream(jetstream: Any, topic: str) -> None:
    """Create the stream of a topic; an existing stream with another configuration is left unchanged."""
    wanted = StreamConfig(name=_stream_name(topic), subjects=[f"{topic}.*"], max_age=RETENTION_DAYS * 86_400)
    try:
        await jetstream.add_stream(wanted)
    except BadRequestError as refused:
        if refused.err_code != _STREAM_EXISTS:
            raise


def _stream_name(topic: str) -> str:
    return topic.replace(".", "_")


def _check_topic(topic: str) -> None:
    if not topic or not all(part and part.replace("-", "").replace("_", "").isalnum() for part in topic.split(".")):
        raise InvalidRequest(f"{topic!r} is not a topic name: use letters, digits, '-' and '_', separated by dots")
