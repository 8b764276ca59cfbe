"""`POST /v1/context/query`: a context for a plain question."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from contexture.builders.query.request import request_from_json
from contexture.service.depends import Caller, Engine, Moment, answer, permit
from contexture.service.shapes import built_object
from contexture.service.wire.contexts import QueryShape


class QueryBody(BaseModel):
    """A question over one collection; what is left out is as the settings say."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: str
    collection: str | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    system: str | None = None
    where: dict[str, Any] | None = None
    model: Annotated[str, Field(min_length=1)] | None = None


def router() -> APIRouter:
    """The route of plain questions."""
    routes = APIRouter(prefix="/v1/context", tags=["context"])
    routes.post("/query", response_model=QueryShape)(query)
    return routes


async def query(body: QueryBody, engine: Engine, caller: Caller, now: Moment) -> Response:
    """The context as the caller may see it, with its ledger; `model` says whose tokens are counted."""
    defaults = {"collection": engine.settings.collection, "max_tokens": engine.settings.max_tokens}
    request = request_from_json({**defaults, **body.model_dump(exclude_none=True, exclude={"model"})})
    await permit(engine, caller, "context.build", {"kind": "query", "collection": request.collection})
    built = await engine.build(request, scope=caller, now=now, model=body.model)
    return answer(built_object(built), timings=built.context.timings)
