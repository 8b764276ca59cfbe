"""What OpenAPI says about answers, derived from the types of what is sent; and the types of what only routes send."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NotRequired

from msgspec import Meta
from typing_extensions import TypedDict

from contexture.answer.ask import AskAnswerJson
from contexture.answer.build import BuildAnswerJson
from contexture.answer.chat_types import ChatResultJson, Delta, SessionEventJson, Started
from contexture.answer.citation_check import CitationReportJson
from contexture.answer.commands.answer import CommandAnswerJson, CommandDetails, NoDetails
from contexture.answer.commands.events import EventDetails
from contexture.answer.commands.execute import AskDetails
from contexture.answer.commands.graph import GraphDetails
from contexture.answer.commands.memory import MemoryDetails
from contexture.answer.commands.synthesize import SynthesisDetails
from contexture.answer.research import ResearchAnswerJson
from contexture.answer.workspace import WorkspaceAnswerJson
from contexture.builders.ask.result import AskContextJson
from contexture.builders.command.result import CommandContextJson
from contexture.builders.plugin import PluginContextJson
from contexture.builders.query.result import QueryContextJson
from contexture.builders.replay import ExplanationJson
from contexture.builders.research.result import ResearchContextJson
from contexture.builders.turn.result import TurnContextJson
from contexture.builders.workspace.result import ContextPayloadJson
from contexture.capsule import Capsule
from contexture.conversation import HealthState
from contexture.documents import BoundingBox, RegionKind
from contexture.memory_payloads import RecallAnswerJson
from contexture.results import JsonSchema, Timestamp, describe_types, refer_to
from contexture.retrieval.backfill import ReindexStepJson
from contexture.retrieval.candidates import SearchResultJson
from contexture.service.wire import openai
from contexture.service.wire.builds import BuildJson, IngestJobJson, LoadReportJson
from contexture.service.wire.chat import EnqueuedJson, ReplyJson
from contexture.service.wire.ingest import BlockJson
from contexture.service.wire.workspace import (
    BacklinksResponse,
    BlocksResponse,
    ChangesResponse,
    HistoryResponse,
    PurgedResponse,
    StoredBlockResponse,
    TableResponse,
    TrashResponse,
)
from contexture.types import ChatMessage, Citation, Receipt, ReceiptJson
from contexture.workspace import BlockRight, BlockType, PutResult


class ErrorJson(TypedDict):
    """What went wrong, for people and for programs.

    The routes of OpenAI also have its fields, and its codes in `code`.
    """

    code: str
    user_message: str
    tech_message: str
    retryable: bool
    message: Annotated[str, Meta(description="The same as `user_message`, where SDKs look for it.")]
    type: Annotated[str, Meta(description="The kind of error by the names of OpenAI.")]
    param: NotRequired[None]
    version: NotRequired[Annotated[int, Meta(description="Of a conflict, the current version; 0 for none.")]]


class ErrorMetaJson(TypedDict):
    """Version of the service, and the correlation id of the request in its log."""

    version: str
    correlation_id: str


class ErrorResponse(TypedDict):
    """An error, on every route."""

    error: ErrorJson
    meta: ErrorMetaJson


class SessionsResponse(TypedDict):
    """Session ids, most recently written first."""

    sessions: list[str]


class SessionEventsResponse(TypedDict):
    """The newest events of a session."""

    session_id: str
    events: list[SessionEventJson]


class RecordResponse(TypedDict):
    """A whole record, redacted."""

    id: str
    title: str
    text: str
    kind: str
    lang: str
    source: str
    time: Timestamp | None
    citation: Citation | None


class DocumentResponse(TypedDict):
    """A stored document without its pages; `pages` says how many there are."""

    doc_id: str
    title: str
    filename: str
    extension: str
    timestamp: Timestamp
    pages: int


class DocumentsResponse(TypedDict):
    """Documents, by id."""

    documents: list[DocumentResponse]


class RegionJson(TypedDict):
    """A part of a page; its box is left, top, right and bottom as shares of the width and height of the page."""

    kind: RegionKind
    box: BoundingBox
    start: int
    end: int


class PageRegionsResponse(TypedDict):
    """The regions of a page, in reading order."""

    doc_id: str
    page: int
    regions: list[RegionJson]


class RememberResponse(TypedDict):
    """The ids of the stored memories."""

    ok: bool
    id: NotRequired[Annotated[str, Meta(description="The id, if one memory was stored.")]]
    ids: list[str]


class OkResponse(TypedDict):
    """The request succeeded."""

    ok: bool


class ForgetResponse(ReceiptJson):
    """The memory was deleted; the rest is the receipt of what was removed where."""

    ok: bool
    deleted: int


class DeletedResponse(ReceiptJson):
    """Number of deleted items; `documents` is given if the request names documents.

    The rest is the receipt of what was removed where, the items among it.
    """

    deleted: int
    documents: NotRequired[int]


def describe_deletion(receipt: Receipt, place: str) -> DeletedResponse:
    """The answer to a deletion: the receipt, and how many things of one place it lists."""
    return DeletedResponse(**receipt.json_form(), deleted=receipt.count_of(place))


class BlockTitleJson(TypedDict):
    """Title of an ancestor of a block."""

    id: str
    type: BlockType
    text: str


class BlockResponse(TypedDict):
    """A block, the user who created it, the caller's right to it, and its ancestors, topmost first."""

    block: BlockJson
    creator: str
    right: BlockRight
    path: list[BlockTitleJson]


