"""Response models for OpenAPI; the objects themselves are created by the `*_object` functions of this package."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from contexture.conversation import HealthState, ReplyState
from contexture.ledger import Reason, State
from contexture.types import Form

JsonObject = dict[str, Any]


class ResponseModel(BaseModel):
    """Base of all answers: these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class CitationSchema(ResponseModel):
    """Characters of a stored record."""

    collection: str
    record_id: str
    title: str
    start: int
    end: int
    hash: Annotated[str, Field(description="SHA-256 of the whole stored text.")]
    page: int | None


class LedgerEntrySchema(ResponseModel):
    """How one candidate ended, and why."""

    id: str
    section: str
    state: State
    reason: Reason
    tokens: int
    score: float
    signals: dict[str, float]
    form: Form | None
    of: Annotated[str | None, Field(description="The candidate that this one repeats.")]
    note: str


class DegradationSchema(ResponseModel):
    """A named loss of quality."""

    source: str
    reason: str


class ContextResponse(ResponseModel):
    """Base of all contexts: citations, ledger, degradations and digest."""

    citations: list[CitationSchema]
    ledger: list[LedgerEntrySchema]
    degradations: list[DegradationSchema]
    digest: Annotated[str | None, Field(description="SHA-256 of the messages.")]


class ErrorSchema(ResponseModel):
    """What went wrong, for people and for programs."""

    code: str
    user_message: str
    tech_message: str
    retryable: bool


class ErrorMetaSchema(ResponseModel):
    """Which version answered, and under which id it can be found in the log."""

    version: str
    correlation_id: str


class ErrorResponse(ResponseModel):
    """An error, on every route."""

    error: ErrorSchema
    meta: ErrorMetaSchema


class SessionEventSchema(ResponseModel):
    """One message of a session."""

    id: str
    position: int
    time: datetime
    message: JsonObject
    metadata: JsonObject


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorResponse, "description": "The caller can fix it."},
    "5XX": {"model": ErrorResponse, "description": "It is ours to fix; `retryable` says whether another try may help."},
}
"""Error responses of every route."""


class QueryContextResponse(ContextResponse):
    """The context of a plain question."""

    build_id: str
    messages: list[JsonObject]
    text: str
    tokens: int
    token_counts: dict[str, int]
    max_tokens: int
    encoding: str
    exact: bool


class SnippetSchema(ResponseModel):
    """A memory in a prompt."""

    id: str
    text: str
    score: float
    base_score: float
    recency: float
    label: str
    form: str
    tokens: int
    metadata: JsonObject


class TurnContextResponse(ContextResponse):
    """The prompt of a turn."""

    build_id: str
    system_prompt: str
    messages: list[JsonObject]
    tokens: int
    token_counts: dict[str, int]
    max_prompt_tokens: int
    encoding: str
    exact: bool
    snippets: list[SnippetSchema]
    history: list[JsonObject]
    debug: JsonObject


class CommandContextResponse(ContextResponse):
    """The context of a slash command."""

    command: str
    params: JsonObject
    retrieval: JsonObject
    graph: JsonObject
    memory: JsonObject
    models: JsonObject
    limits: JsonObject
    telemetry: dict[str, str]
    ab_test: dict[str, str | None]
    recovery: list[JsonObject]
    messages: list[JsonObject]
    tokens: int


class SourceSchema(ResponseModel):
    """A page that research found."""

    doc_id: str
    filename: str
    page: int
    extension: str
    thumbnail_path: str | None
    image_path: str | None
    timestamp: str
    section_path: str | None
    parent_heading: str | None
    markdown_content: str | None
    relevance_score: float
    citations: list[CitationSchema]
    thumbnail_url: str | None
    image_url: str | None


class ResearchContextResponse(ContextResponse):
    """The context of a research question."""

    build_id: str
    query: str | None
    search_mode: str | None
    formatted_text: str
    sources: list[SourceSchema]
    total_tokens: int
    max_tokens: int | None
    truncated: bool
    encoding: str
    exact: bool
    messages: list[JsonObject]


class WorkspaceContextResponse(ContextResponse):
    """The context of a request over the workspace."""

    build_id: Annotated[str, Field(alias="buildId")]
    sections: list[JsonObject]
    metadata: JsonObject
    serialized: str
    validation: JsonObject
    encoding: str
    exact: bool


class BuildResponse(ResponseModel):
    """A recent build."""

    build_id: str
    request: JsonObject
    ledger: list[LedgerEntrySchema]
    degradations: list[DegradationSchema]
    capsule: JsonObject


class ExplanationResponse(ResponseModel):
    """What became of a candidate, and the least that would have admitted it."""

    build_id: str
    candidate: LedgerEntrySchema
    more_tokens: int | None
    score_needed: float | None


EVENT_STREAM_RESPONSE: dict[int | str, JsonObject] = {200: {"content": {"text/event-stream": {}}}}
"""The additional response of a route that can stream."""


