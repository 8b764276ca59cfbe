"""The text files of an import source, from a folder or a zip archive.

Files that are too large, binary or not UTF-8 are problems; an archive cannot write to disk or exceed `ArchiveLimits`.
"""

import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path, PurePosixPath

from contexture.errors import InvalidRequest
from contexture.ingestion.files import FoundFile, LoadProblem, walk_files
from contexture.text.unicode import is_valid_unicode

MAX_FILE_BYTES = 16 * 2**20
"""Maximum size of a file in bytes; a larger one is reported."""

_BINARY_SAMPLE_BYTES = 8_192


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFile:
    """A text file: its path inside the source with `/`, its content, and its modification time."""

    path: str
    text: str
    modified: datetime | None = None

    @property
    def stem(self) -> str:
        """The file name without folders and extension."""
        return self.path.rpartition("/")[2].rpartition(".")[0] or self.path

    @property
    def folder(self) -> str:
        """The folder path; empty at the top level."""
        return self.path.rpartition("/")[0]

    @property
    def suffix(self) -> str:
        """The extension in lower case, with the dot."""
        return Path(self.path).suffix.lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceListing:
    """The text files of a source in order, and problems with the others."""

    files: tuple[SourceFile, ...]
    problems: tuple[LoadProblem, ...]


def open_folder(root: Path, suffixes: frozenset[str], *, skip: frozenset[str] = frozenset()) -> SourceListing:
    """List every file of these kinds below a folder, or the file itself; top-level folders in `skip` are left out."""
    files: list[SourceFile] = []
    problems: list[LoadProblem] = []
    prefix = _name_prefix(root)
    for found in walk_files(root):
        if isinstance(found, LoadProblem):
            problems.append(found)
            continue
        path = found.name.removeprefix(prefix).removeprefix("/") if root.is_dir() else root.name
        if path.partition("/")[0] in skip:
            continue
        read = _read_file(found, path, suffixes)
        (problems if isinstance(read, LoadProblem) else files).append(read)  # pyright: ignore[reportArgumentType] - told apart
    return SourceListing(files=tuple(files), problems=tuple(problems))


def decode_file(path: str, data: bytes, modified: datetime | None) -> SourceFile | LoadProblem:
    """Decode a file as text; a file that is too large, binary or badly named is a problem."""
    if not is_valid_unicode(path):
        return LoadProblem(
            path=path.encode("utf-8", "replace").decode(), message="the file's name is not valid Unicode"
        )
    if len(data) > MAX_FILE_BYTES:
        return LoadProblem(path=path, message=f"larger than {MAX_FILE_BYTES} bytes")
    if b"\0" in data[:_BINARY_SAMPLE_BYTES]:
        return LoadProblem(path=path, message="a binary file, not text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return LoadProblem(path=path, message="not UTF-8 text")
    return SourceFile(path=path, text=text.replace("\r\n", "\n").replace("\r", "\n"), modified=modified)


def unsupported_file(path: str) -> LoadProblem:
    """Build the warning for a file of an unsupported kind."""
    name = path.rpartition("/")[2]
    return LoadProblem(
        path=path, message=f"files of kind {Path(name).suffix or name!r} are not imported as blocks", warning=True
    )


def _read_file(leaf: FoundFile, path: str, suffixes: frozenset[str]) -> SourceFile | LoadProblem:
    if leaf.path.suffix.lower() not in suffixes:
        return unsupported_file(path)
    try:
        with leaf.path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        modified = datetime.fromtimestamp(leaf.path.stat().st_mtime, UTC)
    except (OSError, OverflowError, ValueError) as failure:
        return LoadProblem(path=path, message=f"cannot be read: {failure}")
    return decode_file(path, data, modified)


def _name_prefix(root: Path) -> str:
    name = root.name if root.is_absolute() or ".." in root.parts else root.as_posix()
    return "" if name == "." else name


_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError, ValueError)


# NotImplementedError and RuntimeError are what `zipfile` raises for other compressions and for passwords.
@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveLimits:
    """Limits for unpacking an archive; content beyond them is refused."""

    files: int = 100_000
    unpacked: int = 512 * 2**20
    nested: int = 1


