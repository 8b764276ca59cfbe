"""`contexture ingest`: load files and folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contexture.cli.common import Collection, Common, command, with_engine
from contexture.cli.holding import Held, Holding, remember
from contexture.cli.output import emit, note, say
from contexture.cli.progress import watched
from contexture.cli.remote import remote
from contexture.errors import InvalidRequest

if TYPE_CHECKING:
    from contexture.ingestion.writer import LoadReport
    from contexture.types import FieldType

_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "ingest", acting=True)(ingest)


def ingest(
    common: Common,
    paths: Annotated[list[Path], typer.Argument(metavar="PATH", help="JSONL, Markdown and text files, or folders.")],
    collection: Collection = None,
    acl: Annotated[
        list[str] | None,
        typer.Option(
            "--acl", metavar="PRINCIPAL", help="Who may read, such as user:anna; else public, or for memories you."
        ),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="NAME=TYPE", help="A field filters may use: keyword, number, time or flag."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Write records that have not changed too.")] = False,
    held: Held = Holding.DOCUMENTS,
) -> None:
    """Load JSONL, Markdown and text files.

    What is stored already and has not changed is left alone; what cannot be read is reported, and the rest is loaded.
    """
    from contexture.ingestion.load import GROUP, load

    fields = {**GROUP, **dict(_field(each) for each in field or ())}
    if not any(path.exists() for path in paths):
        raise InvalidRequest(f"there is no file or folder {str(paths[0])!r}")
    settings = common.settings(collection=collection)
    readers = tuple(acl) if acl else ("public",)
    door = remote(settings)
    with watched(as_json=common.as_json) as progress:
        if held is Holding.MEMORIES:
            report = remember(settings, paths, readers=tuple(acl or ()), door=door, progress=progress)
        elif door is not None:
            from contexture.cli.sending import send

            report = send(door, paths, settings=settings, acl=readers, fields=fields, again=again, progress=progress)
        else:
            report = with_engine(
                settings,
                lambda engine: load(
                    engine,
                    paths,
                    collection=settings.collection,
                    acl=readers,
                    fields=fields,
                    again=again,
                    progress=progress,
                ),
            )
    _answer(common, report)
    if report.failed and not report.added and not report.unchanged:
        raise typer.Exit(2)


def _answer(common: Common, report: LoadReport) -> None:
    if common.as_json:
        from contexture.service.shapes import report_object

        emit(report_object(report))
        return
    for kind, problems in (("warning", report.warnings), ("error", report.failed)):
        for problem in problems[:_SHOWN]:
            note(f"{kind}: {problem}")
        if len(problems) > _SHOWN:
            note(f"{kind}: and {len(problems) - _SHOWN} more; --json lists them all")
    say(
        f"{report.read} read, {report.added} added, {report.unchanged} unchanged, "
        f"{report.duplicates} duplicates, {len(report.failed)} failed"
    )


def _field(text: str) -> tuple[str, FieldType]:
    from contexture.types import FieldType

    name, _, kind = text.partition("=")
    if not name or kind not in list(FieldType):
        raise InvalidRequest(f"--field is {text!r}; write NAME=TYPE, where TYPE is one of {', '.join(FieldType)}")
    return name, FieldType(kind)
