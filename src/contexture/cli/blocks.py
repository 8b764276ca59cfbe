"""Notes of other programs as blocks of the workspace, written here or sent to the service that holds the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from contexture.cli.common import Common, with_engine
from contexture.cli.output import emit, note, say
from contexture.cli.progress import watched
from contexture.cli.remote import remote

if TYPE_CHECKING:
    from contexture.config import Settings
    from contexture.engine import Contexture
    from contexture.ingestion.blocks.load import BlockWriter, ImportReport
    from contexture.ingestion.load import Progress

_SHOWN = 20


def take_blocks(
    common: Common, paths: Sequence[Path], *, readers: tuple[str, ...] | None, source: str | None, again: bool
) -> None:
    """Import each path as a source of its own, and say what became of it."""
    settings = common.settings()
    with watched(as_json=common.as_json) as progress:
        reports = _imported(settings, paths, readers=readers, source=source or "", again=again, progress=progress)
    if common.as_json:
        emit(report_object(reports[0]) if len(reports) == 1 else {"sources": [report_object(each) for each in reports]})
    else:
        for report in reports:
            _print(report)
    if all(report.failed and not report.pages for report in reports):
        raise typer.Exit(2)


def report_object(report: ImportReport) -> dict[str, Any]:
    """The report of an import as JSON."""
    counts = {name: value for name in report.__dataclass_fields__ if isinstance(value := getattr(report, name), int)}
    return {
        **counts,
        "unresolved": [{"path": each.path, "line": each.line, "name": each.name} for each in report.unresolved],
        **{
            name: [{"path": each.path, "line": each.line, "message": each.message} for each in problems]
            for name, problems in (("failed", report.failed), ("warnings", report.warnings))
        },
    }


def _imported(
    settings: Settings,
    paths: Sequence[Path],
    *,
    readers: tuple[str, ...] | None,
    source: str,
    again: bool,
    progress: Progress | None,
) -> list[ImportReport]:
    from contexture import wiring
    from contexture.ingestion.blocks.detect import Source
    from contexture.ingestion.blocks.memory import ImportMemory
    from contexture.ingestion.blocks.run import FOLDER, WorkspaceWriter, run_import

    now = wiring.SystemClock().now()
    memory = ImportMemory(settings.home / FOLDER)

    async def run(writer: BlockWriter) -> list[ImportReport]:
        return [
            await run_import(
                writer,
                Source(path=path, now=now, readers=readers),
                tenant=settings.tenant,
                memory=memory,
                name=source,
                again=again,
                progress=progress,
            )
            for path in paths
        ]

    async def inside(engine: Contexture) -> list[ImportReport]:
        return await run(WorkspaceWriter(workspace=engine.workspace, blocks=engine.blocks, scope=engine.scope, now=now))

    door = remote(settings)
    if door is None:
        return with_engine(settings, inside)
    from contexture.cli.sending import BlockSender

    return asyncio.run(run(BlockSender(door)))


def _print(report: ImportReport) -> None:
    for kind, found in (("warning", report.warnings), ("error", report.failed), ("unresolved", report.unresolved)):
        for each in found[:_SHOWN]:
            note(f"{kind}: {each}")
        if len(found) > _SHOWN:
            note(f"{kind}: and {len(found) - _SHOWN} more; --json lists them all")
    say(f"{report.pages} pages, {report.blocks} blocks; {report.bullets} list items in the source")
    say(
        f"{report.added} added, {report.changed} changed, {report.unchanged} unchanged, {report.deleted} deleted, "
        f"{len(report.failed)} failed"
    )
    say(
        f"{report.links} links and {report.references} block references: {report.resolved} resolved, "
        f"{len(report.unresolved)} unresolved, {report.quoted} in code"
    )
