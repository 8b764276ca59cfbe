"""Ways back from damage: copies what can still be read into new files, and deletes what can be built again.

A damaged database is copied first, so that reading it changes nothing. Rows are read from both ends of a table and
then between the gaps, because SQLite stops at a damaged page. Deleted rows do not come back.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from contexture.adapters import store_damage
from contexture.adapters.index import codec
from contexture.adapters.index.collection_registry import unpack_collection
from contexture.adapters.index.id_spaces import SHARED, is_private
from contexture.adapters.index.lock import StoreLock
from contexture.adapters.index.record_store import SqliteRecordStore
from contexture.adapters.keys import ApiKeys
from contexture.adapters.sqlite import SqliteTables
from contexture.adapters.store_backup import list_loose_files
from contexture.adapters.store_migration._folder import TABLE_FILES, FolderRecords
from contexture.adapters.store_migration.migrate import (
    RecordColumns,
    SpacedRecord,
    TenantCollection,
    unpack_record,
)
from contexture.errors import InvalidRequest, NotFound, StoreUnwritable
from contexture.types import Collection, PreparedRecord, Record

SalvageProgress = Callable[[str, int, int], None]
PrepareRecord = Callable[[Record], PreparedRecord]
"""Computes everything derived from a record anew."""

_WORK_FOLDER = ".salvaging"
_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
_PAGE_BYTES = 4_096
_LEAF, _INTERIOR = 0x0D, 0x05
_MAX_PROBES = 2_000  # reads between the gaps of one table
_ROW_ID = ("_rowid_",)


@dataclass(slots=True)
class SalvageReport:
    """What was copied: records, rows of other tables and files; and what was lost.

    `prepared` records lost something that was computed from their text, and were prepared anew. `dropped` records and
    rows could be read but were not what was stored. `incomplete` names the tables and files with parts that could not
    be read.
    """

    records: int = 0
    rows: int = 0
    files: int = 0
    prepared: int = 0
    dropped: int = 0
    incomplete: list[str] = field(default_factory=list[str])


def salvage_store(
    home: Path, target: Path, *, prepare: PrepareRecord, progress: SalvageProgress | None = None
) -> SalvageReport:
    """Copy everything of the store in `home` that can be read into a new store in `target`; caches are left out.

    Nothing in `home` is changed. Raises `NotFound` without a store in `home`, `InvalidRequest` if `target` is not
    empty, and `StoreLocked` while another process has the store open.
    """
    if not (home / store_damage.RECORDS_DATABASE).is_file():
        raise NotFound(f"there is no store in {str(home)!r}")
    if target.exists() and any(target.iterdir()):
        raise InvalidRequest(f"{str(target)!r} is not empty; name a new folder")
    report, tell = SalvageReport(), progress or _ignore_progress
    lock = StoreLock(home)
    try:
        work = target / _WORK_FOLDER
        work.mkdir(mode=0o700, parents=True)
        for path in (
            path for path in store_damage.list_databases(home) if path.name not in store_damage.CACHE_DATABASES
        ):
            tell(f"reading {path.name}", 0, 0)
            if not path.stat().st_size:
                report.incomplete.append(f"{path.name}: it is empty")
            if path.name == store_damage.RECORDS_DATABASE:
                _salvage_records(path, target, prepare, report, tell)
            elif path.name in _FILES_OF_TABLES or path.name == _KEYS_FILE:
                _create_database(target / path.name)
                copied = copy_readable_rows(path, target / path.name, work)
                report.rows += copied.rows
                report.dropped += copied.dropped
                report.incomplete += [f"{path.name}: {table}" for table in copied.incomplete]
        _copy_files(home, target, report)
        _check_result(target)
    except OSError as failure:
        raise StoreUnwritable(f"cannot write to {str(target)!r}: {failure.strerror}") from failure
    finally:
        shutil.rmtree(target / _WORK_FOLDER, ignore_errors=True)
        lock.release()
    return report


def _ignore_progress(task: str, done: int, total: int) -> None:
    del task, done, total


def set_file_aside(path: Path) -> tuple[Path, CopiedRows]:
    """Replace a damaged database by a new one with every row that can be read; returns where the damaged one is now."""
    aside = next(
        name for number in range(1, 1_000) if not (name := path.with_name(f"{path.name}.damaged-{number}")).exists()
    )
    for suffix in ("", "-wal"):
        if (old := path.with_name(f"{path.name}{suffix}")).exists():
            old.rename(aside.with_name(f"{aside.name}{suffix}"))
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    work = path.with_name(_WORK_FOLDER)
    work.mkdir(mode=0o700, exist_ok=True)
    try:
        _create_database(path)
        return aside, copy_readable_rows(aside, path, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def delete_derived_files(home: Path) -> list[str]:
    """Delete caches and files of earlier versions, and rebuild damaged indexes of databases.

    Returns the names of what was deleted or rebuilt. Raises `StoreDamaged` if a table is damaged too, and `StoreLocked`
    while another process has the store open.
    """
    lock = StoreLock(home)
    done: list[str] = []
    try:
        for name in sorted(store_damage.CACHE_DATABASES):
            if (home / name).exists():
                done.append(name)
            for suffix in ("", "-wal", "-shm"):
                (home / f"{name}{suffix}").unlink(missing_ok=True)
        for path in store_damage.list_databases(home):
            if why := store_damage.find_damage(path):
                _rebuild_indexes(path, why)
                done.append(path.name)
        for folder in ("index", "replicas"):
            if (home / folder).is_dir():
                shutil.rmtree(home / folder)
                done.append(folder)
    except OSError as failure:
        raise StoreUnwritable(f"cannot write to {str(home)!r}: {failure.strerror}") from failure
    finally:
        lock.release()
    return done


def _rebuild_indexes(path: Path, why: str) -> None:
    if store_damage.find_damage(path, quick=True):
        raise store_damage.damaged_database_error(path, why)
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("REINDEX")
    except sqlite3.Error as failure:
        raise store_damage.damaged_database_error(path, str(failure)) from failure
    if left := store_damage.find_damage(path):
        raise store_damage.damaged_database_error(path, left)


# --- rows ----------------------------------------------------------------------------------
_FILES_OF_TABLES = dict(TABLE_FILES.values())
_KEYS_FILE = "keys.sqlite"


class CopiedRows(NamedTuple):
    """Number of rows copied and dropped, and the tables with rows that could not be read."""

    rows: int
    dropped: int
    incomplete: Sequence[str]


def copy_readable_rows(source: Path, target: Path, work: Path) -> CopiedRows:
    """Copy every row of `source` that can be read into the tables of `target`, which has the schema and no rows."""
    copy = work / source.name
    _copy_repaired(source, target, copy)
    rows, dropped, incomplete = 0, 0, list[str]()
    with closing(sqlite3.connect(copy, isolation_level=None)) as old, closing(sqlite3.connect(target)) as new:
        for table, columns in _common_tables(old, new).items():
            marks = ", ".join("?" * len(columns))
            insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - names of our schema
            reader = _TableReader(old, table, columns, _key_columns(new, table))
            for row in reader:
                try:
                    new.execute(insert, row)
                    rows += 1
                except sqlite3.Error:  # a row that breaks a rule of its table was not written by us
                    dropped += 1
            new.commit()
            if not reader.is_complete:
                incomplete.append(table)
        new.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return CopiedRows(rows, dropped, incomplete)


def _create_database(path: Path) -> None:
    """Create an empty database with the schema that belongs to its name."""
    if path.name == store_damage.RECORDS_DATABASE:
        SqliteRecordStore(path).close()
    elif path.name == _KEYS_FILE:
        ApiKeys(path).close()
    else:
        SqliteTables(path, _FILES_OF_TABLES[path.name]).create()


def _copy_repaired(source: Path, fresh: Path, copy: Path) -> None:
    """Copy a database with its log, and give the copy a first page and a length that SQLite accepts.

    The first page holds the schema; if it is lost, that of `fresh` is used, whose tables begin at the same pages.
    """
    for suffix in ("", "-wal"):
        if (old := source.with_name(f"{source.name}{suffix}")).exists():
            _copy_file(old, copy.with_name(f"{copy.name}{suffix}"))
    with closing(sqlite3.connect(fresh)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    template = fresh.read_bytes()[:_PAGE_BYTES]
    with copy.open("r+b") as file:
        first = bytearray(file.read(_PAGE_BYTES).ljust(_PAGE_BYTES, b"\0"))
        size = -(-copy.stat().st_size // _PAGE_BYTES)
        if not first.startswith(_MAGIC):
            first = bytearray(template[:_HEADER_BYTES]) + first[_HEADER_BYTES:]
            first[28:32], first[32:40] = size.to_bytes(4, "big"), bytes(8)  # number of pages; no free ones
            first[92:96] = first[24:28]  # the number of pages is valid
            if first[_HEADER_BYTES] not in (_LEAF, _INTERIOR):
                first[_HEADER_BYTES:] = template[_HEADER_BYTES:]
            file.seek(0)
            file.write(first)
        file.truncate(max(size, int.from_bytes(first[28:32], "big")) * _PAGE_BYTES)
    if not _has_schema(copy):
        with copy.open("r+b") as file:
            file.seek(_HEADER_BYTES)
            file.write(template[_HEADER_BYTES:])


def _has_schema(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(path)) as db:
            return bool(db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    except sqlite3.Error:
        return False


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file block by block; a block that cannot be read becomes zeros."""
    with source.open("rb", buffering=0) as old, target.open("wb") as new:
        os.fchmod(new.fileno(), 0o600)
        for at in range(0, source.stat().st_size, _PAGE_BYTES):
            try:
                block = os.pread(old.fileno(), _PAGE_BYTES, at)
            except OSError:
                block = bytes(_PAGE_BYTES)
            new.write(block)


