"""`POST` and `DELETE /v1/ingest/documents` and `/v1/ingest/articles`: write and remove records, files and articles."""

import asyncio
import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response
from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, StrictBool, Tag

from contexture import wiring
from contexture.blocks.records import BLOCKS
from contexture.engine import Contexture
from contexture.errors import InvalidRequest, StoreUnwritable
from contexture.ingestion.articles import ARTICLE_FIELDS, ArticleItems, ArticleWriter, SourcedArticle, row_to_article
from contexture.ingestion.blocks.bulk import BulkWriter
from contexture.ingestion.documents import LoadOptions, Upload, load_uploads, merge_reports
from contexture.ingestion.files import LoadItem, LoadProblem, SourcedRecord
from contexture.ingestion.loader import DEFAULT_FIELDS, LoadReport, RecordWriter, batch_records
from contexture.ingestion.records import RecordRow, row_to_record
from contexture.memory.records import MEMORIES
from contexture.news.articles import ARTICLES
from contexture.pages.records import PAGES
from contexture.pages.visual import VISUAL_PAGES
from contexture.retrieval.backfill import MAX_BATCH, ReindexStepJson
from contexture.retrieval.compute_thread import iterate_in_thread
from contexture.retrieval.prepare import check_readers
from contexture.service._dependencies import CallerDep, EngineDep, JobsDep, NowDep, json_response, require_permission
from contexture.service._error_responses import BODY_KINDS
from contexture.service._jobs import IngestJob
from contexture.service._openapi import AnySpelling, PrincipalField, describe_row
from contexture.service.wire import schemas
from contexture.service.wire.builds import IngestJobJson, LoadReportJson, load_report_object
from contexture.service.wire.ingest import ArticlesBody, BlocksBody, RemoveArticlesBody, articles_report_object
from contexture.types import PUBLIC, Collection, FieldType, Scope

RECORDS_FIELD = "records"
"""Name of the request's list in problems; `line` is the position of the row in it, from 1."""

_MAX_RECORDS = 10_000
_MAX_FILES = 100
_BATCH_RECORDS = 128  # records written at once: so soon is it the turn of another tenant

_BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_NAME: dict[str, JsonValue] = {"pattern": "^[A-Za-z_][A-Za-z0-9_.-]{0,63}$"}


class FileBody(BaseModel):
    """A file as base64; `source_path` is its origin, for display."""

    model_config = ConfigDict(extra="forbid")

    filename: Annotated[str, Field(min_length=1, max_length=255)]
    content: Annotated[str, Field(json_schema_extra={"contentEncoding": "base64", "pattern": _BASE64})]
    source_path: Annotated[str, Field(max_length=4_096)] = ""


class IngestDocumentsBody(BaseModel):
    """Records to write, each as a row of a JSONL file, and files to read into pages.

    `acl` applies to files, and to records without readers; `fields` are payload fields that filters may use.
    `optimize` merges small index segments, which is worthwhile after a large load.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "records": [{"id": "pump", "text": "The pump leaks.", "source": "wiki", "floor": 2}],
                    "fields": {"floor": "number"},
                }
            ]
        },
    )

    records: Annotated[
        list[Annotated[dict[str, Any], describe_row(RecordRow, further=True)]],
        Field(max_length=_MAX_RECORDS, description="The records; one that is wrong is reported."),
    ] = []
    files: Annotated[list[FileBody], Field(max_length=_MAX_FILES)] = []
    collection: Annotated[str, Field(min_length=1, json_schema_extra=_NAME)] | None = None
    acl: list[PrincipalField] = [PUBLIC]
    fields: Annotated[dict[str, FieldType], Field(json_schema_extra={"propertyNames": _NAME})] = {}
    again: StrictBool = False
    optimize: StrictBool = False
    importing: Annotated[
        StrictBool, Field(description="Set by importers: no stored record can be read by more people afterwards.")
    ] = False


class DeleteDocumentsBody(BaseModel):
    """Records to remove, and documents with all their pages."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"ids": ["pump"]}]})

    ids: Annotated[list[str], Field(max_length=_MAX_RECORDS)] = []
    doc_ids: Annotated[list[str], Field(max_length=_MAX_RECORDS)] = []
    collection: Annotated[str, Field(min_length=1)] | None = None


