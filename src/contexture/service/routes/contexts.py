"""Routes that build contexts and answer from them.

`POST /v1/context/*`, `/v1/commands`, `/api/research/ask`, `/v1/citations/verify`, and `GET /v1/builds/{id}` with its
explanation and capsule.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Annotated, Any, TypeAlias, cast

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from contexture.answer import research
from contexture.answer.ask import AskAnswer, AskAnswerJson
from contexture.answer.build import BuildAnswerJson, BuildQuestion
from contexture.answer.citation_check import CitationReportJson
from contexture.answer.commands.answer import CommandAnswerJson
from contexture.builders.ask import request as ask_request
from contexture.builders.ask.result import AskContext, AskContextJson
from contexture.builders.command.request import CommandRequest
from contexture.builders.command.result import CommandContextJson
from contexture.builders.plugin import BuilderPlugin, PluginContextJson
from contexture.builders.query.request import QueryRequest, query_from_json
from contexture.builders.query.result import QueryContextJson
from contexture.builders.replay import ExplanationJson
from contexture.builders.research.result import ResearchContext, ResearchContextJson
from contexture.builders.turn.request import Turn
from contexture.builders.turn.result import TurnContextJson
from contexture.builders.workspace.request import ContextRequest
from contexture.builders.workspace.result import ContextPayloadJson
from contexture.capsule import Capsule, pack_capsule
from contexture.engine import Contexture
from contexture.json_objects import parse_object
from contexture.results import ANY_JSON
from contexture.service._dependencies import BodyDep, CallerDep, EngineDep, NowDep, json_response, require_permission
from contexture.service._error_responses import replace_correlation_id
from contexture.service._openapi import describe_body, describe_plugin_body
from contexture.service._sse import EventStream, ServerEvent
from contexture.service.auth import HasWriteRight
from contexture.service.wire import schemas
from contexture.service.wire.builds import BuildJson, build_object
from contexture.types import Scope


def query_routes() -> APIRouter:
    """Return the route of plain questions."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    routes.post("/query", responses=schemas.json_answer(QueryContextJson), openapi_extra=describe_body(QueryRequest))(
        build_query
    )
    return routes


async def build_query(engine: EngineDep, caller: CallerDep, now: NowDep, body: BodyDep) -> Response:
    """Build a context for a question from what the caller may read; `model` determines how tokens are counted."""
    defaults = {"collection": engine.settings.collection, "max_tokens": engine.settings.max_tokens}
    given = {name: value for name, value in body.items() if value is not None}
    request = query_from_json({**defaults, **given})
    await require_permission(engine, caller, "context.build", {"kind": "query", "collection": request.collection})
    built = await engine.build(request, scope=caller, now=now)
    return json_response(built.json_form(), timings=built.context.timings)


def ask_routes() -> APIRouter:
    """Return the routes of questions over everything."""
    routes = APIRouter(prefix="/v1", tags=["ask"])
    context_body = describe_body(ask_request.AskRequest, name="AskContextRequest", without=ask_request.ANSWER_FIELDS)
    routes.post("/context/ask", responses=schemas.json_answer(AskContextJson), openapi_extra=context_body)(build_ask)
    routes.post(
        "/ask",
        responses=schemas.merge_answers(schemas.json_answer(AskAnswerJson), schemas.ASK_EVENTS),
        openapi_extra=describe_body(ask_request.AskRequest),
    )(ask)
    return routes


async def build_ask(engine: EngineDep, caller: CallerDep, now: NowDep, body: BodyDep) -> Response:
    """Build the context of a question over everything the caller may read: a section for each kind of source."""
    asked = ask_request.parse_ask(body, answering=False)
    await require_permission(engine, caller, "context.build", {"kind": "ask"})
    built = await engine.build_ask(asked, scope=caller, now=now)
    return json_response(built.json_form(), timings=built.timings)


async def ask(engine: EngineDep, caller: CallerDep, now: NowDep, body: BodyDep) -> Response:
    """Answer a question from everything the caller may read, with citations that are checked.

    With `stream` the answer is an event stream. An error before the first event sets the status of the response.
    """
    asked = ask_request.parse_ask(body, answering=True)
    if asked.stream:
        steps = engine.ask_everything.stream(asked, scope=caller, now=now)
        return EventStream(_answer_events(await anext(steps), steps))
    return json_response((await engine.ask(asked, scope=caller, now=now)).json_form())


RememberParam = Annotated[
    bool, Query(description="Store a summary of trimmed history; the prompt is the same without it.")
]


