"""Chat completions: answers a caller's own messages, tools included, with recalled memories added."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeAlias, cast

from contexture.answer import _chat_turn as chat_turn
from contexture.answer import route
from contexture.answer.chat import POLICY_ACTION, ProcessMessage, describe_message
from contexture.answer.chat_types import MemoryCitation
from contexture.answer.permissions import require_permission
from contexture.builders.turn.request import MESSAGE_FIELDS, Turn, plain_text
from contexture.builders.turn.result import TurnContext
from contexture.conversation import RECALLED_KEY, SessionEvent
from contexture.errors import InvalidRequest, SourceError
from contexture.ledger import Degradation, Trace
from contexture.pipeline.masking import SecretMask, StreamingSecretMask
from contexture.pipeline.redaction import StreamingRestore
from contexture.ports import ChatModel
from contexture.types import Json, Message, Scope

_INSTRUCTION_ROLES = ("system", "developer")
_MEMORY_DENIED = Degradation(source="memory", reason="the policy does not allow this exchange to be remembered")

Choice: TypeAlias = dict[str, Any]
"""A choice in the form of chat APIs: `message` of a whole answer or `delta` of a piece, and `finish_reason`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CompletionRequest:
    """Messages in the form of chat APIs; the user's last one is answered, with the tool results that follow it.

    `model` is the name of a configured model; if omitted, the default model answers. `options` are passed to the model:
    `tools`, `response_format` and the like. With `store` what the user says and the answer are remembered, in the
    session `session_id` if there is one.
    """

    messages: tuple[Message, ...]
    model: str | None = None
    max_tokens: int | None = None
    max_prompt_tokens: int | None = None
    options: Mapping[str, Json] = field(default_factory=dict[str, Json])
    session_id: str = ""
    store: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A complete answer, the context it was built from, and its token usage."""

    choice: Choice
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


CompletionStep: TypeAlias = CompletionStarted | Choice | Completion


@dataclass(frozen=True, kw_only=True, slots=True)
class _OpenCompletion:
    """A request whose context is built."""

    request: CompletionRequest
    turn: Turn
    scope: Scope
    created: datetime
    context: TurnContext
    models: Sequence[ChatModel]
    trace: Trace


@dataclass(frozen=True, slots=True)
class Completions:
    """Answers messages with the policy, builder and models of `chat`.

    The prompt is that of a chat turn: history that does not fit is trimmed and summarised, relevant memories are added,
    and everything is explained under its build id. Known secrets are masked in the answer, its tool calls included.
    Only what the request asks for is stored.
    """

    chat: ProcessMessage

    async def run(self, request: CompletionRequest, *, scope: Scope, now: datetime | None = None) -> Completion:
        """Return the whole answer; if a model fails, the next one is asked."""
        opened = await self._open(request, scope, now)
        choice, model = await route.complete_choice(
            opened.models, opened.context.messages, self._options(request), opened.trace
        )
        mask, restore = SecretMask(self.chat.secrets.known_values()), self.chat.restorer(opened.context)
        message = _change_texts(choice.get("message") or {}, lambda text: restore(mask.mask(text)))
        masked = {**choice, "message": message}
        return await self._finish(opened, masked, model)

    async def stream(
        self, request: CompletionRequest, *, scope: Scope, now: datetime | None = None
    ) -> AsyncIterator[CompletionStep]:
        """Yield `CompletionStarted`, then the pieces of the choice as they arrive, then the complete `Completion`."""
        opened = await self._open(request, scope, now)
        model = opened.models[0].name
        yield CompletionStarted(build_id=opened.context.build_id, created=opened.created, model=model)
        mask, whole = _ChoiceMask(self.chat.secrets.known_values(), self.chat.restorer(opened.context)), _ChoiceText()
        answer = route.stream_choices(opened.models, opened.context.messages, self._options(request), opened.trace)
        async with aclosing(answer) as pieces:
            async for piece, model in pieces:  # noqa: B007 - the last one names the model that answered
                for masked in mask.mask(piece):
                    whole.add(masked)
                    yield masked
        for masked in mask.flush():
            whole.add(masked)
            yield masked
        yield await self._finish(opened, whole.choice(), model)

    async def _open(self, request: CompletionRequest, scope: Scope, now: datetime | None) -> _OpenCompletion:
        chat = self.chat
        models, at = chat.route.order_models(request.model), now or chat.clock.now()
        turn = turn_from_messages(request.messages, session_id=request.session_id)
        text = plain_text(turn.user_message)
        resource = describe_message(text, session_id=request.session_id, persona_id="", model=request.model)
        await require_permission(chat.policy, scope, POLICY_ACTION, resource)
        trace = Trace()
        if not await chat.arrived(scope):
            trace.add_degradation("memory", "the last message is not stored in memory yet")
        context = await chat.build(
            turn,
            max_prompt_tokens=request.max_prompt_tokens,
            scope=scope,
            now=at,
            with_sources=chat.recipe.completions_with_sources,
        )
        return _OpenCompletion(
            request=request, turn=turn, scope=scope, created=at, context=context, models=models, trace=trace
        )

    def _options(self, request: CompletionRequest) -> route.ChoiceOptions:
        mask = SecretMask(self.chat.secrets.known_values())
        return route.ChoiceOptions(
            max_tokens=request.max_tokens,
            default_tokens=self.chat.recipe.max_tokens,
            passed=_change_texts(dict(request.options), mask.mask),
        )

    async def _finish(self, opened: _OpenCompletion, choice: Choice, model: str) -> Completion:
        message = choice["message"]
        reply = plain_text(message.get("content"))
        if opened.request.store:
            await self._store(opened, reply, model)
        written = "".join([reply, *(call["function"]["arguments"] for call in _function_calls(message))])
        spent = {"prompt_tokens": opened.context.tokens, "completion_tokens": self.chat.counter.count(written)}
        return Completion(
            choice=choice,
            model=model,
            build_id=opened.context.build_id,
            created=opened.created,
            citations=chat_turn.build_memory_citations(opened.context, reply),
            degradations=(*opened.context.ledger.degradations, *opened.trace.finish(()).degradations),
            usage={**spent, "total_tokens": sum(spent.values())},
        )

    async def _store(self, opened: _OpenCompletion, reply: str, model: str) -> None:
        """Store what the user said and the answer; the steps of one agent loop are one turn, stored once."""
        chat, request, scope = self.chat, opened.request, opened.scope
        asked = chat.mask_message(plain_text(opened.turn.user_message))
        place = len(request.messages) - len(opened.turn.continuation)
        turn = chat_turn.derive_turn_id(scope, request.session_id, f"{place}:{asked}")
        remembers = await chat.may_remember(scope)
        said = chat_turn.FinishedTurn(
            turn=turn,
            session_id=request.session_id,
            persona_id="",
            time=opened.created,
            asked=asked,
            reply="" if chat_turn.quotes_sources(opened.context) else reply,
            injected=chat_turn.injected_memory_ids(opened.context),
            stated=await chat.extract(opened.context, asked, opened.created) if remembers else (),
        )
        try:
            if request.session_id:
                turns = [("user", asked), ("assistant", reply)]
                recalled = list(chat_turn.injected_memory_ids(opened.context))
                events = [
                    SessionEvent(
                        id=f"{turn}-{role}",
                        message={"role": role, "content": text},
                        time=opened.created,
                        metadata={
                            "build_id": opened.context.build_id,
                            **({RECALLED_KEY: recalled} if role == "assistant" else {}),
                        },
                    )
                    for role, text in turns
                    if text
                ]
                last = await chat.sessions.append(scope, request.session_id, events)
                said = replace(said, turn_number=(last - len(events) + 2) // 2)
            if remembers:
                await chat.remember(scope, said, model)
            else:
                opened.trace.add_degradation(_MEMORY_DENIED.source, _MEMORY_DENIED.reason)
        except SourceError as failure:  # the answer is given all the same
            opened.trace.add_degradation("memory", failure)


def turn_from_messages(messages: Sequence[Message], *, session_id: str = "") -> Turn:
    """Convert chat API messages to a turn of the last user message; what follows it is the turn's continuation.

    Fields of messages that answers of vendors have, and requests do not, are left out. Raises `InvalidRequest` without
    a message of the user.
    """
    first = next((at for at, each in enumerate(messages) if each.get("role") not in _INSTRUCTION_ROLES), len(messages))
    asked = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].get("role") == "user"), -1)
    if asked < first:
        raise InvalidRequest("`messages` needs a message of the role 'user': the context is built for the last one")
    system = [_instruction_text(at, each) for at, each in enumerate(messages[:first])]
    return Turn(
        user_message=messages[asked].get("content") or "",
        system_prompt="\n\n".join(text for text in system if text),
        history=tuple(map(_request_fields, messages[first:asked])),
        continuation=tuple(map(_request_fields, messages[asked + 1 :])),
        session_id=session_id,
    )


def _request_fields(message: Message) -> Message:
    if message.get("role") != "assistant":
        return message
    kept = {name: value for name, value in message.items() if name in MESSAGE_FIELDS}
    return kept if kept.get("content") is not None or kept.get("tool_calls") else {**kept, "content": ""}


def _instruction_text(at: int, message: Message) -> str:
    content: object = message.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    if not isinstance(content, str) and not (parts and all(_is_text_part(part) for part in parts)):
        raise InvalidRequest(f"messages[{at}]: the content of a system message must be a string or parts of text")
    return content if isinstance(content, str) else plain_text(parts)


def _is_text_part(part: object) -> bool:
    return isinstance(part, dict) and isinstance(cast("dict[str, object]", part).get("text"), str)


def _function_calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    return [call for call in calls if isinstance(_function(call).get("arguments"), str)]


def _function(call: Mapping[str, Any]) -> dict[str, Any]:
    return call.get("function") or dict[str, Any]()


def _change_texts(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with every text changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: _change_texts(each, change) for name, each in cast("dict[str, Any]", value).items()}
    return [_change_texts(each, change) for each in cast("list[Any]", value)] if isinstance(value, list) else value


class _ShownText:
    """One streamed text as it is shown: known secrets masked, and placeholders restored where that is allowed."""

    def __init__(self, known: Mapping[str, str], restore: Callable[[str], str]) -> None:
        self._mask = StreamingSecretMask(known)
        self._restore = StreamingRestore(restore)

    def feed(self, chunk: str) -> str:
        """What can be shown after this chunk."""
        return self._restore.feed(self._mask.feed(chunk))

    def flush(self) -> str:
        """What is left."""
        return self._restore.feed(self._mask.flush()) + self._restore.flush()


class _ChoiceMask:
    """Masks known secrets in the texts of a streamed choice, and in the arguments of each of its calls."""

    def __init__(self, known: Mapping[str, str], restore: Callable[[str], str]) -> None:
        self._make = lambda: _ShownText(known, restore)
        self._texts: dict[str, _ShownText] = {}
        self._calls: dict[int, _ShownText] = {}

    def mask(self, piece: Choice) -> Iterable[Choice]:
        """Yield what can be shown of the choice after this piece; before the end, everything that is left."""
        delta: dict[str, Any] = piece.get("delta") or {}
        masked = {name: self._mask_field(name, value) for name, value in delta.items()}
        if not piece.get("finish_reason"):
            yield {**piece, "delta": masked}
            return
        if delta:
            yield {**piece, "delta": masked, "finish_reason": None}
        yield from self.flush()
        yield {**piece, "delta": {}}

    def flush(self) -> Iterable[Choice]:
        """Yield what is left, if there is anything."""
        rest: dict[str, Any] = {name: text for name, mask in self._texts.items() if (text := mask.flush())}
        calls = [
            {"index": at, "function": {"arguments": text}} for at, mask in self._calls.items() if (text := mask.flush())
        ]
        if delta := {**rest, **({"tool_calls": calls} if calls else {})}:
            yield {"delta": delta}

    def _mask_field(self, name: str, value: Any) -> Any:
        if name == "tool_calls" and isinstance(value, list):
            return [self._mask_call(call) for call in cast("list[dict[str, Any]]", value)]
        if name == "role" or not isinstance(value, str):
            return value
        return self._texts.setdefault(name, self._make()).feed(value)

    def _mask_call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = _function(call)
        if not isinstance(function.get("arguments"), str):
            return call
        mask = self._calls.setdefault(int(call.get("index") or 0), self._make())
        return {**call, "function": {**function, "arguments": mask.feed(function["arguments"])}}


class _ChoiceText:
    """Joins the pieces of a streamed choice."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: str = "stop"

    def add(self, piece: Choice) -> None:
        """Add a piece."""
        delta: dict[str, Any] = piece.get("delta") or {}
        self._finish = piece.get("finish_reason") or self._finish
        self._content.append(delta.get("content") or "")
        for call in cast("list[dict[str, Any]]", delta.get("tool_calls") or []):
            held = self._calls.setdefault(int(call.get("index") or 0), {"function": {"arguments": ""}})
            held["function"]["arguments"] += _function(call).get("arguments") or ""

    def choice(self) -> Choice:
        """The whole choice: its text, the arguments of its calls, and why it ends."""
        calls = {"tool_calls": list(self._calls.values())} if self._calls else {}
        message = {"role": "assistant", "content": "".join(self._content), **calls}
        return {"message": message, "finish_reason": self._finish}
