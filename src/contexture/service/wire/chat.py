"""Chat messages in every protocol but OpenAI's: HTTP bodies, messages on the bus, and their answers as JSON."""

from base64 import b64encode
from dataclasses import dataclass, fields
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from contexture.answer import chat_types
from contexture.answer.idempotency import ReplyFailure, assign_session, decode_failure, decode_result
from contexture.conversation import Delivery, ReplyState, StoredReply
from contexture.errors import ContextError, InvalidRequest
from contexture.service.envelope import error_object
from contexture.types import Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatBody(chat_types.ChatRequest):
    """A message to a session, for whom it is, and how to answer it."""

    tenant_id: Annotated[str | None, Meta(description="Must match the caller.")] = None
    user_id: Annotated[str | None, Meta(description="Must match the caller.")] = None
    stream: Annotated[bool, Meta(description="Answer with server-sent events.")] = False
    background: Annotated[
        bool, Meta(description="Queue the message on the bus and return the address of the reply.")
    ] = False

    def to_request(self) -> chat_types.ChatRequest:
        """Convert to the engine's request."""
        return chat_types.ChatRequest(
            **{each.name: getattr(self, each.name) for each in fields(chat_types.ChatRequest)}
        )


def chat_step_event(
    step: chat_types.ChatStep,
) -> tuple[str, chat_types.Started | chat_types.Delta | chat_types.ChatResultJson]:
    """Return one step of an answer, with the name of its event."""
    match step:
        case chat_types.Started():
            return "context", step
        case chat_types.Delta():
            return "delta", step
        case chat_types.ChatResult():
            return "done", step.json_form()


MAX_REASON_CHARS = 1_000
IdField = Annotated[str, Field(min_length=1, max_length=chat_types.MAX_ID_LENGTH)]


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
    max_tokens: Annotated[int | None, Field(ge=1, le=chat_types.MAX_ANSWER_TOKENS)] = None

    @property
    def scope(self) -> Scope:
        """The scope on whose behalf it is answered."""
        return Scope(tenant=self.tenant_id, user=self.user_id, groups=tuple(self.groups))

    def to_request(self) -> chat_types.ChatRequest:
        """Convert to the engine's request, always with a session."""
        return assign_session(
            chat_types.ChatRequest(
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


def inbound_object(request: chat_types.ChatRequest, scope: Scope) -> dict[str, Any]:
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
    reply: chat_types.ChatResultJson | None
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