class BlockMovedResponse(TypedDict):
    """The block was moved."""

    moved: bool


class BlocksRestoredResponse(TypedDict):
    """Number of blocks that were restored."""

    restored: int


class BlockViewedResponse(TypedDict):
    """The view was recorded."""

    viewed: bool


class ComponentHealth(TypedDict):
    """How a component is doing, and why; some components say more."""

    state: HealthState
    names: NotRequired[Annotated[list[str], Meta(description="Of the embedders, and of the chat models.")]]
    kind: NotRequired[Annotated[str, Meta(description="Of the policy, and of text recognition.")]]
    reason: NotRequired[str]
    parked: NotRequired[Annotated[int, Meta(description="Memories in the outbox that need attention.")]]
    damaged: NotRequired[Annotated[int, Meta(description="Memories in the outbox that cannot be read.")]]
    checked: NotRequired[Annotated[Timestamp, Meta(description="When the databases were last read.")]]


class HealthResponse(TypedDict):
    """The worst state, and that of each component."""

    status: HealthState
    components: Mapping[str, ComponentHealth]


class ReadyResponse(TypedDict):
    """Whether the warm-up is done, and how far each step is."""

    ready: bool
    steps: Mapping[str, str]


class MemoryStateResponse(TypedDict):
    """Whether the memory service of a demonstration is broken, and the state that the health monitor reports."""

    broken: bool
    state: HealthState


ANSWERS = (
    ReindexStepJson,
    *(
        PluginContextJson,
        AskContextJson,
        QueryContextJson,
        TurnContextJson,
        CommandContextJson,
        ResearchContextJson,
        ContextPayloadJson,
    ),
    *(
        BuildJson,
        BuildAnswerJson,
        Capsule,
        ExplanationJson,
        CitationReportJson,
        ReceiptJson,
        CommandAnswerJson,
        ResearchAnswerJson,
    ),
    AskAnswerJson,
    *(SearchResultJson, RecordResponse, DocumentResponse, DocumentsResponse, PageRegionsResponse),
    *(ChatResultJson, Started, Delta, EnqueuedJson, ReplyJson, SessionsResponse, SessionEventsResponse),
    *(openai.CompletionJson, openai.CompletionChunkJson, openai.ModelsJson, openai.ModelJson, openai.EmbeddingsJson),
    *(RecallAnswerJson, RememberResponse, OkResponse, ForgetResponse, DeletedResponse, LoadReportJson, IngestJobJson),
    *(PutResult, BlockResponse, BlockMovedResponse, BlocksRestoredResponse, BlockViewedResponse),
    *(BlocksResponse, StoredBlockResponse, HistoryResponse, BacklinksResponse, TableResponse, ChangesResponse),
    *(TrashResponse, PurgedResponse, WorkspaceAnswerJson),
    *(HealthResponse, ReadyResponse, MemoryStateResponse, ErrorResponse, ChatMessage),
)
"""Every type of an answer or an event."""

