"""Backs up a store into one tar archive while it is in use, and restores it.

The manifest lists every file with its hash and row counts. All SQLite files are copied from one consistent snapshot.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from contexture.adapters import store_damage
from contexture.adapters.index.lock import StoreLock
from contexture.errors import InvalidRequest, NotFound, StoreUnwritable

FILE_FOLDERS = ("pages", "builds")
SINGLE_FILES = ("redaction.salt",)
"""Files that make up a store; everything else in its folder is rebuilt when the store is opened."""

BackupProgress = Callable[[str, int, int], None]
"""Progress callback: what is being copied, how much of it is done, and the total."""


def back_up(home: Path, target: Path, *, now: datetime, progress: BackupProgress | None = None) -> BackupManifest:
    """Write the store in `home` into the archive `target`, verify it, and return its manifest.

    All databases are copied from one consistent snapshot, and each copy is checked. `target` appears only after the
    archive is verified by unpacking and opening its databases. Raises `NotFound` without a store in `home`,
    `InvalidRequest` if `target` exists, `StoreDamaged` if a database is damaged, and `StoreUnwritable` if writing
    fails.
    """
    if not (home / store_damage.RECORDS_DATABASE).is_file():
        raise NotFound(f"there is no store in {str(home)!r}")
    if target.exists():
        raise InvalidRequest(f"{str(target)!r} exists already; choose another name")
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with _private_file(draft):
            _write_archive(home, draft, now, progress or (lambda _task, _done, _whole: None))
            manifest = verify_archive(draft, name=target)
            _open_archived_databases(draft, target, manifest)
            draft.rename(target)
    except OSError as failure:
        raise StoreUnwritable(f"cannot write {str(target)!r}: {failure.strerror}") from failure
    return manifest


def _write_archive(home: Path, draft: Path, now: datetime, progress: BackupProgress) -> None:
    databases = store_damage.list_databases(home)
    for path in databases:
        if why := store_damage.find_lost_writes(path):
            raise store_damage.damaged_database_error(path, why)
    files: dict[str, ArchivedFile] = {}
    with tarfile.open(draft, "w") as archive:
        with open_snapshots(databases) as connections:
            for path, connection in connections.items():
                copy = draft.with_name(f"{draft.name}.{path.name}")
                with _private_file(copy), store_damage.sqlite_errors(path):
                    rows = copy_database(
                        connection, copy, lambda done, whole, name=path.name: progress(name, done, whole)
                    )
                    if why := store_damage.find_damage(copy):
                        raise store_damage.damaged_database_error(path, why)
                    files[path.name] = _add_file(archive, copy, path.name, rows=rows)
        loose = list_loose_files(home)
        for at, path in enumerate(loose, start=1):
            name = path.relative_to(home).as_posix()
            if filed := _add_if_present(archive, path, name):
                files[name] = filed
            progress("files", at, len(loose))
        add_manifest(
            archive, BackupManifest(format=BACKUP_FORMAT, version=version("contexture-ai"), created=now, files=files)
        )
    with draft.open("rb") as written:
        os.fsync(written.fileno())


def _open_archived_databases(draft: Path, target: Path, manifest: BackupManifest) -> None:
    """Unpack each database of a new archive, check it and count its rows; raises `InvalidRequest` naming `target`."""
    with open_archive(draft, name=target) as archive:
        for name, filed in manifest.files.items():
            if filed.rows is None:
                continue
            copy = draft.with_name(f"{draft.name}.{PurePosixPath(name).name}")
            try:
                _extract_file(archive, name, copy)
                if _count_checked_rows(target, copy, name) != filed.rows:
                    raise damaged_archive_error(target, f"the number of rows of {name!r} differs from the manifest")
            finally:
                copy.unlink(missing_ok=True)


def list_loose_files(home: Path) -> list[Path]:
    """Files beside the databases, without dot files, which are still being written."""
    inside = (path for folder in FILE_FOLDERS for path in sorted((home / folder).rglob("*")))
    single = (home / name for name in SINGLE_FILES)
    return [path for path in (*single, *inside) if path.is_file() and not path.name.startswith(".")]


def _add_if_present(archive: tarfile.TarFile, path: Path, name: str) -> ArchivedFile | None:
    try:
        return _add_file(archive, path, name)
    except FileNotFoundError:
        return None  # a page or build removed after the files were listed


def _add_file(
    archive: tarfile.TarFile, path: Path, name: str, *, rows: Mapping[str, int] | None = None
) -> ArchivedFile:
    with path.open("rb") as file:
        about = archive.gettarinfo(arcname=name, fileobj=file)
        about.mode, about.uid, about.gid, about.uname, about.gname = 0o600, 0, 0, "", ""
        about.mtime = int(about.mtime)
        sha256 = hash_file(file)
        file.seek(0)
        archive.addfile(about, file)
    return ArchivedFile(size=about.size, sha256=sha256, rows=rows)


@contextmanager
def _private_file(path: Path) -> Generator[None]:
    """Create a file with mode 0600 and remove it on exit, unless it was renamed."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


