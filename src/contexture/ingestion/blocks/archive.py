"""The text files of a zip archive, which may lie about what it holds."""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path, PurePosixPath

from contexture.errors import InvalidRequest
from contexture.ingestion.blocks.sources import LARGEST, Opened, SourceFile, passed_over, text_of
from contexture.ingestion.problems import Problem

_UNREADABLE = (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError)
# NotImplementedError and RuntimeError are what `zipfile` raises for other compressions and for passwords.


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveLimits:
    """How far an archive is unpacked; what goes beyond is refused."""

    files: int = 100_000
    unpacked: int = 512 * 2**20
    nested: int = 1


def open_archive(path: Path, suffixes: frozenset[str], limits: ArchiveLimits | None = None) -> Opened:
    """Every file of these kinds; nothing is written to disk, and a name that climbs out of the archive is refused."""
    unpacking = _Unpacking(suffixes, limits or ArchiveLimits())
    try:
        with zipfile.ZipFile(path) as archive:
            unpacking.take(archive, nested=0)
    except _UNREADABLE as failure:
        raise InvalidRequest(f"{str(path)!r} is not a zip archive that can be read: {failure}") from failure
    files = sorted(unpacking.files, key=lambda file: file.path)
    return Opened(files=tuple(files), problems=tuple(unpacking.problems))


class _Unpacking:
    """Counts what really comes out, whatever the archive says its sizes are."""

    def __init__(self, suffixes: frozenset[str], limits: ArchiveLimits) -> None:
        self._suffixes = suffixes
        self._limits = limits
        self._left = limits.unpacked
        self.files: list[SourceFile] = []
        self.problems: list[Problem] = []

    def take(self, archive: zipfile.ZipFile, *, nested: int) -> None:
        entries = archive.infolist()
        if len(entries) > self._limits.files:
            raise InvalidRequest(f"the archive holds {len(entries)} files; {self._limits.files} are read")
        for entry in entries:
            if not entry.is_dir():
                self._entry(archive, entry, nested)

    def _entry(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, nested: int) -> None:
        name = entry.filename
        suffix = PurePosixPath(name).suffix.lower()
        if not _inside(name):
            self.problems.append(Problem(path=name, message="a name that leads out of the archive"))
        elif suffix == ".zip" and nested < self._limits.nested:
            self._inner(archive, entry, nested)
        elif suffix in self._suffixes:
            data = self._data(archive, entry)
            found = data if isinstance(data, Problem) else text_of(posixpath.normpath(name), data, _time(entry))
            (self.problems if isinstance(found, Problem) else self.files).append(found)  # pyright: ignore[reportArgumentType] - told apart
        else:
            self.problems.append(passed_over(name))

    def _inner(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, nested: int) -> None:
        """An archive in the archive, as exports in parts have it."""
        data = self._data(archive, entry, most=self._left)
        if isinstance(data, Problem):
            self.problems.append(data)
            return
        try:
            with zipfile.ZipFile(BytesIO(data)) as inner:
                self.take(inner, nested=nested + 1)
        except _UNREADABLE as failure:
            self.problems.append(Problem(path=entry.filename, message=f"cannot be unpacked: {failure}"))

    def _data(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int = LARGEST) -> bytes | Problem:
        limit = min(most, self._left)
        try:
            with archive.open(entry) as file:
                data = file.read(limit + 1)
        except _UNREADABLE as failure:
            return Problem(path=entry.filename, message=f"cannot be unpacked: {failure}")
        if len(data) > limit:
            return Problem(path=entry.filename, message=f"unpacks to more than {limit} bytes")
        self._left -= len(data)
        return data


def _inside(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return not path.is_absolute() and ".." not in path.parts and ":" not in path.parts[0] and "\0" not in name


def _time(entry: zipfile.ZipInfo) -> datetime | None:
    try:
        return datetime(*entry.date_time, tzinfo=UTC)
    except ValueError:
        return None


def names_of(path: Path, most: int = 2_000) -> Iterator[str]:
    """The first names in an archive; none when it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield from archive.namelist()[:most]
    except _UNREADABLE:
        return
