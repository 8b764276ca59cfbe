"""`POST` and `DELETE /v1/ingest/documents`: write and remove records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from contexture.errors import InvalidRequest
from contexture.ingestion.load import GROUP, batches
from contexture.ingestion.problems import Item, Problem, Sourced
from contexture.ingestion.rows import record_of
from contexture.ingestion.writer import Writer
from contexture.service.depends import Caller, Engine, answer, permit
from contexture.service.shapes import report_object
from contexture.types import PUBLIC, Collection, FieldType

PLACE = "records"
"""How the list of a request is called in problems; the line is the row's place in it, from 1."""

_MOST = 10_000

Principal = Annotated[str, Field(min_length=1)]


class IngestBody(BaseModel):
    """Records to write, each as a row of a JSONL file.

    `acl` is for records that name no readers; `fields` are payload fields that filters may use. `optimize` merges
    what was written in small pieces, which pays after a large load.
    """

    model_config = ConfigDict(extra="forbid")

    records: Annotated[list[dict[str, Any]], Field(max_length=_MOST)]
    collection: Annotated[str, Field(min_length=1)] | None = None
    acl: list[Principal] = [PUBLIC]
    fields: dict[str, FieldType] = {}
    again: bool = False
    optimize: bool = False


class DeleteBody(BaseModel):
    """Records to remove."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ids: Annotated[list[str], Field(max_length=_MOST)]
    collection: Annotated[str, Field(min_length=1)] | None = None


def router() -> APIRouter:
    """The routes of documents."""
    routes = APIRouter(prefix="/v1/ingest", tags=["ingest"])
    routes.post("/documents")(write)
    routes.delete("/documents")(remove)
    return routes


async def write(body: IngestBody, engine: Engine, caller: Caller) -> Response:
    """What became of each record: added, unchanged, a copy of another, or failed and why."""
    collection = body.collection or engine.settings.collection
    await permit(engine, caller, "ingest", {"collection": collection, "records": len(body.records)})
    await engine.create(Collection(name=collection, fields={**GROUP, **body.fields}))
    writer = Writer(engine, collection, caller, again=body.again)
    for batch in batches(writer.distinct(_items(body))):
        await writer.write(batch)
    if body.optimize:
        await engine.index.optimize()
    return answer(report_object(writer.report))


async def remove(body: DeleteBody, engine: Engine, caller: Caller) -> Response:
    """How many of these records there were that the caller may read; they are gone."""
    collection = body.collection or engine.settings.collection
    await permit(engine, caller, "delete", {"collection": collection, "records": len(body.ids)})
    return answer({"deleted": await engine.delete(body.ids, collection=collection, scope=caller)})


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
