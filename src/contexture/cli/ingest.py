"""`contexture ingest`: loads records, documents, articles and memories, in this process or through the service."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Collection as Some
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli._client import find_service
from contexture.cli._common import CollectionOption, Common, register_command, run_with_engine
from contexture.cli._output import print_json, print_line, print_note, show_progress
from contexture.cli._watch import watch_files
from contexture.cli.blocks import BlockOptions, ingest_blocks, make_columns, preview_blocks
from contexture.errors import ContextError, InvalidRequest

if TYPE_CHECKING:
    from contexture.cli._client import RemoteService
    from contexture.config import Settings
    from contexture.conversation import Memory
    from contexture.engine import Contexture
    from contexture.ingestion.documents import DocumentsReport
    from contexture.ingestion.files import FoundFile
    from contexture.ingestion.loader import LoadReport, Progress
    from contexture.types import FieldType, Scope


_MAX_WARNINGS = 20


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "ingest", with_identity=True)(ingest)


def ingest(  # noqa: PLR0913, PLR0917 - one parameter an option
    common: Common,
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="PDF, office, CSV, mail, EPUB, HTML, image, JSONL, Markdown or text files; folders; URLs of feeds.",
        ),
    ],
    collection: CollectionOption = None,
    acl: Annotated[
        list[str] | None,
        typer.Option(
            "--acl",
            "--readers",
            metavar="PRINCIPAL",
            help="Who may read, such as user:anna; by default public, for memories only you.",
        ),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            "--field", metavar="NAME=TYPE", help="Field to filter by, of the type keyword, number, time or flag."
        ),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also write records that have not changed.")] = False,
    held: KindOption = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="For blocks: name of the source; by default its file name."),
    ] = None,
    readers_map: Annotated[
        Path | None,
        typer.Option(
            "--readers-map", metavar="FILE", help="For blocks: JSON or YAML with the readers of folders and pages."
        ),
    ] = None,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="For blocks: delete everything when the source is empty now.")
    ] = False,
    title: Annotated[
        str | None, typer.Option("--title", metavar="COLUMN", help="For CSV as blocks: column of the titles.")
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="COLUMN", help="For CSV as blocks: column of the status.")
    ] = None,
    due: Annotated[
        str | None, typer.Option("--due", metavar="COLUMN", help="For CSV as blocks: column of the due dates.")
    ] = None,
    assignee: Annotated[
        str | None, typer.Option("--assignee", metavar="COLUMN", help="For CSV as blocks: column of the assignees.")
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="For blocks: show what would be imported, and write nothing.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Load again whenever a file changes, until interrupted.")
    ] = False,
) -> None:
    """Load documents, records, feeds and notes.

    JSONL, Markdown and text files become records; PDF, Word, PowerPoint, Excel, CSV, OpenDocument, EPUB, e-mail, HTML
    and image files become pages, and with `--as documents` so do Markdown and text files. Unchanged records are
    skipped. Files that cannot be read are listed, and the rest is loaded; the exit code is then 1, or 2 if nothing was
    loaded.
    """
    from contexture.ingestion.loader import DEFAULT_FIELDS

    fields = {**DEFAULT_FIELDS, **dict(_parse_field(each) for each in field or ())}
    paths = _local_paths(places, held)
    named = {"title": title, "status": status, "due": due, "assignee": assignee}
    of_blocks = {"--source": source, "--readers-map": readers_map, "--allow-empty": allow_empty, "--preview": preview}
    if held is not ContentKind.BLOCKS:
        _refuse_options({**of_blocks, **{f"--{role}": column for role, column in named.items()}})
    columns = make_columns(named)

    def load() -> bool:
        if held is not ContentKind.BLOCKS:
            return _ingest_files(common, places, paths, held, collection, acl, fields, again=again)
        return ingest_blocks(
            common,
            paths,
            BlockOptions(
                readers=tuple(acl) if acl else None,
                readers_map=readers_map,
                source=source or "",
                columns=columns,
                again=again,
                allow_empty=allow_empty,
            ),
        )

    if preview:
        preview_blocks(common, paths, readers=tuple(acl) if acl else None, readers_map=readers_map, columns=columns)
    elif watch:
        watch_files([*paths, *([readers_map] if readers_map else [])], load)
    elif not load():
        raise typer.Exit(2)


def _refuse_options(given: Mapping[str, object]) -> None:
    """Raise `InvalidRequest` for an option that only applies to blocks."""
    if wrong := next((name for name, value in given.items() if value), ""):
        raise InvalidRequest(f"{wrong} applies to blocks only; add --as blocks")


def _ingest_files(
    common: Common,
    places: Sequence[str],
    paths: Sequence[Path],
    held: ContentKind | None,
    collection: str | None,
    acl: Sequence[str] | None,
    fields: Mapping[str, FieldType],
    *,
    again: bool,
) -> bool:
    """Load files that are no blocks; returns whether anything was loaded, and exits with 1 if only a part was."""
    settings = common.settings(collection=collection)
    readers = tuple(acl) if acl else ("public",)
    service = find_service(settings)
    with show_progress(as_json=common.as_json) as progress:
        if held is ContentKind.ARTICLES:
            report = ingest_articles(settings, places, readers=readers, service=service, again=again, progress=progress)
        elif held is ContentKind.MEMORIES:
            report = ingest_memories(settings, paths, readers=tuple(acl or ()), service=service, progress=progress)
        else:
            wanted = _IngestRequest(
                paths=paths, fields=fields, readers=readers, again=again, everything=held is ContentKind.DOCUMENTS
            )
            report = (
                _ingest_remotely(wanted, settings, service, progress)
                if service
                else _ingest_locally(wanted, settings, progress)
            )
    _print_report(common, report, held)
    if report.failed and (report.added or report.unchanged):
        raise typer.Exit(1)
    return not report.failed


def _local_paths(places: Sequence[str], held: ContentKind | None) -> list[Path]:
    """Return the arguments that are paths, not URLs; raises `InvalidRequest` for URLs of anything but articles."""
    paths = [Path(place) for place in places if not is_url(place)]
    if len(paths) == len(places) and not any(path.exists() for path in paths):
        raise InvalidRequest(f"there is no file or folder {places[0]!r}")
    if len(paths) < len(places) and held is not ContentKind.ARTICLES:
        raise InvalidRequest("only feeds are fetched from addresses; add --as articles")
    return paths


@dataclass(frozen=True, kw_only=True, slots=True)
class _IngestRequest:
    """What to load, and its readers; `everything` loads Markdown and text files as pages too."""

    paths: Sequence[Path]
    fields: Mapping[str, FieldType]
    readers: tuple[str, ...]
    again: bool
    everything: bool

    def page_files(self) -> tuple[list[FoundFile], Some[str]]:
        """Return the files to load as pages, and the extensions that are not loaded as records."""
        from contexture.file_loading import page_extensions
        from contexture.ingestion.documents import document_files

        endings = page_extensions(everything=self.everything)
        return document_files(self.paths, endings), endings


def _ingest_locally(wanted: _IngestRequest, settings: Settings, progress: Progress | None) -> LoadReport:
    async def load(engine: Contexture) -> LoadReport:
        from contexture.file_loading import FileLoader

        loader = FileLoader(
            engine=engine, scope=engine.scope, again=wanted.again, fields=wanted.fields, progress=progress
        )
        return await loader.load(wanted.paths, kind="documents" if wanted.everything else None, readers=wanted.readers)

    return run_with_engine(settings, load)


def _ingest_remotely(
    wanted: _IngestRequest, settings: Settings, service: RemoteService, progress: Progress | None
) -> LoadReport:
    from contexture.cli._remote_writers import send_records
    from contexture.ingestion.documents import merge_reports

    leaves, skip = wanted.page_files()
    report = send_records(
        service,
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
    return merge_reports(
        send_pages(service, leaves, readers=wanted.readers, again=wanted.again, progress=progress), report
    )


def _print_report(common: Common, report: LoadReport, held: ContentKind | None) -> None:
    is_articles = held is ContentKind.ARTICLES
    from contexture.ingestion.documents import DocumentsReport

    pages = report.pages if isinstance(report, DocumentsReport) else 0
    if common.as_json:
        from contexture.service.wire.builds import load_report_object
        from contexture.service.wire.ingest import articles_report_object

        print_json(articles_report_object(report) if is_articles else load_report_object(report))
        return
    for problem in report.warnings[:_MAX_WARNINGS]:
        print_note(f"warning: {problem}")
    if len(report.warnings) > _MAX_WARNINGS:
        print_note(f"warning: and {len(report.warnings) - _MAX_WARNINGS} more; --json lists them all")
    for problem in report.failed:
        print_note(f"error: {problem}")
    copies = f"{report.collapsed} duplicates of others" if is_articles else f"{report.duplicates} duplicates"
    added = f"{report.added} added ({pages} pages)" if pages else f"{report.added} added"
    print_line(f"{report.read} read, {added}, {report.unchanged} unchanged, {copies}, {len(report.failed)} failed")


def _parse_field(text: str) -> tuple[str, FieldType]:
    from contexture.types import FieldType

    name, _, kind = text.partition("=")
    if not name or kind not in list(FieldType):
        raise InvalidRequest(f"--field is {text!r}; write NAME=TYPE, where TYPE is one of {', '.join(FieldType)}")
    return name, FieldType(kind)


def send_pages(
    service: RemoteService,
    leaves: Sequence[FoundFile],
    *,
    readers: tuple[str, ...],
    again: bool,
    progress: Progress | None,
) -> DocumentsReport:
    """Send files to a running service, which reads them and writes their pages."""
    from contexture.ingestion.documents import DocumentsReport
    from contexture.ingestion.files import LoadProblem

    report = DocumentsReport()
    for at, leaf in enumerate(leaves, start=1):
        report.read += 1
        try:
            body = {"files": [_encode_upload(leaf)], "acl": list(readers), "again": again}
            _add_to_report(report, leaf, service.request("POST", "/v1/ingest/documents", body))
        except (ContextError, OSError) as failure:
            report.failed.append(LoadProblem(path=leaf.name, message=str(failure)))
        if progress is not None:
            progress("sending files", at, len(leaves))
    return report


def _encode_upload(leaf: FoundFile) -> dict[str, str]:
    content = base64.b64encode(Path(leaf.path).read_bytes()).decode()
    return {"filename": leaf.path.name, "source_path": leaf.name, "content": content}


def _add_to_report(report: DocumentsReport, leaf: FoundFile, said: dict[str, Any]) -> None:
    from contexture.ingestion.documents import LoadedFile
    from contexture.ingestion.files import LoadProblem

    report.added += said["added"]
    report.unchanged += said["unchanged"]
    report.duplicates += said["duplicates"]
    report.pages += said["pages"]
    report.files += [replace(LoadedFile(**each), path=leaf.name) for each in said["files"]]
    for kept, problems in ((report.failed, said["failed"]), (report.warnings, said["warnings"])):
        kept.extend(LoadProblem(path=leaf.name, message=str(each["message"])) for each in problems)


class ContentKind(StrEnum):
    """The content of files: documents, memories, articles or the blocks of a workspace."""

    ARTICLES = "articles"
    BLOCKS = "blocks"
    DOCUMENTS = "documents"
    MEMORIES = "memories"


KindOption = Annotated[
    ContentKind | None, typer.Option("--as", help="Content of the files; by default it follows from the file type.")
]

_URL_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


def is_url(place: str) -> bool:
    """Whether an argument is a URL rather than a path."""
    return _URL_SCHEME.match(place) is not None


def ingest_articles(
    settings: Settings,
    places: Sequence[str],
    *,
    readers: tuple[str, ...],
    service: RemoteService | None,
    again: bool,
    progress: Progress | None,
) -> LoadReport:
    """Load articles from files, folders and feed URLs; feeds are fetched by this process."""
    from contexture import wiring
    from contexture.ingestion.articles import ArticleFileReader, load_articles
    from contexture.types import Scope

    paths, urls = [Path(place) for place in places if not is_url(place)], [place for place in places if is_url(place)]
    if service is None:

        async def load(engine: Contexture) -> LoadReport:
            from contexture.file_loading import FileLoader

            loader = FileLoader(engine=engine, scope=engine.scope, again=again, progress=progress)
            return await loader.load(paths, kind="articles", readers=readers, urls=urls)

        return run_with_engine(settings, load)
    from contexture.cli._remote_writers import ArticleSender

    reader = ArticleFileReader(
        readers=readers,
        now=wiring.SystemClock().now(),
        parser=wiring.feed_parser(),
        extractor=wiring.page_extractor(),
        writer=Scope(tenant=settings.tenant, user=settings.user, groups=settings.groups),
    )
    feeds = wiring.feed_source(settings, again=again)
    return asyncio.run(
        load_articles(ArticleSender(service), reader, paths=paths, urls=urls, wire=feeds, progress=progress)
    )


class EvalSetKind(StrEnum):
    """The content of an evaluation set: documents or memories."""

    DOCUMENTS = "documents"
    MEMORIES = "memories"


EvalKindOption = Annotated[EvalSetKind, typer.Option("--as", help="Content of the files.")]


def ingest_memories(
    settings: Settings,
    paths: Sequence[Path],
    *,
    readers: tuple[str, ...],
    service: RemoteService | None,
    progress: Progress | None,
) -> LoadReport:
    """Load files as memories, in this process or through the service that holds the store."""
    from contexture.ingestion.memories import load_memories
    from contexture.types import Scope

    if service is None:

        async def load(engine: Contexture) -> LoadReport:
            from contexture.file_loading import FileLoader

            loader = FileLoader(engine=engine, scope=engine.scope, progress=progress)
            return await loader.load(paths, kind="memories", readers=readers)

        return run_with_engine(settings, load)
    scope = Scope(tenant=settings.tenant, user=settings.user, groups=settings.groups)
    return asyncio.run(
        load_memories(
            MemorySender(service),
            scope,
            paths,
            readers=readers,
            namespace=settings.memory_namespace,
            universe=settings.memory_universe,
            progress=progress,
        )
    )


class MemorySender:
    """Sends memories to a running service, with the identity in its headers."""

    def __init__(self, service: RemoteService) -> None:
        self._service = service

    async def remember(self, scope: Scope, memories: Sequence[Memory]) -> Sequence[str]:  # noqa: ARG002 - see above
        """Send a batch; returns the ids in order."""
        from contexture.memory_payloads import ids_from_json, memory_to_json

        body = {"memories": [memory_to_json(memory) for memory in memories]}
        return ids_from_json(self._service.request("POST", "/v1/ingest/memories", body), memories)