def open_archive(path: Path, suffixes: frozenset[str], limits: ArchiveLimits | None = None) -> SourceListing:
    """List every file of these kinds; nothing is written to disk, and paths that leave the archive are refused."""
    unpacking = _Unpacker(suffixes, limits or ArchiveLimits())
    try:
        with zipfile.ZipFile(path) as archive:
            unpacking.unpack(archive, nested=0)
    except _ZIP_ERRORS as failure:
        raise InvalidRequest(f"{str(path)!r} is a corrupt zip archive: {failure}") from failure
    files = sorted(unpacking.files, key=lambda file: file.path)
    return SourceListing(files=tuple(files), problems=tuple(unpacking.problems))


class _Unpacker:
    """Unpacks in memory and counts the bytes actually unpacked, not the sizes that the archive declares."""

    def __init__(self, suffixes: frozenset[str], limits: ArchiveLimits) -> None:
        self._suffixes = suffixes
        self._limits = limits
        self._left = limits.unpacked
        self.files: list[SourceFile] = []
        self.problems: list[LoadProblem] = []

    def unpack(self, archive: zipfile.ZipFile, *, nested: int) -> None:
        entries = archive.infolist()
        if len(entries) > self._limits.files:
            raise InvalidRequest(f"the archive has {len(entries)} files; the limit is {self._limits.files}")
        for entry in entries:
            if not entry.is_dir():
                self._unpack_entry(archive, entry, nested)

    def _unpack_entry(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, nested: int) -> None:
        name = entry.filename
        suffix = PurePosixPath(name).suffix.lower()
        if not _is_inside(name):
            self.problems.append(LoadProblem(path=name, message="its path leads outside the archive"))
        elif suffix == ".zip" and nested < self._limits.nested:
            self._unpack_nested(archive, entry, nested)
        elif suffix in self._suffixes:
            data = self._read_entry(archive, entry)
            found = (
                data
                if isinstance(data, LoadProblem)
                else decode_file(posixpath.normpath(name), data, _entry_time(entry))
            )
            (self.problems if isinstance(found, LoadProblem) else self.files).append(found)  # pyright: ignore[reportArgumentType] - told apart
        else:
            self.problems.append(unsupported_file(name))

    def _unpack_nested(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, nested: int) -> None:
        """Unpack an archive inside the archive, as in exports that are split into parts."""
        data = self._read_entry(archive, entry, most=self._left)
        if isinstance(data, LoadProblem):
            self.problems.append(data)
            return
        try:
            with zipfile.ZipFile(BytesIO(data)) as inner:
                self.unpack(inner, nested=nested + 1)
        except _ZIP_ERRORS as failure:
            self.problems.append(LoadProblem(path=entry.filename, message=f"cannot be unpacked: {failure}"))

    def _read_entry(
        self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, most: int = MAX_FILE_BYTES
    ) -> bytes | LoadProblem:
        limit = min(most, self._left)
        try:
            with archive.open(entry) as file:
                data = file.read(limit + 1)
        except _ZIP_ERRORS as failure:
            return LoadProblem(path=entry.filename, message=f"cannot be unpacked: {failure}")
        if len(data) > limit:
            return LoadProblem(path=entry.filename, message=f"unpacks to more than {limit} bytes")
        self._left -= len(data)
        return data


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return not path.is_absolute() and ".." not in path.parts and ":" not in path.parts[0] and "\0" not in name


def _entry_time(entry: zipfile.ZipInfo) -> datetime | None:
    try:
        return datetime(*entry.date_time, tzinfo=UTC)
    except ValueError:
        return None


def check_archive(path: Path) -> None:
    """Raise `InvalidRequest` if a file is not a zip archive that can be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            archive.infolist()
    except _ZIP_ERRORS as failure:
        raise InvalidRequest(f"{str(path)!r} is a corrupt zip archive: {failure}") from failure


def list_archive_names(path: Path, most: int = 2_000) -> Iterator[str]:
    """Yield the first names in an archive; none if it cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield from archive.namelist()[:most]
    except _ZIP_ERRORS:
        return
