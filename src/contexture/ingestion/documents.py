"""Loads files as documents of pages: two at a time, as often as you like, each one whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from contexture.documents import ReadDocument
from contexture.errors import ContextError
from contexture.ingestion.load import Progress
from contexture.ingestion.problems import Problem
from contexture.ingestion.walk import Leaf, walk
from contexture.ingestion.writer import LoadReport
from contexture.pages.identity import document_id
from contexture.pages.values import Added, Document
from contexture.types import PUBLIC, Scope

TOGETHER = 2
"""Files read at the same time."""

_CHUNK = 2**20
_SHOWN = 3  # bad pages that are named one by one


class Reads(Protocol):
    """Reads a file into pages, apart from this process; see `ReadingWorkers`."""

    async def read(self, path: Path, name: str, progress: Callable[[int, int], None]) -> ReadDocument:
        """The pages of a file called `name`; one that cannot be read is an `InvalidRequest`."""
        ...


class Keeps(Protocol):
    """Keeps documents; see `PageStore`."""

    async def known(self, scope: Scope, doc_ids: Sequence[str]) -> frozenset[str]:
        """Which of these documents are stored."""
        ...

    async def add(
        self,
        scope: Scope,
        document: Document,
        *,
        now: datetime | None = None,
        again: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Added:
        """Write a document, all of it or nothing."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedFile:
    """What became of one file: `added`, `unchanged`, `duplicate` or `failed`."""

    path: str
    status: str
    doc_id: str = ""
    pages: int = 0
    reason: str = ""


@dataclass(kw_only=True, slots=True)
class DocumentsReport(LoadReport):
    """What became of every file; `pages` counts those that were written."""

    pages: int = 0
    files: list[LoadedFile] = field(default_factory=list[LoadedFile])


@dataclass(frozen=True, kw_only=True, slots=True)
class Loading:
    """Who loads, for whom, and when; `again` reads and writes what is stored already too."""

    scope: Scope
    now: datetime
    readers: tuple[str, ...] = (PUBLIC,)
    again: bool = False


@dataclass(slots=True)
class _Bar:
    """Adds up the pages of files that are read at the same time."""

    show: Progress | None
    name: str
    done: dict[str, int] = field(default_factory=dict[str, int])
    total: dict[str, int] = field(default_factory=dict[str, int])

    def hears(self, path: str) -> Callable[[int, int], None]:
        def tell(done: int, total: int) -> None:
            self.done[path], self.total[path] = done, total
            if self.show is not None:
                self.show(self.name, sum(self.done.values()), sum(self.total.values()))

        return tell


def document_files(paths: Sequence[Path], endings: Iterable[str]) -> list[Leaf]:
    """The files at and below `paths` with one of these endings, in the order of the paths and then by name."""
    wanted = frozenset(endings)
    found = (leaf for path in paths for leaf in walk(path))
    return [leaf for leaf in found if isinstance(leaf, Leaf) and ending(leaf.path) in wanted]


def ending(path: Path) -> str:
    """How a file's name ends, lower case, without the dot."""
    return path.suffix.lower().removeprefix(".")


def combined(paged: DocumentsReport, records: LoadReport) -> DocumentsReport:
    """One report of files that became pages and of what became records."""
    return replace(
        paged,
        read=paged.read + records.read,
        added=paged.added + records.added,
        unchanged=paged.unchanged + records.unchanged,
        duplicates=paged.duplicates + records.duplicates,
        failed=[*records.failed, *paged.failed],
        warnings=[*records.warnings, *paged.warnings],
    )


async def load_documents(
    store: Keeps,
    reader: Reads,
    leaves: Sequence[Leaf],
    loading: Loading,
    *,
    progress: Progress | None = None,
) -> DocumentsReport:
    """Read files and write their pages; what fails is reported and the rest goes on.

    A file whose content is stored already is not read again, so an interrupted load is finished by repeating it.
    """
    loader = _Loader(store, reader, loading, progress)
    return await loader.load(leaves)


class _Loader:
    def __init__(self, store: Keeps, reader: Reads, loading: Loading, progress: Progress | None) -> None:
        self._store = store
        self._reader = reader
        self._loading = loading
        self._slots = asyncio.Semaphore(TOGETHER)
        self._writing = asyncio.Lock()
        self._first: dict[str, str] = {}
        self._read = _Bar(progress, "reading pages")
        self._written = _Bar(progress, "writing pages")
        self._warnings: dict[str, list[Problem]] = {}

    async def load(self, leaves: Sequence[Leaf]) -> DocumentsReport:
        report = DocumentsReport()
        done = await asyncio.gather(*(self._file(leaf) for leaf in leaves))
        for each in done:
            _enter(report, each, self._warnings.get(each.path, ()))
        return report

    async def _file(self, leaf: Leaf) -> LoadedFile:
        async with self._slots:
            try:
                return await self._load(leaf)
            except ContextError as failure:
                return LoadedFile(path=leaf.name, status="failed", reason=str(failure))
            except OSError as failure:
                return LoadedFile(path=leaf.name, status="failed", reason=f"cannot be read: {failure.strerror}")

    async def _load(self, leaf: Leaf) -> LoadedFile:
        loading = self._loading
        content = await asyncio.to_thread(_digest, leaf.path)
        doc_id = document_id(content, loading.readers, loading.scope)
        first = self._first.setdefault(doc_id, leaf.name)
        if first != leaf.name:
            return LoadedFile(path=leaf.name, status="duplicate", doc_id=doc_id, reason=f"the same file as {first}")
        if not loading.again and await self._store.known(loading.scope, [doc_id]):
            return LoadedFile(path=leaf.name, status="unchanged", doc_id=doc_id)
        read = await self._reader.read(leaf.path, leaf.path.name, self._read.hears(leaf.name))
        self._warnings[leaf.name] = list(_warnings(leaf.name, read))
        document = Document(
            doc_id=doc_id,
            filename=leaf.path.name,
            extension=ending(leaf.path),
            source_path=leaf.name,
            timestamp=loading.now,
            pages=read.pages,
            readers=loading.readers,
            title=read.title,
        )
        async with self._writing:
            added = await self._store.add(
                loading.scope, document, again=loading.again, progress=self._written.hears(leaf.name)
            )
        return LoadedFile(
            path=leaf.name, status="unchanged" if added.unchanged else "added", doc_id=doc_id, pages=added.pages
        )


def _enter(report: DocumentsReport, done: LoadedFile, warnings: Sequence[Problem]) -> None:
    report.read += 1
    report.pages += done.pages
    report.files.append(done)
    report.warnings += warnings
    if done.status == "failed":
        report.failed.append(Problem(path=done.path, message=done.reason))
    elif done.status == "duplicate":
        report.duplicates += 1
    elif done.status == "unchanged":
        report.unchanged += 1
    else:
        report.added += 1


def _warnings(name: str, read: ReadDocument) -> Iterator[Problem]:
    """What was lost in a file that is loaded."""
    for bad in read.bad[:_SHOWN]:
        yield Problem(path=name, message=f"page {bad.number}: {bad.reason}", warning=True)
    if len(read.bad) > _SHOWN:
        yield Problem(path=name, message=f"and {len(read.bad) - _SHOWN} more pages cannot be read", warning=True)
    pages: dict[str, list[int]] = {}
    for page in read.pages:
        for note in page.notes:
            pages.setdefault(note, []).append(page.number)
    for note, numbers in pages.items():
        which = f"page {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} pages, the first of them {numbers[0]}"
        yield Problem(path=name, message=f"{which}: {note}", warning=True)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
