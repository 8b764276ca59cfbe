"""Routes that build contexts and answer from them.

`POST /v1/context/*`, `/v1/commands`, `/api/research/ask`, `/v1/citations/verify`, and `GET /v1/builds/{id}` with its
explanation and capsule.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from contexture import wiring
from contexture.answer.research import parse_research_question
from contexture.builders.query.request import query_from_json
from contexture.capsule import pack_capsule
from contexture.engine import Contexture
from contexture.service.auth import HasWriteRight
from contexture.service.dependencies import CallerDep, EngineDep, NowDep, json_response, require_permission
from contexture.service.wire.builds import (
    AskResearchBody,
    CommandBody,
    ResearchBody,
    TurnBody,
    WorkspaceBody,
    build_object,
    command_answer_object,
    command_object,
    explanation_object,
    query_object,
    research_answer_object,
    research_object,
    turn_object,
    workspace_object,
)
from contexture.service.wire.schemas import (
    BuildResponse,
    CommandAnswerResponse,
    CommandContextResponse,
    ExplanationResponse,
    QueryContextResponse,
    ResearchAnswerResponse,
    ResearchContextResponse,
    TurnContextResponse,
    VerificationResponse,
    WorkspaceContextResponse,
)
from contexture.types import Scope


class QueryBody(BaseModel):
    """A question over one collection; omitted fields have the values of the settings."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: str
    collection: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    system: str | None = None
    where: dict[str, Any] | None = None
    model: Annotated[str, Field(min_length=1)] | None = None


def query_routes() -> APIRouter:
    """Return the route of plain questions."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    routes.post("/query", response_model=QueryContextResponse)(build_query)
    return routes


async def build_query(body: QueryBody, engine: EngineDep, caller: CallerDep, now: NowDep) -> Response:
    """Build a context for a question from what the caller may read; `model` determines how tokens are counted."""
    defaults = {"collection": engine.settings.collection, "max_tokens": engine.settings.max_tokens}
    request = query_from_json({**defaults, **body.model_dump(exclude_none=True, exclude={"model"})})
    await require_permission(engine, caller, "context.build", {"kind": "query", "collection": request.collection})
    built = await engine.build(request, scope=caller, now=now, model=body.model)
    return json_response(query_object(built), timings=built.context.timings)


def turn_routes() -> APIRouter:
    """Return the route of chat turns."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    routes.post("/turn", response_model=TurnContextResponse)(build_turn)
    return routes


async def build_turn(
    body: TurnBody, engine: EngineDep, caller: CallerDep, now: NowDep, writes: HasWriteRight
) -> Response:
    """Build the prompt of a chat turn: history within the limit, memories, and the reason for each.

    If the caller may write memories, a summary of the trimmed history is stored.
    """
    await require_permission(engine, caller, "context.build", {"kind": "turn"})
    remember = bool(body.history) and writes and await _may_remember(engine, caller)
    built = await engine.build_turn(body.model_dump(), scope=caller, now=now, remember=remember)
    return json_response(turn_object(built), timings=built.timings)


async def _may_remember(engine: Contexture, caller: Scope) -> bool:
    decision = await engine.policy.decide(caller, "memory.remember", {"memories": 1})
    return decision.allowed


def command_routes() -> APIRouter:
    """Return the route of slash commands."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    routes.post("/command", response_model=CommandContextResponse)(build_command)
    return routes


async def build_command(body: CommandBody, engine: EngineDep, caller: CallerDep, now: NowDep) -> Response:
    """Build the context of a slash command from what the caller may read, or return the command's error."""
    await require_permission(engine, caller, "context.build", {"kind": "command"})
    built = await engine.build_command(body.model_dump(exclude_unset=True), scope=caller, now=now)
    return json_response(command_object(built), timings=built.timings)