def turn_routes() -> APIRouter:
    """Return the route of chat turns."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    routes.post("/turn", responses=schemas.json_answer(TurnContextJson), openapi_extra=describe_body(Turn))(build_turn)
    return routes


async def build_turn(
    engine: EngineDep,
    caller: CallerDep,
    now: NowDep,
    writes: HasWriteRight,
    body: BodyDep,
    *,
    remember: RememberParam = True,
) -> Response:
    """Build the prompt of a chat turn: history within the limit, memories, and the reason for each.

    If the caller may write memories, a summary of the trimmed history is stored, unless `remember` is false.
    """
    await require_permission(engine, caller, "context.build", {"kind": "turn"})
    built = await engine.build_turn(body, scope=caller, now=now, remember=writes and remember)
    return json_response(built.json_form(), timings=built.timings)


def command_routes() -> APIRouter:
    """Return the route of slash commands."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    described = describe_body(CommandRequest)
    routes.post("/command", responses=schemas.json_answer(CommandContextJson), openapi_extra=described)(build_command)
    return routes


async def build_command(request: Request, engine: EngineDep, caller: CallerDep, now: NowDep, body: BodyDep) -> Response:
    """Build the context of a slash command from what the caller may read, or return the command's error."""
    await require_permission(engine, caller, "context.build", {"kind": "command"})
    built = await engine.build_command(body, scope=caller, now=now)
    replace_correlation_id(request.scope, built.build_id)
    return json_response(built.json_form(), timings=built.timings)


def workspace_routes() -> APIRouter:
    """Return the route of workspaces."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    described = describe_body(ContextRequest)
    routes.post("/workspace", responses=schemas.json_answer(ContextPayloadJson), openapi_extra=described)(
        build_workspace
    )
    return routes


async def build_workspace(engine: EngineDep, caller: CallerDep, now: NowDep, body: BodyDep) -> Response:
    """Build a workspace context from what the caller may read: sections, text, and the reason for each block."""
    await require_permission(engine, caller, "context.build", {"kind": "workspace"})
    built = await engine.build_workspace(body, scope=caller, now=now)
    return json_response(built.json_form(), timings=built.timings)


_CITED: dict[str, Any] = {
    "title": "CitedObject",
    "description": "A context, an answer, a search, a build or a capsule, as a route answered it.",
    "type": "object",
    "additionalProperties": ANY_JSON,
    "examples": [
        {
            "results": [
                {
                    "text": "The pump leaks.",
                    "citation": {
                        "collection": "documents",
                        "record_id": "pump",
                        "title": "Pump",
                        "start": 0,
                        "end": 15,
                        "hash": "9f2feb0f",
                    },
                }
            ]
        }
    ],
}
CITATIONS_BODY = {"requestBody": {"required": True, "content": {"application/json": {"schema": _CITED}}}}
"""OpenAPI description of a body that is read as raw bytes, because a capsule's seal covers its bytes."""


def research_routes() -> APIRouter:
    """Return the routes of research questions."""
    routes = APIRouter(tags=["research"])
    context_body = describe_body(
        research.ResearchQuestion, name="ResearchContextQuestion", without=research.ANSWER_FIELDS
    )
    routes.post("/v1/context/research", responses=schemas.json_answer(ResearchContextJson), openapi_extra=context_body)(
        build_research
    )
    answer_body = describe_body(research.ResearchQuestion)
    routes.post(
        "/api/research/ask",
        responses=schemas.merge_answers(schemas.json_answer(research.ResearchAnswerJson), schemas.RESEARCH_EVENTS),
        openapi_extra=answer_body,
    )(ask_research)
    routes.post(
        "/v1/citations/verify", responses=schemas.json_answer(CitationReportJson), openapi_extra=CITATIONS_BODY
    )(verify_citations)
    return routes


async def build_research(engine: EngineDep, caller: CallerDep, now: NowDep, body: BodyDep) -> Response:
    """Build the numbered, cited sources for a question from what the caller may read."""
    question = research.parse_research_question(body, answering=False)
    await require_permission(engine, caller, "context.build", {"kind": "research"})
    built = await engine.build_research(
        question.query,
        question.num_results,
        question.include_text,
        question.include_visual,
        scope=caller,
        now=now,
        max_tokens=question.max_tokens,
        where=question.where,
    )
    return json_response(built.json_form(), timings=built.timings)


async def ask_research(engine: EngineDep, caller: CallerDep, now: NowDep, body: BodyDep) -> Response:
    """Answer a question with citations; markers without a source are removed, and unsupported sentences are listed.

    With `stream` the answer is an event stream. An error before the first event sets the status of the response.
    """
    question = research.parse_research_question(body, answering=True)
    if question.stream:
        steps = engine.ask_research.stream(question, scope=caller, now=now)
        return EventStream(_answer_events(await anext(steps), steps))
    return json_response((await engine.ask_research.run(question, scope=caller, now=now)).json_form())


AnswerStep: TypeAlias = ResearchContext | AskContext | str | research.ResearchAnswer | AskAnswer


