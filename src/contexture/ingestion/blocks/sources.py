"""The files of a source as text, from a folder or an archive, each judged by itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from contexture.ingestion.problems import Problem
from contexture.ingestion.walk import Leaf, walk
from contexture.retrieval.prepare import valid

LARGEST = 16 * 2**20
"""Bytes up to which a file is read; a larger one is reported."""

_SAMPLE = 8_192


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """A text file: its path inside the source with `/`, what it holds, and when it was changed."""

    path: str
    text: str
    modified: datetime | None = None

    @property
    def stem(self) -> str:
        """Its name without folders and ending."""
        return self.path.rpartition("/")[2].rpartition(".")[0] or self.path

    @property
    def folder(self) -> str:
        """The folders it stands in; empty at the top."""
        return self.path.rpartition("/")[0]

    @property
    def suffix(self) -> str:
        """How its name ends, lower case, with the dot."""
        return Path(self.path).suffix.lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """What a source holds: its text files in order, and what is wrong with the others."""

    files: tuple[SourceFile, ...]
    problems: tuple[Problem, ...]


def open_folder(root: Path, suffixes: frozenset[str], *, skip: frozenset[str] = frozenset()) -> Opened:
    """Every file of these kinds below a folder or the file itself; folders at the top named in `skip` are left out."""
    files: list[SourceFile] = []
    problems: list[Problem] = []
    prefix = _prefix(root)
    for found in walk(root):
        if isinstance(found, Problem):
            problems.append(found)
            continue
        path = found.name.removeprefix(prefix).removeprefix("/") if root.is_dir() else root.name
        if path.partition("/")[0] in skip:
            continue
        read = _read(found, path, suffixes)
        (problems if isinstance(read, Problem) else files).append(read)  # pyright: ignore[reportArgumentType] - told apart
    return Opened(files=tuple(files), problems=tuple(problems))


def text_of(path: str, data: bytes, modified: datetime | None) -> SourceFile | Problem:
    """A file's bytes as text; what is too large, binary or badly named is a problem."""
    if not valid(path):
        return Problem(path=path.encode("utf-8", "replace").decode(), message="the file's name is not valid Unicode")
    if len(data) > LARGEST:
        return Problem(path=path, message=f"larger than {LARGEST} bytes")
    if b"\0" in data[:_SAMPLE]:
        return Problem(path=path, message="a binary file, not a text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return Problem(path=path, message="not a text in UTF-8")
    return SourceFile(path=path, text=text.replace("\r\n", "\n").replace("\r", "\n"), modified=modified)


def passed_over(path: str) -> Problem:
    """What is said of a file of a kind that is not imported."""
    name = path.rpartition("/")[2]
    return Problem(
        path=path, message=f"files of kind {Path(name).suffix or name!r} are not imported as blocks", warning=True
    )


def _read(leaf: Leaf, path: str, suffixes: frozenset[str]) -> SourceFile | Problem:
    if leaf.path.suffix.lower() not in suffixes:
        return passed_over(path)
    try:
        with leaf.path.open("rb") as file:
            data = file.read(LARGEST + 1)
        modified = datetime.fromtimestamp(leaf.path.stat().st_mtime, UTC)
    except (OSError, OverflowError, ValueError) as failure:
        return Problem(path=path, message=f"cannot be read: {failure}")
    return text_of(path, data, modified)


def _prefix(root: Path) -> str:
    name = root.name if root.is_absolute() or ".." in root.parts else root.as_posix()
    return "" if name == "." else name
