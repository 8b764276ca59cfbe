"""Files that came as bytes, loaded like any others."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from contexture.ingestion.documents import DocumentsReport, Keeps, LoadedFile, Loading, Reads, load_documents
from contexture.ingestion.problems import Problem
from contexture.ingestion.walk import Leaf
from contexture.retrieval.prepare import valid

_STRANGE = re.compile(r"[/\\\0-\x1f]")
_LONGEST = 255  # bytes of a file's name on most systems


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A file's name and content; `source_path` is where it came from, for those who read about it."""

    filename: str
    content: bytes
    source_path: str = ""


async def load_uploads(store: Keeps, reader: Reads, uploads: Sequence[Upload], loading: Loading) -> DocumentsReport:
    """What became of each file; a name that is none is refused, and nothing is kept of the bytes but their pages."""
    with TemporaryDirectory(prefix="contexture-") as folder:
        placed = await asyncio.to_thread(lambda: list(_placed(uploads, Path(folder))))
        leaves = [each for each in placed if isinstance(each, Leaf)]
        report = await load_documents(store, reader, leaves, loading)
    refused = [each for each in placed if isinstance(each, Problem)]
    report.read += len(refused)
    report.failed += refused
    rows = iter(report.files)
    report.files = [_refused(each) if isinstance(each, Problem) else next(rows) for each in placed]
    return report


def _refused(problem: Problem) -> LoadedFile:
    return LoadedFile(path=problem.path, status="failed", reason=problem.message)


def _placed(uploads: Sequence[Upload], folder: Path) -> Iterator[Leaf | Problem]:
    """Each file in a folder of its own, so that two may have one name."""
    for at, upload in enumerate(uploads):
        name = upload.filename
        if not _is_name(name):
            yield Problem(path=repr(name), message="the file's name may not hold a folder or a control character")
            continue
        place = folder / str(at)
        place.mkdir()
        (place / name).write_bytes(upload.content)
        yield Leaf(place / name, upload.source_path or name)


def _is_name(name: str) -> bool:
    if not valid(name) or len(name.encode()) > _LONGEST:
        return False
    return bool(name.strip()) and name not in {".", ".."} and not _STRANGE.search(name)
