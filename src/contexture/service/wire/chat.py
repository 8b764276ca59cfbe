"""A message as routes take it, and what comes of it as routes and the command line answer with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from contexture.answer.exchange import ChatRequest, ChatResult, Delta, Started, Step
from contexture.conversation import Event

MOST = 1_000_000


class ChatBody(BaseModel):
    """A message to a session; without `session_id` a new one begins."""

    model_config = ConfigDict(extra="forbid", strict=True)

    message: Annotated[str, Field(description="What the user says.")]
    session_id: Annotated[str, Field(description="The session; empty for a new one.")] = ""
    message_id: Annotated[str, Field(description="Names this message: sent twice, it is answered once.")] = ""
    persona_id: Annotated[str, Field(description="Whom the assistant plays.")] = ""
    tenant_id: Annotated[str | None, Field(description="Must be the caller's own.")] = None
    user_id: Annotated[str | None, Field(description="Must be the caller's own.")] = None
    model: Annotated[str | None, Field(description="One of the models that are configured.")] = None
    system_prompt: Annotated[str | None, Field(description="Instructions instead of the configured ones.")] = None
    max_prompt_tokens: Annotated[int | None, Field(ge=1, description="Token limit of the prompt.")] = None
    max_tokens: Annotated[int | None, Field(ge=1, le=MOST, description="Length of the answer in tokens.")] = None
    stream: Annotated[bool, Field(description="Answer with server-sent events.")] = False
    background: Annotated[bool, Field(description="Hand over to the bus, and answer at once where to read it.")] = False

    def request(self) -> ChatRequest:
        """The same, as the engine takes it."""
        return ChatRequest(
            message=self.message,
            session_id=self.session_id,
            message_id=self.message_id,
            persona_id=self.persona_id,
            model=self.model,
            system_prompt=self.system_prompt,
            max_prompt_tokens=self.max_prompt_tokens,
            max_tokens=self.max_tokens,
        )


def step_object(step: Step) -> tuple[str, dict[str, Any]]:
    """One step of an answer, with the name of its event."""
    match step:
        case Started():
            told = {"session_id": step.session_id, "build_id": step.build_id, "degradations": step.degradations}
            return "context", told
        case Delta():
            return "delta", {"text": step.text}
        case ChatResult():
            return "done", result_object(step)


def result_object(result: ChatResult) -> dict[str, Any]:
    """A processed message."""
    return {
        "session_id": result.session_id,
        "reply": result.reply,
        "model": result.model,
        "build_id": result.build_id,
        "citations": result.citations,
        "degradations": result.degradations,
        "usage": result.usage,
        "events": [event_object(event) for event in result.events],
    }


def events_object(session_id: str, events: Sequence[Event]) -> dict[str, Any]:
    """The newest events of a session, oldest first."""
    return {"session_id": session_id, "events": [event_object(event) for event in events]}


def event_object(event: Event) -> dict[str, Any]:
    """One event of a session."""
    return {
        "id": event.id,
        "position": event.position,
        "time": event.time,
        "message": event.message,
        "metadata": event.metadata,
    }
