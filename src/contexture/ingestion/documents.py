"""Loads files, from disk or uploaded as bytes, as documents of pages.

Two files are read at a time. Each file is loaded completely or not at all, and a load can be repeated.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from contexture.documents import ReadDocument
from contexture.errors import ContextError, StoreDamaged, StoreUnwritable
from contexture.ingestion.files import FoundFile, LoadProblem, walk_files
from contexture.ingestion.loader import LoadReport, Progress
from contexture.pages.values import AddedDocument, Document, document_id
from contexture.text.unicode import is_valid_unicode
from contexture.types import PUBLIC, Scope

MAX_CONCURRENT_FILES = 2
"""Files read concurrently."""

_CHUNK_BYTES = 2**20
_MAX_NAMED_PAGES = 3  # unreadable pages that are named individually


class PageReader(Protocol):
    """Reads a file into pages in another process; see `DocumentWorkerPool`."""

    async def read(self, path: Path, name: str, progress: Callable[[int, int], None]) -> ReadDocument:
        """Return the pages of a file called `name`; raises `InvalidRequest` if it cannot be read."""
        ...


class DocumentSink(Protocol):
    """Stores documents; see `PageStore`."""

    async def find_stored(self, scope: Scope, doc_ids: Sequence[str]) -> frozenset[str]:
        """Return those of these documents that are stored completely."""
        ...

    async def add(
        self,
        scope: Scope,
        document: Document,
        *,
        now: datetime | None = None,
        again: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> AddedDocument:
        """Write a document, completely or not at all."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedFile:
    """The outcome of one file: `added`, `unchanged`, `duplicate` or `failed`."""

    path: str
    status: str
    doc_id: str = ""
    pages: int = 0
    reason: str = ""


@dataclass(kw_only=True, slots=True)
class DocumentsReport(LoadReport):
    """The outcome of every file; `pages` counts those that were written."""

    pages: int = 0
    files: list[LoadedFile] = field(default_factory=list[LoadedFile])


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadOptions:
    """The loading scope, the readers and the time; `again` also reads and writes what is already stored."""

    scope: Scope
    now: datetime
    readers: tuple[str, ...] = (PUBLIC,)
    again: bool = False


@dataclass(slots=True)
class _PageProgress:
    """Sums the progress of files that are read concurrently."""

    show: Progress | None
    name: str
    done: dict[str, int] = field(default_factory=dict[str, int])
    total: dict[str, int] = field(default_factory=dict[str, int])

    def track_file(self, path: str) -> Callable[[int, int], None]:
        def tell(done: int, total: int) -> None:
            self.done[path], self.total[path] = done, total
            if self.show is not None:
                self.show(self.name, sum(self.done.values()), sum(self.total.values()))

        return tell


def document_files(paths: Sequence[Path], endings: Iterable[str]) -> list[FoundFile]:
    """Return the files at and below `paths` with one of these extensions, in the order of the paths, then by name."""
    wanted = frozenset(endings)
    found = (leaf for path in paths for leaf in walk_files(path))
    return [leaf for leaf in found if isinstance(leaf, FoundFile) and file_extension(leaf.path) in wanted]


def file_extension(path: Path) -> str:
    """Return the extension of a file, lower case, without the dot."""
    return path.suffix.lower().removeprefix(".")


def merge_reports(paged: DocumentsReport, records: LoadReport) -> DocumentsReport:
    """Merge the reports of documents and records that were loaded together."""
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
    store: DocumentSink,
    reader: PageReader,
    leaves: Sequence[FoundFile],
    loading: LoadOptions,
    *,
    progress: Progress | None = None,
) -> DocumentsReport:
    """Read files and write their pages; failures are reported and the rest is loaded.

    A file whose content is already stored is not read again, so an interrupted load can be completed by repeating it.
    """
    loader = _DocumentLoader(store, reader, loading, progress)
    return await loader.load(leaves)


