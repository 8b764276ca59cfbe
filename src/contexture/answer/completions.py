"""A caller's own messages, answered by a model that is also shown what is remembered; no session is written."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from contexture.answer import route
from contexture.answer.exchange import MemoryCitation
from contexture.answer.process import ACTION, ProcessMessage
from contexture.answer.record import citations_of
from contexture.builders.turn.request import Turn
from contexture.builders.turn.result import TurnContext
from contexture.errors import InvalidRequest, NotPermitted
from contexture.ledger import Degradation, Trace
from contexture.pipeline.mask import Mask, StreamMask
from contexture.ports import ChatModel
from contexture.types import Message, Scope

_INSTRUCTIONS = ("system", "developer")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionRequest:
    """Messages as chat APIs take them; the last one is the user's, and instructions stand before all others.

    `model` is one of those that are configured, the usual one without it.
    """

    messages: tuple[Message, ...]
    model: str | None = None
    max_tokens: int | None = None
    max_prompt_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A whole answer, what it was made from, and what it cost."""

    text: str
    model: str
    build_id: str
    created: datetime
    citations: tuple[MemoryCitation, ...]
    degradations: tuple[Degradation, ...]
    usage: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """The context is built and a model is about to be asked."""

    build_id: str
    created: datetime
    model: str


CompletionStep: TypeAlias = Begun | str | Completion


@dataclass(frozen=True, slots=True)
class Completions:
    """Answers messages with the policy, builder and models of `chat`, and writes neither session nor answer down.

    The prompt is that of a turn: history that does not fit is trimmed, and summarised as in any turn, memories that
    help are added, and all of it is explained under its build id. Known secrets are masked in the answer.
    """

    chat: ProcessMessage

    async def run(self, request: CompletionRequest, *, scope: Scope, now: datetime | None = None) -> Completion:
        """The whole answer; a model that fails is passed over for the next."""
        models, at = self.chat.route.starting_with(request.model), now or self.chat.clock.now()
        context = await self._context(request, scope, at)
        trace = Trace()
        piece = await route.complete(models, context.messages, self._longest(request), trace)
        text = Mask(self.chat.secrets.known()).mask(piece.text)
        return self._completion(context, text, piece.model, at, trace)

    async def stream(
        self, request: CompletionRequest, *, scope: Scope, now: datetime | None = None
    ) -> AsyncIterator[CompletionStep]:
        """`Begun`, then the answer in pieces as they come, then all of it."""
        models, at = self.chat.route.starting_with(request.model), now or self.chat.clock.now()
        context = await self._context(request, scope, at)
        yield Begun(build_id=context.build_id, created=at, model=models[0].name)
        trace, shown, names = Trace(), list[str](), list[str]()
        async with aclosing(self._pieces(models, request, context, trace, names)) as pieces:
            async for text in pieces:
                shown.append(text)
                yield text
        yield self._completion(context, "".join(shown), names[-1] if names else models[0].name, at, trace)

    async def _pieces(
        self,
        models: Sequence[ChatModel],
        request: CompletionRequest,
        context: TurnContext,
        trace: Trace,
        names: list[str],
    ) -> AsyncGenerator[str]:
        """What may be shown, as it comes; `names` gets the model of each piece."""
        mask = StreamMask(self.chat.secrets.known())
        async with aclosing(route.stream(models, context.messages, self._longest(request), trace)) as pieces:
            async for piece in pieces:
                names.append(piece.model)
                if text := mask.feed(piece.text):
                    yield text
        if rest := mask.flush():
            yield rest

    async def _context(self, request: CompletionRequest, scope: Scope, now: datetime) -> TurnContext:
        turn = turn_from(request.messages)
        asked = {"messages": len(request.messages), "model": request.model}
        decision = await self.chat.policy.decide(scope, ACTION, asked)
        if not decision.allowed:
            raise NotPermitted(decision.reason or f"the policy does not allow {ACTION!r}")
        return await self.chat.build(turn, max_prompt_tokens=request.max_prompt_tokens, scope=scope, now=now)

    def _longest(self, request: CompletionRequest) -> int:
        return request.max_tokens or self.chat.recipe.max_tokens

    def _completion(self, context: TurnContext, text: str, model: str, created: datetime, trace: Trace) -> Completion:
        spent = {"prompt_tokens": context.tokens, "completion_tokens": self.chat.counter.count(text)}
        return Completion(
            text=text,
            model=model,
            build_id=context.build_id,
            created=created,
            citations=citations_of(context, text),
            degradations=(*context.ledger.degradations, *trace.finish(()).degradations),
            usage={**spent, "total_tokens": sum(spent.values())},
        )


def turn_from(messages: Sequence[Message]) -> Turn:
    """The turn that messages of a chat API stand for."""
    first = next((at for at, each in enumerate(messages) if each.get("role") not in _INSTRUCTIONS), len(messages))
    if first == len(messages) or messages[-1].get("role") != "user":
        raise InvalidRequest("the last of `messages` must be the user's: it is what context is looked for")
    system = [_instruction(at, each) for at, each in enumerate(messages[:first])]
    return Turn(
        user_message=messages[-1].get("content") or "",
        system_prompt="\n\n".join(text for text in system if text),
        history=tuple(messages[first:-1]),
    )


def _instruction(at: int, message: Message) -> str:
    content = message.get("content")
    if not isinstance(content, str):
        raise InvalidRequest(f"messages[{at}]: the content of instructions must be a text")
    return content
