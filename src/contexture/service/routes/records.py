"""Routes that read what is stored: `POST /v1/search`, records, documents, and the images and regions of pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from contexture.documents import Region
from contexture.errors import NotFound, UnknownPage
from contexture.filters import filter_from_json
from contexture.pages.values import DocumentSummary
from contexture.service.dependencies import CallerDep, EngineDep, json_response, require_permission
from contexture.service.wire.builds import search_object
from contexture.service.wire.schemas import SearchResponse
from contexture.types import Candidate

_DEFAULT_POOL = 60  # the engine's default pool size


class SearchBody(BaseModel):
    """A search in one collection."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: str
    collection: str | None = None
    where: dict[str, Any] | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 10


def search_routes() -> APIRouter:
    """Return the route of search."""
    routes = APIRouter(prefix="/v1", tags=["search"])
    routes.post("/search", response_model=SearchResponse)(search)
    return routes


async def search(body: SearchBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Search the records that the caller may read, and return redacted passages, best first."""
    where = None if body.where is None else filter_from_json(body.where)
    collection = body.collection or engine.settings.collection
    await require_permission(engine, caller, "search", {"collection": collection})
    pool = body.limit if body.limit > _DEFAULT_POOL else None
    result = await engine.search(body.query, collection=collection, scope=caller, where=where, pool=pool)
    return json_response(search_object(result, body.limit))


class ListDocumentsBody(BaseModel):
    """A page of the list of documents, ordered by id, starting after `after`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    after: str = ""
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


def record_routes() -> APIRouter:
    """Return the routes that read records and documents."""
    routes = APIRouter(prefix="/v1", tags=["records"])
    routes.get("/records/{collection}/{record_id:path}")(read_record)
    routes.post("/documents")(list_documents)
    routes.get("/documents/{doc_id}")(read_document)
    return routes


async def read_record(collection: str, record_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return a whole record, redacted; a missing one and one that the caller may not read give the same error."""
    await require_permission(engine, caller, "records.read", {"collection": collection, "record": record_id})
    return json_response(_record_object(await engine.read(record_id, collection=collection, scope=caller)))


async def list_documents(body: ListDocumentsBody, engine: EngineDep, caller: CallerDep) -> Response:
    """List the documents that the caller may read, without their pages."""
    await require_permission(engine, caller, "records.list", {"collection": "pages"})
    found = await engine.pages.documents(caller, after=body.after, limit=body.limit)
    return json_response({"documents": [_document_object(each, engine.shown) for each in found]})


async def read_document(doc_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return the metadata of a document; each of its pages is a record `DOC_ID:NUMBER` of the collection `pages`."""
    await require_permission(engine, caller, "records.read", {"collection": "pages", "record": doc_id})
    found = await engine.pages.document(caller, doc_id)
    if found is None:
        raise NotFound(f"no document {doc_id!r} can be read here")
    return json_response(_document_object(found, engine.shown))


def _record_object(shown: Candidate) -> dict[str, Any]:
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


def _document_object(found: DocumentSummary, shown: Callable[[str], str]) -> dict[str, Any]:
    return {
        "doc_id": found.doc_id,
        "title": shown(found.title),
        "filename": shown(found.filename),
        "extension": found.extension,
        "timestamp": found.timestamp,
        "pages": found.pages,
    }


_JPEG = "image/jpeg"
_CACHE_HEADERS = {"Cache-Control": "private, max-age=3600", "X-Content-Type-Options": "nosniff"}


def page_image_routes() -> APIRouter:
    """Return the routes of page images."""
    routes = APIRouter(prefix="/v1/pages", tags=["pages"])
    routes.get("/{doc_id}/{page}/image", response_class=Response)(page_image)
    routes.get("/{doc_id}/{page}/thumb", response_class=Response)(page_thumbnail)
    return routes


async def page_image(doc_id: str, page: int, engine: EngineDep, caller: CallerDep) -> Response:
    """Return a page as a JPEG; a missing one and one that the caller may not read give the same error."""
    return await _image_response(doc_id, page, engine, caller, small=False)


async def page_thumbnail(doc_id: str, page: int, engine: EngineDep, caller: CallerDep) -> Response:
    """Return a page as a small JPEG; a missing one and one that the caller may not read give the same error."""
    return await _image_response(doc_id, page, engine, caller, small=True)


async def _image_response(doc_id: str, page: int, engine: EngineDep, caller: CallerDep, *, small: bool) -> Response:
    await require_permission(engine, caller, "pages.read", {"doc_id": doc_id, "page": page})
    found = await engine.pages.picture(caller, doc_id, page, thumb=small)
    if found is None:
        raise UnknownPage(f"there is no picture of page {page} of document {doc_id!r}")
    return Response(found, media_type=_JPEG, headers=_CACHE_HEADERS)


OffsetParam = Annotated[int | None, Query(ge=0)]


def page_region_routes() -> APIRouter:
    """Return the route of page regions."""
    routes = APIRouter(prefix="/v1/pages", tags=["pages"])
    routes.get("/{doc_id}/{page}/regions")(page_regions)
    return routes


async def page_regions(
    doc_id: str, page: int, engine: EngineDep, caller: CallerDep, start: OffsetParam = None, end: OffsetParam = None
) -> Response:
    """Return the boxes of a page, or of its characters from `start` to `end`, as shares of its width and height.

    The text of the regions is left out, because it is not redacted.
    """
    await require_permission(engine, caller, "pages.read", {"doc_id": doc_id, "page": page})
    (found,) = await engine.pages.pages(caller, [(doc_id, page)]) or (None,)
    if found is None:
        raise UnknownPage(f"there is no page {page} of document {doc_id!r}")
    shown = [_region_object(each) for each in found.regions if _overlaps(each, start, end)]
    return json_response({"doc_id": doc_id, "page": page, "regions": shown})


def _overlaps(region: Region, start: int | None, end: int | None) -> bool:
    if start is None and end is None:
        return True
    return region.start < (region.end if end is None else end) and (start or 0) < region.end


def _region_object(region: Region) -> dict[str, Any]:
    return {"kind": region.kind, "box": region.box, "start": region.start, "end": region.end}
