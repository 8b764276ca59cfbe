"""Routes that read what is stored: `POST /v1/search`, records, documents, and the images and regions of pages."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from contexture.builders.query.request import SearchRequest, parse_search
from contexture.documents import Region
from contexture.errors import NotFound, UnknownPage
from contexture.pages.values import DocumentSummary
from contexture.retrieval.candidates import SearchResultJson
from contexture.service._dependencies import BodyDep, CallerDep, EngineDep, json_response, require_permission
from contexture.service._openapi import AnySpelling, describe_body
from contexture.service.wire import schemas
from contexture.types import Candidate


def search_routes() -> APIRouter:
    """Return the route of search."""
    routes = APIRouter(prefix="/v1", tags=["search"])
    described = describe_body(SearchRequest)
    routes.post("/search", responses=schemas.json_answer(SearchResultJson), openapi_extra=described)(search)
    return routes


async def search(engine: EngineDep, caller: CallerDep, body: BodyDep) -> Response:
    """Search the records that the caller may read, and return redacted passages, best first."""
    request = parse_search(body)
    collection = request.collection or engine.settings.collection
    await require_permission(engine, caller, "search", {"collection": collection})
    result = await engine.search(
        request.query, limit=request.limit, collection=collection, scope=caller, where=request.where
    )
    return json_response(result.json_form())


class ListDocumentsBody(BaseModel):
    """A page of the list of documents, ordered by id, starting after `after`."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"limit": 10}]})

    after: str = ""
    limit: Annotated[int, Field(ge=1, le=1_000), AnySpelling] = 100


def record_routes() -> APIRouter:
    """Return the routes that read records and documents."""
    routes = APIRouter(prefix="/v1", tags=["records"])
    routes.get("/records/{collection}/{record_id:path}", responses=schemas.json_answer(schemas.RecordResponse))(
        read_record
    )
    routes.post("/documents", responses=schemas.json_answer(schemas.DocumentsResponse))(list_documents)
    routes.get("/documents/{doc_id}", responses=schemas.json_answer(schemas.DocumentResponse))(read_document)
    return routes


async def read_record(collection: str, record_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return a whole record, redacted; a missing one and one that the caller may not read give the same error."""
    await require_permission(engine, caller, "records.read", {"collection": collection, "record": record_id})
    return json_response(_record_object(await engine.read(record_id, collection=collection, scope=caller)))


async def list_documents(body: ListDocumentsBody, engine: EngineDep, caller: CallerDep) -> Response:
    """List the documents that the caller may read, without their pages."""
    await require_permission(engine, caller, "records.list", {"collection": "pages"})
    found = await engine.pages.documents(caller, after=body.after, limit=body.limit)
    documents = [_document_object(each, engine.redact_text) for each in found]
    return json_response(schemas.DocumentsResponse(documents=documents))


async def read_document(doc_id: str, engine: EngineDep, caller: CallerDep) -> Response:
    """Return the metadata of a document; each of its pages is a record `DOC_ID:NUMBER` of the collection `pages`."""
    await require_permission(engine, caller, "records.read", {"collection": "pages", "record": doc_id})
    found = await engine.pages.document(caller, doc_id)
    if found is None:
        raise NotFound(f"no document {doc_id!r} can be read here")
    return json_response(_document_object(found, engine.redact_text))


def _record_object(shown: Candidate) -> schemas.RecordResponse:
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


def _document_object(found: DocumentSummary, shown: Callable[[str], str]) -> schemas.DocumentResponse:
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
    routes.get("/{doc_id}/{page}/image", response_class=Response, responses=schemas.JPEG_IMAGE)(page_image)
    routes.get("/{doc_id}/{page}/thumb", response_class=Response, responses=schemas.JPEG_IMAGE)(page_thumbnail)
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
    routes.get("/{doc_id}/{page}/regions", responses=schemas.json_answer(schemas.PageRegionsResponse))(page_regions)
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
    return json_response(schemas.PageRegionsResponse(doc_id=doc_id, page=page, regions=shown))


def _overlaps(region: Region, start: int | None, end: int | None) -> bool:
    if start is None and end is None:
        return True
    return region.start < (region.end if end is None else end) and (start or 0) < region.end


def _region_object(region: Region) -> schemas.RegionJson:
    return {"kind": region.kind, "box": region.box, "start": region.start, "end": region.end}
