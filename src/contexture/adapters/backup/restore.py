"""Puts a store back from a backup."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from contexture.adapters.backup.archive import Filed, Manifest, damaged, digest, opened, verified
from contexture.adapters.backup.snapshot import rows_of
from contexture.adapters.backup.write import TRUTH, Progress
from contexture.adapters.index.lock import StoreLock
from contexture.errors import InvalidRequest, StoreUnwritable

_UNPACKED = ".restoring"
_LOCK = "lock"


def restore(source: Path, home: Path, *, force: bool, progress: Progress | None = None) -> Manifest:
    """Put the store of a backup into `home` and say what it holds; with `force` it replaces what is there.

    Nothing in `home` is touched until the backup is unpacked and verified. A store that a process holds is refused.
    """
    manifest = verified(source)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not force and (there := _contents(home)):
        raise InvalidRequest(f"{str(home)!r} is not empty, it holds {there[0].name!r}; --force replaces what it holds")
    lock = StoreLock(home)
    try:
        fresh = home / _UNPACKED
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        _unpack(source, fresh, manifest, progress or (lambda _task, _done, _whole: None))
        _exchange(home, fresh)
    except OSError as failure:
        raise StoreUnwritable(f"cannot write to {str(home)!r}: {failure.strerror}") from failure
    finally:
        shutil.rmtree(home / _UNPACKED, ignore_errors=True)
        lock.release()
    return manifest


def _contents(home: Path) -> list[Path]:
    return sorted(path for path in home.iterdir() if path.name not in {_LOCK, _UNPACKED})


def _unpack(source: Path, folder: Path, manifest: Manifest, progress: Progress) -> None:
    with opened(source) as archive:
        for at, (name, filed) in enumerate(manifest.files.items(), start=1):
            path = folder / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _extract(archive, name, path)
            _check(source, path, filed)
            progress("files", at, len(manifest.files))


def _extract(archive: tarfile.TarFile, name: str, path: Path) -> None:
    file = archive.extractfile(name)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        if file is not None:
            shutil.copyfileobj(file, out)
        out.flush()
        os.fsync(out.fileno())


def _check(source: Path, path: Path, filed: Filed) -> None:
    with path.open("rb") as file:
        if digest(file) != filed.sha256:
            raise damaged(source, f"{path.name!r} was not unpacked as it was packed")
    if filed.rows is not None and _rows(source, path) != filed.rows:
        raise damaged(source, f"{path.name!r} does not have the rows it had")


def _rows(source: Path, path: Path) -> Mapping[str, int]:
    try:
        with closing(sqlite3.connect(path)) as file:
            if file.execute("PRAGMA quick_check").fetchone() != ("ok",):
                raise damaged(source, f"the database {path.name!r} is broken")
            return rows_of(file)
    except sqlite3.Error as failure:
        raise damaged(source, f"the database {path.name!r} cannot be read: {failure}") from failure


def _exchange(home: Path, fresh: Path) -> None:
    """Replace what is in the folder; the records come last, so that half of a store is never taken for one.

    The folder itself stays: it may be where a volume is mounted.
    """
    for path in sorted(_contents(home), key=lambda found: found.name != TRUTH):
        _remove(path)
    for path in sorted(fresh.iterdir(), key=lambda found: found.name == TRUTH):
        path.rename(home / path.name)


def _remove(path: Path) -> None:
    forget: Callable[[Path], object] = shutil.rmtree if path.is_dir() and not path.is_symlink() else Path.unlink
    forget(path)
