"""The worker: consumes messages from a bus and publishes answers or dead letters.

Each message is answered once, and the messages of a session in order. Answers come from an engine in this process or
from the service that holds the store.
"""

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import quote

import httpx
import msgspec
import structlog
from prometheus_client import CollectorRegistry, start_http_server

from contexture import errors, wiring
from contexture.announcement import ServiceAnnouncement
from contexture.answer.chat import KeyedLock
from contexture.config import Settings
from contexture.conversation import Delivery
from contexture.engine import Contexture
from contexture.ports import Bus
from contexture.resilience import Deadline, RetryPolicy
from contexture.service.auth import GROUPS_HEADER, TENANT_HEADER, USER_HEADER
from contexture.service.envelope import UNEXPECTED_MESSAGE, encode_json
from contexture.service.error_log import traceback_locations
from contexture.service.wire import chat as wire

MAX_PAUSE_SECONDS = 30.0
"""Maximum pause between two attempts in seconds, when giving up is not an option."""

_CAPACITY_ERRORS = (errors.Overloaded, errors.StoreUnwritable)
EMPTY_BODY = {"body": None, "body_base64": None}


class AnswerFunction(Protocol):
    """Answers an inbound message; idempotent per message id."""

    async def __call__(self, inbound: wire.InboundMessage, /) -> bytes:
        """Return the answer as JSON, the same bytes each time; raises a `ContextError` if there is none."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Topics:
    """The topics of inbound messages, answers, and dead letters."""

    inbound: str
    outbound: str
    dead: str


class WorkerMetricsSink(Protocol):
    """Receives the metrics of a worker."""

    def message_ended(self, outcome: str, seconds: float) -> None:
        """A message was answered (`complete`), got an error (`failed`), or could not be read (`unreadable`)."""
        ...

    def message_retried(self) -> None:
        """A message is retried."""
        ...


class NoWorkerMetrics:
    """Discards metrics."""

    def message_ended(self, outcome: str, seconds: float) -> None:
        """Do nothing."""

    def message_retried(self) -> None:
        """Do nothing."""


class Worker:
    """Takes messages from a bus, answers them, and publishes the answers.

    A message is acknowledged only after its answer is published, so that none is lost; a redelivered message gets the
    same answer. Retryable failures are retried with backoff while later messages of the session wait; while the disk is
    full or the service is overloaded, the worker waits without a limit. A message that cannot be parsed, is not
    permitted, or fails too often goes to the dead-letter topic with the reason.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        answer: AnswerFunction,
        topics: Topics,
        retries: RetryPolicy | None = None,
        at_once: int = 8,
        tally: WorkerMetricsSink | None = None,
    ) -> None:
        self._bus = bus
        self._answer = answer
        self._topics = topics
        self._retries = retries or RetryPolicy()
        self._metrics = tally or NoWorkerMetrics()
        self._session_locks = KeyedLock()
        self._slots = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def consume(self) -> AsyncGenerator[None]:
        """Consume messages while the context is open; leaving it finishes those in flight."""
        async with self._bus.subscribe(self._topics.inbound, self.handle):
            yield

    async def handle(self, delivery: Delivery) -> None:
        """Process one message to its answer or to the dead-letter topic."""
        began = perf_counter()
        try:
            inbound = wire.parse_inbound(delivery.body)
            session = inbound.to_request().session_id
        except errors.InvalidRequest as failure:
            await self._send_to_dead_letters(delivery, failure, tries=0, key=delivery.place)
            outcome = "unreadable"
        else:
            async with self._session_locks.hold((inbound.tenant_id, inbound.user_id, session)), self._slots:
                outcome = await self._answer_and_publish(delivery, inbound, session)
        self._metrics.message_ended(outcome, perf_counter() - began)

    async def _answer_and_publish(self, delivery: Delivery, inbound: wire.InboundMessage, session: str) -> str:
        ended, tries = await self._answer_with_retries(inbound)
        if isinstance(ended, errors.ContextError):
            await self._send_to_dead_letters(delivery, ended, tries=tries, key=session)
        await self._publish_answer(delivery, inbound, ended, session)
        return "failed" if isinstance(ended, errors.ContextError) else "complete"

    async def _answer_with_retries(self, inbound: wire.InboundMessage) -> tuple[bytes | errors.ContextError, int]:
        """Return the answer or the error of the last attempt, and the number of attempts."""
        for number in range(self._retries.max_retries):
            ended = await self._answer_when_available(inbound)
            if isinstance(ended, bytes) or not ended.retryable:
                return ended, number + 1
            self._metrics.message_retried()
            await self._retries.sleep(self._retries.pause_seconds(number))
        return await self._answer_when_available(inbound), self._retries.max_retries + 1

    async def _answer_when_available(self, inbound: wire.InboundMessage) -> bytes | errors.ContextError:
        """Return the result of one attempt, repeated while the service is overloaded or the disk is full."""
        number = 0
        while isinstance(ended := await self._try_answer(inbound), _CAPACITY_ERRORS):
            if not number:
                structlog.get_logger().warning("answering is paused", failure=str(ended))
            await self._retries.sleep(self._capped_pause(number))
            number += 1
        return ended

    async def _try_answer(self, inbound: wire.InboundMessage) -> bytes | errors.ContextError:
        try:
            return await self._answer(inbound)
        except errors.ContextError as failure:
            return failure
        except Exception as failure:  # noqa: BLE001 - an edge: an unexpected error must not stop other messages
            structlog.get_logger().error(
                "message failed", error=type(failure).__name__, where=traceback_locations(failure)
            )
            return errors.ContractError(UNEXPECTED_MESSAGE)

    async def _publish_answer(
        self, delivery: Delivery, inbound: wire.InboundMessage, ended: bytes | errors.ContextError, session: str
    ) -> None:
        try:
            await self._publish(self._topics.outbound, session, wire.outbound_object(inbound, ended))
        except errors.InvalidRequest as failure:  # the answer exceeds the message size of the bus
            await self._send_to_dead_letters(delivery, failure, tries=1, key=session)
            await self._publish(self._topics.outbound, session, wire.outbound_object(inbound, failure))

    async def _send_to_dead_letters(
        self, delivery: Delivery, reason: errors.ContextError, *, tries: int, key: str
    ) -> None:
        structlog.get_logger().warning("dead letter", place=delivery.place, code=reason.code, tries=tries)
        letter = wire.dead_letter_object(delivery, reason, tries)
        try:
            await self._publish(self._topics.dead, key, letter)
        except errors.InvalidRequest:  # too large with its reason; the original is still on its topic
            await self._publish(self._topics.dead, key, {**letter, **EMPTY_BODY})

    async def _publish(self, topic: str, key: str, said: dict[str, Any]) -> None:
        """Publish to the bus, retrying until it succeeds, because the message must not be acknowledged before."""
        number, body = 0, encode_json(said)
        while True:
            try:
                await self._bus.publish(topic, key, body)
            except errors.SourceError as failure:
                structlog.get_logger().warning("publishing failed; it is retried", topic=topic, failure=str(failure))
                await self._retries.sleep(self._capped_pause(number))
                number += 1
            else:
                return

    def _capped_pause(self, number: int) -> float:
        """Return the backoff pause in seconds, at most `MAX_PAUSE_SECONDS`."""
        return min(MAX_PAUSE_SECONDS, self._retries.pause_seconds(min(number, 16)))