class _DocumentLoader:
    def __init__(
        self, store: DocumentSink, reader: PageReader, loading: LoadOptions, progress: Progress | None
    ) -> None:
        self._store = store
        self._reader = reader
        self._loading = loading
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_FILES)
        self._writing = asyncio.Lock()
        self._first: dict[tuple[str, str], str] = {}
        self._read = _PageProgress(progress, "reading pages")
        self._written = _PageProgress(progress, "writing pages")
        self._warnings: dict[str, list[LoadProblem]] = {}

    async def load(self, leaves: Sequence[FoundFile]) -> DocumentsReport:
        report = DocumentsReport()
        done = await asyncio.gather(*(self._try_load(leaf) for leaf in leaves), return_exceptions=True)
        for each in done:
            if isinstance(each, BaseException):
                raise each
            _add_to_report(report, each, self._warnings.get(each.path, ()))
        return report

    async def _try_load(self, leaf: FoundFile) -> LoadedFile:
        async with self._slots:
            try:
                return await self._load_file(leaf)
            except (StoreDamaged, StoreUnwritable):  # nothing more can be stored
                raise
            except ContextError as failure:
                return LoadedFile(path=leaf.name, status="failed", reason=str(failure))
            except OSError as failure:
                return LoadedFile(path=leaf.name, status="failed", reason=f"cannot be read: {failure.strerror}")

    async def _load_file(self, leaf: FoundFile) -> LoadedFile:
        loading = self._loading
        content = await asyncio.to_thread(_hash_file, leaf.path)
        doc_id = document_id(content, loading.readers, loading.scope)
        # A file with another extension may be read where this one fails.
        first = self._first.setdefault((doc_id, file_extension(leaf.path)), leaf.name)
        if first != leaf.name:
            return LoadedFile(path=leaf.name, status="duplicate", doc_id=doc_id, reason=f"the same file as {first}")
        if not loading.again and await self._store.find_stored(loading.scope, [doc_id]):
            return LoadedFile(path=leaf.name, status="unchanged", doc_id=doc_id)
        read = await self._reader.read(leaf.path, leaf.path.name, self._read.track_file(leaf.name))
        self._warnings[leaf.name] = list(_list_warnings(leaf.name, read))
        document = Document(
            doc_id=doc_id,
            filename=leaf.path.name,
            extension=file_extension(leaf.path),
            source_path=leaf.name,
            timestamp=loading.now,
            pages=read.pages,
            readers=loading.readers,
            title=read.title,
        )
        async with self._writing:
            added = await self._store.add(
                loading.scope, document, again=loading.again, progress=self._written.track_file(leaf.name)
            )
        return LoadedFile(
            path=leaf.name, status="unchanged" if added.unchanged else "added", doc_id=doc_id, pages=added.pages
        )


def _add_to_report(report: DocumentsReport, done: LoadedFile, warnings: Sequence[LoadProblem]) -> None:
    report.read += 1
    report.pages += done.pages
    report.files.append(done)
    report.warnings += warnings
    if done.status == "failed":
        report.failed.append(LoadProblem(path=done.path, message=done.reason))
    elif done.status == "duplicate":
        report.duplicates += 1
    elif done.status == "unchanged":
        report.unchanged += 1
    else:
        report.added += 1


def _list_warnings(name: str, read: ReadDocument) -> Iterator[LoadProblem]:
    """Yield unreadable pages and notes of the reader as warnings."""
    for bad in read.bad[:_MAX_NAMED_PAGES]:
        yield LoadProblem(path=name, message=f"page {bad.number}: {bad.reason}", warning=True)
    if len(read.bad) > _MAX_NAMED_PAGES:
        yield LoadProblem(
            path=name, message=f"and {len(read.bad) - _MAX_NAMED_PAGES} more pages cannot be read", warning=True
        )
    pages: dict[str, list[int]] = {}
    for page in read.pages:
        for note in page.notes:
            pages.setdefault(note, []).append(page.number)
    for note, numbers in pages.items():
        which = f"page {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} pages, the first of them {numbers[0]}"
        yield LoadProblem(path=name, message=f"{which}: {note}", warning=True)


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


_FORBIDDEN_CHARACTERS = re.compile(r"[/\\\0-\x1f]")
_MAX_NAME_BYTES = 255  # longest file name on most file systems


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A file's name and content; `source_path` is its original location, for display."""

    filename: str
    content: bytes
    source_path: str = ""


async def load_uploads(
    store: DocumentSink, reader: PageReader, uploads: Sequence[Upload], loading: LoadOptions
) -> DocumentsReport:
    """Load uploaded files and report each; an invalid name is refused, and only the pages are stored, not the bytes."""
    with TemporaryDirectory(prefix="contexture-") as folder:
        placed = await asyncio.to_thread(lambda: list(_write_uploads(uploads, Path(folder))))
        leaves = [each for each in placed if isinstance(each, FoundFile)]
        report = await load_documents(store, reader, leaves, loading)
    refused = [each for each in placed if isinstance(each, LoadProblem)]
    report.read += len(refused)
    report.failed += refused
    rows = iter(report.files)
    report.files = [_failed_file(each) if isinstance(each, LoadProblem) else next(rows) for each in placed]
    return report


def _failed_file(problem: LoadProblem) -> LoadedFile:
    return LoadedFile(path=problem.path, status="failed", reason=problem.message)


def _write_uploads(uploads: Sequence[Upload], folder: Path) -> Iterator[FoundFile | LoadProblem]:
    """Write each upload into a folder of its own, so that two may have the same name."""
    for at, upload in enumerate(uploads):
        name = upload.filename
        if not _is_file_name(name):
            yield LoadProblem(path=repr(name), message="the file's name may not hold a folder or a control character")
            continue
        place = folder / str(at)
        place.mkdir()
        (place / name).write_bytes(upload.content)
        yield FoundFile(place / name, upload.source_path or name)


def _is_file_name(name: str) -> bool:
    if not is_valid_unicode(name) or len(name.encode()) > _MAX_NAME_BYTES:
        return False
    return bool(name.strip()) and name not in {".", ".."} and not _FORBIDDEN_CHARACTERS.search(name)
