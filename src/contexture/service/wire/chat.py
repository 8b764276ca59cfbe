"""Chat messages in every protocol: HTTP bodies, OpenAI completions, messages on the bus, and their answers as JSON."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, cast

import msgspec
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError
from typing_extensions import TypedDict

from contexture.answer.chat_types import (
    MAX_ANSWER_TOKENS,
    MAX_ID_LENGTH,
    ChatRequest,
    ChatResult,
    ChatResultJson,
    ChatStep,
    Delta,
    MemoryCitation,
    Started,
)
from contexture.answer.completions import Completion, CompletionRequest, CompletionStarted
from contexture.answer.idempotency import ReplyFailure, assign_session, decode_failure, decode_result
from contexture.conversation import Delivery, ReplyState, StoredReply
from contexture.errors import ContextError, InvalidRequest
from contexture.ledger import Degradation
from contexture.service.envelope import error_object
from contexture.types import ChatMessage, Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatBody(ChatRequest):
    """A message to a session, for whom it is, and how to answer it."""

    tenant_id: Annotated[str | None, Meta(description="Must match the caller.")] = None
    user_id: Annotated[str | None, Meta(description="Must match the caller.")] = None
    stream: Annotated[bool, Meta(description="Answer with server-sent events.")] = False
    background: Annotated[
        bool, Meta(description="Queue the message on the bus and return the address of the reply.")
    ] = False

    def to_request(self) -> ChatRequest:
        """Convert to the engine's request."""
        return ChatRequest(**{each.name: getattr(self, each.name) for each in fields(ChatRequest)})


def chat_step_event(step: ChatStep) -> tuple[str, Started | Delta | ChatResultJson]:
    """Return one step of an answer, with the name of its event."""
    match step:
        case Started():
            return "context", step
        case Delta():
            return "delta", step
        case ChatResult():
            return "done", step.json_form()


DEFAULT_MODEL = "contexture"
"""The model name that clients use to select the configured default model."""

IgnoredField = Annotated[float | None, Field(description="Accepted and ignored.")]


def _check_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("input should be an object")  # noqa: TRY004 - pydantic reports this one
    return cast("dict[str, Any]", value)


MessageField: TypeAlias = Annotated[dict[str, Any], PlainValidator(_check_object, json_schema_input_type=ChatMessage)]
"""A message; the builder of turns checks its fields."""


class StreamOptions(BaseModel):
    """Options of a streamed completion."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: Annotated[bool, Field(description="End with a chunk that has the token usage.")] = False


class CompletionBody(BaseModel):
    """Messages to answer; parameters that would change the answer but are not supported are rejected."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"messages": [{"role": "user", "content": "When does the ferry leave?"}]}]},
    )

    messages: Annotated[
        list[MessageField], Field(min_length=1, max_length=10_000, description="The last one is the user's.")
    ]
    model: Annotated[str, Field(description="One of the models that are configured, or `contexture`.")] = DEFAULT_MODEL
    stream: Annotated[bool | None, Field(description="Answer with server-sent events.")] = None
    stream_options: Annotated[StreamOptions | None, Field(description="What a stream has besides its pieces.")] = None
    max_tokens: Annotated[
        int | None, Field(ge=1, le=MAX_ANSWER_TOKENS, description="Length of the answer in tokens.")
    ] = None
    max_completion_tokens: Annotated[
        int | None, Field(ge=1, le=MAX_ANSWER_TOKENS, description="Newer name of `max_tokens`.")
    ] = None
    max_prompt_tokens: Annotated[int | None, Field(ge=1, description="Token limit of the prompt.")] = None
    n: Annotated[Literal[1] | None, Field(description="Only 1 is supported.")] = None
    user: Annotated[str | None, Field(description="Must match the caller.")] = None
    temperature: IgnoredField = None
    top_p: IgnoredField = None
    presence_penalty: IgnoredField = None
    frequency_penalty: IgnoredField = None
    seed: Annotated[int | None, Field(description="Accepted and ignored.")] = None

    def to_request(self) -> CompletionRequest:
        """Convert to the engine's request."""
        return CompletionRequest(
            messages=tuple(self.messages),
            model=None if self.model == DEFAULT_MODEL else self.model,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            max_prompt_tokens=self.max_prompt_tokens,
        )


