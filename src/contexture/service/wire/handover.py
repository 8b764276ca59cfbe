"""Messages on the bus, and what became of them: as they are published, read back, and answered by routes."""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contexture.answer.exchange import LONGEST_NAME, ChatRequest
from contexture.answer.once import failure_of, placed, result_of
from contexture.conversation import Delivery, ReplyState, StoredReply
from contexture.errors import ContextError, InvalidRequest
from contexture.service.envelope import error_object
from contexture.service.wire.chat import MOST, result_object
from contexture.types import Scope

LONGEST_REASON = 1_000
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]


class Inbound(BaseModel):
    """A message to answer, on behalf of the user it names; whoever may write to its topic is believed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    id: Name
    tenant_id: Name
    user_id: Name
    message: str
    groups: list[str] = []
    session_id: str = ""
    persona_id: str = ""
    model: str | None = None
    system_prompt: str | None = None
    max_prompt_tokens: Annotated[int | None, Field(ge=1)] = None
    max_tokens: Annotated[int | None, Field(ge=1, le=MOST)] = None

    @property
    def scope(self) -> Scope:
        """On whose behalf it is answered."""
        return Scope(tenant=self.tenant_id, user=self.user_id, groups=tuple(self.groups))

    def request(self) -> ChatRequest:
        """The same, as the engine takes it; always in a session."""
        return placed(
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


def inbound_of(body: bytes) -> Inbound:
    """The message that a body says; raises `InvalidRequest`, which names the fields and repeats no value."""
    try:
        return Inbound.model_validate_json(body)
    except ValidationError as failure:
        found = failure.errors(include_input=False)[:5]
        wrong = [f"{_short('.'.join(map(str, each['loc'])), 60) or 'the message'}: {each['msg']}" for each in found]
        raise InvalidRequest(f"not a message to answer: {'; '.join(wrong)}") from failure


def inbound_object(request: ChatRequest, scope: Scope) -> dict[str, Any]:
    """A message of a session, as it is handed over."""
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


def outbound_object(inbound: Inbound, ended: bytes | ContextError) -> dict[str, Any]:
    """What became of a message: the JSON of its answer, or its error."""
    failed = isinstance(ended, ContextError)
    return {
        "id": inbound.id,
        "tenant_id": inbound.tenant_id,
        "user_id": inbound.user_id,
        "session_id": inbound.request().session_id,
        "status": (ReplyState.FAILED if failed else ReplyState.COMPLETE).value,
        "reply": None if failed else msgspec.Raw(ended),
        "error": _error(ended) if failed else None,
    }


def dead_object(delivery: Delivery, reason: Exception, tries: int) -> dict[str, Any]:
    """A message that got no answer: why, after how many tries, where it lay, and all that it said."""
    error: dict[str, Any] = error_object(reason, "")["error"]
    short = {name: _short(said) if isinstance(said, str) else said for name, said in error.items()}
    return {"reason": short, "tries": tries, "place": delivery.place, **_said(delivery.body)}


def handed_over_object(reply: StoredReply, place: str) -> dict[str, Any]:
    """A message that was taken, and where to read what becomes of it."""
    return {"id": reply.message_id, "session_id": reply.session_id, "status": reply.state.value, "reply_url": place}


def reply_object(reply: StoredReply) -> dict[str, Any]:
    """What became of a message that was handed over."""
    complete, failed = reply.state is ReplyState.COMPLETE, reply.state is ReplyState.FAILED
    return {
        "id": reply.message_id,
        "session_id": reply.session_id,
        "status": reply.state.value,
        "reply": result_object(result_of(reply)) if complete else None,
        "error": failure_of(reply) if failed else None,
    }


def _error(failure: ContextError) -> dict[str, Any]:
    return {"code": failure.code, "message": _short(str(failure)), "retryable": failure.retryable}


def _short(text: str, most: int = LONGEST_REASON) -> str:
    """A text that any bus takes: an error may name what a sender wrote, however long that is."""
    return text if len(text) <= most else f"{text[:most]}…"


def _said(body: bytes) -> dict[str, Any]:
    try:
        return {"body": body.decode(), "body_base64": None}
    except UnicodeDecodeError:
        return {"body": None, "body_base64": b64encode(body).decode()}
