"""Writers that send batches of records, articles and blocks to a running service.

Each reports problems by file and line.
"""

import asyncio
from collections.abc import Collection as Some
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from contexture.cli._client import RemoteService
from contexture.config import Settings
from contexture.errors import ContextError, NotFound
from contexture.ingestion.articles import ArticleIntake, SourcedArticle
from contexture.ingestion.articles import article_to_row as article_row
from contexture.ingestion.files import SourcedRecord
from contexture.ingestion.loader import OPTIMIZE_THRESHOLD, LoadReport, Progress, RecordIntake, write_records
from contexture.ingestion.records import record_to_row
from contexture.service.wire.ingest import block_object
from contexture.types import FieldType
from contexture.workspace import Activity, Block, ImportAccess, PutResult


def send_records(
    service: RemoteService,
    paths: Sequence[Path],
    *,
    settings: Settings,
    acl: tuple[str, ...],
    fields: Mapping[str, FieldType],
    again: bool,
    progress: Progress | None,
    skip: Some[str] = (),
) -> LoadReport:
    """Do the same as `load_records` through a running service."""
    common = {"collection": settings.collection, "fields": fields, "again": again, "importing": True}
    service.request("POST", "/v1/ingest/documents", {**common, "records": []})  # fails at once, not file by file
    writer = RecordSender(service, common)
    asyncio.run(write_records(writer, paths, acl=acl, progress=progress, skip=skip))
    if writer.report.added >= OPTIMIZE_THRESHOLD:
        service.request("POST", "/v1/ingest/documents", {**common, "records": [], "optimize": True})
    return writer.report


class RecordSender(RecordIntake):
    """Sends batches of records; problems from the service are reported with the record's file and line."""

    def __init__(self, service: RemoteService, common: Mapping[str, Any]) -> None:
        super().__init__()
        self._service = service
        self._common = common

    async def write(self, batch: Sequence[SourcedRecord]) -> None:
        """Send one batch; one that cannot be sent is reported, and loading continues."""
        rows = [record_to_row(each.record) for each in batch]
        try:
            found = self._service.request("POST", "/v1/ingest/documents", {**self._common, "records": rows})
        except ContextError as failure:
            self.report.failed.extend(each.problem(str(failure)) for each in batch)
            return
        self.report.added += found["added"]
        self.report.unchanged += found["unchanged"]
        for kept, said in ((self.report.failed, found["failed"]), (self.report.warnings, found["warnings"])):
            kept.extend(batch[int(each["line"]) - 1].problem(str(each["message"])) for each in said)


class ArticleSender(ArticleIntake):
    """Sends batches of articles, dated here; problems from the service are reported with the file and line."""

    def __init__(self, service: RemoteService) -> None:
        super().__init__()
        self._service = service

    async def write(self, batch: Sequence[SourcedArticle]) -> None:
        """Send one batch; one that cannot be sent is reported, and loading continues."""
        try:
            found = self._service.request(
                "POST", "/v1/ingest/articles", {"articles": [article_row(each.article) for each in batch]}
            )
        except ContextError as failure:
            self.report.failed.extend(each.problem(str(failure)) for each in batch)
            return
        self.report.added += found["added"]
        self.report.collapsed += found["collapsed"]
        self.report.unchanged += found["unchanged"]
        for said in found["failed"]:
            self.add_problem(batch[int(said["line"]) - 1].problem(str(said["message"])))


class BlockSender:
    """Writes blocks through a running service, with the identity of its client."""

    def __init__(self, service: RemoteService) -> None:
        self._service = service

    async def put(self, blocks: Sequence[Block], access: ImportAccess) -> PutResult:
        """Send a batch; all of it is written or none, and no stored block can be read by more people than before."""
        body = {
            "blocks": [block_object(block) for block in blocks],
            "importing": {"unchanged": sorted(access.unchanged)},
        }
        return msgspec.convert(self._service.request("POST", "/v1/ingest/blocks", body), PutResult)

    async def delete(self, ids: Sequence[str]) -> int:
        """Remove blocks and their descendants."""
        return int(self._service.request("DELETE", "/v1/ingest/blocks", {"ids": list(ids)})["deleted"])

    async def find_existing(self, names: Sequence[str]) -> set[str]:
        """Return the ids that the service has a block for; it cannot look up pages by name."""
        return {name for name in names if self._has_block(name)}

    async def record(self, activity: Sequence[Activity]) -> None:
        """Do nothing: views and edits of other users cannot be recorded over HTTP."""

    def _has_block(self, name: str) -> bool:
        try:
            self._service.request("GET", f"/v1/blocks/{quote(name, safe='')}")
        except NotFound:
            return False
        return True
