"""Processes a chat message: checks the policy, builds the context, asks a model, stores events and memories.

Messages of one session are processed one after another, under a lock per session.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from contexture.answer import _chat_turn as chat_turn
from contexture.answer import route
from contexture.answer._chat_turn import RememberedStatement, StatementExtractor
from contexture.answer.chat_types import ChatRequest, ChatResult, ChatStatus, ChatStep, Delta, Started
from contexture.answer.permissions import REMEMBER, describe_memories, require_permission
from contexture.builders.turn.build import TurnContext
from contexture.builders.turn.request import Turn, plain_text
from contexture.builders.turn.summary import SummarySink
from contexture.conversation import SessionEvent
from contexture.errors import ContextError, SourceError
from contexture.ledger import Degradation, Trace
from contexture.pipeline.masking import SecretMask, StreamingSecretMask
from contexture.pipeline.redaction import StreamingRestore
from contexture.ports import ChatModel, Clock, Policy, Secrets, SessionStore, TokenCounter
from contexture.text.language import detect_language
from contexture.text.statements import find_subject_to_forget
from contexture.text.unicode import repair_text
from contexture.types import Json, Message, Scope


class KeyedLock:
    """An asyncio lock per key: holders of one key run one after another, in order of arrival."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, key: Hashable) -> AsyncGenerator[None]:
        """Hold the lock of this key; others with the same key wait."""
        lock, holders = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = lock, holders + 1
        try:
            async with lock:
                yield
        finally:
            lock, holders = self._locks.pop(key)
            if holders > 1:  # forget a key that nobody holds or waits for
                self._locks[key] = lock, holders - 1


POLICY_ACTION = "message.process"

T = TypeVar("T")

_MEMORIES_PER_TURN = 2  # the message and its answer
_MEMORY_DENIED = Degradation(source="memory", reason="the policy does not allow this exchange to be remembered")
_MEMORY_LATE = Degradation(source="memory", reason="the last message is not stored in memory yet")


