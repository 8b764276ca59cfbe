"""`POST /v1/search`: passages that match, with every signal."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from contexture.filters import filter_from_json
from contexture.service.depends import Caller, Engine, answer, permit
from contexture.service.shapes import found_object
from contexture.service.wire.answers import FoundShape

_POOL = 60  # what the engine looks at by itself


class SearchBody(BaseModel):
    """What to look for."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: str
    collection: str | None = None
    where: dict[str, Any] | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 10


def router() -> APIRouter:
    """The route of search."""
    routes = APIRouter(prefix="/v1", tags=["search"])
    routes.post("/search", response_model=FoundShape)(search)
    return routes


async def search(body: SearchBody, engine: Engine, caller: Caller) -> Response:
    """The passages that match, best first, redacted, of the records the caller may read."""
    where = None if body.where is None else filter_from_json(body.where)
    collection = body.collection or engine.settings.collection
    await permit(engine, caller, "search", {"collection": collection})
    pool = body.limit if body.limit > _POOL else None
    result = await engine.search(body.query, collection=collection, scope=caller, where=where, pool=pool)
    return answer(found_object(result, body.limit))
