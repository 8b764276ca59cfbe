"""Chat completions: answers a caller's own messages with recalled memories added; writes no session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias

from contexture.answer import route
from contexture.answer._chat_turn import build_memory_citations
from contexture.answer.chat import POLICY_ACTION, ProcessMessage, describe_message
from contexture.answer.chat_types import MemoryCitation
from contexture.answer.permissions import require_permission
from contexture.builders.turn.request import Turn, plain_text
from contexture.builders.turn.result import TurnContext
from contexture.errors import InvalidRequest
from contexture.ledger import Degradation, Trace
from contexture.pipeline.masking import SecretMask, StreamingSecretMask
from contexture.ports import ChatModel
from contexture.types import Message, Scope

_INSTRUCTION_ROLES = ("system", "developer")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionRequest:
    """Messages in the form of chat APIs; the last one is the user's, and system messages come before all others.

    `model` is the name of a configured model; if omitted, the default model answers.
    """

    messages: tuple[Message, ...]
    model: str | None = None
    max_tokens: int | None = None
    max_prompt_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A complete answer, the context it was built from, and its token usage."""

    text: str
    model: str
    build_id: str
    created: datetime
    citations: tuple[MemoryCitation, ...]
    degradations: tuple[Degradation, ...]
    usage: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionStarted:
    """The context is built; a model is about to be asked."""

    build_id: str
    created: datetime
    model: str


CompletionStep: TypeAlias = CompletionStarted | str | Completion


@dataclass(frozen=True, slots=True)
class Completions:
    """Answers messages with the policy, builder and models of `chat`; stores neither a session nor the answer.

    The prompt is that of a chat turn: history that does not fit is trimmed and summarised, relevant memories are added,
    and everything is explained under its build id. Known secrets are masked in the answer.
    """

    chat: ProcessMessage

    async def run(self, request: CompletionRequest, *, scope: Scope, now: datetime | None = None) -> Completion:
        """Return the whole answer; if a model fails, the next one is asked."""
        models, at = self.chat.route.order_models(request.model), now or self.chat.clock.now()
        context = await self._build_context(request, scope, at)
        trace = Trace()
        piece = await route.complete(models, context.messages, self._max_answer_tokens(request), trace)
        text = SecretMask(self.chat.secrets.known()).mask(piece.text)
        return self._build_completion(context, text, piece.model, at, trace)

    async def stream(
        self, request: CompletionRequest, *, scope: Scope, now: datetime | None = None
    ) -> AsyncIterator[CompletionStep]:
        """Yield `CompletionStarted`, then the answer in chunks as they arrive, then the complete `Completion`."""
        models, at = self.chat.route.order_models(request.model), now or self.chat.clock.now()
        context = await self._build_context(request, scope, at)
        yield CompletionStarted(build_id=context.build_id, created=at, model=models[0].name)
        trace, shown, names = Trace(), list[str](), list[str]()
        async with aclosing(self._stream_masked(models, request, context, trace, names)) as pieces:
            async for text in pieces:
                shown.append(text)
                yield text
        yield self._build_completion(context, "".join(shown), names[-1] if names else models[0].name, at, trace)

    async def _stream_masked(
        self,
        models: Sequence[ChatModel],
        request: CompletionRequest,
        context: TurnContext,
        trace: Trace,
        names: list[str],
    ) -> AsyncGenerator[str]:
        """Stream the answer with known secrets masked; `names` collects the model of each chunk."""
        mask = StreamingSecretMask(self.chat.secrets.known())
        async with aclosing(route.stream(models, context.messages, self._max_answer_tokens(request), trace)) as pieces:
            async for piece in pieces:
                names.append(piece.model)
                if text := mask.feed(piece.text):
                    yield text
        if rest := mask.flush():
            yield rest

    async def _build_context(self, request: CompletionRequest, scope: Scope, now: datetime) -> TurnContext:
        turn = turn_from_messages(request.messages)
        resource = describe_message(plain_text(turn.user_message), session_id="", persona_id="", model=request.model)
        await require_permission(self.chat.policy, scope, POLICY_ACTION, resource)
        return await self.chat.build(turn, max_prompt_tokens=request.max_prompt_tokens, scope=scope, now=now)

    def _max_answer_tokens(self, request: CompletionRequest) -> int:
        return request.max_tokens or self.chat.recipe.max_tokens

    def _build_completion(
        self, context: TurnContext, text: str, model: str, created: datetime, trace: Trace
    ) -> Completion:
        spent = {"prompt_tokens": context.tokens, "completion_tokens": self.chat.counter.count(text)}
        return Completion(
            text=text,
            model=model,
            build_id=context.build_id,
            created=created,
            citations=build_memory_citations(context, text),
            degradations=(*context.ledger.degradations, *trace.finish(()).degradations),
            usage={**spent, "total_tokens": sum(spent.values())},
        )


def turn_from_messages(messages: Sequence[Message]) -> Turn:
    """Convert chat API messages to a turn; raises `InvalidRequest` unless the last message is the user's."""
    first = next((at for at, each in enumerate(messages) if each.get("role") not in _INSTRUCTION_ROLES), len(messages))
    if first == len(messages) or messages[-1].get("role") != "user":
        raise InvalidRequest("the last of `messages` must have the role 'user': the context is built for it")
    system = [_instruction_text(at, each) for at, each in enumerate(messages[:first])]
    return Turn(
        user_message=messages[-1].get("content") or "",
        system_prompt="\n\n".join(text for text in system if text),
        history=tuple(messages[first:-1]),
    )


def _instruction_text(at: int, message: Message) -> str:
    content = message.get("content")
    if not isinstance(content, str):
        raise InvalidRequest(f"messages[{at}]: the content of a system message must be a string")
    return content
