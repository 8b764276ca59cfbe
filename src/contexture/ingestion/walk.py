"""Which files a path stands for, in a fixed order, however strange the folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from contexture.ingestion.problems import Problem

Identity: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A regular file, and the name by which records and reports know it."""

    path: Path
    name: str


def walk(path: Path) -> Iterator[Leaf | Problem]:
    """The file itself, or every file below a folder by name; hidden entries are passed over.

    Names start with the path as it was given, so that files of two folders do not take each other's
    place; an absolute path, and one that climbs, starts with its last part. Links are followed
    inside the folder that was named; one that leaves it is a problem. So are a link back to a
    folder it stands in, a broken link, an unreadable folder and what is neither file nor folder.
    """
    inside = _real(path)
    waiting = [_Entry(path, _given(path), inside, frozenset())]
    while waiting:
        entry = waiting.pop()
        found = _look(entry)
        if isinstance(found, (Leaf, Problem)):
            yield found
        else:
            waiting.extend(reversed(found))


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    name: str
    inside: Path
    above: frozenset[Identity]

    def problem(self, message: str) -> Problem:
        return Problem(path=(self.name or str(self.path)).encode("utf-8", "replace").decode(), message=message)


def _look(entry: _Entry) -> Leaf | Problem | list[_Entry]:
    """What an entry is: a file, a problem, or a folder with these entries."""
    try:
        found = entry.path.stat()
        if entry.path.is_symlink() and not _real(entry.path).is_relative_to(entry.inside):
            return entry.problem("a link out of the folder that was named")
        if stat.S_ISREG(found.st_mode):
            return Leaf(entry.path, entry.name)
        if not stat.S_ISDIR(found.st_mode):
            return entry.problem("neither a file nor a folder")
        here = (found.st_dev, found.st_ino)
        if here in entry.above:
            return entry.problem("a link back to a folder it stands in")
        names = sorted(os.listdir(entry.path))  # noqa: PTH208 - names are all that is needed
    except OSError as failure:
        return entry.problem(f"cannot be read: {failure.strerror}")
    prefix = f"{entry.name}/" if entry.name else ""
    above = entry.above | {here}
    return [_Entry(entry.path / name, prefix + name, entry.inside, above) for name in names if not name.startswith(".")]


def _given(path: Path) -> str:
    """A path as it was given, without the dot; its last part when it is absolute or climbs."""
    name = path.name if path.is_absolute() or ".." in path.parts else path.as_posix()
    return "" if name == "." else name


def _real(path: Path) -> Path:
    """Where a path leads; unlike `Path.resolve`, a link that runs in circles is no error here."""
    return Path(os.path.realpath(path))