class PassageSchema(ResponseModel):
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
    citation: CitationSchema | None


class SearchResponse(ResponseModel):
    """What a search found, best first."""

    query: str
    results: list[PassageSchema]
    degradations: list[DegradationSchema]


class MemoryCitationSchema(ResponseModel):
    """A numbered memory in a prompt."""

    number: int
    memory_id: str
    label: str
    score: float
    cited: bool


class ChatResponse(ResponseModel):
    """A processed message."""

    session_id: str
    reply: str
    model: str
    build_id: str
    citations: list[MemoryCitationSchema]
    degradations: list[DegradationSchema]
    usage: dict[str, int]
    events: list[SessionEventSchema]


class EnqueuedResponse(ResponseModel):
    """A message that was taken, and where to read what becomes of it."""

    id: str
    session_id: str
    status: ReplyState
    reply_url: str


class ReplyErrorSchema(ResponseModel):
    """Why a message got no answer."""

    code: str
    message: str
    retryable: bool


class ReplyResponse(ResponseModel):
    """What became of a message that was handed over."""

    id: str
    session_id: str
    status: ReplyState
    reply: ChatResponse | None
    error: ReplyErrorSchema | None


class SessionsResponse(ResponseModel):
    """Sessions, the one last written to first."""

    sessions: list[str]


class SessionEventsResponse(ResponseModel):
    """The newest events of a session."""

    session_id: str
    events: list[SessionEventSchema]


class AddedContextSchema(ResponseModel):
    """What was added to a caller's messages."""

    build_id: str
    citations: list[MemoryCitationSchema]
    degradations: list[DegradationSchema]


class CompletionResponse(ResponseModel):
    """A chat completion."""

    id: str
    object: str
    created: int
    model: str
    choices: list[JsonObject]
    usage: dict[str, int]
    contexture: AddedContextSchema


class ModelsResponse(ResponseModel):
    """The models that may be named."""

    object: str
    data: list[JsonObject]


class CommandAnswerResponse(ResponseModel):
    """An executed command."""

    command: str
    question: str
    lang: str
    mode: str
    model: str | None
    answer: str
    sections: list[JsonObject]
    details: JsonObject
    evidence: list[JsonObject]
    notes: list[str]
    usage: dict[str, float]
    degradations: list[DegradationSchema]
    context: CommandContextResponse


class ResearchAnswerResponse(ResponseModel):
    """A cited answer."""

    answer: str
    sources: list[SourceSchema]
    truncated: bool
    total_tokens: int
    cited: list[int]
    citations: list[CitationSchema]
    removed_markers: list[object]
    unsupported: list[object]
    model: str
    extractive: bool
    images: list[object]
    degradations: list[DegradationSchema]
    build_id: str


class VerificationResponse(ResponseModel):
    """Whether every citation holds."""

    holds: bool
    citations: int
    problems: list[JsonObject]


class RecallResponse(ResponseModel):
    """Memories, best first, under both names that clients look for."""

    candidates: list[JsonObject]
    results: list[JsonObject]


class RememberResponse(ResponseModel):
    """The ids of what was stored; `id` where it was one."""

    ok: bool
    ids: list[str]
    id: Annotated[str, Field(description="Of the only one.")] = ""


class OkResponse(ResponseModel):
    """It was done."""

    ok: bool


class ForgetResponse(ResponseModel):
    """It is gone."""

    ok: bool
    deleted: int


class DeletedResponse(ResponseModel):
    """How many there were; `documents` where documents were named."""

    deleted: int
    documents: int = 0


class IngestReportResponse(ResponseModel):
    """What became of everything that was sent."""

    read: int
    added: int
    unchanged: int
    duplicates: int
    failed: list[JsonObject]
    warnings: list[JsonObject]
    pages: int = 0
    files: list[JsonObject] | None = None
    collapsed: Annotated[int, Field(description="Articles that are copies of a better one.")] = 0


class BlocksWrittenResponse(ResponseModel):
    """How many blocks were new, altered, and known as they are."""

    added: int
    changed: int
    unchanged: int


class BlockResponse(ResponseModel):
    """A block, and what stands above it, the topmost first."""

    block: JsonObject
    path: list[dict[str, str]]


class BlockMovedResponse(ResponseModel):
    """It stands where it was asked to."""

    moved: bool


class BlocksRestoredResponse(ResponseModel):
    """How many came back."""

    restored: int


class BlockViewedResponse(ResponseModel):
    """The view was noted."""

    viewed: bool


class HealthResponse(ResponseModel):
    """The worst state, and that of each component."""

    status: HealthState
    components: dict[str, JsonObject]


class ReadyResponse(ResponseModel):
    """Whether the warm-up is done, and how far each step is."""

    ready: bool
    steps: dict[str, str]
