"""`contexture ingest`: load files and folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contexture.cli.articles import Held, Loaded, is_url, publish
from contexture.cli.common import Collection, Common, command, with_engine
from contexture.cli.holding import remember
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
    places: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="JSONL, Markdown and text files, or folders; for articles feeds or URLs."),
    ],
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
    held: Held = Loaded.DOCUMENTS,
) -> None:
    """Load JSONL, Markdown and text files, and feeds.

    What is stored already and has not changed is left alone; what cannot be read is reported, and the rest is loaded.
    """
    from contexture.ingestion.load import GROUP, load

    fields = {**GROUP, **dict(_field(each) for each in field or ())}
    paths = [Path(place) for place in places if not is_url(place)]
    if len(paths) == len(places) and not any(path.exists() for path in paths):
        raise InvalidRequest(f"there is no file or folder {places[0]!r}")
    if len(paths) < len(places) and held is not Loaded.ARTICLES:
        raise InvalidRequest("only feeds are fetched from addresses; add --as articles")
    settings = common.settings(collection=collection)
    readers = tuple(acl) if acl else ("public",)
    door = remote(settings)
    with watched(as_json=common.as_json) as progress:
        if held is Loaded.ARTICLES:
            report = publish(settings, places, readers=readers, door=door, again=again, progress=progress)
        elif held is Loaded.MEMORIES:
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
    _answer(common, report, held)
    if report.failed and not report.added and not report.unchanged:
        raise typer.Exit(2)


def _answer(common: Common, report: LoadReport, held: Loaded) -> None:
    told = held is Loaded.ARTICLES
    if common.as_json:
        from contexture.service.shapes import report_object
        from contexture.service.wire.articles import articles_object

        emit(articles_object(report) if told else report_object(report))
        return
    for kind, problems in (("warning", report.warnings), ("error", report.failed)):
        for problem in problems[:_SHOWN]:
            note(f"{kind}: {problem}")
        if len(problems) > _SHOWN:
            note(f"{kind}: and {len(problems) - _SHOWN} more; --json lists them all")
    copies = f"{report.collapsed} copies of others" if told else f"{report.duplicates} duplicates"
    say(
        f"{report.read} read, {report.added} added, {report.unchanged} unchanged, {copies}, {len(report.failed)} failed"
    )


def _field(text: str) -> tuple[str, FieldType]:
    from contexture.types import FieldType

    name, _, kind = text.partition("=")
    if not name or kind not in list(FieldType):
        raise InvalidRequest(f"--field is {text!r}; write NAME=TYPE, where TYPE is one of {', '.join(FieldType)}")
    return name, FieldType(kind)
