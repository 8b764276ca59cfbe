"""Loads files into a store that a running service holds: read here, written there."""

from __future__ import annotations

import asyncio
from collections.abc import Collection as Some
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from contexture.cli.remote import Door
from contexture.config import Settings
from contexture.errors import ContextError, NotFound
from contexture.ingestion.article_files import Told
from contexture.ingestion.article_rows import row_of as article_row
from contexture.ingestion.articles import ArticleIntake
from contexture.ingestion.load import MUCH, Progress, fill
from contexture.ingestion.problems import Sourced
from contexture.ingestion.rows import row_of
from contexture.ingestion.writer import Intake, LoadReport
from contexture.service.wire.blocks import block_row
from contexture.types import FieldType
from contexture.workspace import Activity, Block, Put


def send(
    door: Door,
    paths: Sequence[Path],
    *,
    settings: Settings,
    acl: tuple[str, ...],
    fields: Mapping[str, FieldType],
    again: bool,
    progress: Progress | None,
    skip: Some[str] = (),
) -> LoadReport:
    """What `load` reports, for a store behind a door."""
    common = {"collection": settings.collection, "fields": fields, "again": again}
    door.ask("POST", "/v1/ingest/documents", {**common, "records": []})  # refused at once, not file by file
    writer = Sender(door, common)
    asyncio.run(fill(writer, paths, acl=acl, progress=progress, skip=skip))
    if writer.report.added >= MUCH:
        door.ask("POST", "/v1/ingest/documents", {**common, "records": [], "optimize": True})
    return writer.report


class Sender(Intake):
    """Sends batches; what the service says about a record is reported at the record's place in its file."""

    def __init__(self, door: Door, common: Mapping[str, Any]) -> None:
        super().__init__()
        self._door = door
        self._common = common

    async def write(self, batch: Sequence[Sourced]) -> None:
        """Send one batch; one that cannot be sent is reported, and the rest goes on."""
        rows = [row_of(each.record) for each in batch]
        try:
            found = self._door.ask("POST", "/v1/ingest/documents", {**self._common, "records": rows})
        except ContextError as failure:
            self.report.failed.extend(each.problem(str(failure)) for each in batch)
            return
        self.report.added += found["added"]
        self.report.unchanged += found["unchanged"]
        for kept, said in ((self.report.failed, found["failed"]), (self.report.warnings, found["warnings"])):
            kept.extend(batch[int(each["line"]) - 1].problem(str(each["message"])) for each in said)


class ArticleSender(ArticleIntake):
    """Sends articles in batches, dated here; what the service says about one is reported at its place."""

    def __init__(self, door: Door) -> None:
        super().__init__()
        self._door = door

    async def write(self, batch: Sequence[Told]) -> None:
        """Send one batch; one that cannot be sent is reported, and the rest goes on."""
        try:
            found = self._door.ask(
                "POST", "/v1/ingest/articles", {"articles": [article_row(each.article) for each in batch]}
            )
        except ContextError as failure:
            self.report.failed.extend(each.problem(str(failure)) for each in batch)
            return
        self.report.added += found["added"]
        self.report.collapsed += found["collapsed"]
        self.report.unchanged += found["unchanged"]
        for said in found["failed"]:
            self.note(batch[int(said["line"]) - 1].problem(str(said["message"])))


class BlockSender:
    """Writes blocks through a running service; the door says who asks."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def put(self, blocks: Sequence[Block]) -> Put:
        """Send a batch; all of it is written or none."""
        found = self._door.ask("POST", "/v1/ingest/blocks", {"blocks": [block_row(block) for block in blocks]})
        return Put(added=found["added"], changed=found["changed"], unchanged=found["unchanged"])

    async def delete(self, ids: Sequence[str]) -> int:
        """Remove blocks with what stands below them."""
        return int(self._door.ask("DELETE", "/v1/ingest/blocks", {"ids": list(ids)})["deleted"])

    async def known(self, names: Sequence[str]) -> set[str]:
        """Those that the service has a block for, by id; it does not tell pages by their names."""
        return {name for name in names if self._has(name)}

    async def record(self, activity: Sequence[Activity]) -> None:
        """Views and edits of others cannot be told over HTTP; they stay behind."""

    def _has(self, name: str) -> bool:
        try:
            self._door.ask("GET", f"/v1/blocks/{quote(name, safe='')}")
        except NotFound:
            return False
        return True