class ReindexBody(BaseModel):
    """Where to continue: the `collection` and `after` of the last step; empty for the first one."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"limit": 64}]})

    collection: str = ""
    after: str = ""
    limit: Annotated[int, Field(ge=1, le=MAX_BATCH), AnySpelling] = MAX_BATCH


def documents_routes() -> APIRouter:
    """Return the routes of documents."""
    routes = APIRouter(prefix="/v1/ingest", tags=["ingest"])
    routes.post("/documents", responses=schemas.json_answer(LoadReportJson))(write_documents)
    routes.delete("/documents", responses=schemas.json_answer(schemas.DeletedResponse))(remove_documents)
    accepted = schemas.json_answer(IngestJobJson, 202)
    routes.post("/jobs", status_code=202, responses=accepted)(start_ingest_job)
    routes.get("/jobs/{job_id}", responses=schemas.json_answer(IngestJobJson))(read_ingest_job)
    routes.delete("/jobs/{job_id}", responses=schemas.json_answer(IngestJobJson))(cancel_ingest_job)
    routes.post("/reindex", responses=schemas.json_answer(ReindexStepJson))(reindex_records)
    return routes


async def write_documents(body: IngestDocumentsBody, engine: EngineDep, caller: CallerDep, moment: NowDep) -> Response:
    """Load records and files, and report what was added, unchanged, a duplicate or failed, with the reason."""
    check_readers("`acl`", body.acl, engine.settings.max_readers)
    await _require_permissions(body, engine, caller)
    return json_response(load_report_object(await _load(body, engine, caller, moment or engine.clock.now())))


def _name_job_body(given: object) -> str:
    """Tell the bodies of a job apart by the field that only one of them has."""
    return BODY_KINDS[isinstance(given, BlocksBody) or (isinstance(given, dict) and "blocks" in given)]


JobBody = Annotated[
    Annotated[IngestDocumentsBody, Tag(BODY_KINDS[0])] | Annotated[BlocksBody, Tag(BODY_KINDS[1])],
    Discriminator(_name_job_body),
    Body(examples=IngestDocumentsBody.model_json_schema()["examples"] + BlocksBody.model_json_schema()["examples"]),
]
"""Records and files, or blocks: what the routes take that write them at once."""


async def start_ingest_job(
    body: JobBody, request: Request, engine: EngineDep, caller: CallerDep, moment: NowDep, jobs: JobsDep
) -> Response:
    """Load records and files, or blocks, after this answer, which says where to read the state of the job.

    The jobs of a tenant run one after the other, and tenants take turns. A job is forgotten when the service restarts:
    what it had written stays, and sending the request again loads the rest. Blocks are written in small pieces, parents
    first; one that is refused is reported, as are those below it, and the others are written.
    """
    is_blocks = isinstance(body, BlocksBody)
    now = moment or engine.clock.now()
    await (_admit_blocks(body, engine, caller) if is_blocks else _admit_documents(body, engine, caller))
    job = jobs.submit(
        caller,
        BLOCKS.name if is_blocks else body.collection or engine.settings.collection,
        len(body.blocks) if is_blocks else len(body.records) + len(body.files),
        lambda follow: (
            _write_blocks(body, engine, caller, now, follow)
            if isinstance(body, BlocksBody)
            else _load(body, engine, caller, now, follow)
        ),
        size=len(await request.body()),
    )
    answer = json_response(await _describe_job(job, engine), status=202)
    answer.headers["Location"] = f"/v1/ingest/jobs/{job.job_id}"
    return answer


async def _admit_documents(body: IngestDocumentsBody, engine: Contexture, caller: Scope) -> None:
    """Raise what the direct route would, before a job is accepted."""
    check_readers("`acl`", body.acl, engine.settings.max_readers)
    await _require_permissions(body, engine, caller)
    _require_disk_space(engine)
    if body.records or not body.files:
        await _create_collection(body, engine, caller)
    await asyncio.to_thread(_check_uploads, body.files)


async def _admit_blocks(body: BlocksBody, engine: Contexture, caller: Scope) -> None:
    await require_permission(engine, caller, "ingest", {"collection": BLOCKS.name, "records": len(body.blocks)})
    _require_disk_space(engine)


def _require_disk_space(engine: Contexture) -> None:
    if problem := wiring.disk_space_problem(engine.settings):
        raise StoreUnwritable(f"{problem}: no job was started; free some space first")


async def _write_blocks(
    body: BlocksBody, engine: Contexture, caller: Scope, now: datetime, follow: Callable[[LoadReport], None]
) -> LoadReport:
    blocks = await asyncio.to_thread(lambda: [each.to_block() for each in body.blocks])
    importing = body.importing.to_access() if body.importing is not None else None
    writer = BulkWriter(engine.workspace, caller, now=now, importing=importing)
    follow(writer.report)
    return await writer.write_all(blocks)


async def read_ingest_job(job_id: str, engine: EngineDep, caller: CallerDep, jobs: JobsDep) -> Response:
    """Return the state of one of the caller's jobs, and what it has loaded so far."""
    return json_response(await _describe_job(jobs.find(caller, job_id), engine))


