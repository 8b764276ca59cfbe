"""All answers but contexts, as OpenAPI describes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from contexture.conversation import HealthState, ReplyState
from contexture.service.wire.contexts import CommandShape, SourceShape
from contexture.service.wire.parts import Answered, CitationShape, DegradationShape, EventShape, Object

EVENTS: dict[int | str, Object] = {200: {"content": {"text/event-stream": {}}}}
"""What a route that can stream may answer besides JSON."""


class PassageShape(Answered):
    """A passage that a search found."""

    id: str
    title: str
    text: str
    score: float
    signals: dict[str, float]
    lang: str
    source: str
    kind: str
    time: datetime | None
    citation: CitationShape | None


class FoundShape(Answered):
    """What a search found, best first."""

    query: str
    results: list[PassageShape]
    degradations: list[DegradationShape]


class MemoryCitationShape(Answered):
    """A numbered memory in a prompt."""

    number: int
    memory_id: str
    label: str
    score: float
    cited: bool


class ChatShape(Answered):
    """A processed message."""

    session_id: str
    reply: str
    model: str
    build_id: str
    citations: list[MemoryCitationShape]
    degradations: list[DegradationShape]
    usage: dict[str, int]
    events: list[EventShape]


class HandedOverShape(Answered):
    """A message that was taken, and where to read what becomes of it."""

    id: str
    session_id: str
    status: ReplyState
    reply_url: str


class ReplyFaultShape(Answered):
    """Why a message got no answer."""

    code: str
    message: str
    retryable: bool


class ReplyShape(Answered):
    """What became of a message that was handed over."""

    id: str
    session_id: str
    status: ReplyState
    reply: ChatShape | None
    error: ReplyFaultShape | None


class SessionsShape(Answered):
    """Sessions, the one last written to first."""

    sessions: list[str]


class EventsShape(Answered):
    """The newest events of a session."""

    session_id: str
    events: list[EventShape]


class AddedShape(Answered):
    """What was added to a caller's messages."""

    build_id: str
    citations: list[MemoryCitationShape]
    degradations: list[DegradationShape]


class CompletionShape(Answered):
    """A chat completion."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Object]
    usage: dict[str, int]
    contexture: AddedShape


class ModelsShape(Answered):
    """The models that may be named."""

    object: str
    data: list[Object]


class CommandAnswerShape(Answered):
    """An executed command."""

    command: str
    question: str
    lang: str
    mode: str
    model: str | None
    answer: str
    sections: list[Object]
    details: Object
    evidence: list[Object]
    notes: list[str]
    usage: dict[str, float]
    degradations: list[DegradationShape]
    context: CommandShape


class ResearchAnswerShape(Answered):
    """A cited answer."""

    answer: str
    sources: list[SourceShape]
    truncated: bool
    total_tokens: int
    cited: list[int]
    citations: list[CitationShape]
    removed_markers: list[object]
    unsupported: list[object]
    model: str
    extractive: bool
    images: list[object]
    degradations: list[DegradationShape]
    build_id: str


class VerifiedShape(Answered):
    """Whether every citation holds."""

    holds: bool
    citations: int
    problems: list[Object]


class RecalledShape(Answered):
    """Memories, best first, under both names that clients look for."""

    candidates: list[Object]
    results: list[Object]


class RememberedShape(Answered):
    """The ids of what was stored; `id` where it was one."""

    ok: bool
    ids: list[str]
    id: Annotated[str, Field(description="Of the only one.")] = ""


class DoneShape(Answered):
    """It was done."""

    ok: bool


class ForgottenShape(Answered):
    """It is gone."""

    ok: bool
    deleted: int


class RemovedShape(Answered):
    """How many there were; `documents` where documents were named."""

    deleted: int
    documents: int = 0


class ReportShape(Answered):
    """What became of everything that was sent."""

    read: int
    added: int
    unchanged: int
    duplicates: int
    failed: list[Object]
    warnings: list[Object]
    pages: int = 0
    files: list[Object] | None = None
    collapsed: Annotated[int, Field(description="Articles that are copies of a better one.")] = 0


class WrittenShape(Answered):
    """How many blocks were new, altered, and known as they are."""

    added: int
    changed: int
    unchanged: int


class BlockShape(Answered):
    """A block, and what stands above it, the topmost first."""

    block: Object
    path: list[dict[str, str]]


class MovedShape(Answered):
    """It stands where it was asked to."""

    moved: bool


class RestoredShape(Answered):
    """How many came back."""

    restored: int


class ViewedShape(Answered):
    """The view was noted."""

    viewed: bool


class HealthShape(Answered):
    """The worst state, and that of each component."""

    status: HealthState
    components: dict[str, Object]


class ReadyShape(Answered):
    """Whether the warm-up is done, and how far each step is."""

    ready: bool
    steps: dict[str, str]
