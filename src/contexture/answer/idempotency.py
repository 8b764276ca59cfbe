"""Idempotent chat: a message with a `message_id` is answered once, and a repeated one gets the stored reply."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias, TypeVar

import msgspec

from contexture.answer._chat_turn import CITATIONS_KEY, FinishedTurn, derive_turn_id, reply_event_name
from contexture.answer.chat import KeyedLock, ProcessMessage
from contexture.answer.chat_types import ChatRequest, ChatResult, ChatStatus, MemoryCitation
from contexture.conversation import MEMORIES_COLLECTION, ReplyState, SessionEvent, StoredReply, record_reference
from contexture.errors import ContextError, InvalidRequest, NotFound, SourceUnavailable
from contexture.ledger import Degradation
from contexture.pipeline.masking import has_masked_secret
from contexture.ports import ReplyStore
from contexture.types import Scope, content_hash

T = TypeVar("T")

_RESUME_EVENT_LIMIT = 100  # newest events to search: a repeated message was interrupted recently


class ReplyFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The stored error of a message without an answer; a `retryable` one may succeed on another attempt."""

    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierAttempt:
    """Events that an earlier attempt at the same turn has stored: the user's message and the complete answer."""

    turn: str
    asked: SessionEvent | None
    reply: SessionEvent | None


CheckReadable: TypeAlias = Callable[[Scope, ChatResult], Awaitable[None]]
"""Raises `NotFound` for a result that cites what the scope may not read now."""


