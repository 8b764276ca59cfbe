"""`contexture ingest`: load files and folders."""

from __future__ import annotations

from collections.abc import Collection as Some
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contexture.cli.articles import Held, Loaded, is_url, publish
from contexture.cli.blocks import take_blocks
from contexture.cli.common import Collection, Common, command, with_engine
from contexture.cli.holding import remember
from contexture.cli.output import emit, note, say
from contexture.cli.progress import watched
from contexture.cli.remote import remote
from contexture.errors import InvalidRequest

if TYPE_CHECKING:
    from contexture.cli.remote import Door
    from contexture.config import Settings
    from contexture.engine import Contexture
    from contexture.ingestion.load import Progress
    from contexture.ingestion.walk import Leaf
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
        typer.Argument(
            metavar="PATH",
            help="PDF, Word, PowerPoint, HTML, image, JSONL, Markdown and text files, or folders; feeds' URLs too.",
        ),
    ],
    collection: Collection = None,
    acl: Annotated[
        list[str] | None,
        typer.Option(
            "--acl",
            "--readers",
            metavar="PRINCIPAL",
            help="Who may read, such as user:anna; else public, or for memories you.",
        ),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="NAME=TYPE", help="A field filters may use: keyword, number, time or flag."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Write records that have not changed too.")] = False,
    held: Held = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="NAME", help="For blocks: what to call it; else its file name.")
    ] = None,
) -> None:
    """Load documents, records, feeds and notes.

    JSONL, Markdown and text files become records; PDF, Word, PowerPoint, HTML and image files become pages, and with
    `--as documents` Markdown and text files do too.
    What is stored already and has not changed is left alone; what cannot be read is reported, and the rest is loaded.
    """
    from contexture.ingestion.load import GROUP

    fields = {**GROUP, **dict(_field(each) for each in field or ())}
    paths = _paths(places, held)
    if held is Loaded.BLOCKS:
        take_blocks(common, paths, readers=tuple(acl) if acl else None, source=source, again=again)
        return
    settings = common.settings(collection=collection)
    readers = tuple(acl) if acl else ("public",)
    door = remote(settings)
    with watched(as_json=common.as_json) as progress:
        if held is Loaded.ARTICLES:
            report = publish(settings, places, readers=readers, door=door, again=again, progress=progress)
        elif held is Loaded.MEMORIES:
            report = remember(settings, paths, readers=tuple(acl or ()), door=door, progress=progress)
        else:
            wanted = _Wanted(
                paths=paths, fields=fields, readers=readers, again=again, everything=held is Loaded.DOCUMENTS
            )
            report = _sent(wanted, settings, door, progress) if door else _loaded(wanted, settings, progress)
    _answer(common, report, held)
    if report.failed and not report.added and not report.unchanged:
        raise typer.Exit(2)


def _paths(places: Sequence[str], held: Loaded | None) -> list[Path]:
    """Those of the places that are no addresses; only articles have those."""
    paths = [Path(place) for place in places if not is_url(place)]
    if len(paths) == len(places) and not any(path.exists() for path in paths):
        raise InvalidRequest(f"there is no file or folder {places[0]!r}")
    if len(paths) < len(places) and held is not Loaded.ARTICLES:
        raise InvalidRequest("only feeds are fetched from addresses; add --as articles")
    return paths


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wanted:
    """What to load, and for whom; `everything` makes pages of Markdown and text files too."""

    paths: Sequence[Path]
    fields: Mapping[str, FieldType]
    readers: tuple[str, ...]
    again: bool
    everything: bool

    def leaves(self) -> tuple[list[Leaf], Some[str]]:
        """The files that hold pages, and the endings that records are not read from."""
        from contexture.cli.documents import page_endings
        from contexture.ingestion.documents import document_files

        endings = page_endings(everything=self.everything)
        return document_files(self.paths, endings), endings


def _loaded(wanted: _Wanted, settings: Settings, progress: Progress | None) -> LoadReport:
    from contexture.cli.documents import load_pages
    from contexture.ingestion.documents import combined
    from contexture.ingestion.load import load

    leaves, skip = wanted.leaves()

    async def inside(engine: Contexture) -> LoadReport:
        report = await load(
            engine,
            wanted.paths,
            collection=settings.collection,
            acl=wanted.readers,
            fields=wanted.fields,
            again=wanted.again,
            progress=progress,
            skip=skip,
        )
        if not leaves:
            return report
        paged = await load_pages(engine, leaves, readers=wanted.readers, again=wanted.again, progress=progress)
        return combined(paged, report)

    return with_engine(settings, inside)


def _sent(wanted: _Wanted, settings: Settings, door: Door, progress: Progress | None) -> LoadReport:
    from contexture.cli.documents import send_pages
    from contexture.cli.sending import send
    from contexture.ingestion.documents import combined

    leaves, skip = wanted.leaves()
    report = send(
        door,
        wanted.paths,
        settings=settings,
        acl=wanted.readers,
        fields=wanted.fields,
        again=wanted.again,
        progress=progress,
        skip=skip,
    )
    if not leaves:
        return report
    return combined(send_pages(door, leaves, readers=wanted.readers, again=wanted.again, progress=progress), report)


def _answer(common: Common, report: LoadReport, held: Loaded | None) -> None:
    told = held is Loaded.ARTICLES
    from contexture.ingestion.documents import DocumentsReport

    pages = report.pages if isinstance(report, DocumentsReport) else 0
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
    added = f"{report.added} added ({pages} pages)" if pages else f"{report.added} added"
    say(f"{report.read} read, {added}, {report.unchanged} unchanged, {copies}, {len(report.failed)} failed")


def _field(text: str) -> tuple[str, FieldType]:
    from contexture.types import FieldType

    name, _, kind = text.partition("=")
    if not name or kind not in list(FieldType):
        raise InvalidRequest(f"--field is {text!r}; write NAME=TYPE, where TYPE is one of {', '.join(FieldType)}")
    return name, FieldType(kind)
