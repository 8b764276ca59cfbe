"""Messages over NATS JetStream, by FastStream.

A topic is a stream whose subjects are `TOPIC.0` to `TOPIC.N-1`; the key of a message chooses one. Each has one durable
consumer with one message out at a time, so that the messages of a key keep their order however many processes share
them, and whatever becomes of one of these.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

from contexture.adapters.bus.registry import BusOptions
from contexture.conversation import Delivery, HealthState
from contexture.errors import InvalidRequest, SourceError, SourceTimeout, SourceUnavailable
from contexture.ports import Handle

try:
    from faststream import AckPolicy
    from faststream.nats import JStream, NatsBroker, PullSub
    from nats.errors import Error as NatsError
    from nats.errors import MaxPayloadError
    from nats.errors import TimeoutError as NatsTimeout
    from nats.js.api import ConsumerConfig, StreamConfig
    from nats.js.errors import BadRequestError
except ImportError as missing:
    raise ImportError('a bus over NATS needs faststream: pip install "contexture[worker]"') from missing

KEPT_DAYS = 7
_PATIENCE = 5.0  # seconds for one answer of the server
_GLANCE = 1.0  # seconds for the same, when it is asked how it does
_IN_USE = 10_058  # a stream of this name exists with another configuration


class NatsBus:
    """A bus over the servers at `addresses`."""

    def __init__(self, addresses: Sequence[str], options: BusOptions) -> None:
        if options.extra:
            raise InvalidRequest("CONTEXTURE_BUS_OPTIONS is for Kafka; NATS takes user:password@ in its address")
        for topic in options.topics:
            _check(topic)
        self._options = options
        self._where = ", ".join(address.rpartition("@")[2] for address in addresses)
        self._addresses = list(addresses)
        self._opening = asyncio.Lock()
        self._sender: NatsBroker | None = None

    async def reach(self) -> None:
        """Connect, and make the topics that are missing."""
        await self._connected()

    async def state(self) -> HealthState:
        """Down while there is no connection, nor one to be had at once."""
        try:
            async with asyncio.timeout(_GLANCE):
                broker = await self._connected()
        except (TimeoutError, SourceError):
            return HealthState.DOWN
        return HealthState.NORMAL if await broker.ping(_GLANCE) else HealthState.DOWN

    async def publish(self, topic: str, key: str, body: bytes) -> None:
        """Hand a message over; the server has it on its disk, or in as many replicas as its stream has."""
        broker = await self._connected()
        subject = f"{topic}.{part_of(key, self._options.partitions)}"
        with self._errors():
            await broker.publish(body, subject=subject, stream=_stream(topic), timeout=_PATIENCE)

    @asynccontextmanager
    async def delivering(self, topic: str, handle: Handle) -> AsyncGenerator[None]:
        """Give the messages of a topic to `handle` while the context lasts."""
        await self.reach()
        broker = self._broker()

        async def on_message(message: Any) -> None:
            async with _kept_alive(message, self._options.redeliver_seconds / 3):
                raw = message.raw_message
                await handle(Delivery(body=bytes(raw.data), place=f"{raw.subject}/{raw.metadata.sequence.stream}"))

        for part in range(self._options.partitions):
            self._subscribed(broker, topic, part)(on_message)
        try:
            with self._errors():
                async with asyncio.timeout(_PATIENCE):
                    await broker.start()
            yield
        finally:
            # Together: while one of them waits for its work to end, the others must not begin any.
            await asyncio.gather(*(each.stop() for each in broker.subscribers))
            await broker.stop()

    async def close(self) -> None:
        """Close the connection."""
        if self._sender is not None:
            await self._sender.stop()
            self._sender = None

    def _subscribed(self, broker: NatsBroker, topic: str, part: int) -> Any:
        options = self._options
        return cast("Any", broker).subscriber(
            f"{topic}.{part}",
            stream=JStream(_stream(topic), declare=False),
            durable=f"{options.group}-{_stream(topic)}-{part}",
            pull_sub=PullSub(batch_size=1, timeout=_PATIENCE),
            config=ConsumerConfig(ack_wait=options.redeliver_seconds, max_ack_pending=1, max_deliver=-1),
            ack_policy=AckPolicy.NACK_ON_ERROR,
            decoder=_undecoded,
        )

    async def _connected(self) -> NatsBroker:
        """What publishes; it connects once, makes the streams that are missing, and reconnects by itself."""
        async with self._opening:
            if self._sender is None:
                broker = self._broker()
                with self._errors():
                    async with asyncio.timeout(_PATIENCE):
                        client = await broker.connect()
                    for topic in self._options.topics:
                        await _declared(cast("Any", client).jetstream(), topic)
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
            raise InvalidRequest(f"the message is larger than the bus at {self._where} takes") from failure
        except (NatsError, OSError) as failure:
            raise SourceUnavailable(f"the bus at {self._where} failed: {failure}") from failure


def part_of(key: str, parts: int) -> int:
    """The part of a topic to which a key belongs."""
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) % parts


async def _undecoded(message: Any) -> Any:
    """The message as it is: what it says is read where a reader may refuse it."""
    return message


@asynccontextmanager
async def _kept_alive(message: Any, every: float) -> AsyncGenerator[None]:
    """Tell the server, while the block lasts, that the message is being worked on."""

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


async def _declared(jetstream: Any, topic: str) -> None:
    """Make the stream of a topic; one that somebody made otherwise is left as it is."""
    wanted = StreamConfig(name=_stream(topic), subjects=[f"{topic}.*"], max_age=KEPT_DAYS * 86_400)
    try:
        await jetstream.add_stream(wanted)
    except BadRequestError as refused:
        if refused.err_code != _IN_USE:
            raise


def _stream(topic: str) -> str:
    return topic.replace(".", "_")


def _check(topic: str) -> None:
    if not topic or not all(part and part.replace("-", "").replace("_", "").isalnum() for part in topic.split(".")):
        raise InvalidRequest(f"{topic!r} is no name of a topic: use letters, digits, '-' and '_', separated by dots")
