"""Writes a store into one file, while a service may go on using it."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from contexture.adapters.backup.archive import FORMAT, Filed, Manifest, add_manifest, digest, verified
from contexture.adapters.backup.snapshot import copied, frozen
from contexture.errors import InvalidRequest, NotFound, StoreUnwritable

TRUTH = "truth.sqlite"
DATABASES = ("*.sqlite", "*.db")
FOLDERS = ("pages", "builds")
FILES = ("redaction.salt",)
"""What makes a store. Everything else in its folder is rebuilt when it is opened."""

Progress = Callable[[str, int, int], None]
"""Told what is being copied, how much of it is done, and how much there is."""


def back_up(home: Path, target: Path, *, now: datetime, progress: Progress | None = None) -> Manifest:
    """Write the store in `home` into `target`, read it back, and say what it holds.

    All databases are copied as they were at one moment. Until everything is verified, there is no `target`.
    """
    if not (home / TRUTH).is_file():
        raise NotFound(f"there is no store in {str(home)!r}")
    if target.exists():
        raise InvalidRequest(f"{str(target)!r} exists already; choose another name")
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with _private(draft):
            _write(home, draft, now, progress or (lambda _task, _done, _whole: None))
            manifest = verified(draft)
            draft.rename(target)
    except OSError as failure:
        raise StoreUnwritable(f"cannot write {str(target)!r}: {failure.strerror}") from failure
    return manifest


def _write(home: Path, draft: Path, now: datetime, progress: Progress) -> None:
    databases = sorted(path for pattern in DATABASES for path in home.glob(pattern))
    files: dict[str, Filed] = {}
    with tarfile.open(draft, "w") as archive:
        with frozen(databases) as connections:
            for path, connection in connections.items():
                copy = draft.with_name(f"{draft.name}.{path.name}")
                with _private(copy):
                    rows = copied(connection, copy, lambda done, whole, name=path.name: progress(name, done, whole))
                    files[path.name] = _add(archive, copy, path.name, rows=rows)
        loose = _loose(home)
        for at, path in enumerate(loose, start=1):
            name = path.relative_to(home).as_posix()
            if filed := _add_loose(archive, path, name):
                files[name] = filed
            progress("files", at, len(loose))
        add_manifest(archive, Manifest(format=FORMAT, version=version("contexture"), created=now, files=files))
    with draft.open("rb") as written:
        os.fsync(written.fileno())


def _loose(home: Path) -> list[Path]:
    """Files beside the databases; those whose names begin with a dot are being written."""
    inside = (path for folder in FOLDERS for path in sorted((home / folder).rglob("*")))
    single = (home / name for name in FILES)
    return [path for path in (*single, *inside) if path.is_file() and not path.name.startswith(".")]


def _add_loose(archive: tarfile.TarFile, path: Path, name: str) -> Filed | None:
    try:
        return _add(archive, path, name)
    except FileNotFoundError:
        return None  # a page or a build that was removed since the list was made


def _add(archive: tarfile.TarFile, path: Path, name: str, *, rows: Mapping[str, int] | None = None) -> Filed:
    with path.open("rb") as file:
        about = archive.gettarinfo(arcname=name, fileobj=file)
        about.mode, about.uid, about.gid, about.uname, about.gname = 0o600, 0, 0, "", ""
        about.mtime = int(about.mtime)
        sha256 = digest(file)
        file.seek(0)
        archive.addfile(about, file)
    return Filed(size=about.size, sha256=sha256, rows=rows)


@contextmanager
def _private(path: Path) -> Generator[None]:
    """A new file that only its owner can read, gone afterwards unless it was renamed."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
