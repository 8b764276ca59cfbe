"""A message from arrival to answer: permitted, analysed, given its context, answered, and kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from contexture.answer import route
from contexture.answer.analyse import analyse, session_language, system_prompt
from contexture.answer.exchange import ChatRequest, ChatResult, Delta, Started, Status, Step
from contexture.answer.history import reach, to_messages, window
from contexture.answer.ordering import Ordering
from contexture.answer.record import (
    LANGUAGE,
    OpenTurn,
    Outcome,
    Reply,
    Said,
    asked_event,
    citations_of,
    injected,
    memories_of,
    told_event,
    turn_id,
)
from contexture.builders.turn.build import TurnContext
from contexture.builders.turn.request import Turn
from contexture.builders.turn.summary import SummarySink
from contexture.conversation import Event
from contexture.errors import ContextError, NotPermitted, SourceError
from contexture.ledger import Degradation, Trace
from contexture.pipeline.mask import Mask, StreamMask
from contexture.ports import ChatModel, Clock, Policy, Secrets, SessionStore, TokenCounter
from contexture.retrieval.prepare import mended
from contexture.types import Scope

ACTION = "message.process"

T = TypeVar("T")

_LATE = Degradation(source="memory", reason="what was said last is still being remembered")


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
    ) -> TurnContext:
        """The context."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRecipe:
    """How messages are answered when a request does not say otherwise.

    `quoting` names the model whose answers only repeat what is stored, so that they are not remembered again.
    """

    system: str = "You are a helpful assistant."
    history_events: int = 20
    max_tokens: int = 512
    namespace: str = "wm"
    universe: str = ""
    quoting: str = "extractive"


async def _settled() -> None:
    """Nothing is under way."""


