"""The gateway: messages that are handed over to the bus, for a worker to answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from uuid import uuid4

from contexture.answer.exchange import ChatRequest
from contexture.answer.once import AnswerOnce, placed
from contexture.conversation import HealthState, ReplyState, StoredReply
from contexture.errors import ContextError, InvalidRequest
from contexture.ports import Bus
from contexture.service.envelope import encoded
from contexture.service.wire.handover import inbound_object
from contexture.types import Scope


class Gateway:
    """Hands messages over to a topic of a bus; without a bus it takes none."""

    def __init__(self, bus: Bus | None, topic: str) -> None:
        self._bus = bus
        self._topic = topic

    async def state(self) -> HealthState | None:
        """How the bus does; None without one. A bus that cannot say is taken to work: it answers for itself."""
        if self._bus is None:
            return None
        ask = getattr(self._bus, "state", None)
        return HealthState.NORMAL if ask is None else await ask()

    async def hand_over(
        self, request: ChatRequest, *, once: AnswerOnce, scope: Scope, now: datetime | None
    ) -> StoredReply:
        """Publish a message that the policy allows, unless it was answered already; says what is known of it.

        The bus keeps the message when this returns.
        """
        if self._bus is None:
            raise InvalidRequest("this service has no bus to hand messages over to: leave out `background`")
        named = placed(request if request.message_id else replace(request, message_id=uuid4().hex))
        reply = await once.accept(named, scope=scope, now=now)
        if reply.state is ReplyState.COMPLETE:
            return reply
        try:
            await self._bus.publish(self._topic, named.session_id, encoded(inbound_object(named, scope)))
        except ContextError as failure:  # whoever reads the reply must not wait for it
            await once.failed(named, failure, scope=scope, now=now)
            raise
        return reply