async def _answer_events(first: AnswerStep, steps: AsyncGenerator[AnswerStep]) -> AsyncIterator[ServerEvent]:
    async with aclosing(steps):
        yield _answer_event(first)
        async for step in steps:
            yield _answer_event(step)


def _answer_event(step: AnswerStep) -> ServerEvent:
    if isinstance(step, str):
        return ServerEvent(event="delta", data={"text": step})
    is_context = isinstance(step, ResearchContext | AskContext)
    return ServerEvent(event="context" if is_context else "done", data=step.json_form())


async def verify_citations(request: Request, engine: EngineDep, caller: CallerDep) -> Response:
    """Check every citation of a context, an answer or a capsule against what the caller can read now."""
    await require_permission(engine, caller, "citations.verify", {})
    return json_response((await engine.verify(await request.body(), scope=caller)).json_form())


def execute_routes() -> APIRouter:
    """Return the route that executes slash commands."""
    routes = APIRouter(prefix="/v1", tags=["commands"])
    described = describe_body(CommandRequest)
    routes.post("/commands", responses=schemas.json_answer(CommandAnswerJson), openapi_extra=described)(execute_command)
    return routes


async def execute_command(
    request: Request, engine: EngineDep, caller: CallerDep, now: NowDep, body: BodyDep
) -> Response:
    """Execute a slash command, and return the answer with the evidence for each statement, or the command's error."""
    found = await engine.execute.run(body, scope=caller, now=now)
    replace_correlation_id(request.scope, found.context["telemetry"]["correlation_id"])
    return json_response(found.json_form())


def builds_routes() -> APIRouter:
    """Return the routes of recent builds."""
    routes = APIRouter(prefix="/v1/builds", tags=["builds"])
    routes.get("/{build_id}", responses=schemas.json_answer(BuildJson))(read_build)
    routes.get("/{build_id}/explain/{candidate:path}", responses=schemas.json_answer(ExplanationJson))(
        explain_candidate
    )
    described = describe_body(BuildQuestion)
    routes.post("/answer", responses=schemas.json_answer(BuildAnswerJson), openapi_extra=described)(answer_build)
    return routes


async def read_build(build_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return the ledger and the capsule of one of the caller's own builds; any other is not found.

    A build that cites what the caller may no longer read is withheld.
    """
    await _require_build_permission(engine, caller, build_id)
    capsule, ledger = await engine.load_build(build_id, scope=caller)
    return json_response(build_object(build_id, capsule, ledger))


async def explain_candidate(build_id: str, candidate: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return the outcome for one candidate, and the smallest change that would have admitted it."""
    await _require_build_permission(engine, caller, build_id)
    found = await engine.explain(build_id, candidate, scope=caller)
    return json_response(found.json_form())


async def answer_build(engine: EngineDep, caller: CallerDep, body: BodyDep) -> Response:
    """Send the prompt of one of the caller's own builds to a model, and return the checked answer; stores nothing."""
    asked = parse_object(BuildQuestion, body, what="a build to answer")
    return json_response((await engine.answer_build.run(asked, scope=caller)).json_form())


async def _require_build_permission(engine: Contexture, caller: Scope, build_id: str) -> None:
    await require_permission(engine, caller, "builds.read", {"build": build_id})


def capsules_routes() -> APIRouter:
    """Return the route of capsules."""
    routes = APIRouter(prefix="/v1/builds", tags=["builds"])
    routes.get("/{build_id}/capsule", responses=schemas.json_answer(Capsule))(download_capsule)
    return routes


async def download_capsule(build_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return the capsule of one of the caller's own builds, byte for byte, so that its seal stays valid."""
    await _require_build_permission(engine, caller, build_id)
    found = await engine.capsule(build_id, scope=caller)
    name = f"{found.build_id}.json"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(pack_capsule(found), headers=headers, media_type="application/json")


def plugin_routes(builders: Sequence[BuilderPlugin[Any]]) -> APIRouter:
    """Return `POST /v1/context/KIND` for each of these builders of other packages."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    for builder in builders:
        described = describe_plugin_body(builder.kind, cast("type[BaseModel]", builder.request))
        routes.post(f"/{builder.kind}", responses=schemas.json_answer(PluginContextJson), openapi_extra=described)(
            _make_handler(builder)
        )
    return routes


def _make_handler(builder: BuilderPlugin[Any]) -> Callable[..., Awaitable[Response]]:
    async def build(engine: EngineDep, caller: CallerDep, now: NowDep, body: BodyDep) -> Response:
        await require_permission(engine, caller, "context.build", {"kind": builder.kind})
        return json_response((await engine.build_kind(builder.kind, body, scope=caller, now=now)).json_form())

    build.__name__ = f"build_{builder.kind}"
    build.__doc__ = getattr(builder.build, "__doc__", None)
    return build
