"""`POST /v1/context/research`, `POST /api/research/ask`, `POST /v1/citations/verify`: research, and what it cites."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from contexture.answer.research.values import question_of
from contexture.service.depends import Caller, Engine, Moment, answer, permit
from contexture.service.wire.answers import ResearchAnswerShape, VerifiedShape
from contexture.service.wire.contexts import ResearchShape
from contexture.service.wire.research import AskBody, ResearchBody, ask_object, research_object

CLAIMS = {"requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}}
"""How OpenAPI describes a body that is read as it stands: a capsule has a seal over its bytes."""


def router() -> APIRouter:
    """The routes of research questions."""
    routes = APIRouter(tags=["research"])
    routes.post("/v1/context/research", response_model=ResearchShape)(research)
    routes.post("/api/research/ask", response_model=ResearchAnswerShape)(ask)
    routes.post("/v1/citations/verify", response_model=VerifiedShape, openapi_extra=CLAIMS)(verify)
    return routes


async def research(body: ResearchBody, engine: Engine, caller: Caller, now: Moment) -> Response:
    """The numbered, cited sources for a question, as the caller may see them."""
    asked = question_of(body.model_dump(exclude_unset=True), answering=False)
    await permit(engine, caller, "context.build", {"kind": "research"})
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
    return answer(research_object(built), timings=built.timings)


async def ask(body: AskBody, engine: Engine, caller: Caller, now: Moment) -> Response:
    """A cited answer with its sources; markers that point nowhere are gone, and unsupported sentences are named.

    The engine asks the policy itself.
    """
    asked = question_of(body.model_dump(exclude_unset=True), answering=True)
    return answer(ask_object(await engine.ask_research.run(asked, scope=caller, now=now)))


async def verify(request: Request, engine: Engine, caller: Caller) -> Response:
    """Whether every citation of a context, an answer or a capsule holds, as the caller sees the store now."""
    await permit(engine, caller, "citations.verify", {})
    return answer((await engine.verify(await request.body(), scope=caller)).to_dict())
