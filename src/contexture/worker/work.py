"""Answers the messages of a bus: each once, those of a session in order, and none of them stops the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import structlog

from contexture.answer.ordering import Ordering
from contexture.conversation import Delivery
from contexture.errors import ContextError, ContractError, InvalidRequest, Overloaded, SourceError, StoreUnwritable
from contexture.ports import Bus
from contexture.resilience.retry import Retries
from contexture.service.envelope import UNEXPECTED, encoded
from contexture.service.failures import places_of
from contexture.service.wire.handover import Inbound, dead_object, inbound_of, outbound_object

LONGEST_PAUSE = 30.0
"""Seconds between two tries at most, where giving up is no choice."""


_BLAMELESS = (Overloaded, StoreUnwritable)
WITHOUT_BODY = {"body": None, "body_base64": None}


class Answer(Protocol):
    """Answers a message once, however often it is asked."""

    async def __call__(self, inbound: Inbound, /) -> bytes:
        """The answer as JSON, the same bytes each time; what has none raises a `ContextError`."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Topics:
    """Where messages come from, where their answers go, and where those go that got none."""

    inbound: str
    outbound: str
    dead: str


class Tally(Protocol):
    """Counts what a worker does."""

    def ended(self, outcome: str, seconds: float) -> None:
        """A message was answered (`complete`), got an error (`failed`), or could not be read (`unreadable`)."""
        ...

    def retried(self) -> None:
        """A message is tried again."""
        ...


class NoTally:
    """Counts nothing."""

    def ended(self, outcome: str, seconds: float) -> None:
        """Nothing."""

    def retried(self) -> None:
        """Nothing."""


class Worker:
    """Takes messages from a bus, answers them, and publishes the answers.

    A message is acknowledged when its answer is published, so that none is lost; one that comes again gets the
    answer it got. Failures that may pass are tried again, with growing pauses, while later messages of the session
    wait; a full disk and a full service are waited for. What cannot be read, is not permitted, or fails too often goes
    to the dead letters with its reason.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        answer: Answer,
        topics: Topics,
        retries: Retries | None = None,
        at_once: int = 8,
        tally: Tally | None = None,
    ) -> None:
        self._bus = bus
        self._answer = answer
        self._topics = topics
        self._retries = retries or Retries()
        self._tally = tally or NoTally()
        self._ordering = Ordering()
        self._places = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Answer messages while the context lasts; leaving it finishes those under way."""
        async with self._bus.delivering(self._topics.inbound, self.handle):
            yield

    async def handle(self, delivery: Delivery) -> None:
        """See one message through to its answer, or to the dead letters."""
        began = perf_counter()
        try:
            inbound = inbound_of(delivery.body)
            session = inbound.request().session_id
        except InvalidRequest as failure:
            await self._bury(delivery, failure, tries=0, key=delivery.place)
            outcome = "unreadable"
        else:
            async with self._ordering.of((inbound.tenant_id, inbound.user_id, session)), self._places:
                outcome = await self._seen_through(delivery, inbound, session)
        self._tally.ended(outcome, perf_counter() - began)

    async def _seen_through(self, delivery: Delivery, inbound: Inbound, session: str) -> str:
        ended, tries = await self._answered(inbound)
        if isinstance(ended, ContextError):
            await self._bury(delivery, ended, tries=tries, key=session)
        await self._told(delivery, inbound, ended, session)
        return "failed" if isinstance(ended, ContextError) else "complete"

    async def _answered(self, inbound: Inbound) -> tuple[bytes | ContextError, int]:
        """The answer, or the failure of the last try; and how many tries there were."""
        for number in range(self._retries.most):
            ended = await self._looked_at(inbound)
            if isinstance(ended, bytes) or not ended.retryable:
                return ended, number + 1
            self._tally.retried()
            await self._retries.sleep(self._retries.pause(number))
        return await self._looked_at(inbound), self._retries.most + 1

    async def _looked_at(self, inbound: Inbound) -> bytes | ContextError:
        """What a try gives, once there is room for it, in the service and on the disk: no message is to blame."""
        number = 0
        while isinstance(ended := await self._tried(inbound), _BLAMELESS):
            if not number:
                structlog.get_logger().warning("messages wait", failure=str(ended))
            await self._retries.sleep(self._longer(number))
            number += 1
        return ended

    async def _tried(self, inbound: Inbound) -> bytes | ContextError:
        try:
            return await self._answer(inbound)
        except ContextError as failure:
            return failure
        except Exception as failure:  # noqa: BLE001 - an edge: a message that nobody foresaw must not stop the others
            structlog.get_logger().error("message failed", error=type(failure).__name__, where=places_of(failure))
            return ContractError(UNEXPECTED)

    async def _told(self, delivery: Delivery, inbound: Inbound, ended: bytes | ContextError, session: str) -> None:
        try:
            await self._publish(self._topics.outbound, session, outbound_object(inbound, ended))
        except InvalidRequest as failure:  # the answer is larger than the bus takes
            await self._bury(delivery, failure, tries=1, key=session)
            await self._publish(self._topics.outbound, session, outbound_object(inbound, failure))

    async def _bury(self, delivery: Delivery, reason: ContextError, *, tries: int, key: str) -> None:
        structlog.get_logger().warning("dead letter", place=delivery.place, code=reason.code, tries=tries)
        letter = dead_object(delivery, reason, tries)
        try:
            await self._publish(self._topics.dead, key, letter)
        except InvalidRequest:  # with its reason it is larger than the bus takes; it still lies where it came from
            await self._publish(self._topics.dead, key, {**letter, **WITHOUT_BODY})

    async def _publish(self, topic: str, key: str, said: dict[str, Any]) -> None:
        """Hand a message to the bus, however long that takes: what it answers must not be acknowledged before."""
        number, body = 0, encoded(said)
        while True:
            try:
                await self._bus.publish(topic, key, body)
            except SourceError as failure:
                structlog.get_logger().warning("cannot publish yet", topic=topic, failure=str(failure))
                await self._retries.sleep(self._longer(number))
                number += 1
            else:
                return

    def _longer(self, number: int) -> float:
        """How long to wait where giving up is no choice."""
        return min(LONGEST_PAUSE, self._retries.pause(min(number, 16)))
