"""Files below a path in a fixed order, and the records and problems read from them, each with its file and line."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from contexture.types import Record


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadProblem:
    """A problem with a file, or with one line of it; `line` is 0 if it concerns the whole file.

    After a `warning` the record is still loaded; otherwise it is not.
    """

    path: str
    message: str
    line: int = 0
    warning: bool = False

    def __str__(self) -> str:
        """Return `path:line: message`, the format of compilers."""
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.message}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcedRecord:
    """A record, and the file and line it was read from."""

    record: Record
    path: str
    line: int = 0

    def problem(self, message: str, *, warning: bool = False) -> LoadProblem:
        """Build a problem that refers to this record."""
        return LoadProblem(path=self.path, line=self.line, message=message, warning=warning)


LoadItem: TypeAlias = SourcedRecord | LoadProblem
LoadItems: TypeAlias = Iterator[LoadItem]


FileIdentity: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file, and the name used for it in records and reports."""

    path: Path
    name: str


def walk_files(path: Path) -> Iterator[FoundFile | LoadProblem]:
    """Yield the file itself, or every file below a folder by name; hidden entries are skipped.

    Names start with the path as given, so that files of two folders do not collide; an absolute path, or one with `..`,
    starts with its last part. Symlinks are followed inside the given folder; one that leaves it is a problem. So are a
    symlink to one of its own parent folders, a broken symlink, an unreadable folder, and anything that is neither file
    nor folder.
    """
    inside = _real_path(path)
    waiting = [_Entry(path, _display_name(path), inside, frozenset())]
    while waiting:
        entry = waiting.pop()
        found = _inspect_entry(entry)
        if isinstance(found, (FoundFile, LoadProblem)):
            yield found
        else:
            waiting.extend(reversed(found))


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    name: str
    inside: Path
    above: frozenset[FileIdentity]

    def problem(self, message: str) -> LoadProblem:
        return LoadProblem(path=(self.name or str(self.path)).encode("utf-8", "replace").decode(), message=message)


def _inspect_entry(entry: _Entry) -> FoundFile | LoadProblem | list[_Entry]:
    """Return a file, a problem, or the entries of a folder."""
    try:
        found = entry.path.stat()
        if entry.path.is_symlink() and not _real_path(entry.path).is_relative_to(entry.inside):
            return entry.problem("a link to a target outside the given folder")
        if stat.S_ISREG(found.st_mode):
            return FoundFile(entry.path, entry.name)
        if not stat.S_ISDIR(found.st_mode):
            return entry.problem("neither a file nor a folder")
        here = (found.st_dev, found.st_ino)
        if here in entry.above:
            return entry.problem("a link to one of its parent folders")
        names = sorted(os.listdir(entry.path))  # noqa: PTH208 - names are all that is needed
    except OSError as failure:
        return entry.problem(f"cannot be read: {failure.strerror}")
    prefix = f"{entry.name}/" if entry.name else ""
    above = entry.above | {here}
    return [_Entry(entry.path / name, prefix + name, entry.inside, above) for name in names if not name.startswith(".")]


def _display_name(path: Path) -> str:
    """Return a path as given, without `.`; its last part if it is absolute or contains `..`."""
    name = path.name if path.is_absolute() or ".." in path.parts else path.as_posix()
    return "" if name == "." else name


def _real_path(path: Path) -> Path:
    """Return the resolved path; unlike `Path.resolve`, it does not fail on a symlink loop."""
    return Path(os.path.realpath(path))