async def _arrived(_: Scope) -> bool:
    """What is handed on is remembered at once."""
    return True


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessMessage:
    """Processes the messages of sessions.

    Messages of one session are processed one after the other, sessions beside each other. A message that the policy
    denies, or whose context cannot be built, leaves no trace. Any other is appended before a model is asked, and what
    became of it behind it: the answer, or what was shown of it before a model failed or the caller went away. Known
    secrets are masked in all of it. `settle` waits until what the build wants remembered is in the hands of
    `memories`; a result is given only then. `arrived` waits until a scope's `memories` can be recalled, so that the
    next message knows of them; it is false when that takes too long, and the message is then processed without.
    """

    policy: Policy
    sessions: SessionStore
    build: BuildTurn
    route: route.Route
    memories: SummarySink
    secrets: Secrets
    counter: TokenCounter
    clock: Clock
    settle: Callable[[], Awaitable[None]] = _settled
    arrived: Callable[[Scope], Awaitable[bool]] = _arrived
    recipe: ChatRecipe = field(default_factory=ChatRecipe)
    ordering: Ordering = field(default_factory=Ordering)

    async def run(self, request: ChatRequest, *, scope: Scope, now: datetime | None = None) -> ChatResult:
        """The whole answer; a model that fails at any point is passed over for the next."""
        models = self.route.starting_with(request.model)
        async with self._opened(request, scope, now) as turn:
            trace, reply = Trace(), Reply()
            async with self._recorded(turn, reply, trace):
                piece = await route.complete(models, turn.context.messages, self._longest(request), trace)
                reply.model = piece.model
                reply.pieces.append(Mask(self.secrets.known()).mask(piece.text))
            return await _to_the_end(self._closed(turn, reply, trace))

    async def stream(self, request: ChatRequest, *, scope: Scope, now: datetime | None = None) -> AsyncIterator[Step]:
        """`Started`, then the answer in pieces as they come, then the result.

        Close it (`contextlib.aclosing`) to stop the answer: what was shown of it is kept as aborted.
        """
        models = self.route.starting_with(request.model)
        async with self._opened(request, scope, now) as turn:
            trace, reply = Trace(), Reply()
            async with self._recorded(turn, reply, trace):
                context = turn.context
                yield Started(
                    session_id=turn.session_id, build_id=context.build_id, degradations=context.ledger.degradations
                )
                async with aclosing(self._pieces(models, turn, reply, trace)) as pieces:
                    async for shown in pieces:
                        yield Delta(shown)
            yield await _to_the_end(self._closed(turn, reply, trace))

    # --- before ---

    @asynccontextmanager
    async def _opened(self, request: ChatRequest, scope: Scope, now: datetime | None) -> AsyncGenerator[OpenTurn]:
        """The message with its context, appended; its session waits until the block is left."""
        session_id = request.session_id or uuid4().hex
        await self.permit(request, scope, session_id)
        async with self.ordering.of((scope.tenant, scope.user, session_id)):
            turn = await self._with_context(request, scope, session_id, now or self.clock.now())
            position = await _to_the_end(self._append(turn, asked_event(turn)))
            yield replace(turn, position=position)

    async def permit(self, request: ChatRequest, scope: Scope, session_id: str) -> None:
        """Raise `NotPermitted`, with the policy's reason, unless the policy lets this message be processed."""
        resource = {"session_id": session_id, "persona_id": request.persona_id, "length": len(request.message)}
        decision = await self.policy.decide(scope, ACTION, {**resource, "model": request.model})
        if not decision.allowed:
            raise NotPermitted(decision.reason or f"the policy does not allow {ACTION!r}")

    def shown(self, message: str) -> str:
        """What is kept of a message, and shown to a model: its known secrets are masked."""
        return Mask(self.secrets.known()).mask(mended(message))

    async def _with_context(self, request: ChatRequest, scope: Scope, session_id: str, now: datetime) -> OpenTurn:
        text = self.shown(request.message)
        analysis = analyse(text)
        turn_name = turn_id(scope, session_id, request.message_id)
        most = self.recipe.history_events
        recent = await self.sessions.list_events(scope, session_id, limit=max(1, reach(most)))
        # What an earlier try at the same message has left is no history of it.
        events = [event for event in window(recent, most) if not event.id.startswith(turn_name)]
        lang = session_language(_language(events), analysis)
        base = self.recipe.system if request.system_prompt is None else request.system_prompt
        turn = Turn(
            user_message=text,
            system_prompt=system_prompt(base, lang),
            history=tuple(to_messages(events)),
            session_id=session_id,
            persona_id=request.persona_id,
        )
        arrived = await self.arrived(scope)
        built = await self.build(turn, max_prompt_tokens=request.max_prompt_tokens, scope=scope, now=now)
        return OpenTurn(
            id=turn_name,
            scope=scope,
            request=request,
            session_id=session_id,
            text=text,
            analysis=analysis,
            lang=lang,
            now=now,
            context=built if arrived else replace(built, ledger=built.ledger.with_loss(_LATE)),
        )

    # --- the answer ---

    async def _pieces(
        self, models: Sequence[ChatModel], turn: OpenTurn, reply: Reply, trace: Trace
    ) -> AsyncGenerator[str]:
        mask = StreamMask(self.secrets.known())
        answer = route.stream(models, turn.context.messages, self._longest(turn.request), trace)
        async with aclosing(answer) as pieces:
            async for piece in pieces:
                reply.model = piece.model
                if shown := mask.feed(piece.text):
                    reply.pieces.append(shown)
                    yield shown
        if rest := mask.flush():
            reply.pieces.append(rest)
            yield rest

    def _longest(self, request: ChatRequest) -> int:
        return request.max_tokens or self.recipe.max_tokens

    # --- after ---

    @asynccontextmanager
    async def _recorded(self, turn: OpenTurn, reply: Reply, trace: Trace) -> AsyncGenerator[None]:
        """Keep what was shown, should the answer not come to its end."""
        try:
            yield
        except ContextError as failure:
            await self._append(turn, self._told(turn, reply, trace, Status.FAILED, failure))
            raise
        except (asyncio.CancelledError, GeneratorExit):
            await _to_the_end(self._append(turn, self._told(turn, reply, trace, Status.ABORTED)))
            raise

    async def _closed(self, turn: OpenTurn, reply: Reply, trace: Trace) -> ChatResult:
        """Append the answer, hand the memories on, and say what was done."""
        told = self._told(turn, reply, trace, Status.COMPLETE)
        position = await self._append(turn, told)
        said = Said(
            turn=turn.id,
            session_id=turn.session_id,
            persona_id=turn.request.persona_id,
            time=turn.now,
            asked=turn.text,
            told=reply.text,
            injected=injected(turn.context),
        )
        try:
            await self.remember(turn.scope, said, reply.model)
            await self.settle()
        except SourceError as failure:  # the answer is given and its events are kept
            trace.degraded("memory", failure)
        return ChatResult(
            session_id=turn.session_id,
            reply=reply.text,
            model=reply.model,
            build_id=turn.context.build_id,
            citations=citations_of(turn.context, reply.text),
            degradations=self._losses(turn, trace),
            events=(replace(asked_event(turn), position=turn.position), replace(told, position=position)),
            usage=told.metadata["usage"],
        )

    async def remember(self, scope: Scope, said: Said, model: str) -> None:
        """Hand on what a turn leaves to remember; twice the same is once."""
        # What only quotes is stored already, so the message alone is new.
        new = replace(said, told="") if model == self.recipe.quoting else said
        await self.memories.put(scope, *memories_of(new, self.recipe.namespace, self.recipe.universe))

    async def _append(self, turn: OpenTurn, event: Event) -> int:
        """Where the event now stands in its session."""
        return await self.sessions.append(turn.scope, turn.session_id, [event])

    def _told(
        self, turn: OpenTurn, reply: Reply, trace: Trace, status: Status, failure: ContextError | None = None
    ) -> Event:
        spent = {"prompt_tokens": turn.context.tokens, "completion_tokens": self.counter.count(reply.text)}
        usage = {**spent, "total_tokens": sum(spent.values())}
        outcome = Outcome(status=status, usage=usage, degradations=self._losses(turn, trace), failure=failure)
        return told_event(turn, reply, outcome)

    def _losses(self, turn: OpenTurn, trace: Trace) -> tuple[Degradation, ...]:
        return (*turn.context.ledger.degradations, *trace.finish(()).degradations)


def _language(events: Sequence[Event]) -> str:
    """The language that a session has handed on so far."""
    said = (event.metadata.get(LANGUAGE) for event in reversed(events))
    return next((lang for lang in said if isinstance(lang, str)), "")


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns; whoever goes away meanwhile does not cut it short, and leaves only when it is done."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
