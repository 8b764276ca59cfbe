"""A store in one file: a tar archive whose manifest names every file, its hash and its rows."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from contexture.errors import InvalidRequest

MANIFEST = "manifest.json"
FORMAT = 1

_LARGEST_MANIFEST = 1 << 28
_PIECE = 1 << 20


class Filed(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a store; `rows` by table where it is a database."""

    size: int
    sha256: str
    rows: Mapping[str, int] | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds, by path below the store's folder."""

    format: int
    version: str
    created: datetime
    files: Mapping[str, Filed]

    @property
    def bytes(self) -> int:
        """The size of everything in it."""
        return sum(filed.size for filed in self.files.values())

    @property
    def rows(self) -> int:
        """The rows of all tables."""
        return sum(sum(filed.rows.values()) for filed in self.files.values() if filed.rows)


def digest(file: IO[bytes]) -> str:
    """The SHA-256 of what is left of a file, hex."""
    found = hashlib.sha256()
    while piece := file.read(_PIECE):
        found.update(piece)
    return found.hexdigest()


def add_manifest(archive: tarfile.TarFile, manifest: Manifest) -> None:
    """Write the manifest, which comes last: it is known when everything else is written."""
    data = msgspec.json.format(msgspec.json.encode(manifest))
    about = tarfile.TarInfo(MANIFEST)
    about.size, about.mode = len(data), 0o600
    archive.addfile(about, io.BytesIO(data))


@contextmanager
def opened(path: Path) -> Generator[tarfile.TarFile]:
    """A backup to read; raises `InvalidRequest` for a file that is none."""
    try:
        with tarfile.open(path, "r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError) as failure:
        raise damaged(path, str(failure)) from failure
    except OSError as failure:
        raise InvalidRequest(f"cannot read {str(path)!r}: {failure.strerror}") from failure


def verified(path: Path) -> Manifest:
    """What a backup holds, once every file in it was read and is the one that the manifest names."""
    with opened(path) as archive:
        found: dict[str, Filed] = {}
        for member in archive:
            if member.name != MANIFEST:
                found[_safe(path, member)] = _filed(archive, member)
        manifest = _manifest(path, archive)
    listed = {name: Filed(size=filed.size, sha256=filed.sha256) for name, filed in manifest.files.items()}
    if listed != found:
        wrong = sorted(name for name in {*listed, *found} if listed.get(name) != found.get(name))
        raise damaged(path, f"{wrong[0]!r} is not as it was")
    return manifest


def damaged(path: Path, why: str) -> InvalidRequest:
    """The error for a file that is no backup, or no longer."""
    return InvalidRequest(f"{str(path)!r} is no backup, or is damaged: {why}")


def _manifest(path: Path, archive: tarfile.TarFile) -> Manifest:
    try:
        about = archive.getmember(MANIFEST)
        file = archive.extractfile(about)
        manifest = msgspec.json.decode(file.read(_LARGEST_MANIFEST) if file else b"", type=Manifest)
    except KeyError as failure:
        raise damaged(path, "it has no manifest") from failure
    except msgspec.DecodeError as failure:
        raise damaged(path, f"its manifest cannot be read: {failure}") from failure
    if manifest.format != FORMAT:
        raise InvalidRequest(f"{str(path)!r} has format {manifest.format}; this version reads {FORMAT}")
    return manifest


def _safe(path: Path, member: tarfile.TarInfo) -> str:
    """The name of a member, once it is sure that it stays below the folder it is unpacked in."""
    parts = PurePosixPath(member.name).parts
    if not member.isreg() or member.name.startswith("/") or ".." in parts or "\0" in member.name:
        raise damaged(path, f"{member.name!r} does not belong into a store")
    return member.name


def _filed(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Filed:
    file = archive.extractfile(member)
    return Filed(size=member.size, sha256=digest(file) if file else "")