class CompletionMessageJson(TypedDict):
    """The message of an answer."""

    role: Literal["assistant"]
    content: str
    refusal: None


class CompletionChoiceJson(TypedDict):
    """The only choice of an answer."""

    index: int
    message: CompletionMessageJson
    finish_reason: Literal["stop"]
    logprobs: None


class AddedContextJson(TypedDict):
    """What was added to a caller's messages."""

    build_id: str
    citations: tuple[MemoryCitation, ...]
    degradations: tuple[Degradation, ...]


class CompletionJson(TypedDict):
    """A chat completion."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[CompletionChoiceJson]
    usage: Mapping[str, int]
    contexture: AddedContextJson


class CompletionDeltaJson(TypedDict):
    """What one chunk adds: the role in the first one, then text, and nothing in the last one."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]


class ChunkChoiceJson(TypedDict):
    """The only choice of a chunk."""

    index: int
    delta: CompletionDeltaJson
    finish_reason: Literal["stop"] | None
    logprobs: None


class CompletionChunkJson(TypedDict):
    """A chunk of a streamed completion; the last ones have `contexture`, and `usage` where it was requested."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoiceJson]
    contexture: NotRequired[AddedContextJson]
    usage: NotRequired[Mapping[str, int]]


class ModelJson(TypedDict):
    """A model that may be named."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelsJson(TypedDict):
    """The models that a request may name."""

    object: Literal["list"]
    data: list[ModelJson]


def completion_object(done: Completion) -> CompletionJson:
    """Return a complete answer."""
    message: CompletionMessageJson = {"role": "assistant", "content": done.text, "refusal": None}
    return {
        "id": _completion_id(done.build_id),
        "object": "chat.completion",
        "created": int(done.created.timestamp()),
        "model": done.model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": done.usage,
        "contexture": _added_object(done),
    }


def chunk_object(
    begun: CompletionStarted, *, text: str | None = None, done: Completion | None = None
) -> CompletionChunkJson:
    """Return a chunk of a stream: the first without text, the last with the context of the answer."""
    delta: CompletionDeltaJson = (
        {"content": text} if text is not None else {} if done else {"role": "assistant", "content": ""}
    )
    told: CompletionChunkJson = {
        "id": _completion_id(begun.build_id),
        "object": "chat.completion.chunk",
        "created": int(begun.created.timestamp()),
        "model": done.model if done else begun.model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": "stop" if done else None, "logprobs": None}],
    }
    return {**told, "contexture": _added_object(done)} if done else told


def usage_object(begun: CompletionStarted, done: Completion) -> CompletionChunkJson:
    """Return the chunk after the last one, for clients that requested the token usage."""
    return {**chunk_object(begun, done=done), "choices": [], "usage": done.usage}


def models_object(names: tuple[str, ...]) -> ModelsJson:
    """Return the models that may be requested."""
    rows: list[ModelJson] = [{"id": name, "object": "model", "created": 0, "owned_by": DEFAULT_MODEL} for name in names]
    return {"object": "list", "data": rows}


def _completion_id(build_id: str) -> str:
    return f"chatcmpl-{build_id.removeprefix('ctx-')}"


def _added_object(done: Completion) -> AddedContextJson:
    return {"build_id": done.build_id, "citations": done.citations, "degradations": done.degradations}


MAX_REASON_CHARS = 1_000
IdField = Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH)]


class InboundMessage(BaseModel):
    """A message on the bus, and on whose behalf it is answered; whoever may write to its topic is believed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: IdField
    tenant_id: IdField
    user_id: IdField
    message: str
    groups: list[str] = []
    session_id: str = ""
    persona_id: str = ""
    model: str | None = None
    system_prompt: str | None = None
    max_prompt_tokens: Annotated[int | None, Field(ge=1)] = None
    max_tokens: Annotated[int | None, Field(ge=1, le=MAX_ANSWER_TOKENS)] = None

    @property
    def scope(self) -> Scope:
        """The scope on whose behalf it is answered."""
        return Scope(tenant=self.tenant_id, user=self.user_id, groups=tuple(self.groups))

    def to_request(self) -> ChatRequest:
        """Convert to the engine's request, always with a session."""
        return assign_session(
            ChatRequest(
                message=self.message,
                session_id=self.session_id,
                message_id=self.id,
                persona_id=self.persona_id,
                model=self.model,
                system_prompt=self.system_prompt,
                max_prompt_tokens=self.max_prompt_tokens,
                max_tokens=self.max_tokens,
            )
        )


