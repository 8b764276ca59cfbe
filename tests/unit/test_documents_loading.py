"""Loading files as documents: in processes of their own, as often as you like, each file whole or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from contexture.adapters.documents.file_types import EXTENSIONS, read_document
from contexture.adapters.documents.worker_pool import DocumentWorkerPool
from contexture.documents import ReadLimits
from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.file_loading import page_extensions
from contexture.ingestion.documents import (
    DocumentsReport,
    LoadOptions,
    Upload,
    document_files,
    load_documents,
    load_uploads,
)
from contexture.ledger import Trace
from contexture.pages.store import PageStore
from contexture.testing.doubles import NOON
from contexture.types import Scope
from support.page_conformance import pages_over
from support.workbench import workbench

ANNA = Scope(tenant="acme", user="anna")
LOADING = LoadOptions(scope=ANNA, now=NOON)
"""Anna loads at noon, for everyone."""


class Here:
    """Reads files in this process, and counts them."""

    def __init__(self) -> None:
        self.read_files: list[str] = []

    async def read(self, path, name, progress):
        """The pages of a file, not drawn."""
        self.read_files.append(name)
        return read_document(path, name, ReadLimits(draw=False), progress)


@pytest_asyncio.fixture
async def store(new_folder, tmp_path) -> AsyncIterator[PageStore]:
    """An empty page store."""
    async with workbench(new_folder()) as bench:
        yield pages_over(bench, tmp_path / "pictures")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Three good files, two of them the same, and two bad ones."""
    place = tmp_path / "in"
    (place / "sub").mkdir(parents=True)
    (place / "a.md").write_text("# Pumps\n\nPumps are oiled in May.")
    (place / "copy.md").write_text("# Pumps\n\nPumps are oiled in May.")
    (place / "sub" / "b.html").write_text("<h1>Cranes</h1><p>Cranes are painted in June.</p>")
    (place / "bad.pdf").write_text("no PDF at all")
    (place / "sub" / "empty.docx").write_bytes(b"")
    (place / "rows.jsonl").write_text("{}")
    return place


async def loaded(store: PageStore, folder: Path, reader=None, **how: object) -> DocumentsReport:
    """What becomes of the files of a folder."""
    return await load_documents(store, reader or Here(), document_files([folder], EXTENSIONS), LOADING, **how)


async def test_good_files_are_loaded_and_bad_ones_reported(store, folder):
    """Each file has its own verdict, a bad one does not stop the rest, and what it holds can be found."""
    report = await loaded(store, folder)

    assert (5, 2, 2, 1) == (report.read, report.added, report.pages, report.duplicates)
    assert ["in/bad.pdf", "in/sub/empty.docx"] == [problem.path for problem in report.failed]
    assert ["added", "failed", "duplicate", "added", "failed"] == [each.status for each in report.files]
    [best, *_] = await store.find(ANNA, "cranes painted", k=3, trace=Trace())
    assert "b.html" == best.filename


async def test_loading_again_reads_nothing_again(store, folder):
    """A file whose content is stored is skipped without being opened, under whatever name."""
    await loaded(store, folder)
    (folder / "a.md").rename(folder / "renamed.md")
    reader = Here()

    report = await loaded(store, folder, reader)

    assert (0, 2) == (report.added, report.unchanged)
    assert ["bad.pdf", "empty.docx"] == reader.read_files


async def test_a_file_is_read_under_its_right_extension_after_it_failed_under_a_wrong_one(store, tmp_path):
    """The same content under two names is a duplicate only if both have the same extension."""
    place = tmp_path / "in"
    place.mkdir()
    (place / "a.pdf").write_text("<h1>Cranes</h1><p>Cranes are painted in June.</p>")
    (place / "b.html").write_text("<h1>Cranes</h1><p>Cranes are painted in June.</p>")

    report = await loaded(store, place)

    assert [("in/a.pdf", "failed"), ("in/b.html", "added")] == [(each.path, each.status) for each in report.files]


async def test_a_changed_file_is_another_document(store, folder):
    """New content is loaded beside the old, which is still there until it is removed."""
    await loaded(store, folder)
    (folder / "copy.md").write_text("# Pumps\n\nPumps are oiled in April.")

    assert 1 == (await loaded(store, folder)).added
    assert 3 == len(await store.documents(ANNA, limit=10))


async def test_progress_counts_pages(store, folder):
    """Whoever watches hears of pages read and of pages written."""
    heard: list[tuple[str, int, int]] = []
    await loaded(store, folder, progress=lambda *told: heard.append(told))

    assert {"reading pages", "writing pages"} == {name for name, *_ in heard}
    assert all(done <= total for _, done, total in heard)


