"""Messages that carry an id are answered once, however often they come."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

import msgspec

from contexture.answer.exchange import ChatRequest, ChatResult, MemoryCitation, Status
from contexture.answer.ordering import Ordering
from contexture.answer.process import ProcessMessage
from contexture.answer.record import CITATIONS, Said, ended, turn_id
from contexture.conversation import Event, ReplyState, StoredReply
from contexture.errors import ContextError, InvalidRequest, NotFound, SourceUnavailable
from contexture.ledger import Degradation
from contexture.pipeline.mask import is_masked
from contexture.ports import ReplyStore
from contexture.types import Scope, content_hash

T = TypeVar("T")

_LOOKED_THROUGH = 100  # events of a session: a message that comes again was cut off not long ago


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a message has no answer; when it is `retryable`, another try may give it one."""

    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """What earlier tries have left of a turn: its message, and its whole answer."""

    turn: str
    asked: Event | None
    told: Event | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerOnce:
    """Processes messages that have a `message_id`, and keeps what became of each.

    A message that was answered gets the same answer again. One whose processing was cut off, even by the end of the
    process, is taken up where that left it: its events and memories are not written twice. One that failed is tried
    anew.
    """

    process: ProcessMessage
    replies: ReplyStore
    ordering: Ordering = field(default_factory=Ordering)

    async def run(self, request: ChatRequest, *, scope: Scope, now: datetime | None = None) -> ChatResult:
        """The answer, as it was given the first time; an id that another message has is an `InvalidRequest`."""
        asked = placed(request)
        async with self.ordering.of((scope.tenant, scope.user, asked.message_id)):
            kept = await self.replies.get(scope, asked.message_id)
            if kept is not None and kept.state is ReplyState.COMPLETE:
                return self._same(asked, result_of(kept))
            left = await self._left(asked, scope)
            return await self._answered(asked, left, scope, now or self.process.clock.now())

    async def accept(self, request: ChatRequest, *, scope: Scope, now: datetime | None = None) -> StoredReply:
        """Note that a message was taken, if the policy allows that; says what is known of it, which may be its end."""
        asked = placed(request)
        await self.process.permit(asked, scope, asked.session_id)
        when = now or self.process.clock.now()
        known = await self.replies.put(scope, _reply(asked, ReplyState.ACCEPTED, when))
        if known.state is ReplyState.COMPLETE:
            self._same(asked, result_of(known))
        return known

    async def failed(self, request: ChatRequest, failure: ContextError, *, scope: Scope, now: datetime | None) -> None:
        """Note why a message has no answer, unless it has one."""
        when = now or self.process.clock.now()
        await self.replies.put(scope, _reply(placed(request), ReplyState.FAILED, when, _told(failure)))

    async def find(self, message_id: str, *, scope: Scope) -> StoredReply:
        """What became of a message; an unknown one and another user's are `NotFound` alike."""
        found = await self.replies.get(scope, message_id)
        if found is None:
            raise NotFound(f"no message {message_id!r} was taken here")
        return found

    async def _answered(self, asked: ChatRequest, left: Left, scope: Scope, now: datetime) -> ChatResult:
        try:
            result = await self._resumed(asked, left, scope) or await self.process.run(asked, scope=scope, now=now)
        except ContextError as failure:
            await self.replies.put(scope, _reply(asked, ReplyState.FAILED, now, _told(failure)))
            raise
        return result_of(await self.replies.put(scope, _reply(asked, ReplyState.COMPLETE, now, result)))

    async def _left(self, asked: ChatRequest, scope: Scope) -> Left:
        """What earlier tries at a message have left in its session."""
        events = await self.process.sessions.list_events(scope, asked.session_id, limit=_LOOKED_THROUGH)
        turn = turn_id(scope, asked.session_id, asked.message_id)
        found = {event.id: event for event in events if event.id.startswith(turn)}
        left = Left(turn=turn, asked=found.get(f"{turn}-user"), told=found.get(f"{turn}-{ended(Status.COMPLETE)}"))
        if left.asked is not None:
            self._check(asked, asked.session_id, left.asked)
        return left

    async def _resumed(self, asked: ChatRequest, left: Left, scope: Scope) -> ChatResult | None:
        """The answer that stands in the session already, its memories handed on again; None when there is none."""
        if left.asked is None or left.told is None:
            return None
        result = _result(asked.session_id, left.asked, left.told)
        said = Said(
            turn=left.turn,
            session_id=asked.session_id,
            persona_id=asked.persona_id,
            time=left.asked.time,
            asked=str(left.asked.message["content"]),
            told=result.reply,
            injected=tuple(citation.memory_id for citation in result.citations),
        )
        await self.process.remember(scope, said, result.model)
        return result

    def _same(self, asked: ChatRequest, result: ChatResult) -> ChatResult:
        """The answer, once it is sure that it is one to this message."""
        self._check(asked, result.session_id, result.events[0])
        return result

    def _check(self, asked: ChatRequest, session_id: str, known: Event) -> None:
        """Refuse an id that another message has: to answer with that one's answer would be wrong, and silent."""
        texts = {str(known.message["content"]), self.process.shown(asked.message)}
        # Which secrets are known may have changed in between.
        same = len(texts) == 1 or any(map(is_masked, texts))
        if session_id != asked.session_id or not same:
            raise InvalidRequest(
                f"the id {asked.message_id!r} is that of another message of yours; give each message its own"
            )


def placed(request: ChatRequest) -> ChatRequest:
    """The same message in the session it belongs to: one that names none begins a session that its id names."""
    if not request.message_id:
        raise InvalidRequest("a message that is answered once needs a `message_id`")
    return request if request.session_id else replace(request, session_id=content_hash(request.message_id)[:32])


def result_of(reply: StoredReply) -> ChatResult:
    """The answer of a complete reply."""
    return _decoded(reply, ChatResult)


def failure_of(reply: StoredReply) -> Failure:
    """The error of a reply that failed."""
    return _decoded(reply, Failure)


def _decoded(reply: StoredReply, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except msgspec.MsgspecError as damage:
        raise SourceUnavailable(f"the reply to message {reply.message_id!r} is damaged: {damage}") from damage


def _reply(asked: ChatRequest, state: ReplyState, now: datetime, body: object = None) -> StoredReply:
    packed = b"" if body is None else msgspec.json.encode(body)
    return StoredReply(message_id=asked.message_id, session_id=asked.session_id, state=state, time=now, body=packed)


def _told(failure: ContextError) -> Failure:
    return Failure(code=failure.code, message=str(failure), retryable=failure.retryable)


def _result(session_id: str, asked: Event, told: Event) -> ChatResult:
    """The answer as its event says it."""
    known = told.metadata
    return ChatResult(
        session_id=session_id,
        reply=str(told.message["content"]),
        model=str(known["model"]),
        build_id=str(known["build_id"]),
        citations=tuple(MemoryCitation(**citation) for citation in known[CITATIONS]),
        degradations=tuple(Degradation(**lost) for lost in known["degradations"]),
        events=(asked, told),
        usage=dict(known["usage"]),
    )
