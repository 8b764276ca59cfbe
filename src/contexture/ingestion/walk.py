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
    """A regular file, and its path relative to the folder that was named."""

    path: Path
    name: str


def walk(path: Path) -> Iterator[Leaf | Problem]:
    """The file itself, or every file below a folder by name; hidden entries are passed over.

    Links are followed. A link back to a folder it stands in, a broken link, an unreadable folder
    and anything that is neither file nor folder are problems.
    """
    waiting = [_Entry(path, path.name, frozenset())]
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
    above: frozenset[Identity]

    def problem(self, message: str) -> Problem:
        return Problem(path=(self.name or str(self.path)).encode("utf-8", "replace").decode(), message=message)


def _look(entry: _Entry) -> Leaf | Problem | list[_Entry]:
    """What an entry is: a file, a problem, or a folder with these entries."""
    try:
        found = entry.path.stat()
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
    prefix = f"{entry.name}/" if entry.above else ""
    above = entry.above | {here}
    return [_Entry(entry.path / name, prefix + name, above) for name in names if not name.startswith(".")]
