"""Imports notes of other programs as blocks of the workspace, in this process or through the service."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contexture.cli._client import find_service
from contexture.cli._common import Common, run_with_engine
from contexture.cli._output import print_json, print_line, print_note, show_progress

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.engine import Contexture
    from contexture.ingestion.blocks.attachments import AttachmentImport
    from contexture.ingestion.blocks.import_source import Importer, ImportSource
    from contexture.ingestion.blocks.importer import BlockWriter, ImportReport
    from contexture.ingestion.blocks.tables import TableColumns
    from contexture.ingestion.loader import Progress

_MAX_PROBLEMS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockOptions:
    """How to import blocks."""

    readers: tuple[str, ...] | None = None
    readers_map: Path | None = None
    source: str = ""
    columns: TableColumns | None = None
    again: bool = False
    allow_empty: bool = False


def make_columns(named: Mapping[str, str | None]) -> TableColumns | None:
    """Return the columns of CSV tables that options name by their role; None if there are none."""
    from contexture.ingestion.blocks.tables import TableColumns

    def get(role: str) -> str:
        return named.get(role) or ""

    if not any(named.values()):
        return None
    return TableColumns(title=get("title"), status=get("status"), due=get("due"), assignee=get("assignee"))


def ingest_blocks(common: Common, paths: Sequence[Path], options: BlockOptions) -> bool:
    """Import each path as a source of its own, and print the report; returns whether a page could be read."""
    settings = common.settings()
    with show_progress(as_json=common.as_json) as progress:
        reports = _import_paths(settings, paths, options, progress)
    if common.as_json:
        print_json(
            import_report_object(reports[0])
            if len(reports) == 1
            else {"sources": [import_report_object(each) for each in reports]}
        )
    else:
        for report in reports:
            _print_report(report)
    return not all(report.failed and not report.pages for report in reports)


def preview_blocks(
    common: Common,
    paths: Sequence[Path],
    *,
    readers: tuple[str, ...] | None,
    readers_map: Path | None,
    columns: TableColumns | None,
) -> None:
    """Print the pages and databases that an import would write, and who may read them."""
    from contexture import wiring
    from contexture.ingestion.blocks.preview import preview_source

    options = BlockOptions(readers=readers, readers_map=readers_map, columns=columns)
    now, importers = wiring.SystemClock().now(), wiring.load_importers()
    found = [preview_source(_make_source(path, options, now, importers)) for path in paths]
    if common.as_json:
        print_json({"documents": [each.to_json() for preview in found for each in preview.documents]})
    else:
        for preview in found:
            for problem in preview.problems[:_MAX_PROBLEMS]:
                print_note(f"{'warning' if problem.warning else 'error'}: {problem}")
            for line in preview.list_lines():
                print_line(line)
        print_line("nothing was written")


def import_report_object(report: ImportReport) -> dict[str, Any]:
    """Return the report of an import as a JSON object."""
    counts = {name: value for name in report.__dataclass_fields__ if isinstance(value := getattr(report, name), int)}
    return {
        **counts,
        "unresolved": [{"path": each.path, "line": each.line, "name": each.name} for each in report.unresolved],
        **{
            name: [{"path": each.path, "line": each.line, "message": each.message} for each in problems]
            for name, problems in (("failed", report.failed), ("warnings", report.warnings))
        },
    }


def _make_source(path: Path, options: BlockOptions, now: datetime, importers: Sequence[Importer]) -> ImportSource:
    from contexture.ingestion.blocks.import_source import ImportSource
    from contexture.ingestion.blocks.readers_map import read_readers_map

    return ImportSource(
        path=path,
        now=now,
        readers=options.readers,
        readers_map=read_readers_map(options.readers_map) if options.readers_map else None,
        columns=options.columns,
        importers=importers,
    )


def _import_paths(
    settings: Settings, paths: Sequence[Path], options: BlockOptions, progress: Progress | None
) -> list[ImportReport]:
    from contexture import wiring
    from contexture.ingestion.blocks.history import ImportHistory
    from contexture.ingestion.blocks.importer import IMPORTS_FOLDER, WorkspaceWriter, run_import

    now = wiring.SystemClock().now()
    memory = ImportHistory(settings.home / IMPORTS_FOLDER)
    importers = wiring.load_importers()

    async def run(writer: BlockWriter, attachments: AttachmentImport | None = None) -> list[ImportReport]:
        return [
            await run_import(
                writer,
                _make_source(path, options, now, importers),
                tenant=settings.tenant,
                memory=memory,
                name=options.source,
                again=options.again,
                allow_empty=options.allow_empty,
                attachments=attachments,
                progress=progress,
            )
            for path in paths
        ]

    async def inside(engine: Contexture) -> list[ImportReport]:
        from contexture.file_loading import AttachedFiles, FileLoader
        from contexture.ingestion.blocks.attachments import AttachmentImport

        writer = WorkspaceWriter(workspace=engine.workspace, blocks=engine.blocks, scope=engine.scope, now=now)
        loader = AttachedFiles(loader=FileLoader(engine=engine, scope=engine.scope, progress=progress))
        return await run(writer, AttachmentImport(writer=writer, loader=loader, suffixes=wiring.DEFAULT_PAGE_FILES))

    service = find_service(settings)
    if service is None:
        resource = {"collection": "blocks", "records": len(paths)}
        return run_with_engine(settings, inside, action="ingest", resource=resource)
    from contexture.cli._remote_writers import BlockSender

    return asyncio.run(run(BlockSender(service)))


def _print_report(report: ImportReport) -> None:
    for kind, found in (("warning", report.warnings), ("error", report.failed), ("unresolved", report.unresolved)):
        for each in found[:_MAX_PROBLEMS]:
            print_note(f"{kind}: {each}")
        if len(found) > _MAX_PROBLEMS:
            print_note(f"{kind}: and {len(found) - _MAX_PROBLEMS} more; --json lists them all")
    print_line(f"{report.pages} pages, {report.blocks} blocks; {report.bullets} list items in the source")
    print_line(
        f"{report.added} added, {report.changed} changed, {report.unchanged} unchanged, {report.deleted} deleted, "
        f"{len(report.failed)} failed"
    )
    if report.attachments:
        print_line(f"{report.attachments} linked files are documents")
    print_line(
        f"{report.links} links and {report.references} block references: {report.resolved} resolved, "
        f"{len(report.unresolved)} unresolved, {report.quoted} in code"
    )
