"""Types of a chat exchange: the request, the streamed steps, the result and its memory citations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from contexture.conversation import SessionEvent
from contexture.errors import InvalidRequest
from contexture.ledger import Degradation
from contexture.text.unicode import is_valid_unicode

MAX_ID_LENGTH = 256


class ChatStatus(StrEnum):
    """How an answer ended: complete, aborted or failed. The value is stored with the reply's event."""

    COMPLETE = "complete"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """A message to a session.

    ChatRequest(message="When does the ferry leave?")                          # a new session
    ChatRequest(message="And back?", session_id="s-1", model="litellm:gpt-5")  # a configured model, by name
    ChatRequest(message="And back?", session_id="s-1", message_id="m-7")       # sent twice, it is one turn
    """

    message: str
    session_id: str = ""
    message_id: str = ""
    persona_id: str = ""
    model: str | None = None
    system_prompt: str | None = None
    max_prompt_tokens: int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if not self.message.strip():
            raise InvalidRequest("the message is empty")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidRequest(f"max_tokens must be 1 or more, not {self.max_tokens}")
        for name in ("session_id", "message_id", "persona_id"):
            if len(getattr(self, name)) > MAX_ID_LENGTH:
                raise InvalidRequest(f"{name} has more than {MAX_ID_LENGTH} characters")
            if not is_valid_unicode(getattr(self, name)):
                raise InvalidRequest(f"{name} is not valid Unicode and cannot be stored")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryCitation:
    """A numbered block of memory in the prompt; `cited` says whether the reply names its number."""

    number: int
    memory_id: str
    label: str
    score: float
    cited: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """The context is built; a model is about to be asked."""

    session_id: str
    build_id: str
    degradations: tuple[Degradation, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """One more chunk of the reply."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatResult:
    """A processed message: the reply, where it came from, and what was stored."""

    session_id: str
    reply: str
    model: str
    build_id: str
    citations: tuple[MemoryCitation, ...]
    degradations: tuple[Degradation, ...]
    events: tuple[SessionEvent, ...]
    usage: Mapping[str, int] = field(default_factory=dict[str, int])


ChatStep: TypeAlias = Started | Delta | ChatResult
