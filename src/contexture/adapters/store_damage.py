"""Notices damaged databases of a store, and names each in one sentence with the way back.

`sqlite_errors` translates what SQLite raises, `find_damage` reads a database and its write-ahead log.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from contexture.adapters.index import codec
from contexture.errors import ContextError, SourceUnavailable, StoreDamaged, StoreUnwritable
from contexture.types import content_hash

RECORDS_DATABASE = "truth.sqlite"
DATABASE_PATTERNS = ("*.sqlite", "*.db")
CACHE_DATABASES = frozenset({"graph.sqlite", "embeddings.sqlite"})
"""Databases that are filled again when they are deleted."""

StopCheck = Callable[[], bool]
"""Asked now and then by a long check; returns whether to give up."""

_MAX_BYTES_AT_OPEN = 64 << 20  # larger files are checked in the background; SQLite reads about 700 MB a second
_LOCK_TIMEOUT_SECONDS = 30.0
_STEPS_PER_STOP_CHECK = 10_000
_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_UNREADABLE_CODES = (
    sqlite3.SQLITE_IOERR_READ,
    sqlite3.SQLITE_IOERR_SHORT_READ,
    sqlite3.SQLITE_IOERR_CORRUPTFS,
)
_UNWRITABLE_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)
_UNDECODABLE = "Could not decode to UTF-8"  # raised by Python itself, without a code


@dataclass(frozen=True, slots=True)
class DamagedDatabase:
    """A damaged database, and the sentence that names it with the way back."""

    path: Path
    sentence: str

    @property
    def is_cache(self) -> bool:
        """Whether it is filled again when it is deleted."""
        return self.path.name in CACHE_DATABASES


def list_databases(home: Path) -> list[Path]:
    """The database files of a store, by name."""
    return sorted(path for pattern in DATABASE_PATTERNS for path in home.glob(pattern))


def damaged_database_error(path: Path, why: str) -> StoreDamaged:
    """Error that names a damaged database and the way back."""
    reason = " ".join(why.split())
    if path.name in CACHE_DATABASES:
        return StoreDamaged(f"the cache {str(path)!r} is damaged ({reason}): create it again with `contexture rebuild`")
    return StoreDamaged(
        f"the database {str(path)!r} is damaged ({reason}): go back to a backup with `contexture restore FILE --force`,"
        " or copy everything readable to a new store with `contexture salvage FOLDER`"
    )


@contextmanager
def sqlite_errors(path: Path) -> Generator[None]:
    """Translate errors of SQLite, and of decoding what it stores, while the database at `path` is used.

    Raises `StoreDamaged` for damage, `StoreUnwritable` when the disk refused, and `SourceUnavailable` otherwise.
    """
    try:
        yield
    except sqlite3.Error as failure:
        raise _translate_error(path, failure) from failure
    except (msgspec.DecodeError, UnicodeDecodeError, json.JSONDecodeError) as failure:
        raise damaged_database_error(path, f"a stored value cannot be decoded: {failure}") from failure


def is_damage(failure: sqlite3.Error) -> bool:
    """Whether SQLite could not read what it once wrote."""
    code = getattr(failure, "sqlite_errorcode", 0)
    return code & 0xFF in _DAMAGE_CODES or code in _UNREADABLE_CODES or str(failure).startswith(_UNDECODABLE)


def _translate_error(path: Path, failure: sqlite3.Error) -> ContextError:
    text, code = str(failure), getattr(failure, "sqlite_errorcode", 0)
    if is_damage(failure):
        return damaged_database_error(path, text)
    if code & 0xFF in _UNWRITABLE_CODES:
        return StoreUnwritable(f"cannot write {str(path)!r}: {text}; nothing was stored")
    return SourceUnavailable(f"the store {str(path)!r} failed: {text}")


# --- checking ------------------------------------------------------------------------------
def find_store_damage(home: Path, *, quick: bool = False, stop: StopCheck | None = None) -> list[DamagedDatabase]:
    """Every damaged database of the store in `home`.

    With `quick` each is checked as far as that takes a tenth of a second, else as `find_damage` does.
    """
    paths = list_databases(home)
    checked = [(path, _find_damage_quickly(path) if quick else find_damage(path, stop=stop)) for path in paths]
    return [DamagedDatabase(path, str(damaged_database_error(path, why))) for path, why in checked if why]


def find_damage(path: Path, *, quick: bool = False, stop: StopCheck | None = None) -> str:
    """What is wrong with a database; empty if it is sound, or if `stop` ended the check.

    Reads the whole file: its structure, and unless `quick` its indexes and the content hash of every record too. The
    database may be in use. Raises `SourceUnavailable` if it stays locked.
    """
    if why := find_lost_writes(path):
        return why
    try:
        with closing(_open_for_check(path, stop)) as db:
            return find_connection_damage(db, quick=quick)
    except sqlite3.Error as failure:
        if getattr(failure, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            return ""
        error = _translate_error(path, failure)
        if isinstance(error, StoreDamaged) or failure.sqlite_errorcode & 0xFF == sqlite3.SQLITE_IOERR:
            return str(failure)
        raise error from failure


def find_connection_damage(db: sqlite3.Connection, *, quick: bool = False) -> str:
    """What is wrong with the database of a connection; empty if it is sound. Raises `sqlite3.Error`."""
    check = "quick_check" if quick else "integrity_check"
    (found,) = db.execute(f"PRAGMA {check}(1)").fetchone()
    if found != "ok":
        return str(found).removeprefix("*** in database main ***").strip()
    return "" if quick else _find_record_damage(db)


def check_at_open(path: Path) -> None:
    """Raise `StoreDamaged` if a database that is about to be opened is damaged, as far as can be told quickly.

    Its write-ahead log is always checked, because opening the database discards what follows a damaged frame. Its
    structure is checked up to a size that takes a tenth of a second.
    """
    if path.exists() and (why := _find_damage_quickly(path)):
        raise damaged_database_error(path, why)


def _find_damage_quickly(path: Path) -> str:
    is_small = path.stat().st_size <= _MAX_BYTES_AT_OPEN
    return find_damage(path, quick=True) if is_small else find_lost_writes(path)


def _open_for_check(path: Path, stop: StopCheck | None) -> sqlite3.Connection:
    """Open a database without memory mapping, so that an unreadable sector is an error and not a signal."""
    db = sqlite3.connect(path, isolation_level=None, timeout=_LOCK_TIMEOUT_SECONDS)
    db.execute("PRAGMA mmap_size = 0")
    if stop is not None:
        db.set_progress_handler(stop, _STEPS_PER_STOP_CHECK)
    return db


def _find_record_damage(db: sqlite3.Connection) -> str:
    """Compare every record with its content hash, because SQLite has no checksums of pages."""
    columns = {str(row[1]) for row in db.execute("PRAGMA table_info(records)")}
    if not {"hash", "text", "header", "redactions"} <= columns:
        return ""
    for id_, digest, text, header, redactions in db.execute("SELECT id, hash, text, header, redactions FROM records"):
        if not is_sound_record(digest, text, header, redactions):
            return f"record {id_!r} is not what was stored"
    return ""


def is_sound_record(digest: str, text: str, header: bytes, redactions: bytes) -> bool:
    """Whether the columns of a record can be decoded, and its text has the stored hash."""
    try:
        codec.unpack_header(header, "", "")
        codec.unpack_spans(redactions)
    except (msgspec.DecodeError, TypeError, ValueError):
        return False
    return content_hash(text) == digest


# --- the write-ahead log -------------------------------------------------------------------
_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_WAL_MAGICS = {0x377F0682: "<u4", 0x377F0683: ">u4"}
_SHM_VERSION = 3_007_000
_CHECKSUM_MASK = 0xFFFFFFFF


def find_lost_writes(path: Path) -> str:
    """Why committed writes in a database or its write-ahead log are lost; empty if none are.

    SQLite ends its recovery at the first frame with a wrong checksum, and so drops every later write without an error.
    A frame that a crash left half written is no damage: it belongs to a write that was never acknowledged. The log of
    a cache may be incomplete.
    """
    if path.name in CACHE_DATABASES:
        return ""
    if path.is_file() and not path.stat().st_size:  # SQLite would take it for a new database
        return "it is empty, and even a new database is not"
    wal, shm = path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")
    try:
        committed = _committed_frames(_read_locked_file(shm)) if shm.is_file() else None  # first: it never runs ahead
        data = wal.read_bytes() if wal.is_file() else b""
    except OSError as failure:
        return f"its write-ahead log cannot be read: {failure.strerror}"
    if not data:
        return ""
    log = _parse_wal(data)
    known = committed[1] if committed is not None and committed[0] == data[16:24] else 0
    missing = max(known, log.synced) - log.valid
    return f"{missing} frames of committed writes in its write-ahead log cannot be read" if missing > 0 else ""


_kept_open: dict[Path, int] = {}
_kept_open_guard = Lock()


def _read_locked_file(path: Path) -> bytes:
    """The bytes of a file on which SQLite may have locks in this process.

    Its descriptor stays open until the file is replaced, because closing it would drop these locks.
    """
    with _kept_open_guard:
        for other in [each for each in _kept_open if not each.exists()]:
            os.close(_kept_open.pop(other))
        file, now = _kept_open.get(path), path.stat()
        if file is None or not os.path.samestat(os.fstat(file), now):
            if file is not None:
                os.close(file)
            file = _kept_open[path] = os.open(path, os.O_RDONLY)
        return os.pread(file, now.st_size, 0)


class _WalFrames(NamedTuple):
    """Number of frames before the first one that is invalid, and of those that must have been synced to disk."""

    valid: int
    synced: int


def _parse_wal(data: bytes) -> _WalFrames:
    word, size = _WAL_MAGICS.get(int.from_bytes(data[:4], "big")), int.from_bytes(data[8:12], "big")
    state = _add_checksum((0, 0), np.frombuffer(data, word, 6)) if word and len(data) >= _WAL_HEADER_BYTES else None
    if word is None or state is None or state != _read_pair(data, 24):  # it is synced before the first frame
        return _WalFrames(0, 1 if any(data[_WAL_HEADER_BYTES:]) else 0)
    salts, frame_bytes = data[16:24], _FRAME_HEADER_BYTES + size
    valid = commit = synced = 0
    for number, at in enumerate(range(_WAL_HEADER_BYTES, len(data) - frame_bytes + 1, frame_bytes), start=1):
        if data[at + 8 : at + 16] != salts:  # of an earlier use of the log, or damaged
            continue
        if commit:  # a transaction is written after the one before it was synced
            synced = commit
        if valid == number - 1:
            state = _add_checksum(state, np.frombuffer(data, word, 2, at))
            state = _add_checksum(state, np.frombuffer(data, word, size // 4, at + _FRAME_HEADER_BYTES))
            valid += state == _read_pair(data, at + 16)
        if valid < number and any(data[at + 4 : at + 8]):
            commit = number
    return _WalFrames(valid, synced)


def _read_pair(data: bytes, at: int) -> tuple[int, int]:
    return int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big")


def _add_checksum(state: tuple[int, int], words: npt.NDArray[np.uint32]) -> tuple[int, int]:
    """The checksum of SQLite's log, continued over an even number of words.

    For each pair `a, b` of words it is `s0 += a + s1; s1 += b + s0`, which is linear: one product with the powers of a
    matrix replaces a loop.
    """
    first, second, (p, q) = _checksum_factors(len(words) // 2)
    plain = words.astype(np.uint32)
    one = int(np.dot(first, plain)) + p * state[0] + q * state[1]
    other = int(np.dot(second, plain)) + q * state[0] + (p + q) * state[1]
    return one & _CHECKSUM_MASK, other & _CHECKSUM_MASK


@cache
def _checksum_factors(pairs: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], tuple[int, int]]:
    """What each word adds to both sums, and the first row of the matrix that carries the sums on."""
    p, q = 1, 0  # the k-th power of ((1, 1), (1, 2)) is ((p, q), (q, p + q))
    first, second = np.empty(2 * pairs, np.uint32), np.empty(2 * pairs, np.uint32)
    for at in range(2 * pairs - 2, -1, -2):
        first[at], first[at + 1] = (p + q) & _CHECKSUM_MASK, q
        second[at], second[at + 1] = (p + 2 * q) & _CHECKSUM_MASK, (p + q) & _CHECKSUM_MASK
        p, q = (p + q) & _CHECKSUM_MASK, (p + 2 * q) & _CHECKSUM_MASK
    return first, second, (p, q)


def _committed_frames(shm: bytes) -> tuple[bytes, int] | None:
    """Salts of the log that a shared-memory file describes, and how many of its frames are committed."""
    if len(shm) < 48 or shm[:48] != shm[48:96]:  # noqa: PLR2004 - two copies of 48 bytes, different during a write
        return None
    version, frames = (int(np.frombuffer(shm, "=u4", 1, at)[0]) for at in (0, 16))
    return (shm[32:40], frames) if version == _SHM_VERSION else None
