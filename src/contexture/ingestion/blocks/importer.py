"""Imports a source into a workspace: writes what changed, deletes what is gone, and reports broken links."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from contexture.blocks.records import BLOCKS
from contexture.blocks.workspace import Workspace
from contexture.errors import ContextError, InvalidRequest, RedactionFailed, RequestError
from contexture.ingestion.blocks import history
from contexture.ingestion.blocks._placement import (
    IdAllocator,
    PlacedDocument,
    keep_rising,
    place_document,
    spread_orders,
)
from contexture.ingestion.blocks.attachments import AttachmentImport
from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument, ImportItem, walk_drafts
from contexture.ingestion.blocks.import_source import ImportSource
from contexture.ingestion.files import LoadProblem
from contexture.ingestion.loader import Progress
from contexture.types import Scope
from contexture.workspace import (
    LINKABLE_TYPES,
    Activity,
    Block,
    BlockStore,
    BlockType,
    ImportAccess,
    PutResult,
    is_due_date,
    link_names,
    plain_name,
)

PAGE_LINK = re.compile(r"\[\[([^\[\]]+)\]\]")
REFERENCE = re.compile(r"\(\(([0-9A-Za-z][\w-]{7,})\)\)")
BLOCK_LINK = re.compile(r"\]\(block:([^()\s]+)\)")
_CODE_SPAN = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]+`", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class DanglingLink:
    """A link whose target does not exist: its location, and the name of the target."""

    path: str
    name: str
    line: int = 0

    def __str__(self) -> str:
        """Return `path:line: name`."""
        return f"{self.path}:{self.line}: {self.name}" if self.line else f"{self.path}: {self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedLink:
    """A link in a text: to a page by name, or to a block by id.

    A `quoted` link is in code or names nothing, and does not count.
    """

    name: str
    to_block: bool = False
    quoted: bool = False


def find_links(draft: BlockDraft) -> Iterator[ParsedLink]:
    """Yield every link of a block, repeated ones too; the properties of pages and rows count as text."""
    yield from _find_links_in(draft.text, code=draft.type is BlockType.CODE)
    if draft.type in LINKABLE_TYPES:
        for value in draft.properties.values():
            if isinstance(value, str):
                yield from _find_links_in(value)


def parse_page_name(inside: str) -> str:
    """Return the page named by `[[Page#Heading|shown]]`; empty for a heading of the same page."""
    name = inside.split("|", 1)[0]
    before, _, heading = name.partition("#")
    return (before if heading else name).strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkTargets:
    """The page names and block ids that links may point to."""

    pages: set[str] = field(default_factory=set[str])
    ids: set[str] = field(default_factory=set[str])

    def add(self, blocks: Iterable[Block]) -> None:
        """Add the names and ids of blocks."""
        for block in blocks:
            self.ids.add(block.id)
            self.pages.update(link_names(block))

    def has(self, link: ParsedLink) -> bool:
        """Whether the target of a link exists."""
        return link.name in self.ids if link.to_block else plain_name(link.name) in self.pages


def _find_links_in(text: str, *, code: bool = False) -> Iterator[ParsedLink]:
    if not ("[[" in text or "((" in text or "](block:" in text):
        return
    inside = [] if code else [found.span() for found in _CODE_SPAN.finditer(text)]
    for pattern in (PAGE_LINK, REFERENCE, BLOCK_LINK):
        for found in pattern.finditer(text):
            name = parse_page_name(found[1]) if pattern is PAGE_LINK else found[1]
            quoted = not name or code or any(start <= found.start() < end for start, end in inside)
            yield ParsedLink(name=name, to_block=pattern is not PAGE_LINK, quoted=quoted)


BATCH_SIZE = 256
"""Blocks written per batch, so that they are embedded together."""

_PAGE_TYPES = frozenset({BlockType.PAGE, BlockType.DB})
_DUE_TYPES = frozenset({BlockType.TODO, BlockType.KANBAN_CARD, BlockType.DB_ROW})
_RANKED_ORDER = 1e6  # added to the order of documents with a rank: they stand behind the blocks of their parent
_MIN_MOVED_SHARE = 0.5  # share of its blocks by which a moved document is recognised


class BlockWriter(Protocol):
    """The destination of an import."""

    async def put(self, blocks: Sequence[Block], access: ImportAccess) -> PutResult:
        """Write all blocks or none; no stored block can be read by more people than before."""
        ...

    async def delete(self, ids: Sequence[str]) -> int:
        """Remove blocks and their descendants; returns how many were removed."""
        ...

    async def find_existing(self, names: Sequence[str]) -> set[str]:
        """Return those of these page names and block ids that exist in the store."""
        ...

    async def record(self, activity: Sequence[Activity]) -> None:
        """Record who edited and viewed which block."""
        ...


@dataclass(kw_only=True, slots=True)
class ImportReport:
    """Counts and problems of an import.

    `blocks` counts those below pages and databases, `bullets` the lines of the source that begin with a list marker.
    `links` counts `[[links]]` to pages and `references` links to blocks. Each of them is `resolved`, or `quoted` in
    code and ignored, or listed in `unresolved`. `attachments` counts the linked files that are documents. `failed`
    lists what yielded no blocks, `warnings` what was changed or skipped.
    """

    pages: int = 0
    blocks: int = 0
    bullets: int = 0
    links: int = 0
    references: int = 0
    resolved: int = 0
    quoted: int = 0
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    deleted: int = 0
    attachments: int = 0
    unresolved: list[DanglingLink] = field(default_factory=list[DanglingLink])
    failed: list[LoadProblem] = field(default_factory=list[LoadProblem])
    warnings: list[LoadProblem] = field(default_factory=list[LoadProblem])


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportResult:
    """The report of an import, and the snapshot for the next one."""

    report: ImportReport
    remembered: history.ImportSnapshot


async def import_blocks(  # noqa: PLR0913 - options by name
    writer: BlockWriter,
    found: Iterable[ImportItem],
    *,
    source: str,
    root: str = "",
    before: history.ImportSnapshot | None = None,
    again: bool = False,
    allow_empty: bool = False,
    attachments: AttachmentImport | None = None,
    progress: Progress | None = None,
) -> ImportResult:
    """Import what was read from `source`; failures are reported and the rest is imported.

    Blocks that did not change since `before` are not written, unless `again` is set. Blocks that an earlier import of
    the same source wrote and that are no longer found are deleted, except those of a file that could not be read.
    A source without a single document deletes nothing: it raises `InvalidRequest` unless `allow_empty` is set.
    With `attachments`, files at `root` that blocks link to are loaded as documents.
    """
    documents, activity, report = _split_items(found)
    documents = await _reparent_orphans(writer, documents, report)
    work = _ImportRun(source, before or history.ImportSnapshot(root=root), report)
    placed = work.place_documents(documents)
    report.unchanged = 0 if again else sum(len(each.blocks) - len(each.fresh) for each in placed.values())
    removed = work.removed_ids(placed)
    if removed and not documents and not allow_empty:
        raise InvalidRequest(
            f"{source!r} is empty now, and {len(removed)} blocks were imported from it: nothing is deleted; "
            "add --allow-empty to delete them"
        )
    await _write_blocks(writer, placed, report, again=again, progress=progress)
    await _delete_blocks(writer, removed, report)
    attached: frozenset[str] = frozenset()
    if attachments is not None:
        rows = ((path, block) for path, each in placed.items() for block in each.blocks)
        loaded = await attachments.run(Path(root), rows)
        attached = frozenset(Path(file).name.casefold() for file in loaded.files)
        report.attachments = len(loaded.files)
        report.warnings = [each for each in report.warnings if each.path not in loaded.files] + list(loaded.problems)
    await _check_links(writer, documents, placed, report, attached)
    await _record_activity(writer, activity, report)
    return ImportResult(
        report=report, remembered=history.ImportSnapshot(root=root, documents=work.snapshot_documents(placed))
    )


def _split_items(found: Iterable[ImportItem]) -> tuple[list[DraftDocument], list[Activity], ImportReport]:
    report = ImportReport()
    documents: list[DraftDocument] = []
    activity: list[Activity] = []
    for each in found:
        if isinstance(each, LoadProblem):
            (report.warnings if each.warning else report.failed).append(each)
        elif isinstance(each, Activity):
            activity.append(each)
        else:
            _refuse_bad_dates(each, report)
            documents.append(each)
            report.bullets += each.bullets
    return documents, activity, report


def _refuse_bad_dates(document: DraftDocument, report: ImportReport) -> None:
    """Rename due dates that are no dates to `due_text`, with a warning each; the block itself is imported."""
    for draft, _ in walk_drafts(document.root):
        due = draft.properties.get("due")
        if draft.type in _DUE_TYPES and due not in (None, "") and not is_due_date(due):
            draft.properties["due_text"] = draft.properties.pop("due")
            said = f"`due` is {due!r:.60}, which is no date; it is kept as `due_text`"
            report.warnings.append(document.problem(said, line=draft.line, warning=True))


async def _reparent_orphans(
    writer: BlockWriter, documents: Sequence[DraftDocument], report: ImportReport
) -> list[DraftDocument]:
    """Return the documents; those whose parent block does not exist are moved to the top level."""
    held = {draft.known for document in documents for draft, _ in walk_drafts(document.root) if draft.known}
    asked = sorted({each.under for each in documents if each.under is not None} - held)
    lost = set(asked) - (await writer.find_existing(asked) if asked else set())
    for document in documents:
        if document.under in lost:
            said = f"its parent {document.under!r} was not found; it was put at the top level"
            report.warnings.append(document.problem(said, warning=True))
    return [replace(each, under=None) if each.under in lost else each for each in documents]


class _ImportRun:
    """One import run: the snapshot of the last one, and the documents of this one."""

    def __init__(self, source: str, before: history.ImportSnapshot, report: ImportReport) -> None:
        self._source = source
        self._before = before
        self._report = report
        self._unread = {problem.path for problem in report.failed}

    def place_documents(self, documents: Sequence[DraftDocument]) -> dict[str, PlacedDocument]:
        earlier = frozenset(name for kept in self._before.documents.values() for name in kept.ids)
        ids = IdAllocator(earlier=earlier)
        moved = self._find_moved(documents)
        placed: dict[str, PlacedDocument] = {}
        for document in self._order_ranked(documents, moved):
            if document.path in placed:
                self._report.failed.append(document.problem("read twice; the first is kept"))
                continue
            before = self._before.documents.get(moved.get(document.path, document.path))
            found = place_document(document, before, ids, source=self._source)
            placed[document.path] = found
            self._count_document(document, found)
        return placed

    def _order_ranked(self, documents: Sequence[DraftDocument], moved: Mapping[str, str]) -> Iterator[DraftDocument]:
        """Yield the documents, those with a rank in an order that keeps that of the last import where it can."""
        groups: dict[str | None, list[DraftDocument]] = {}
        for document in documents:
            if document.rank is not None:
                groups.setdefault(document.under, []).append(document)
        orders: dict[str, float] = {}
        for group in groups.values():
            group.sort(key=lambda each: each.rank or 0)
            before = [self._before.documents.get(moved.get(each.path, each.path)) for each in group]
            held = [each.blocks[0].order if each and each.blocks else 0.0 for each in before]
            spread = spread_orders(keep_rising([order - _RANKED_ORDER if order else None for order in held]))
            orders |= {each.path: _RANKED_ORDER + order for each, order in zip(group, spread, strict=True)}
        for document in documents:
            yield replace(document, order=orders[document.path]) if document.path in orders else document

    def removed_ids(self, placed: Mapping[str, PlacedDocument]) -> list[str]:
        """Return the ids to delete, parents first; none of a document that could not be read."""
        now = {block.id for each in placed.values() for block in each.blocks}
        held = {kept.id for path in self._unread for kept in self._earlier_blocks(path)}
        before = [kept.id for path in self._before.documents for kept in self._earlier_blocks(path)]
        return [name for name in before if name not in now and name not in held]

    def snapshot_documents(self, placed: Mapping[str, PlacedDocument]) -> dict[str, history.ImportedDocument]:
        """Return the documents of the new snapshot: those written, and the earlier snapshot of those that failed."""
        failed = {problem.path for problem in self._report.failed}
        before = {path: kept for path, kept in self._before.documents.items() if path in failed}
        return {**before, **{path: each.kept for path, each in placed.items() if path not in failed}}

    def _earlier_blocks(self, path: str) -> Iterable[history.ImportedBlock]:
        found = self._before.documents.get(path)
        return found.blocks if found else ()

    def _find_moved(self, documents: Sequence[DraftDocument]) -> dict[str, str]:
        """Map new paths to old ones, for documents whose blocks mostly come from one that is gone."""
        paths = {document.path for document in documents}
        lost = {path: kept for path, kept in self._before.documents.items() if path not in paths | self._unread}
        found: dict[str, str] = {}
        for document in documents:
            if not lost or document.path in self._before.documents:
                continue
            digests = {draft.digest for draft, above in walk_drafts(document.root) if above}
            best = max(lost, key=lambda path: (_shared_ratio(digests, lost[path]), path))
            if _shared_ratio(digests, lost[best]) >= _MIN_MOVED_SHARE:
                found[document.path] = best
                del lost[best]
        return found

    def _count_document(self, document: DraftDocument, found: PlacedDocument) -> None:
        pages = sum(block.type in _PAGE_TYPES for block in found.blocks)
        self._report.pages += pages
        self._report.blocks += len(found.blocks) - pages
        for name in found.repeated:
            said = f"the id {name!r} is also used by another block; this one has a new id"
            self._report.warnings.append(document.problem(said, warning=True))


def _shared_ratio(digests: set[str], kept: history.ImportedDocument) -> float:
    before = {each.digest for each in kept.blocks if each.parent >= 0}
    both = digests | before
    return len(digests & before) / len(both) if both else 0.0


# --- writing -------------------------------------------------------------------------------
async def _write_blocks(
    writer: BlockWriter,
    placed: Mapping[str, PlacedDocument],
    report: ImportReport,
    *,
    again: bool,
    progress: Progress | None,
) -> None:
    rows = [(path, block) for path, each in placed.items() for block in (each.blocks if again else each.fresh)]
    access = ImportAccess(unchanged=frozenset(name for each in placed.values() for name in each.same_readers))
    bad: set[str] = set()
    for at in range(0, len(rows), BATCH_SIZE):
        batch = [(path, block) for path, block in rows[at : at + BATCH_SIZE] if path not in bad]
        if batch and not await _put_batch(writer, batch, access, report):
            for path, some in _group_by_path(batch):
                if path not in bad and not await _put_batch(writer, some, access, report, path=path):
                    bad.add(path)
        if progress is not None:
            progress("importing", min(at + BATCH_SIZE, len(rows)), len(rows))


async def _put_batch(
    writer: BlockWriter,
    batch: Sequence[tuple[str, Block]],
    access: ImportAccess,
    report: ImportReport,
    *,
    path: str = "",
) -> bool:
    """Write a batch and return whether it succeeded; a failure is reported only if `path` names its document."""
    blocks = [block for _, block in batch]
    mine = ImportAccess(unchanged=access.unchanged & {block.id for block in blocks})
    try:
        done = await writer.put(blocks, mine)
    except (RequestError, RedactionFailed) as refusal:
        if path:
            report.failed.append(LoadProblem(path=path, message=str(refusal)))
        return False
    report.added += done.added
    report.changed += done.changed
    report.unchanged += done.unchanged
    _report_access(batch, done, report)
    return True


def _report_access(batch: Sequence[tuple[str, Block]], done: PutResult, report: ImportReport) -> None:
    """Warn about blocks whose readers the import has narrowed, or would have widened."""
    said = dict.fromkeys(done.kept_readers, "keeps its readers, because an import never lets more people read a block")
    said |= dict.fromkeys(done.narrowed, "may be read by fewer people than before")
    for path, block in batch:
        if block.id in said:
            name = block.text.partition("\n")[0][: history.HINT_LENGTH]
            message = f"block {block.id!r} ({name}) {said[block.id]}"
            report.warnings.append(LoadProblem(path=path, message=message, warning=True))


def _group_by_path(batch: Sequence[tuple[str, Block]]) -> Iterator[tuple[str, list[tuple[str, Block]]]]:
    groups: dict[str, list[tuple[str, Block]]] = {}
    for path, block in batch:
        groups.setdefault(path, []).append((path, block))
    yield from groups.items()


async def _delete_blocks(writer: BlockWriter, gone: Sequence[str], report: ImportReport) -> None:
    for at in range(0, len(gone), BATCH_SIZE):
        report.deleted += await writer.delete(gone[at : at + BATCH_SIZE])


async def _record_activity(writer: BlockWriter, activity: Sequence[Activity], report: ImportReport) -> None:
    if not activity:
        return
    try:
        await writer.record(activity)
    except ContextError as failure:
        report.warnings.append(LoadProblem(path="activity", message=str(failure), warning=True))


# --- links ---------------------------------------------------------------------------------
async def _check_links(
    writer: BlockWriter,
    documents: Sequence[DraftDocument],
    placed: Mapping[str, PlacedDocument],
    report: ImportReport,
    attached: frozenset[str],
) -> None:
    names = LinkTargets()
    for each in placed.values():
        names.add(each.blocks)
    open_links = list(_find_unresolved(documents, placed, names, report))
    beyond = sorted({link.name for _, link in open_links})
    there = await writer.find_existing(beyond) if beyond else set[str]()
    report.unresolved = [
        where
        for where, link in open_links
        if link.name not in there and Path(link.name).name.casefold() not in attached
    ]
    report.resolved = report.links + report.references - report.quoted - len(report.unresolved)


def _find_unresolved(
    documents: Sequence[DraftDocument], placed: Mapping[str, PlacedDocument], names: LinkTargets, report: ImportReport
) -> Iterator[tuple[DanglingLink, ParsedLink]]:
    for document in documents:
        if document.path not in placed:
            continue
        for draft, _ in walk_drafts(document.root):
            for link in find_links(draft):
                report.links += not link.to_block
                report.references += link.to_block
                report.quoted += link.quoted
                if not link.quoted and not names.has(link):
                    yield DanglingLink(path=document.path, name=link.name, line=draft.line), link


IMPORTS_FOLDER = "imports"
"""Folder below the home of a store in which imports save their snapshots."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceWriter:
    """Writes to a workspace on behalf of one scope, with one timestamp."""

    workspace: Workspace
    blocks: BlockStore
    scope: Scope
    now: datetime

    async def put(self, blocks: Sequence[Block], access: ImportAccess) -> PutResult:
        """Write all blocks or none; no stored block can be read by more people than before."""
        return await self.workspace.put(self.scope, blocks, now=self.now, importing=access)

    async def get(self, ids: Sequence[str]) -> Sequence[Block]:
        """Return the stored blocks with who may read them."""
        return await self.blocks.get(self.scope, ids)

    async def delete(self, ids: Sequence[str]) -> int:
        """Remove blocks and their descendants; returns how many."""
        return (await self.workspace.delete(self.scope, ids, now=self.now)).count_of(BLOCKS.name)

    async def find_existing(self, names: Sequence[str]) -> set[str]:
        """Return those of these page names and block ids that the scope may read."""
        pages = await self.workspace.find_pages(self.scope, names)
        return {*pages, *(block.id for block in await self.blocks.get(self.scope, names))}

    async def record(self, activity: Sequence[Activity]) -> None:
        """Record who edited and viewed which block."""
        await self.workspace.note(self.scope, activity)