_HTTP_TIMEOUT = httpx.Timeout(600.0, connect=5.0)  # seconds: the service has a shorter timeout of its own
_ERRORS_BY_CODE: Mapping[str, type[errors.ContextError]] = {
    "VALIDATION_FAILED": errors.InvalidRequest,
    "NO_DATA": errors.NotFound,
    "FORBIDDEN": errors.NotPermitted,
    "LIMITED": errors.TooManyRequests,
    "UNAVAILABLE": errors.SourceUnavailable,
}
_ERRORS_BY_NAME: Mapping[str, type[errors.ContextError]] = {
    kind.__name__: kind for kind in (errors.Overloaded, errors.StoreUnwritable)
}


def answer_in_process(engine: Contexture) -> AnswerFunction:
    """Return an answer function over an engine in this process, limited to `answer_timeout_seconds`."""
    seconds = engine.settings.answer_timeout_seconds

    async def answer(inbound: wire.InboundMessage) -> bytes:
        work = engine.answer_once.run(inbound.to_request(), scope=inbound.scope)
        return encode_json((await Deadline(seconds).wait_for(work, "the engine")).json_form())

    return answer


@asynccontextmanager
async def answer_via_service(
    found: Callable[[], ServiceAnnouncement | None], retries: RetryPolicy
) -> AsyncGenerator[AnswerFunction]:
    """Yield an answer function over the running service; `found` is called per message, as the service may restart.

    While no service is running, messages wait and are retried with backoff.
    """
    # Ignore proxies of the environment: a proxy cannot reach this machine's loopback address.
    async with httpx.AsyncClient(timeout=_HTTP_TIMEOUT, trust_env=False) as client:

        async def answer(inbound: wire.InboundMessage) -> bytes:
            number = 0
            while True:
                service = found()
                answered = await _post_message(client, service, inbound) if service else None
                if answered is not None:
                    return answered
                if not number:
                    structlog.get_logger().warning("no service answers; messages wait for one")
                await retries.sleep(min(MAX_PAUSE_SECONDS, retries.pause_seconds(min(number, 16))))
                number += 1

        yield answer