def _common_tables(old: sqlite3.Connection, new: sqlite3.Connection) -> Mapping[str, Sequence[str]]:
    """By table, the columns that both databases have."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    wanted = {str(row[0]): _column_names(new, str(row[0])) for row in new.execute(query)}
    common = {
        table: [name for name in columns if name in _column_names(old, table)] for table, columns in wanted.items()
    }
    return {table: columns for table, columns in common.items() if columns}


def _column_names(db: sqlite3.Connection, table: str) -> list[str]:
    try:
        return [str(row[1]) for row in db.execute(f'PRAGMA table_info("{table}")')]
    except sqlite3.Error:
        return []


def _key_columns(db: sqlite3.Connection, table: str) -> Sequence[str]:
    """The columns that order a table: its row id, or its primary key if it has none."""
    sql = str(db.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()[0])
    if "WITHOUT ROWID" not in sql.upper():
        return _ROW_ID
    keys = sorted((int(row[5]), str(row[1])) for row in db.execute(f'PRAGMA table_info("{table}")') if row[5])
    return tuple(name for _, name in keys)


class _ScanEnd(NamedTuple):
    """The key of the last row of a scan, if it had one, and whether it ended without meeting damage."""

    key: tuple[Any, ...] | None
    is_complete: bool


class _TableReader:
    """Yields the readable rows of a table, each once; `is_complete` says afterwards whether those are all."""

    def __init__(self, db: sqlite3.Connection, table: str, columns: Sequence[str], key: Sequence[str]) -> None:
        self._db = db
        self._key = tuple(key)
        self._select = f"SELECT {', '.join((*key, *columns))} FROM {table} NOT INDEXED"  # noqa: S608 - names of our schema
        self.is_complete = True

    def __iter__(self) -> Iterator[Sequence[Any]]:
        """The rows from the beginning to the first damage, from the end to the last, and those between."""
        low = yield from self._scan("", (), "ASC")
        if low.is_complete:
            return
        self.is_complete = False
        high = yield from self._scan("", (), "DESC", until=low.key)
        if self._key == _ROW_ID and low.key and high.key:
            yield from self._read_between(low.key[0], high.key[0])

    def _read_between(self, low: int, high: int) -> Iterator[Sequence[Any]]:
        """Rows with ids between two damaged places, read from the middle of ever smaller ranges."""
        ranges, probes = [(low, high)], 0
        while ranges and probes < _MAX_PROBES:
            low, high = ranges.pop()
            if high - low <= 1:
                continue
            probes, middle = probes + 1, (low + high) // 2
            above = yield from self._scan("WHERE _rowid_ >= ? AND _rowid_ < ?", (middle, high), "ASC")
            if not above.is_complete:
                ranges.append((above.key[0] if above.key else middle, high))
            below = yield from self._scan("WHERE _rowid_ < ? AND _rowid_ > ?", (middle, low), "DESC")
            if not below.is_complete:
                ranges.append((low, below.key[0] if below.key else middle))

    def _scan(
        self, where: str, given: Sequence[Any], order: str, *, until: tuple[Any, ...] | None = None
    ) -> Generator[Sequence[Any], None, _ScanEnd]:
        width, last = len(self._key), None
        by = ", ".join(f"{name} {order}" for name in self._key)
        try:
            for row in self._db.execute(f"{self._select} {where} ORDER BY {by}", tuple(given)):
                if row[:width] == until:
                    return _ScanEnd(last, is_complete=True)
                last = row[:width]
                yield row[width:]
        except sqlite3.Error as failure:
            if not store_damage.is_damage(failure):
                raise
            return _ScanEnd(last, is_complete=False)
        return _ScanEnd(last, is_complete=True)


# --- records and files ---------------------------------------------------------------------
def _salvage_records(
    path: Path, target: Path, prepare: PrepareRecord, report: SalvageReport, tell: SalvageProgress
) -> None:
    """Write every sound record of a damaged database into a new one, which computes its statistics again."""
    work = target / _WORK_FOLDER
    readable = work / "readable" / path.name
    readable.parent.mkdir(mode=0o700)
    _create_database(readable)
    copied = copy_readable_rows(path, readable, work)
    report.incomplete += [f"{path.name}: {table}" for table in copied.incomplete]
    store = SqliteRecordStore(target / path.name)
    records = FolderRecords(target / path.name, store)
    try:
        with closing(sqlite3.connect(readable)) as db:
            for tenant, name, fields in db.execute("SELECT tenant, name, fields FROM declared"):
                store.declare(tenant, unpack_collection(name, fields))
            known = {(tenant, collection.name) for tenant, collection in store.list_declarations()}
            (total,) = db.execute("SELECT count(*) FROM records").fetchone()
            query = "SELECT row, collection, tenant, id, space, hash, header, text, rules, redactions FROM records"
            for done, row in enumerate(db.execute(query), start=1):
                part = TenantCollection(row[1], row[2])
                if (part.tenant, part.collection) not in known:
                    store.declare(part.tenant, Collection(name=part.collection))
                    known.add((part.tenant, part.collection))
                _salvage_record(db, row, records, part, prepare, report)
                tell("copying records", done, total)
    finally:
        store.close()


def _salvage_record(
    db: sqlite3.Connection,
    columns: Sequence[Any],
    records: FolderRecords,
    part: TenantCollection,
    prepare: PrepareRecord,
    report: SalvageReport,
) -> None:
    row, _, _, id_, space, digest, header, text, rules, redactions = columns
    if not store_damage.is_sound_record(digest, text, header, redactions):
        report.dropped += 1
        return
    passages = db.execute(
        "SELECT p.ordinal, p.facts, v.data FROM passages p LEFT JOIN vectors v USING (pid) "
        "WHERE p.row = ? ORDER BY p.ordinal",
        (row,),
    ).fetchall()
    matrices = dict[str, bytes](db.execute("SELECT name, data FROM matrices WHERE row = ?", (row,)).fetchall())
    pairs = [(facts, vectors) for _, facts, vectors in passages]
    prepared = _decode_record(RecordColumns(id_, header, text, rules, redactions, pairs, matrices))
    ordinals = [ordinal for ordinal, _, _ in passages]
    if prepared is None or not _has_every_passage(prepared, ordinals):
        record, _ = codec.unpack_header(header, id_, text)
        if not text.strip():  # pictures of pages: what they were computed from is elsewhere
            report.dropped += 1
            return
        prepared = prepare(record)
        report.prepared += 1
    acl = prepared.record.acl
    records.write(part, [SpacedRecord(space or (acl[0] if is_private(acl) else SHARED), prepared)])  # "": an old schema
    report.records += 1


def _decode_record(columns: RecordColumns) -> PreparedRecord | None:
    try:
        return unpack_record(columns)
    except (msgspec.DecodeError, TypeError, ValueError):  # vectors that are missing, or damaged
        return None


def _has_every_passage(prepared: PreparedRecord, ordinals: Sequence[int]) -> bool:
    """Whether passages are numbered without a gap and reach the end of the text."""
    passages = prepared.passages
    whole = list(ordinals) == list(range(len(passages)))
    return whole and bool(passages) and passages[-1].end >= len(prepared.record.text.rstrip())


def _copy_files(home: Path, target: Path, report: SalvageReport) -> None:
    for path in list_loose_files(home):
        try:
            data = path.read_bytes()
        except OSError:
            report.incomplete.append(path.relative_to(home).as_posix())
            continue
        copy = target / path.relative_to(home)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy.touch(mode=0o600)
        copy.write_bytes(data)
        report.files += 1


def _check_result(target: Path) -> None:
    for path in store_damage.list_databases(target):
        if why := store_damage.find_damage(path):
            raise store_damage.damaged_database_error(path, why)