async def cancel_ingest_job(job_id: str, engine: EngineDep, caller: CallerDep, jobs: JobsDep) -> Response:
    """End one of the caller's jobs; what it has written stays."""
    return json_response(await _describe_job(await jobs.cancel(caller, job_id), engine))


async def _describe_job(job: IngestJob, engine: Contexture) -> IngestJobJson:
    names = (job.collection, PAGES.name)
    return job.describe(sum([await engine.count_unembedded(name, scope=job.scope) for name in names]))


async def _load(
    body: IngestDocumentsBody,
    engine: Contexture,
    caller: Scope,
    now: datetime,
    follow: Callable[[LoadReport], None] = lambda _: None,
) -> LoadReport:
    if not body.files:
        return await _write_records(body, engine, caller, follow)
    loading = LoadOptions(scope=caller, now=now, readers=tuple(body.acl), again=body.again)
    uploads = await asyncio.to_thread(lambda: [_decode_upload(at, each) for at, each in enumerate(body.files)])
    async with wiring.reading_workers() as workers:
        paged = await load_uploads(engine.pages, workers, uploads, loading)
    follow(paged)
    records = await _write_records(body, engine, caller, lambda _: None) if body.records else LoadReport()
    return merge_reports(paged, records)


async def reindex_records(body: ReindexBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Compute vectors and terms of the next records that the caller may read again, and return where to continue."""
    await require_permission(engine, caller, "ingest", {"collection": body.collection, "records": body.limit})
    step = await engine.reindexer.step(caller, collection=body.collection, after=body.after, limit=body.limit)
    return json_response(step.json_form())


async def remove_documents(body: DeleteDocumentsBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Delete records and documents that the caller may read; return how many, and what was removed where."""
    collection = body.collection or engine.settings.collection
    if body.ids or not body.doc_ids:
        check_not_owned(collection)
    await require_permission(engine, caller, "delete", {"collection": collection, "records": len(body.ids)})
    if not body.doc_ids:
        receipt = await engine.delete(body.ids, collection=collection, scope=caller)
        return json_response(schemas.describe_deletion(receipt, collection))
    await require_permission(engine, caller, "delete", {"collection": PAGES.name, "records": len(body.doc_ids)})
    both = await engine.pages.remove(caller, body.doc_ids)
    documents = both.count_of(PAGES.name)
    if body.ids:
        both = (await engine.delete(body.ids, collection=collection, scope=caller)).merge(both)
    return json_response({**schemas.describe_deletion(both, collection), "documents": documents})


async def _require_permissions(body: IngestDocumentsBody, engine: Contexture, caller: Scope) -> None:
    """Check the policy for files and records before any of them is written."""
    if body.files:
        await require_permission(engine, caller, "ingest", {"collection": PAGES.name, "records": len(body.files)})
    if body.records or not body.files:
        collection = body.collection or engine.settings.collection
        check_not_owned(collection)
        await require_permission(engine, caller, "ingest", {"collection": collection, "records": len(body.records)})


async def _create_collection(body: IngestDocumentsBody, engine: Contexture, caller: Scope) -> str:
    """The name of the collection for the records, which exists afterwards and has the fields."""
    collection = body.collection or engine.settings.collection
    await engine.create(Collection(name=collection, fields={**DEFAULT_FIELDS, **body.fields}), scope=caller)
    return collection


async def _write_records(
    body: IngestDocumentsBody, engine: Contexture, caller: Scope, follow: Callable[[LoadReport], None]
) -> LoadReport:
    collection = await _create_collection(body, engine, caller)
    writer = RecordWriter(engine, collection, caller, again=body.again, importing=body.importing)
    follow(writer.report)
    async for batch in iterate_in_thread(
        batch_records(writer.drop_duplicates(_record_items(body)), size=_BATCH_RECORDS)
    ):
        await writer.write(batch)
    if body.optimize:
        await engine.index.optimize()
    return writer.report


def _check_uploads(files: Sequence[FileBody]) -> None:
    """Raise `InvalidRequest` for a file that is not base64, before a job is accepted; holds one decoded at a time."""
    for at, each in enumerate(files):
        _decode_upload(at, each)


def _decode_upload(at: int, body: FileBody) -> Upload:
    try:
        content = base64.b64decode(body.content, validate=True)
    except ValueError as failure:
        raise InvalidRequest(f"files[{at}].content is not base64: {failure}") from failure
    return Upload(filename=body.filename, content=content, source_path=body.source_path)


def _record_items(body: IngestDocumentsBody) -> Iterator[LoadItem]:
    for number, row in enumerate(body.records, start=1):
        try:
            record, warnings = row_to_record(row, acl=tuple(body.acl))
        except InvalidRequest as failure:
            yield LoadProblem(path=RECORDS_FIELD, line=number, message=str(failure))
            continue
        found = SourcedRecord(record=record, path=RECORDS_FIELD, line=number)
        yield from (found.problem(message, warning=True) for message in warnings)
        yield found


ARTICLES_FIELD = "articles"
"""Name of the request's list in problems; `line` is the position of the row in it, from 1."""


def articles_routes() -> APIRouter:
    """Return the routes of articles."""
    routes = APIRouter(prefix="/v1/ingest", tags=["ingest"])
    routes.post("/articles", responses=schemas.json_answer(LoadReportJson))(write_articles)
    routes.delete("/articles", responses=schemas.json_answer(schemas.DeletedResponse))(remove_articles)
    return routes


async def write_articles(body: ArticlesBody, engine: EngineDep, caller: CallerDep, moment: NowDep) -> Response:
    """Load articles, and report what was added, unchanged, a duplicate or failed, with the reason."""
    check_readers("`readers`", body.readers, engine.settings.max_readers)
    await require_permission(engine, caller, "ingest", {"collection": ARTICLES_FIELD, "records": len(body.articles)})
    now = moment or engine.clock.now()
    writer = ArticleWriter(engine.news, caller, now)
    await writer.write_all(_article_items(body, caller, now))
    return json_response(articles_report_object(writer.report))


async def remove_articles(body: RemoveArticlesBody, engine: EngineDep, caller: CallerDep) -> Response:
    """Delete articles that the caller may read; return how many, and what was removed where."""
    await require_permission(engine, caller, "delete", {"collection": ARTICLES_FIELD, "records": len(body.ids)})
    return json_response(schemas.describe_deletion(await engine.news.remove(caller, body.ids), ARTICLES_FIELD))


def _article_items(body: ArticlesBody, caller: Scope, now: datetime) -> ArticleItems:
    for number, row in enumerate(body.articles, start=1):
        try:
            _check_article_fields(row)
            article, warnings = row_to_article(row, readers=tuple(body.readers), now=now, writer=caller)
        except InvalidRequest as failure:
            yield LoadProblem(path=ARTICLES_FIELD, line=number, message=str(failure))
            continue
        found = SourcedArticle(article=article, path=ARTICLES_FIELD, line=number)
        yield from (found.problem(message, warning=True) for message in warnings)
        yield found


def _check_article_fields(row: dict[str, Any]) -> None:
    strange = next((name for name in row if name not in ARTICLE_FIELDS), None)
    if strange is not None:
        raise InvalidRequest(f"there is no field {strange!r}; the fields are {', '.join(sorted(ARTICLE_FIELDS))}")


_DOCUMENTS_ROUTE = "/v1/ingest/documents with 'files' or 'doc_ids'"

OWNED_COLLECTIONS: Mapping[str, str] = {
    MEMORIES.name: "/v1/ingest/memories",
    ARTICLES.name: "/v1/ingest/articles",
    BLOCKS.name: "/v1/ingest/blocks",
    PAGES.name: _DOCUMENTS_ROUTE,
    VISUAL_PAGES.name: _DOCUMENTS_ROUTE,
}
"""The route to use instead, for each collection with an owner."""


def check_not_owned(collection: str) -> None:
    """Raise `InvalidRequest` for a collection whose records are trusted because only its own route writes them."""
    if collection in OWNED_COLLECTIONS:
        raise InvalidRequest(f"records of {collection!r} have their own route; use {OWNED_COLLECTIONS[collection]}")
