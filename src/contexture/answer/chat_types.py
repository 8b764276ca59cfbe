"""Types of a chat exchange: the request, the streamed steps, the result and its memory citations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, TypeAlias, cast

from msgspec import Meta
from typing_extensions import TypedDict

from contexture.builders.turn.request import MAX_PROMPT_TOKENS
from contexture.conversation import MEMORIES_COLLECTION, SessionEvent
from contexture.errors import InvalidRequest
from contexture.json_objects import NOT_BLANK
from contexture.ledger import Degradation
from contexture.results import FreeJson, JsonResult, Timestamp
from contexture.text.unicode import is_valid_unicode
from contexture.types import ChatMessage

MAX_ID_LENGTH = 256
MAX_ANSWER_TOKENS = 1_000_000
_ID_LENGTH = {"maxLength": MAX_ID_LENGTH}


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

    message: Annotated[
        str,
        Meta(
            description="What the user says; not blank.",
            examples=["When does the ferry leave?"],
            extra_json_schema=NOT_BLANK,
        ),
    ]
    session_id: Annotated[
        str, Meta(description="The session; a new one if left out.", examples=["s-1"], extra_json_schema=_ID_LENGTH)
    ] = ""
    message_id: Annotated[
        str,
        Meta(description="Identifies this message: sent twice, it is answered once.", extra_json_schema=_ID_LENGTH),
    ] = ""
    persona_id: Annotated[
        str, Meta(description="The persona that the assistant plays.", extra_json_schema=_ID_LENGTH)
    ] = ""
    model: Annotated[str | None, Meta(description="One of the configured models; the default model if left out.")] = (
        None
    )
    system_prompt: Annotated[str | None, Meta(description="Instructions instead of the configured ones.")] = None
    max_prompt_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_PROMPT_TOKENS)] | None,
        Meta(description="Token limit of the prompt; the configured one if left out."),
    ] = None
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_ANSWER_TOKENS)] | None,
        Meta(description="Length of the answer in tokens; the configured one if left out."),
    ] = None

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
    """A numbered block of the prompt; `cited` says whether the reply names its number.

    `memory_id` is the id of a memory or of another record in `collection`.
    """

    number: int
    memory_id: str
    label: str
    score: float
    cited: bool
    collection: str = MEMORIES_COLLECTION


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


class SessionEventJson(TypedDict):
    """One message of a session."""

    id: str
    position: int
    time: Timestamp
    message: ChatMessage
    metadata: FreeJson


class ChatResultJson(TypedDict):
    """A processed message."""

    session_id: str
    reply: str
    model: str
    build_id: str
    citations: tuple[MemoryCitation, ...]
    degradations: tuple[Degradation, ...]
    usage: Mapping[str, int]
    events: list[SessionEventJson]


def event_to_json(event: SessionEvent) -> SessionEventJson:
    """An event of a session as it is sent."""
    return {
        "id": event.id,
        "position": event.position,
        "time": event.time,
        "message": cast("ChatMessage", event.message),
        "metadata": event.metadata,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatResult(JsonResult):
    """A processed message: the reply, where it came from, and what was stored."""

    session_id: str
    reply: str
    model: str
    build_id: str
    citations: tuple[MemoryCitation, ...]
    degradations: tuple[Degradation, ...]
    events: tuple[SessionEvent, ...]
    usage: Mapping[str, int] = field(default_factory=dict[str, int])

    def json_form(self) -> ChatResultJson:
        """The reply with its citations and events."""
        return {
            "session_id": self.session_id,
            "reply": self.reply,
            "model": self.model,
            "build_id": self.build_id,
            "citations": self.citations,
            "degradations": self.degradations,
            "usage": self.usage,
            "events": [event_to_json(event) for event in self.events],
        }


ChatStep: TypeAlias = Started | Delta | ChatResult
