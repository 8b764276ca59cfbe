"""`GET /v1/records/{collection}/{id}`, `POST /v1/documents`, `GET /v1/documents/{doc_id}`: read what is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from contexture.errors import NotFound
from contexture.pages.values import Summary
from contexture.service.depends import Caller, Engine, answer, permit
from contexture.types import Candidate


class ListBody(BaseModel):
    """Which documents to list: by id, starting behind `after`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    after: str = ""
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


def router() -> APIRouter:
    """The routes of reading."""
    routes = APIRouter(prefix="/v1", tags=["records"])
    routes.get("/records/{collection}/{record_id:path}")(record)
    routes.post("/documents")(documents)
    routes.get("/documents/{doc_id}")(document)
    return routes


async def record(collection: str, record_id: str, engine: Engine, caller: Caller) -> Response:
    """A record from beginning to end, redacted; one that is not there and a hidden one are answered alike."""
    await permit(engine, caller, "records.read", {"collection": collection, "record": record_id})
    return answer(_record(await engine.read(record_id, collection=collection, scope=caller)))


async def documents(body: ListBody, engine: Engine, caller: Caller) -> Response:
    """The documents the caller may read, without their pages."""
    await permit(engine, caller, "records.list", {"collection": "pages"})
    found = await engine.pages.documents(caller, after=body.after, limit=body.limit)
    return answer({"documents": [_document(each, engine.shown) for each in found]})


async def document(doc_id: str, engine: Engine, caller: Caller) -> Response:
    """What a document is; each of its pages is a record of the collection `pages`, called `DOC_ID:NUMBER`."""
    await permit(engine, caller, "records.read", {"collection": "pages", "record": doc_id})
    found = await engine.pages.document(caller, doc_id)
    if found is None:
        raise NotFound(f"no document {doc_id!r} can be read here")
    return answer(_document(found, engine.shown))


def _record(shown: Candidate) -> dict[str, Any]:
    return {
        "id": shown.id,
        "title": shown.title,
        "text": shown.text,
        "kind": shown.kind,
        "lang": shown.lang,
        "source": shown.source,
        "time": shown.time,
        "citation": shown.citation,
    }


def _document(found: Summary, shown: Callable[[str], str]) -> dict[str, Any]:
    return {
        "doc_id": found.doc_id,
        "title": shown(found.title),
        "filename": shown(found.filename),
        "extension": found.extension,
        "timestamp": found.timestamp,
        "pages": found.pages,
    }
