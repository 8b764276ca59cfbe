"""Files as documents of pages, read and written here or sent to the service that holds the store."""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contexture.errors import ContextError

if TYPE_CHECKING:
    from contexture.cli.remote import Door
    from contexture.engine import Contexture
    from contexture.ingestion.documents import DocumentsReport
    from contexture.ingestion.load import Progress
    from contexture.ingestion.walk import Leaf


def page_endings(*, everything: bool) -> Collection[str]:
    """Endings of the files that are loaded as pages: all that can be, or those that are nothing else."""
    from contexture.wiring.documents import PAGE_FILES, PAGED_FILES

    return PAGE_FILES if everything else PAGED_FILES


async def load_pages(
    engine: Contexture,
    leaves: Sequence[Leaf],
    *,
    readers: tuple[str, ...],
    again: bool,
    progress: Progress | None,
) -> DocumentsReport:
    """Read files in processes of their own, and write their pages."""
    from contexture.ingestion.documents import Loading, load_documents
    from contexture.ingestion.load import MUCH
    from contexture.wiring.documents import reading_workers

    loading = Loading(scope=engine.scope, now=engine.clock.now(), readers=readers, again=again)
    async with reading_workers() as workers:
        report = await load_documents(engine.pages, workers, leaves, loading, progress=progress)
    if report.pages >= MUCH:
        await engine.index.optimize()
    return report


def send_pages(
    door: Door, leaves: Sequence[Leaf], *, readers: tuple[str, ...], again: bool, progress: Progress | None
) -> DocumentsReport:
    """What `load_pages` reports, for a store behind a door."""
    from contexture.ingestion.documents import DocumentsReport
    from contexture.ingestion.problems import Problem

    report = DocumentsReport()
    for at, leaf in enumerate(leaves, start=1):
        report.read += 1
        try:
            body = {"files": [_upload(leaf)], "acl": list(readers), "again": again}
            _enter(report, leaf, door.ask("POST", "/v1/ingest/documents", body))
        except (ContextError, OSError) as failure:
            report.failed.append(Problem(path=leaf.name, message=str(failure)))
        if progress is not None:
            progress("sending files", at, len(leaves))
    return report


def _upload(leaf: Leaf) -> dict[str, str]:
    content = base64.b64encode(Path(leaf.path).read_bytes()).decode()
    return {"filename": leaf.path.name, "source_path": leaf.name, "content": content}


def _enter(report: DocumentsReport, leaf: Leaf, said: dict[str, Any]) -> None:
    from contexture.ingestion.documents import LoadedFile
    from contexture.ingestion.problems import Problem

    report.added += said["added"]
    report.unchanged += said["unchanged"]
    report.duplicates += said["duplicates"]
    report.pages += said["pages"]
    report.files += [replace(LoadedFile(**each), path=leaf.name) for each in said["files"]]
    for kept, problems in ((report.failed, said["failed"]), (report.warnings, said["warnings"])):
        kept.extend(Problem(path=leaf.name, message=str(each["message"])) for each in problems)