def parse_inbound(body: bytes) -> InboundMessage:
    """Parse a message; raises `InvalidRequest`, which names the invalid fields and repeats no value."""
    try:
        return InboundMessage.model_validate_json(body)
    except ValidationError as failure:
        found = failure.errors(include_input=False)[:5]
        wrong = [f"{_truncate('.'.join(map(str, each['loc'])), 60) or 'the message'}: {each['msg']}" for each in found]
        raise InvalidRequest(f"invalid message: {'; '.join(wrong)}") from failure


def inbound_object(request: ChatRequest, scope: Scope) -> dict[str, Any]:
    """Return a message of a session in its form on the bus."""
    return {
        "id": request.message_id,
        "tenant_id": scope.tenant,
        "user_id": scope.user,
        "groups": scope.groups,
        "message": request.message,
        "session_id": request.session_id,
        "persona_id": request.persona_id,
        "model": request.model,
        "system_prompt": request.system_prompt,
        "max_prompt_tokens": request.max_prompt_tokens,
        "max_tokens": request.max_tokens,
    }


def outbound_object(inbound: InboundMessage, ended: bytes | ContextError) -> dict[str, Any]:
    """Return the outcome of a message: the JSON of its answer, or its error."""
    failed = isinstance(ended, ContextError)
    return {
        "id": inbound.id,
        "tenant_id": inbound.tenant_id,
        "user_id": inbound.user_id,
        "session_id": inbound.to_request().session_id,
        "status": (ReplyState.FAILED if failed else ReplyState.COMPLETE).value,
        "reply": None if failed else msgspec.Raw(ended),
        "error": _error_summary(ended) if failed else None,
    }


def dead_letter_object(delivery: Delivery, reason: Exception, tries: int) -> dict[str, Any]:
    """Return a message without an answer: the reason, the number of attempts, its location, and its body."""
    error: dict[str, Any] = error_object(reason, "")["error"]
    short = {name: _truncate(said) if isinstance(said, str) else said for name, said in error.items()}
    return {"reason": short, "tries": tries, "place": delivery.place, **_body_fields(delivery.body)}


class EnqueuedJson(TypedDict):
    """A queued message, and where to read its reply."""

    id: str
    session_id: str
    status: ReplyState
    reply_url: str


class ReplyJson(TypedDict):
    """The state of a queued message and its reply."""

    id: str
    session_id: str
    status: ReplyState
    reply: ChatResultJson | None
    error: ReplyFailure | None


def enqueued_object(reply: StoredReply, place: str) -> EnqueuedJson:
    """Return an accepted message, and where to read its answer."""
    return {"id": reply.message_id, "session_id": reply.session_id, "status": reply.state, "reply_url": place}


def reply_object(reply: StoredReply) -> ReplyJson:
    """Return the stored outcome of a queued message."""
    complete, failed = reply.state is ReplyState.COMPLETE, reply.state is ReplyState.FAILED
    return {
        "id": reply.message_id,
        "session_id": reply.session_id,
        "status": reply.state,
        "reply": decode_result(reply).json_form() if complete else None,
        "error": decode_failure(reply) if failed else None,
    }


def _error_summary(failure: ContextError) -> dict[str, Any]:
    return {"code": failure.code, "message": _truncate(str(failure)), "retryable": failure.retryable}


def _truncate(text: str, most: int = MAX_REASON_CHARS) -> str:
    """Truncate a text for the bus: an error may repeat what a sender wrote, of any length."""
    return text if len(text) <= most else f"{text[:most]}…"


def _body_fields(body: bytes) -> dict[str, Any]:
    try:
        return {"body": body.decode(), "body_base64": None}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": b64encode(body).decode()}