_STAGING_FOLDER = ".restoring"
_LOCK_FILE = "lock"


def restore_backup(source: Path, home: Path, *, force: bool, progress: BackupProgress | None = None) -> BackupManifest:
    """Restore a backup into `home` and return its manifest; `force` replaces existing contents.

    Existing contents stay untouched until the backup is unpacked and verified. Raises `InvalidRequest` for a damaged
    backup or, without `force`, a folder that is not empty, and `StoreLocked` while another process has the store open.
    """
    manifest = verify_archive(source)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not force and (there := _list_contents(home)):
        raise InvalidRequest(f"{str(home)!r} contains {there[0].name!r}; use an empty folder, or --force to replace it")
    lock = StoreLock(home)
    try:
        fresh = home / _STAGING_FOLDER
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        _unpack(source, fresh, manifest, progress or (lambda _task, _done, _whole: None))
        _replace_contents(home, fresh)
    except OSError as failure:
        raise StoreUnwritable(f"cannot write to {str(home)!r}: {failure.strerror}") from failure
    finally:
        shutil.rmtree(home / _STAGING_FOLDER, ignore_errors=True)
        lock.release()
    return manifest


def _list_contents(home: Path) -> list[Path]:
    return sorted(path for path in home.iterdir() if path.name not in {_LOCK_FILE, _STAGING_FOLDER})


def _unpack(source: Path, folder: Path, manifest: BackupManifest, progress: BackupProgress) -> None:
    with open_archive(source) as archive:
        for at, (name, filed) in enumerate(manifest.files.items(), start=1):
            path = folder / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _extract_file(archive, name, path)
            _check_unpacked(source, path, filed)
            progress("files", at, len(manifest.files))


def _extract_file(archive: tarfile.TarFile, name: str, path: Path) -> None:
    file = archive.extractfile(name)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        if file is not None:
            shutil.copyfileobj(file, out)
        out.flush()
        os.fsync(out.fileno())


def _check_unpacked(source: Path, path: Path, filed: ArchivedFile) -> None:
    with path.open("rb") as file:
        if hash_file(file) != filed.sha256:
            raise damaged_archive_error(source, f"{path.name!r} differs from the manifest after unpacking")
    if filed.rows is not None and _count_checked_rows(source, path, path.name) != filed.rows:
        raise damaged_archive_error(source, f"the number of rows of {path.name!r} differs from the manifest")


def _count_checked_rows(source: Path, path: Path, name: str) -> Mapping[str, int]:
    try:
        with closing(sqlite3.connect(path)) as file:
            if why := store_damage.find_connection_damage(file, quick=True):
                raise damaged_archive_error(source, f"the database {name!r} is damaged: {why}")
            return count_rows(file)
    except sqlite3.Error as failure:
        raise damaged_archive_error(source, f"the database {name!r} cannot be read: {failure}") from failure


def _replace_contents(home: Path, fresh: Path) -> None:
    """Replace the contents of the folder.

    The records database is removed first and added last, so that an incomplete store is never taken for a store.
    The folder itself stays, because it may be a mount point.
    """
    for path in sorted(_list_contents(home), key=lambda found: found.name != store_damage.RECORDS_DATABASE):
        _remove(path)
    for path in sorted(fresh.iterdir(), key=lambda found: found.name == store_damage.RECORDS_DATABASE):
        path.rename(home / path.name)


def _remove(path: Path) -> None:
    forget: Callable[[Path], object] = shutil.rmtree if path.is_dir() and not path.is_symlink() else Path.unlink
    forget(path)


MANIFEST_FILE = "manifest.json"
BACKUP_FORMAT = 1

_MAX_MANIFEST_BYTES = 1 << 28
_CHUNK_BYTES = 1 << 20


class ArchivedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a backup; for a database, `rows` has the row count of each table."""

    size: int
    sha256: str
    rows: Mapping[str, int] | None = None


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Manifest of a backup: its files by path relative to the store's folder."""

    format: int
    version: str
    created: datetime
    files: Mapping[str, ArchivedFile]

    @property
    def bytes(self) -> int:
        """Total size of all files."""
        return sum(filed.size for filed in self.files.values())

    @property
    def rows(self) -> int:
        """Total number of rows of all tables."""
        return sum(sum(filed.rows.values()) for filed in self.files.values() if filed.rows)


def hash_file(file: IO[bytes]) -> str:
    """SHA-256 of a file from its current position, as hex."""
    found = hashlib.sha256()
    while piece := file.read(_CHUNK_BYTES):
        found.update(piece)
    return found.hexdigest()


def add_manifest(archive: tarfile.TarFile, manifest: BackupManifest) -> None:
    """Append the manifest; it is the last member because it describes all others."""
    data = msgspec.json.format(msgspec.json.encode(manifest))
    about = tarfile.TarInfo(MANIFEST_FILE)
    about.size, about.mode = len(data), 0o600
    archive.addfile(about, io.BytesIO(data))


