"""Imports a source: every document once, only what changed, and never all or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from contexture.errors import ContextError, RedactionFailed, RequestError
from contexture.ingestion.blocks.draft import Document, Found, drafts
from contexture.ingestion.blocks.links import Names, Unresolved, Written, links_of
from contexture.ingestion.blocks.memory import Kept, KeptDocument, Remembered
from contexture.ingestion.blocks.placing import Ids, Placed, place
from contexture.ingestion.load import Progress
from contexture.ingestion.problems import Problem
from contexture.workspace import Activity, Block, BlockType, Put

BATCH = 256
"""Blocks that are written at a time, so that they are embedded together."""

_PAGES = frozenset({BlockType.PAGE, BlockType.DB})
_MOVED = 0.5  # share of its blocks by which a document is known again under another path


class BlockWriter(Protocol):
    """Where an import writes."""

    async def put(self, blocks: Sequence[Block]) -> Put:
        """Write all of them or none."""
        ...

    async def delete(self, ids: Sequence[str]) -> int:
        """Remove blocks with what stands below them; how many went."""
        ...

    async def known(self, names: Sequence[str]) -> set[str]:
        """Those of these names of pages and ids of blocks that the store has."""
        ...

    async def record(self, activity: Sequence[Activity]) -> None:
        """Note who edited and viewed what."""
        ...


@dataclass(kw_only=True, slots=True)
class ImportReport:
    """What an import read and what became of it.

    `blocks` counts those below pages and databases, `bullets` the lines of the source that a list marker begins.
    `links` counts `[[links]]` to pages and `references` links to blocks. Each is `resolved`, or `quoted` in code and
    so no link, or listed in `unresolved`. `failed` is what gave no blocks, `warnings` what was changed or passed over.
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
    unresolved: list[Unresolved] = field(default_factory=list[Unresolved])
    failed: list[Problem] = field(default_factory=list[Problem])
    warnings: list[Problem] = field(default_factory=list[Problem])


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """The report of an import and what the next one should know."""

    report: ImportReport
    remembered: Remembered


