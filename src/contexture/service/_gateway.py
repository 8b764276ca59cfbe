"""The gateway: publishes messages to the bus, for a worker to answer."""

from dataclasses import replace
from datetime import datetime
from uuid import uuid4

from contexture.answer.chat_types import ChatRequest
from contexture.answer.idempotency import AnswerOnce, assign_session
from contexture.conversation import HealthState, ReplyState, StoredReply
from contexture.errors import ContextError, InvalidRequest
from contexture.ports import Bus
from contexture.service.envelope import encode_json
from contexture.service.wire.chat import inbound_object
from contexture.types import Scope


class Gateway:
    """Publishes messages to a topic of a bus; without a bus it accepts none."""

    def __init__(self, bus: Bus | None, topic: str) -> None:
        self._bus = bus
        self._topic = topic

    async def state(self) -> HealthState | None:
        """Return the state of the bus; None without one.

        A bus that cannot report a state counts as normal; its errors appear when it is used.
        """
        if self._bus is None:
            return None
        ask = getattr(self._bus, "state", None)
        return HealthState.NORMAL if ask is None else await ask()

    async def enqueue(
        self, request: ChatRequest, *, once: AnswerOnce, scope: Scope, now: datetime | None
    ) -> StoredReply:
        """Publish a message that the policy allows, unless it was answered already; returns its stored reply state.

        When this returns, the bus has accepted the message. Raises `InvalidRequest` without a bus.
        """
        if self._bus is None:
            raise InvalidRequest("this service has no message bus; leave out `background`, or set CONTEXTURE_BUS")
        named = assign_session(request if request.message_id else replace(request, message_id=uuid4().hex))
        reply = await once.accept(named, scope=scope, now=now)
        if reply.state is ReplyState.COMPLETE:
            return reply
        try:
            await self._bus.publish(self._topic, named.session_id, encode_json(inbound_object(named, scope)))
        except ContextError as failure:  # a client that polls the reply must not wait for it
            await once.record_failure(named, failure, scope=scope, now=now)
            raise
        return reply