async def _post_message(
    client: httpx.AsyncClient, service: ServiceAnnouncement, inbound: wire.InboundMessage
) -> bytes | None:
    """Return the response of the service; None if it is gone or rejects the token."""
    headers = {
        "Authorization": f"Bearer {service.token}",
        "Content-Type": "application/json",
        TENANT_HEADER: quote(inbound.tenant_id),
        USER_HEADER: quote(inbound.user_id),
        GROUPS_HEADER: ",".join(quote(name, safe="") for name in inbound.groups),
    }
    try:
        answer = await client.post(
            f"{service.url}/v1/chat", content=encode_json(_request_body(inbound)), headers=headers
        )
    except httpx.ReadTimeout as failure:
        raise errors.SourceTimeout(f"the service at {service.url} did not answer in time") from failure
    except httpx.HTTPError:
        return None
    if not answer.is_error:
        return answer.content
    failure = _parse_error(answer.content)
    if isinstance(failure, errors.Unauthorized):
        return None
    raise failure


def _request_body(inbound: wire.InboundMessage) -> dict[str, Any]:
    request = inbound.to_request()
    return {
        "message": request.message,
        "session_id": request.session_id,
        "message_id": request.message_id,
        "persona_id": request.persona_id,
        "model": request.model,
        "system_prompt": request.system_prompt,
        "max_prompt_tokens": request.max_prompt_tokens,
        "max_tokens": request.max_tokens,
    }


def _parse_error(body: bytes) -> errors.ContextError:
    try:
        error = msgspec.json.decode(body)["error"]
        code, message = str(error["code"]), str(error["user_message"])
        kind = str(error.get("tech_message", "")).partition(":")[0]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return errors.SourceUnavailable("the service returned an unreadable answer")
    if code == "UNAUTHORIZED":
        return errors.Unauthorized(message)
    return (_ERRORS_BY_NAME.get(kind) or _ERRORS_BY_CODE.get(code, errors.ContractError))(message)


def require_bus(settings: Settings) -> Bus:
    """Return the configured bus; raises `InvalidRequest` if there is none."""
    found = wiring.bus(settings)
    if found is None:
        raise errors.InvalidRequest("a worker needs a bus: set CONTEXTURE_BUS, such as nats://127.0.0.1:4222")
    return found


def create_worker(
    settings: Settings, bus: Bus, answer: AnswerFunction, *, registry: CollectorRegistry | None = None
) -> Worker:
    """Create a worker from the settings, with its metrics in `registry`."""
    return Worker(
        bus=bus,
        answer=answer,
        topics=Topics(inbound=settings.bus_inbound, outbound=settings.bus_outbound, dead=settings.bus_dead),
        retries=wiring.worker_retries(settings),
        at_once=settings.worker_concurrency,
        tally=wiring.WorkerMetrics(registry) if registry is not None else None,
    )


async def run_until_stopped(worker: Worker, started: Callable[[], None]) -> None:
    """Run a worker until SIGTERM or SIGINT; messages in flight are finished and acknowledged."""
    stop = asyncio.Event()
    with _stop_on_signals(stop):
        async with worker.consume():
            started()
            await stop.wait()


@contextmanager
def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> Generator[None]:
    """Serve a registry to Prometheus at `/metrics` while the context is open."""
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as failure:
        raise errors.SourceUnavailable(
            f"cannot listen on {host}:{port}: {failure.strerror}; choose another --metrics-port"
        ) from failure
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def _stop_on_signals(stop: asyncio.Event) -> Generator[None]:
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop.set)
    try:
        yield
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