async def import_blocks(
    writer: BlockWriter,
    found: Iterable[Found],
    *,
    source: str,
    root: str = "",
    before: Remembered | None = None,
    again: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Write what was read from `source`; what fails is reported and the rest goes on.

    Blocks that did not change since `before` are not written, unless `again` is set. What an earlier import of the
    same source wrote and this one no longer finds is deleted, except where a file could not be read.
    """
    documents, activity, report = _sorted_out(found)
    documents = await _homes(writer, documents, report)
    work = _Import(source, before or Remembered(root=root), report)
    placed = work.place(documents)
    report.unchanged = 0 if again else sum(len(each.blocks) - len(each.fresh) for each in placed.values())
    await _write(writer, placed, report, again=again, progress=progress)
    await _delete(writer, work.gone(placed), report)
    await _check_links(writer, documents, placed, report)
    await _record(writer, activity, report)
    return Imported(report=report, remembered=Remembered(root=root, documents=work.kept(placed)))


def _sorted_out(found: Iterable[Found]) -> tuple[list[Document], list[Activity], ImportReport]:
    report = ImportReport()
    documents: list[Document] = []
    activity: list[Activity] = []
    for each in found:
        if isinstance(each, Problem):
            (report.warnings if each.warning else report.failed).append(each)
        elif isinstance(each, Activity):
            activity.append(each)
        else:
            documents.append(each)
            report.bullets += each.bullets
    return documents, activity, report


async def _homes(writer: BlockWriter, documents: Sequence[Document], report: ImportReport) -> list[Document]:
    """The documents, those that stand below what is nowhere put at the top."""
    held = {draft.known for document in documents for draft, _ in drafts(document.root) if draft.known}
    asked = sorted({each.under for each in documents if each.under is not None} - held)
    lost = set(asked) - (await writer.known(asked) if asked else set())
    for document in documents:
        if document.under in lost:
            said = f"stands below {document.under!r}, which is nowhere; it was put at the top"
            report.warnings.append(document.problem(said, warning=True))
    return [replace(each, under=None) if each.under in lost else each for each in documents]


class _Import:
    """One run: what the last one left, and what this one makes of it."""

    def __init__(self, source: str, before: Remembered, report: ImportReport) -> None:
        self._source = source
        self._before = before
        self._report = report
        self._unread = {problem.path for problem in report.failed}

    def place(self, documents: Sequence[Document]) -> dict[str, Placed]:
        earlier = frozenset(name for kept in self._before.documents.values() for name in kept.ids)
        ids = Ids(earlier=earlier)
        moved = self._moved(documents)
        placed: dict[str, Placed] = {}
        for document in documents:
            if document.path in placed:
                self._report.failed.append(document.problem("read twice; the first is kept"))
                continue
            before = self._before.documents.get(moved.get(document.path, document.path))
            found = place(document, before, ids, source=self._source)
            placed[document.path] = found
            self._count(document, found)
        return placed

    def gone(self, placed: Mapping[str, Placed]) -> list[str]:
        """What is deleted, highest first: nothing of a document that is there but could not be read."""
        now = {block.id for each in placed.values() for block in each.blocks}
        held = {kept.id for path in self._unread for kept in self._blocks_of(path)}
        before = [kept.id for path in self._before.documents for kept in self._blocks_of(path)]
        return [name for name in before if name not in now and name not in held]

    def kept(self, placed: Mapping[str, Placed]) -> dict[str, KeptDocument]:
        """What to remember: what was written, and what could not be read or written this time as it was before."""
        failed = {problem.path for problem in self._report.failed}
        before = {path: kept for path, kept in self._before.documents.items() if path in failed}
        return {**before, **{path: each.kept for path, each in placed.items() if path not in failed}}

    def _blocks_of(self, path: str) -> Iterable[Kept]:
        found = self._before.documents.get(path)
        return found.blocks if found else ()

    def _moved(self, documents: Sequence[Document]) -> dict[str, str]:
        """By new path the old one, for documents whose blocks are mostly those of one that is no longer there."""
        paths = {document.path for document in documents}
        lost = {path: kept for path, kept in self._before.documents.items() if path not in paths | self._unread}
        found: dict[str, str] = {}
        for document in documents:
            if not lost or document.path in self._before.documents:
                continue
            digests = {draft.digest for draft, above in drafts(document.root) if above}
            best = max(lost, key=lambda path: (_shared(digests, lost[path]), path))
            if _shared(digests, lost[best]) >= _MOVED:
                found[document.path] = best
                del lost[best]
        return found

    def _count(self, document: Document, found: Placed) -> None:
        pages = sum(block.type in _PAGES for block in found.blocks)
        self._report.pages += pages
        self._report.blocks += len(found.blocks) - pages
        for name in found.repeated:
            said = f"the id {name!r} is given to another block too; this one got an id of its own"
            self._report.warnings.append(document.problem(said, warning=True))


def _shared(digests: set[str], kept: KeptDocument) -> float:
    before = {each.digest for each in kept.blocks if each.parent >= 0}
    both = digests | before
    return len(digests & before) / len(both) if both else 0.0


# --- writing -------------------------------------------------------------------------------


async def _write(
    writer: BlockWriter,
    placed: Mapping[str, Placed],
    report: ImportReport,
    *,
    again: bool,
    progress: Progress | None,
) -> None:
    rows = [(path, block) for path, each in placed.items() for block in (each.blocks if again else each.fresh)]
    bad: set[str] = set()
    for at in range(0, len(rows), BATCH):
        batch = [(path, block) for path, block in rows[at : at + BATCH] if path not in bad]
        if batch and not await _put(writer, [block for _, block in batch], report):
            for path, blocks in _by_path(batch):
                if path not in bad and not await _put(writer, blocks, report, path=path):
                    bad.add(path)
        if progress is not None:
            progress("importing", min(at + BATCH, len(rows)), len(rows))


async def _put(writer: BlockWriter, blocks: Sequence[Block], report: ImportReport, *, path: str = "") -> bool:
    """Whether a batch was written; a failure is reported once it is known which document it is about."""
    try:
        done = await writer.put(blocks)
    except (RequestError, RedactionFailed) as refusal:
        if path:
            report.failed.append(Problem(path=path, message=str(refusal)))
        return False
    report.added += done.added
    report.changed += done.changed
    report.unchanged += done.unchanged
    return True


def _by_path(batch: Sequence[tuple[str, Block]]) -> Iterator[tuple[str, list[Block]]]:
    groups: dict[str, list[Block]] = {}
    for path, block in batch:
        groups.setdefault(path, []).append(block)
    yield from groups.items()


async def _delete(writer: BlockWriter, gone: Sequence[str], report: ImportReport) -> None:
    for at in range(0, len(gone), BATCH):
        report.deleted += await writer.delete(gone[at : at + BATCH])


async def _record(writer: BlockWriter, activity: Sequence[Activity], report: ImportReport) -> None:
    if not activity:
        return
    try:
        await writer.record(activity)
    except ContextError as failure:
        report.warnings.append(Problem(path="activity", message=str(failure), warning=True))


# --- links ---------------------------------------------------------------------------------


async def _check_links(
    writer: BlockWriter, documents: Sequence[Document], placed: Mapping[str, Placed], report: ImportReport
) -> None:
    names = Names()
    for each in placed.values():
        names.add(each.blocks)
    open_links = list(_open_links(documents, placed, names, report))
    beyond = sorted({link.name for _, link in open_links})
    there = await writer.known(beyond) if beyond else set[str]()
    report.unresolved = [where for where, link in open_links if link.name not in there]
    report.resolved = report.links + report.references - report.quoted - len(report.unresolved)


def _open_links(
    documents: Sequence[Document], placed: Mapping[str, Placed], names: Names, report: ImportReport
) -> Iterator[tuple[Unresolved, Written]]:
    for document in documents:
        if document.path not in placed:
            continue
        for draft, _ in drafts(document.root):
            for link in links_of(draft):
                report.links += not link.to_block
                report.references += link.to_block
                report.quoted += link.quoted
                if not link.quoted and not names.has(link):
                    yield Unresolved(path=document.path, name=link.name, line=draft.line), link