UNIONS = {CommandDetails: (AskDetails, EventDetails, GraphDetails, MemoryDetails, SynthesisDetails, NoDetails)}
"""What the details of a command may be."""

Responses = dict[int | str, dict[str, Any]]


def json_answer(kind: type, status: int | str = 200, description: str = "") -> Responses:
    """The response of a route that answers with this type, as FastAPI takes it."""
    answer = {"description": description} if description else {}
    return {status: {**answer, "content": {"application/json": {"schema": refer_to(kind)}}}}


def event_stream(text: str, events: Mapping[str, type], end: str = "") -> Responses:
    """The response of a route that can stream: events by name, each with the type of its data as JSON.

    `end` is the data of the last event where it is not JSON.
    """
    items = [_describe_event(name, kind) for name, kind in events.items()]
    if end:
        items.append({"type": "object", "properties": {"data": {"type": "string", "const": end}}, "required": ["data"]})
    return {200: {"content": {"text/event-stream": {"itemSchema": {"description": text, "anyOf": items}}}}}


def merge_answers(*responses: Responses) -> Responses:
    """Responses of one route; those with the same status offer each other's types of content."""
    found: Responses = {}
    for status, answer in ((status, answer) for each in responses for status, answer in each.items()):
        known = found.get(status, {"content": {}})
        found[status] = {**known, **answer, "content": {**known["content"], **answer["content"]}}
    return found


def _describe_event(name: str, kind: type) -> JsonSchema:
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": refer_to(kind)}
    named = {"event": {"type": "string", "const": name}} if name else {}
    return {"type": "object", "properties": {**named, "data": data}, "required": [*named, "data"]}


CHAT_EVENTS = event_stream(
    "Server-sent events: `context` once the context is built, a `delta` for each piece of the reply, `done` with the "
    "whole answer, or `error`.",
    {"context": Started, "delta": Delta, "done": ChatResultJson, "error": ErrorResponse},
)
RESEARCH_EVENTS = event_stream(
    "Server-sent events: `context` with the sources, a `delta` for each piece of the answer, `done` with the checked "
    "answer, which replaces the pieces, or `error`.",
    {"context": ResearchContextJson, "delta": Delta, "done": ResearchAnswerJson, "error": ErrorResponse},
)
ASK_EVENTS = event_stream(
    "Server-sent events: `context` with the prompt and its sources, a `delta` for each piece of the answer, `done` "
    "with the checked answer, which replaces the pieces, or `error`.",
    {"context": AskContextJson, "delta": Delta, "done": AskAnswerJson, "error": ErrorResponse},
)
COMPLETION_EVENTS = event_stream(
    "Server-sent events without names, each a chunk, and at the end `[DONE]`; or an event `error`.",
    {"": openai.CompletionChunkJson, "error": ErrorResponse},
    end="[DONE]",
)
JPEG_IMAGE: Responses = {200: {"content": {"image/jpeg": {"schema": {"type": "string", "format": "binary"}}}}}

ERROR_RESPONSES: Responses = {
    **json_answer(ErrorResponse, "4XX", "The caller can fix it."),
    **json_answer(ErrorResponse, "5XX", "A server-side error; `retryable` says whether a retry may help."),
}
"""Error responses of every route."""

EXAMPLES_FILE = Path(__file__).with_name("examples.json")


def describe_answers(document: dict[str, Any]) -> dict[str, Any]:
    """Add the types of all answers to an OpenAPI document, and to each route an answer that was recorded from it."""
    document["components"].setdefault("schemas", {}).update(_answer_types())
    for name, example in _examples().items():
        method, path = name.split()
        if path in document["paths"]:
            responses = document["paths"][path][method.lower()]["responses"]
            status = "200" if "200" in responses else "202"  # a job is accepted
            responses[status]["content"]["application/json"]["example"] = example
    return document


@cache
def _answer_types() -> dict[str, JsonSchema]:
    return describe_types(ANSWERS, UNIONS)[1]


@cache
def _examples() -> dict[str, Any]:
    return json.loads(EXAMPLES_FILE.read_text("utf-8")) if EXAMPLES_FILE.exists() else {}