def workspace_routes() -> APIRouter:
    """Return the route of workspaces."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    routes.post("/workspace", response_model=WorkspaceContextResponse)(build_workspace)
    return routes


async def build_workspace(body: WorkspaceBody, engine: EngineDep, caller: CallerDep, now: NowDep) -> Response:
    """Build a workspace context from what the caller may read: sections, text, and the reason for each block."""
    await require_permission(engine, caller, "context.build", {"kind": "workspace"})
    built = await engine.build_workspace(body.model_dump(exclude_unset=True), scope=caller, now=now)
    return json_response(workspace_object(built, wiring.counter_for(engine.settings.model)), timings=built.timings)


CITATIONS_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}
"""OpenAPI description of a body that is read as raw bytes, because a capsule's seal covers its bytes."""


def research_routes() -> APIRouter:
    """Return the routes of research questions."""
    routes = APIRouter(tags=["research"])
    routes.post("/v1/context/research", response_model=ResearchContextResponse)(build_research)
    routes.post("/api/research/ask", response_model=ResearchAnswerResponse)(ask_research)
    routes.post("/v1/citations/verify", response_model=VerificationResponse, openapi_extra=CITATIONS_BODY)(
        verify_citations
    )
    return routes


async def build_research(body: ResearchBody, engine: EngineDep, caller: CallerDep, now: NowDep) -> Response:
    """Build the numbered, cited sources for a question from what the caller may read."""
    asked = parse_research_question(body.model_dump(exclude_unset=True), answering=False)
    await require_permission(engine, caller, "context.build", {"kind": "research"})
    built = await engine.build_research(
        asked.query,
        asked.num_results,
        asked.include_text,
        asked.include_visual,
        scope=caller,
        now=now,
        max_tokens=asked.max_tokens,
        where=asked.where,
    )
    return json_response(research_object(built), timings=built.timings)


async def ask_research(body: AskResearchBody, engine: EngineDep, caller: CallerDep, now: NowDep) -> Response:
    """Answer a question with citations; markers without a source are removed, and unsupported sentences are listed."""
    asked = parse_research_question(body.model_dump(exclude_unset=True), answering=True)
    return json_response(research_answer_object(await engine.ask_research.run(asked, scope=caller, now=now)))


async def verify_citations(request: Request, engine: EngineDep, caller: CallerDep) -> Response:
    """Check every citation of a context, an answer or a capsule against what the caller can read now."""
    await require_permission(engine, caller, "citations.verify", {})
    return json_response((await engine.verify(await request.body(), scope=caller)).to_dict())


def execute_routes() -> APIRouter:
    """Return the route that executes slash commands."""
    routes = APIRouter(prefix="/v1", tags=["commands"])
    routes.post("/commands", response_model=CommandAnswerResponse)(execute_command)
    return routes


async def execute_command(body: CommandBody, engine: EngineDep, caller: CallerDep, now: NowDep) -> Response:
    """Execute a slash command, and return the answer with the evidence for each statement, or the command's error."""
    found = await engine.execute.run(body.model_dump(exclude_unset=True), scope=caller, now=now)
    return json_response(command_answer_object(found))


def builds_routes() -> APIRouter:
    """Return the routes of recent builds."""
    routes = APIRouter(prefix="/v1/builds", tags=["builds"])
    routes.get("/{build_id}", response_model=BuildResponse)(read_build)
    routes.get("/{build_id}/explain/{candidate:path}", response_model=ExplanationResponse)(explain_candidate)
    return routes


async def read_build(build_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return the ledger and the capsule of one of the caller's own builds; any other is not found."""
    capsule, ledger = await engine.kept(build_id, scope=caller)
    return json_response(build_object(build_id, capsule, ledger))


async def explain_candidate(build_id: str, candidate: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return the outcome for one candidate, and the smallest change that would have admitted it."""
    found = await engine.explain(build_id, candidate, scope=caller)
    return json_response(explanation_object(build_id, found))


def capsules_routes() -> APIRouter:
    """Return the route of capsules."""
    routes = APIRouter(prefix="/v1/builds", tags=["builds"])
    routes.get("/{build_id}/capsule")(download_capsule)
    return routes


async def download_capsule(build_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return the capsule of one of the caller's own builds, byte for byte, so that its seal stays valid."""
    found = await engine.capsule(build_id, scope=caller)
    name = f"{found.build_id}.json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(pack_capsule(found), headers=headers, media_type="application/json")