async def test_a_store_that_fails_is_reported_per_file(store, folder, monkeypatch):
    """A document that cannot be written is a failed file, and the next load tries it again."""

    async def failing(*_: object, **__: object) -> None:
        raise SourceUnavailable("disk gone")

    with monkeypatch.context() as broken:
        broken.setattr(store, "add", failing)
        report = await loaded(store, folder)

    assert (0, 4) == (report.added, len(report.failed))
    assert 2 == (await loaded(store, folder)).added


async def test_uploads_cannot_leave_their_folder(store, tmp_path):
    """A name with a folder in it is refused; two files may have one name."""
    uploads = [
        Upload(filename="../../evil.md", content=b"# Evil"),
        Upload(filename="..", content=b"# Evil"),
        Upload(filename="a\\b.md", content=b"# Evil"),
        Upload(filename="notes.md", content=b"# One\n\nFirst words."),
        Upload(filename="notes.md", content=b"# Two\n\nSecond words.", source_path="mail/notes.md"),
    ]

    report = await load_uploads(store, Here(), uploads, LOADING)

    assert (5, 2, 3) == (report.read, report.added, len(report.failed))
    assert ["failed", "failed", "failed", "added", "added"] == [each.status for each in report.files]
    assert not list(tmp_path.rglob("evil.md"))
    assert {"notes.md", "mail/notes.md"} == {each.source_path for each in await store.documents(ANNA, limit=9)}


async def test_a_file_that_takes_too_long_is_ended(folder):
    """The process is killed, the file is reported, and the next file is read by a new one."""
    async with DocumentWorkerPool(count=1, limits=ReadLimits(seconds=0.02)) as hasty:
        with pytest.raises(InvalidRequest, match="longer than"):
            await hasty.read(folder / "a.md", "a.md", lambda *_: None)
        with pytest.raises(InvalidRequest, match="longer than"):
            await hasty.read(folder / "a.md", "a.md", lambda *_: None)


async def test_a_worker_reads_one_file_after_another(folder):
    """Pages come back from another process as they are, a refusal as one sentence, and it goes on."""
    async with DocumentWorkerPool(count=1, limits=ReadLimits(draw=False)) as workers:
        with pytest.raises(InvalidRequest, match="its content is not what"):
            await workers.read(folder / "bad.pdf", "bad.pdf", lambda *_: None)
        found = await workers.read(folder / "a.md", "a.md", lambda *_: None)

    assert read_document(folder / "a.md", "a.md", ReadLimits(draw=False), lambda *_: None) == found


async def test_a_file_that_takes_too_much_memory_is_ended(folder):
    """A file for which a process may not have the memory is refused, and that is said."""
    with (folder / "large.md").open("wb") as large:
        large.truncate(300 * 2**20)  # zeros that take no room on the disk
    async with DocumentWorkerPool(count=1, limits=ReadLimits(memory_bytes=200 * 2**20)) as poor:
        with pytest.raises(InvalidRequest, match="bytes"):
            await poor.read(folder / "large.md", "large.md", lambda *_: None)


async def test_a_cancelled_read_ends_its_process(folder):
    """Nobody waits for the file any more, so nobody reads it."""
    async with DocumentWorkerPool(count=1) as workers:
        task = asyncio.create_task(workers.read(folder / "a.md", "a.md", lambda *_: None))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert not workers._idle


def test_text_files_become_pages_when_documents_are_asked_for(folder):
    """By themselves Markdown files are records; `--as documents` makes pages of them too, never of JSONL."""
    by_kind = {leaf.name for leaf in document_files([folder], page_extensions(everything=False))}
    asked_for = {leaf.name for leaf in document_files([folder], page_extensions(everything=True))}

    assert {"in/bad.pdf", "in/sub/b.html", "in/sub/empty.docx"} == by_kind
    assert {"in/a.md", "in/copy.md"} == asked_for - by_kind


def test_the_report_of_a_load_is_json(tmp_path):
    """What the command line prints for pages is plain JSON with a row per file."""
    from contexture.service.envelope import encode_json
    from contexture.service.wire.builds import load_report_object

    report = DocumentsReport(read=1, added=1, pages=2)

    told = json.loads(encode_json(load_report_object(report)))

    assert {"read", "added", "unchanged", "duplicates", "failed", "warnings", "pages", "files"} == set(told)