@contextmanager
def open_archive(path: Path, *, name: Path | None = None) -> Generator[tarfile.TarFile]:
    """Open a backup for reading; raises `InvalidRequest`, naming it `name`, for a file that is no backup."""
    try:
        with tarfile.open(path, "r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError) as failure:
        raise damaged_archive_error(name or path, str(failure)) from failure
    except OSError as failure:
        raise InvalidRequest(f"cannot read {str(name or path)!r}: {failure.strerror}") from failure


def verify_archive(path: Path, *, name: Path | None = None) -> BackupManifest:
    """Read every file of a backup, compare it with the manifest, and return the manifest.

    Raises `InvalidRequest`, in which the archive is called `name`, if it is damaged or has another format.
    """
    called = name or path
    with open_archive(path, name=name) as archive:
        found: dict[str, ArchivedFile] = {}
        for member in archive:
            if member.name != MANIFEST_FILE:
                found[_safe_member_name(called, member)] = _describe_member(archive, member)
        manifest = _read_manifest(called, archive)
    listed = {each: ArchivedFile(size=filed.size, sha256=filed.sha256) for each, filed in manifest.files.items()}
    if listed != found:
        wrong = sorted(each for each in {*listed, *found} if listed.get(each) != found.get(each))
        raise damaged_archive_error(called, f"{wrong[0]!r} does not match the manifest")
    return manifest


def damaged_archive_error(path: Path, why: str) -> InvalidRequest:
    """Error for a file that is not a backup or is damaged."""
    return InvalidRequest(f"{str(path)!r} is not a backup, or is damaged: {why}")


def _read_manifest(path: Path, archive: tarfile.TarFile) -> BackupManifest:
    try:
        about = archive.getmember(MANIFEST_FILE)
        file = archive.extractfile(about)
        manifest = msgspec.json.decode(file.read(_MAX_MANIFEST_BYTES) if file else b"", type=BackupManifest)
    except KeyError as failure:
        raise damaged_archive_error(path, "it has no manifest") from failure
    except msgspec.DecodeError as failure:
        raise damaged_archive_error(path, f"its manifest cannot be read: {failure}") from failure
    if manifest.format != BACKUP_FORMAT:
        raise InvalidRequest(f"{str(path)!r} has format {manifest.format}; this version reads {BACKUP_FORMAT}")
    return manifest


def _safe_member_name(path: Path, member: tarfile.TarInfo) -> str:
    """Name of a member; raises `InvalidRequest` if it would be unpacked outside the target folder."""
    parts = PurePosixPath(member.name).parts
    if not member.isreg() or member.name.startswith("/") or ".." in parts or "\0" in member.name:
        raise damaged_archive_error(path, f"{member.name!r} is not a file of a store")
    return member.name


def _describe_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> ArchivedFile:
    file = archive.extractfile(member)
    return ArchivedFile(size=member.size, sha256=hash_file(file) if file else "")


_LOCK_TIMEOUT_SECONDS = 30.0  # a write that takes longer than this is considered stuck
_PAGES_PER_STEP = 2_048  # database pages copied between two progress reports

CopyProgress = Callable[[int, int], None]
"""Progress callback: database pages copied, and total pages."""


@contextmanager
def open_snapshots(paths: Sequence[Path]) -> Generator[Mapping[Path, sqlite3.Connection]]:
    """Open one read connection per file, all on the same snapshot: the state a crash at that moment would leave.

    Writers wait only while the snapshots are opened, which takes milliseconds, not while they are read. Raises
    `SourceUnavailable` if SQLite fails, and `StoreDamaged` if a file is none that it can read.
    """
    with ExitStack() as opened:
        readers = {path: opened.enter_context(closing(_connect(path))) for path in paths}
        with ExitStack() as held:
            for path in paths:
                with store_damage.sqlite_errors(path):
                    held.enter_context(_hold_write_lock(path))
            for path, reader in readers.items():
                with store_damage.sqlite_errors(path):
                    reader.execute("BEGIN")
                    reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield readers


def copy_database(source: sqlite3.Connection, target: Path, progress: CopyProgress) -> Mapping[str, int]:
    """Copy the snapshot of a connection into a new file and return the row count of each table."""
    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        source.backup(copy, pages=_PAGES_PER_STEP, progress=lambda _, left, whole: progress(whole - left, whole))
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a WAL beside it
        return count_rows(copy)


def count_rows(file: sqlite3.Connection) -> Mapping[str, int]:
    """Number of rows by table."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    names = [str(row[0]) for row in file.execute(query)]
    return {name: _count_table_rows(file, name) for name in names}


def _count_table_rows(file: sqlite3.Connection, table: str) -> int:
    quoted = table.replace('"', '""')
    return int(file.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()[0])  # noqa: S608 - a table's own name


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=_LOCK_TIMEOUT_SECONDS)


@contextmanager
def _hold_write_lock(path: Path) -> Generator[None]:
    """Hold the SQLite write lock of a file."""
    with closing(_connect(path)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            holder.execute("ROLLBACK")