class BuildTurn(Protocol):
    """Builds the context of a turn, as `TurnContextBuilder.build_for_turn` does."""

    async def __call__(
        self,
        turn: Turn | Mapping[str, Any],
        /,
        *,
        max_prompt_tokens: int | None = None,
        scope: Scope | None = None,
        now: datetime | None = None,
        remember: bool = True,
        with_sources: bool = False,
    ) -> TurnContext:
        """Return the context; with `remember` a summary of trimmed history is stored.

        `with_sources` adds what answers the message in other kinds of sources.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRecipe:
    """Default settings for answering messages; a request can override them.

    `quoting` names the extractive model. Its answers only repeat stored text, so they are not stored as memories again.
    With `show_own_data` the placeholders of personal data in an answer are replaced by their values. `with_sources`
    says whether a chat answers from records, documents, news and the workspace too, `completions_with_sources` whether
    completions do.
    """

    system: str = "You are a helpful assistant."
    history_events: int = 20
    max_tokens: int = 512
    namespace: str = "wm"
    universe: str = ""
    quoting: str = "extractive"
    show_own_data: bool = False
    with_sources: bool = True
    completions_with_sources: bool = False


_FORGETTING = "forgetting"
_FORGETTING_NOTICES = {
    "en": "Nothing is forgotten by this message alone. `POST /v1/forget` with {body} forgets it and gives a receipt; "
    'with "preview": true it only lists what would be forgotten. In `contexture chat`, {command} asks first.',
    "ru": "Одно это сообщение ничего не удаляет. `POST /v1/forget` с {body} удалит это и вернёт квитанцию; "
    'с "preview": true только перечислит, что будет удалено. В `contexture chat` сначала спросит {command}.',
}


@dataclass(frozen=True, slots=True)
class ForgettingNotice:
    """Answers an order to forget a subject with how to do that: a chat erases nothing by itself."""

    subject: str
    name: str = _FORGETTING

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """How to forget the subject, in the language of its name."""
        del messages, max_tokens
        body = json.dumps({"matching": self.subject}, ensure_ascii=False)
        notice = _FORGETTING_NOTICES["ru" if detect_language(self.subject) == "ru" else "en"]
        return notice.format(body=body, command=f"/forget {self.subject}")

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """The same, at once."""
        yield await self.complete(messages, max_tokens=max_tokens)


async def _settle_nothing() -> None:
    """Return at once: no write is pending."""


async def _always_arrived(_: Scope) -> bool:
    """Return True: memories that are handed to the sink can be recalled at once."""
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessMessage:
    """Processes the messages of chat sessions.

    Messages of one session are processed one after another, different sessions concurrently. A message that the policy
    denies, or whose context cannot be built, stores nothing. Any other message is appended to its session before a
    model is asked, followed by its outcome: the answer, or the text shown before a model failed or the caller left.
    Known secrets are masked in all stored text. `settle` waits until `memories` has accepted what the build wants to
    store; a result is returned only then. `arrived` waits until a scope's memories can be recalled, so that the next
    message sees them; it returns False on a timeout, and the message is then processed without them. `extractor`
    splits what is remembered into statements, while the model answers.
    """

    policy: Policy
    sessions: SessionStore
    build: BuildTurn
    route: route.ModelRoute
    memories: SummarySink
    secrets: Secrets
    counter: TokenCounter
    clock: Clock
    settle: Callable[[], Awaitable[None]] = _settle_nothing
    arrived: Callable[[Scope], Awaitable[bool]] = _always_arrived
    extractor: StatementExtractor | None = None
    recipe: ChatRecipe = field(default_factory=ChatRecipe)
    session_locks: KeyedLock = field(default_factory=KeyedLock)

    async def run(self, request: ChatRequest, *, scope: Scope, now: datetime | None = None) -> ChatResult:
        """Return the whole answer; if a model fails at any point, the next one is asked."""
        models = self._choose_models(request)
        async with self._open_turn(request, scope, now) as turn:
            trace, reply = Trace(), chat_turn.PartialReply()
            async with self._record_failure(turn, reply, trace):
                piece = await route.complete(models, turn.context.messages, self._max_answer_tokens(request), trace)
                reply.model = piece.model
                masked = SecretMask(self.secrets.known_values()).mask(piece.text)
                reply.pieces.append(self.restorer(turn.context)(masked))
            return await _finish_uncancelled(self._finish_turn(turn, reply, trace))

    async def stream(
        self, request: ChatRequest, *, scope: Scope, now: datetime | None = None
    ) -> AsyncIterator[ChatStep]:
        """Yield `Started`, then the answer in chunks as they arrive, then the `ChatResult`.

        Close the iterator (`contextlib.aclosing`) to stop the answer; the text shown so far is stored as aborted.
        """
        models = self._choose_models(request)
        async with self._open_turn(request, scope, now) as turn:
            trace, reply = Trace(), chat_turn.PartialReply()
            async with self._record_failure(turn, reply, trace):
                context = turn.context
                yield Started(
                    session_id=turn.session_id, build_id=context.build_id, degradations=context.ledger.degradations
                )
                async with aclosing(self._stream_masked(models, turn, reply, trace)) as pieces:
                    async for shown in pieces:
                        yield Delta(shown)
            yield await _finish_uncancelled(self._finish_turn(turn, reply, trace))

    # --- before the model is asked ---

    @asynccontextmanager
    async def _open_turn(
        self, request: ChatRequest, scope: Scope, now: datetime | None
    ) -> AsyncGenerator[chat_turn.OpenTurn]:
        """Build the context and append the user's event; the session stays locked until the block is left."""
        session_id = request.session_id or uuid4().hex
        await self.check_permitted(request, scope, session_id)
        async with self.session_locks.hold((scope.tenant, scope.user, session_id)):
            turn = await self._build_turn(request, scope, session_id, now or self.clock.now())
            position = await _finish_uncancelled(self._append_event(turn, chat_turn.build_user_event(turn)))
            wanted = self.extractor is not None and turn.remembers
            extraction = asyncio.create_task(self.extract(turn.context, turn.text, turn.now)) if wanted else None
            try:
                yield replace(turn, position=position, extraction=extraction)
            finally:
                if extraction is not None:
                    extraction.cancel()  # unless it has ended, nobody waits for it any more

    async def check_permitted(self, request: ChatRequest, scope: Scope, session_id: str) -> None:
        """Raise `NotPermitted`, with the policy's reason, unless the policy allows this message."""
        resource = describe_message(
            request.message, session_id=session_id, persona_id=request.persona_id, model=request.model
        )
        await require_permission(self.policy, scope, POLICY_ACTION, resource)

    async def may_remember(self, scope: Scope) -> bool:
        """Whether the policy allows a message and its answer to be stored as memories."""
        return (await self.policy.decide(scope, REMEMBER, describe_memories(_MEMORIES_PER_TURN))).allowed

    def mask_message(self, message: str) -> str:
        """Return the message as it is stored and shown to a model: text repaired, known secrets masked."""
        return SecretMask(self.secrets.known_values()).mask(repair_text(message))

    async def _build_turn(
        self, request: ChatRequest, scope: Scope, session_id: str, now: datetime
    ) -> chat_turn.OpenTurn:
        text = self.mask_message(request.message)
        analysis = chat_turn.analyse_message(text)
        turn_name = chat_turn.derive_turn_id(scope, session_id, request.message_id)
        most = self.recipe.history_events
        recent = await self.sessions.list_events(scope, session_id, limit=max(1, chat_turn.history_read_limit(most)))
        # Events of an earlier attempt at the same message are not part of its history.
        events = [event for event in chat_turn.select_history(recent, most) if not event.id.startswith(turn_name)]
        lang = chat_turn.resolve_session_language(_last_session_language(events), analysis)
        base = self.recipe.system if request.system_prompt is None else request.system_prompt
        turn = Turn(
            user_message=text,
            system_prompt=chat_turn.build_system_prompt(base, lang),
            history=tuple(chat_turn.to_messages(events)),
            session_id=session_id,
            persona_id=request.persona_id,
        )
        arrived, remembers = await self.arrived(scope), await self.may_remember(scope)
        built = await self.build(
            turn,
            max_prompt_tokens=request.max_prompt_tokens,
            scope=scope,
            now=now,
            remember=remembers,
            with_sources=self.recipe.with_sources,
        )
        losses = [] if arrived else [_MEMORY_LATE]
        losses += [] if remembers else [_MEMORY_DENIED]
        for lost in losses:
            built = replace(built, ledger=built.ledger.with_degradation(lost))
        return chat_turn.OpenTurn(
            id=turn_name,
            scope=scope,
            request=request,
            session_id=session_id,
            text=text,
            analysis=analysis,
            lang=lang,
            now=now,
            context=built,
            remembers=remembers,
        )

    # --- the answer ---

    async def _stream_masked(
        self, models: Sequence[ChatModel], turn: chat_turn.OpenTurn, reply: chat_turn.PartialReply, trace: Trace
    ) -> AsyncGenerator[str]:
        mask = StreamingSecretMask(self.secrets.known_values())
        restore = StreamingRestore(self.restorer(turn.context))
        answer = route.stream(models, turn.context.messages, self._max_answer_tokens(turn.request), trace)
        async with aclosing(answer) as pieces:
            async for piece in pieces:
                reply.model = piece.model
                if shown := restore.feed(mask.feed(piece.text)):
                    reply.pieces.append(shown)
                    yield shown
        if rest := restore.feed(mask.flush()) + restore.flush():
            reply.pieces.append(rest)
            yield rest

    def _choose_models(self, request: ChatRequest) -> Sequence[ChatModel]:
        """The models to ask; no model may say that it has forgotten something."""
        models = self.route.order_models(request.model)
        subject = find_subject_to_forget(request.message)
        return [ForgettingNotice(self.mask_message(subject))] if subject else models

    def restorer(self, context: TurnContext) -> Callable[[str], str]:
        """What puts the caller's own personal data into an answer, where the operator allows it.

        Placeholders of other sources than memories stand for other people's data, so such an answer keeps them all.
        """
        is_own = self.recipe.show_own_data and not chat_turn.quotes_sources(context)
        return context.restore if is_own else str

    def _max_answer_tokens(self, request: ChatRequest) -> int:
        return request.max_tokens or self.recipe.max_tokens

    # --- after the model has answered ---

    @asynccontextmanager
    async def _record_failure(
        self, turn: chat_turn.OpenTurn, reply: chat_turn.PartialReply, trace: Trace
    ) -> AsyncGenerator[None]:
        """Append a failed or aborted event with the text shown so far, if the block raises or is cancelled."""
        try:
            yield
        except ContextError as failure:
            await self._append_event(turn, self._reply_event(turn, reply, trace, ChatStatus.FAILED, failure))
            raise
        except (asyncio.CancelledError, GeneratorExit):
            await _finish_uncancelled(
                self._append_event(turn, self._reply_event(turn, reply, trace, ChatStatus.ABORTED))
            )
            raise

    async def _finish_turn(self, turn: chat_turn.OpenTurn, reply: chat_turn.PartialReply, trace: Trace) -> ChatResult:
        """Append the answer, pass the memories to the sink, and return the result."""
        reply_event = self._reply_event(turn, reply, trace, ChatStatus.COMPLETE)
        position = await self._append_event(turn, reply_event)
        said = chat_turn.FinishedTurn(
            turn=turn.id,
            session_id=turn.session_id,
            persona_id=turn.request.persona_id,
            time=turn.now,
            asked=turn.text,
            reply="" if chat_turn.quotes_sources(turn.context) else reply.text,
            injected=chat_turn.injected_memory_ids(turn.context),
            stated=await turn.extraction if turn.extraction is not None else (),
            turn_number=(turn.position + 1) // 2,
        )
        try:
            if turn.remembers:
                await self.remember(turn.scope, said, reply.model)
            await self.settle()
        except SourceError as failure:  # the answer was given and its events are stored
            trace.add_degradation("memory", failure)
        return ChatResult(
            session_id=turn.session_id,
            reply=reply.text,
            model=reply.model,
            build_id=turn.context.build_id,
            citations=chat_turn.build_memory_citations(turn.context, reply.text),
            degradations=self._collect_degradations(turn, trace),
            events=(
                replace(chat_turn.build_user_event(turn), position=turn.position),
                replace(reply_event, position=position),
            ),
            usage=reply_event.metadata["usage"],
        )

    async def extract(self, context: TurnContext, message: str, now: datetime) -> Sequence[RememberedStatement]:
        """The statements of a message that the extractor finds; empty without an extractor."""
        if self.extractor is None:
            return ()
        shown = next(each for each in reversed(context.messages) if each["role"] == "user" and not each.get("name"))
        return await self.extractor.extract(
            message,
            shown=plain_text(shown.get("content")),
            memories=chat_turn.list_memories(context),
            restore=context.restore,
            now=now,
        )

    async def remember(self, scope: Scope, said: chat_turn.FinishedTurn, model: str) -> None:
        """Pass the memories of a turn to the memory sink; idempotent."""
        # An extractive answer only quotes stored text, so only the message is new.
        new = replace(said, reply="") if model in {self.recipe.quoting, _FORGETTING} else said
        if memories := chat_turn.build_memories(new, self.recipe.namespace, self.recipe.universe):
            await self.memories.put(scope, *memories)

    async def _append_event(self, turn: chat_turn.OpenTurn, event: SessionEvent) -> int:
        """Append the event to its session and return its position."""
        return await self.sessions.append(turn.scope, turn.session_id, [event])

    def _reply_event(
        self,
        turn: chat_turn.OpenTurn,
        reply: chat_turn.PartialReply,
        trace: Trace,
        status: ChatStatus,
        failure: ContextError | None = None,
    ) -> SessionEvent:
        spent = {"prompt_tokens": turn.context.tokens, "completion_tokens": self.counter.count(reply.text)}
        usage = {**spent, "total_tokens": sum(spent.values())}
        outcome = chat_turn.TurnOutcome(
            status=status, usage=usage, degradations=self._collect_degradations(turn, trace), failure=failure
        )
        return chat_turn.build_reply_event(turn, reply, outcome)

    def _collect_degradations(self, turn: chat_turn.OpenTurn, trace: Trace) -> tuple[Degradation, ...]:
        return (*turn.context.ledger.degradations, *trace.finish(()).degradations)


def describe_message(message: str, *, session_id: str, persona_id: str, model: str | None) -> dict[str, Json]:
    """The input of the policy for processing a message, the same on every route."""
    return {"session_id": session_id, "persona_id": persona_id, "length": len(message), "model": model}


def _last_session_language(events: Sequence[SessionEvent]) -> str:
    """Return the language stored with the latest event that has one, or an empty string."""
    said = (event.metadata.get(chat_turn.LANGUAGE_KEY) for event in reversed(events))
    return next((lang for lang in said if isinstance(lang, str)), "")


async def _finish_uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end even if the caller is cancelled; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
