"""`POST` and `DELETE /v1/ingest/documents`: write and remove records, and files that are read into pages."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from contexture.engine import Contexture
from contexture.errors import InvalidRequest
from contexture.ingestion.documents import Loading, combined
from contexture.ingestion.load import GROUP, batches
from contexture.ingestion.problems import Item, Problem, Sourced
from contexture.ingestion.rows import record_of
from contexture.ingestion.uploads import Upload, load_uploads
from contexture.ingestion.writer import LoadReport, Writer
from contexture.pages.records import PAGES
from contexture.service.depends import Caller, Engine, Moment, answer, permit
from contexture.service.owned import check_free
from contexture.service.shapes import report_object
from contexture.service.wire.answers import RemovedShape, ReportShape
from contexture.types import PUBLIC, Collection, FieldType, Scope
from contexture.wiring.documents import reading_workers

PLACE = "records"
"""How the list of a request is called in problems; the line is the row's place in it, from 1."""

_MOST = 10_000
_MOST_FILES = 100

Principal = Annotated[str, Field(min_length=1)]


class FileBody(BaseModel):
    """A file as base64; `source_path` is where it came from, for those who read about it."""

    model_config = ConfigDict(extra="forbid")

    filename: Annotated[str, Field(min_length=1, max_length=255)]
    content: str
    source_path: Annotated[str, Field(max_length=4_096)] = ""


class IngestBody(BaseModel):
    """Records to write, each as a row of a JSONL file, and files to read into pages.

    `acl` is for files, and for records that name no readers; `fields` are payload fields that filters may use.
    `optimize` merges what was written in small pieces, which pays after a large load.
    """

    model_config = ConfigDict(extra="forbid")

    records: Annotated[list[dict[str, Any]], Field(max_length=_MOST)] = []
    files: Annotated[list[FileBody], Field(max_length=_MOST_FILES)] = []
    collection: Annotated[str, Field(min_length=1)] | None = None
    acl: list[Principal] = [PUBLIC]
    fields: dict[str, FieldType] = {}
    again: bool = False
    optimize: bool = False


class DeleteBody(BaseModel):
    """Records to remove, and documents with all their pages."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ids: Annotated[list[str], Field(max_length=_MOST)] = []
    doc_ids: Annotated[list[str], Field(max_length=_MOST)] = []
    collection: Annotated[str, Field(min_length=1)] | None = None


def router() -> APIRouter:
    """The routes of documents."""
    routes = APIRouter(prefix="/v1/ingest", tags=["ingest"])
    routes.post("/documents", response_model=ReportShape)(write)
    routes.delete("/documents", response_model=RemovedShape)(remove)
    return routes


async def write(body: IngestBody, engine: Engine, caller: Caller, moment: Moment) -> Response:
    """What became of each record and file: added, unchanged, a copy of another, or failed and why."""
    await _permit_all(body, engine, caller)
    if not body.files:
        return answer(report_object(await _written(body, engine, caller)))
    loading = Loading(scope=caller, now=moment or engine.clock.now(), readers=tuple(body.acl), again=body.again)
    uploads = [_upload(at, each) for at, each in enumerate(body.files)]
    async with reading_workers() as workers:
        paged = await load_uploads(engine.pages, workers, uploads, loading)
    records = await _written(body, engine, caller) if body.records else LoadReport()
    return answer(report_object(combined(paged, records)))


async def remove(body: DeleteBody, engine: Engine, caller: Caller) -> Response:
    """How many of these records and documents there were that the caller may read; they are gone."""
    collection = body.collection or engine.settings.collection
    if body.ids or not body.doc_ids:
        check_free(collection)
    await permit(engine, caller, "delete", {"collection": collection, "records": len(body.ids)})
    if not body.doc_ids:
        return answer({"deleted": await engine.delete(body.ids, collection=collection, scope=caller)})
    await permit(engine, caller, "delete", {"collection": PAGES.name, "records": len(body.doc_ids)})
    gone = await engine.delete(body.ids, collection=collection, scope=caller) if body.ids else 0
    return answer({"deleted": gone, "documents": await engine.pages.remove(caller, body.doc_ids)})


async def _permit_all(body: IngestBody, engine: Contexture, caller: Scope) -> None:
    """Ask about files and records before any of them is written."""
    if body.files:
        await permit(engine, caller, "ingest", {"collection": PAGES.name, "records": len(body.files)})
    if body.records or not body.files:
        collection = body.collection or engine.settings.collection
        check_free(collection)
        await permit(engine, caller, "ingest", {"collection": collection, "records": len(body.records)})


async def _written(body: IngestBody, engine: Contexture, caller: Scope) -> LoadReport:
    collection = body.collection or engine.settings.collection
    await engine.create(Collection(name=collection, fields={**GROUP, **body.fields}), scope=caller)
    writer = Writer(engine, collection, caller, again=body.again)
    for batch in batches(writer.distinct(_items(body))):
        await writer.write(batch)
    if body.optimize:
        await engine.index.optimize()
    return writer.report


def _upload(at: int, body: FileBody) -> Upload:
    try:
        content = base64.b64decode(body.content, validate=True)
    except ValueError as failure:
        raise InvalidRequest(f"files[{at}].content is not base64: {failure}") from failure
    return Upload(filename=body.filename, content=content, source_path=body.source_path)


def _items(body: IngestBody) -> Iterator[Item]:
    for number, row in enumerate(body.records, start=1):
        try:
            record, warnings = record_of(row, acl=tuple(body.acl))
        except InvalidRequest as failure:
            yield Problem(path=PLACE, line=number, message=str(failure))
            continue
        found = Sourced(record=record, path=PLACE, line=number)
        yield from (found.problem(message, warning=True) for message in warnings)
        yield found