async def run_import(  # noqa: PLR0913 - options by name
    writer: BlockWriter,
    source: ImportSource,
    *,
    tenant: str,
    memory: history.ImportHistory,
    name: str = "",
    again: bool = False,
    allow_empty: bool = False,
    attachments: AttachmentImport | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Import a source under a name, by default that of its folder or file; repeating it writes nothing.

    Two sources of the same name would overwrite each other's pages, so the second is refused as long as the first still
    exists at its old location.
    """
    root, called = _resolve_source(source.path, name)
    before = memory.read(tenant, called)
    _check_source_name(called, before, root)
    done = await import_blocks(
        writer,
        source.read(),
        source=called,
        root=root,
        before=before,
        again=again,
        allow_empty=allow_empty,
        attachments=attachments,
        progress=progress,
    )
    memory.write(tenant, called, done.remembered)
    return done.report


def _resolve_source(path: Path, name: str) -> tuple[str, str]:
    if not path.exists():
        raise InvalidRequest(f"there is no file or folder {str(path)!r}")
    real = path.resolve()
    return str(real), name or real.name


def _check_source_name(called: str, before: history.ImportSnapshot | None, root: str) -> None:
    if before is not None and before.root != root and Path(before.root).exists():
        message = f"the name {called!r} is already used for {before.root!r}"
        raise InvalidRequest(f"{message}; choose another name with --source")