async def _check_nothing(_scope: Scope, _result: ChatResult) -> None:
    """Accept every result: the memories are not here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerOnce:
    """Processes messages that have a `message_id`, and stores the outcome of each.

    A message that was answered gets the same answer again. One whose processing was interrupted, even by a crash of the
    process, is resumed: its events and memories are not written twice. One that failed is tried again. `check_readable`
    raises `NotFound` for a stored answer that cites a memory which the scope may not read now.
    """

    process: ProcessMessage
    replies: ReplyStore
    check_readable: CheckReadable = _check_nothing
    message_locks: KeyedLock = field(default_factory=KeyedLock)

    async def run(self, request: ChatRequest, *, scope: Scope, now: datetime | None = None) -> ChatResult:
        """Return the answer, the same as the first time; raises `InvalidRequest` if another message has this id."""
        asked = assign_session(request)
        async with self.message_locks.hold((scope.tenant, scope.user, asked.message_id)):
            kept = await self.replies.get(scope, asked.message_id)
            if kept is not None and kept.state is ReplyState.COMPLETE:
                result = self._checked_result(asked, decode_result(kept))
                await self.check_readable(scope, result)
                return result
            left = await self._load_earlier_attempt(asked, scope)
            return await self._answer_and_store(asked, left, scope, now or self.process.clock.now())

    async def accept(self, request: ChatRequest, *, scope: Scope, now: datetime | None = None) -> StoredReply:
        """Record that a message was accepted, if the policy allows it; returns its stored state, which may be final."""
        asked = assign_session(request)
        await self.process.check_permitted(asked, scope, asked.session_id)
        when = now or self.process.clock.now()
        known = await self.replies.put(scope, _build_stored_reply(asked, ReplyState.ACCEPTED, when))
        if known.state is ReplyState.COMPLETE:
            self._checked_result(asked, decode_result(known))
        return known

    async def record_failure(
        self, request: ChatRequest, failure: ContextError, *, scope: Scope, now: datetime | None
    ) -> None:
        """Store why a message has no answer, unless it has one."""
        when = now or self.process.clock.now()
        await self.replies.put(
            scope, _build_stored_reply(assign_session(request), ReplyState.FAILED, when, _to_reply_failure(failure))
        )

    async def find(self, message_id: str, *, scope: Scope) -> StoredReply:
        """Return the stored outcome of a message.

        An unknown message, another user's, and one whose answer cites what the scope may not read now raise `NotFound`.
        """
        found = await self.replies.get(scope, message_id)
        if found is None:
            raise NotFound(f"there is no message {message_id!r}")
        if found.state is ReplyState.COMPLETE:
            await self.check_readable(scope, decode_result(found))
        return found

    async def _answer_and_store(
        self, asked: ChatRequest, left: EarlierAttempt, scope: Scope, now: datetime
    ) -> ChatResult:
        try:
            result = await self._resume(asked, left, scope) or await self.process.run(asked, scope=scope, now=now)
        except ContextError as failure:
            await self.replies.put(
                scope, _build_stored_reply(asked, ReplyState.FAILED, now, _to_reply_failure(failure))
            )
            raise
        return decode_result(
            await self.replies.put(scope, _build_stored_reply(asked, ReplyState.COMPLETE, now, result))
        )

    async def _load_earlier_attempt(self, asked: ChatRequest, scope: Scope) -> EarlierAttempt:
        """Return the events that earlier attempts at this message have left in its session."""
        events = await self.process.sessions.list_events(scope, asked.session_id, limit=_RESUME_EVENT_LIMIT)
        turn = derive_turn_id(scope, asked.session_id, asked.message_id)
        found = {event.id: event for event in events if event.id.startswith(turn)}
        left = EarlierAttempt(
            turn=turn,
            asked=found.get(f"{turn}-user"),
            reply=found.get(f"{turn}-{reply_event_name(ChatStatus.COMPLETE)}"),
        )
        if left.asked is not None:
            self._check_same_message(asked, asked.session_id, left.asked)
        return left

    async def _resume(self, asked: ChatRequest, left: EarlierAttempt, scope: Scope) -> ChatResult | None:
        """Return the answer already stored in the session, passing its memories on again; None if there is none."""
        if left.asked is None or left.reply is None:
            return None
        result = _result_from_events(asked.session_id, left.asked, left.reply)
        said = FinishedTurn(
            turn=left.turn,
            session_id=asked.session_id,
            persona_id=asked.persona_id,
            time=left.asked.time,
            asked=str(left.asked.message["content"]),
            reply="" if any(each.collection != MEMORIES_COLLECTION for each in result.citations) else result.reply,
            injected=tuple(citation.memory_id for citation in result.citations),
        )
        if await self.process.may_remember(scope):
            await self.process.remember(scope, said, result.model)
        return result

    def _checked_result(self, asked: ChatRequest, result: ChatResult) -> ChatResult:
        """Return the stored result, after checking that it belongs to this message."""
        self._check_same_message(asked, result.session_id, result.events[0])
        return result

    def _check_same_message(self, asked: ChatRequest, session_id: str, known: SessionEvent) -> None:
        """Raise `InvalidRequest` if the message id belongs to another message."""
        texts = {str(known.message["content"]), self.process.mask_message(asked.message)}
        # The set of known secrets may have changed in between.
        same = len(texts) == 1 or any(map(has_masked_secret, texts))
        if session_id != asked.session_id or not same:
            raise InvalidRequest(
                f"the id {asked.message_id!r} belongs to another of your messages; use a new id for each message"
            )


def assign_session(request: ChatRequest) -> ChatRequest:
    """Return the request with a session id; if it has none, one is derived from the message id."""
    if not request.message_id:
        raise InvalidRequest("a message that is answered only once needs a `message_id`")
    return request if request.session_id else replace(request, session_id=content_hash(request.message_id)[:32])


def decode_result(reply: StoredReply) -> ChatResult:
    """The result stored in a complete reply."""
    return _decode_body(reply, ChatResult)


def decode_failure(reply: StoredReply) -> ReplyFailure:
    """The error stored in a failed reply."""
    return _decode_body(reply, ReplyFailure)


def _decode_body(reply: StoredReply, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except msgspec.MsgspecError as damage:
        raise SourceUnavailable(f"the reply to message {reply.message_id!r} is damaged: {damage}") from damage


def _build_stored_reply(asked: ChatRequest, state: ReplyState, now: datetime, body: object = None) -> StoredReply:
    packed = b"" if body is None else msgspec.json.encode(body)
    references = _list_references(body) if isinstance(body, ChatResult) else ()
    return StoredReply(
        message_id=asked.message_id,
        session_id=asked.session_id,
        state=state,
        time=now,
        body=packed,
        references=references,
    )


def _list_references(result: ChatResult) -> tuple[str, ...]:
    """The records and events whose texts a result may repeat."""
    memories = (record_reference(citation.collection, citation.memory_id) for citation in result.citations)
    events = (record_reference("event", event.id) for event in result.events)
    return (*memories, *events)


def _to_reply_failure(failure: ContextError) -> ReplyFailure:
    return ReplyFailure(code=failure.code, message=str(failure), retryable=failure.retryable)


def _result_from_events(session_id: str, asked: SessionEvent, reply: SessionEvent) -> ChatResult:
    """The result as its stored events describe it."""
    known = reply.metadata
    return ChatResult(
        session_id=session_id,
        reply=str(reply.message["content"]),
        model=str(known["model"]),
        build_id=str(known["build_id"]),
        citations=tuple(MemoryCitation(**citation) for citation in known[CITATIONS_KEY]),
        degradations=tuple(Degradation(**lost) for lost in known["degradations"]),
        events=(asked, reply),
        usage=dict(known["usage"]),
    )
