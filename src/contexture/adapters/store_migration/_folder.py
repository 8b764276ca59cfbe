"""A store in a folder, as the source or target of a migration."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar

from contexture.adapters.blocks.schema import MIGRATIONS as BLOCKS
from contexture.adapters.conversation.outbox_table import OUTBOX_MIGRATIONS as OUTBOX
from contexture.adapters.conversation.sqlite import REPLY_MIGRATIONS as REPLIES
from contexture.adapters.conversation.sqlite import SESSION_MIGRATIONS as SESSIONS
from contexture.adapters.graph.sqlite import MIGRATIONS as GRAPH
from contexture.adapters.index.lock import StoreLock
from contexture.adapters.index.record_store import SqliteRecordStore, pack_records
from contexture.adapters.keys import ApiKeys
from contexture.adapters.sqlite import SqliteTables
from contexture.adapters.store_damage import RECORDS_DATABASE, sqlite_errors
from contexture.adapters.store_migration import migrate
from contexture.types import Collection, Scope

T = TypeVar("T")

TABLE_FILES = {
    "sessions": ("sessions.sqlite", SESSIONS),
    "replies": ("replies.sqlite", REPLIES),
    "outbox": ("outbox.sqlite", OUTBOX),
    "graph": ("graph.sqlite", GRAPH),
    "blocks": ("blocks.db", BLOCKS),
}
_SELECT = "SELECT row, id, space, header, text, rules, redactions FROM records WHERE collection = ? AND tenant = ? AND "


class FolderStore:
    """Store in a folder; holds the store lock until `close`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = StoreLock(folder)
        self.name = str(folder)
        with ExitStack() as undo:
            undo.callback(self._lock.release)
            self._record_store = SqliteRecordStore(folder / RECORDS_DATABASE)
            undo.pop_all()
        self.records: migrate.StoreRecords = FolderRecords(folder / RECORDS_DATABASE, self._record_store)
        self.tables: migrate.StoreTables = FolderTables(folder)
        self.files: migrate.StoreFiles = FolderFiles(folder)

    def close(self) -> None:
        """Close the record store and release the lock."""
        self._record_store.close()
        self._lock.release()


class FolderRecords:
    """Records of a folder in SQLite; implements `StoreRecords`."""

    def __init__(self, path: Path, record_store: SqliteRecordStore) -> None:
        self._path = path
        self._record_store = record_store

    def list_collections(self) -> Mapping[migrate.TenantCollection, Collection]:
        """Every collection of every tenant, with its declared fields."""
        with sqlite_errors(self._path):
            return {
                migrate.TenantCollection(collection.name, tenant): collection
                for tenant, collection in self._record_store.list_declarations()
            }

    def declare(self, tenant: str, collection: Collection) -> None:
        """Declare a collection for a tenant, or replace its declared fields."""
        self._record_store.declare(tenant, collection)

    def parts(self) -> Mapping[migrate.TenantCollection, int]:
        """Number of records by tenant and collection, without empty ones."""
        rows = self._fetch_all("SELECT collection, tenant, count(*) FROM records GROUP BY collection, tenant", ())
        return {migrate.TenantCollection(collection, tenant): count for collection, tenant, count in rows}

    def page(
        self, part: migrate.TenantCollection, after: migrate.RecordKey, limit: int
    ) -> Sequence[migrate.SpacedRecord]:
        """Up to `limit` records of a part with keys greater than `after`, in the order of their keys."""
        query = f"{_SELECT} (id, space) > (?, ?) ORDER BY id, space LIMIT ?"
        return list(self._select_records(query, (*part, *after, limit)))

    def get_many(
        self, part: migrate.TenantCollection, ids: Sequence[str]
    ) -> Mapping[migrate.RecordKey, migrate.SpacedRecord]:
        """All records of a part with these ids."""
        marks = ",".join("?" * len(ids))
        found = self._select_records(f"{_SELECT} id IN ({marks})", (*part, *ids))
        return {each.key: each for each in found}

    def write(self, part: migrate.TenantCollection, records: Sequence[migrate.SpacedRecord]) -> None:
        """Write records, replacing those with the same keys."""
        writer = Scope(tenant=part.tenant, user="migration")
        for some in migrate.split_by_id(records):
            packed = pack_records([each.prepared for each in some])
            spaced = [item._replace(space=each.space) for item, each in zip(packed, some, strict=True)]
            self._record_store.upsert(writer, part.collection, spaced)

    def _select_records(self, query: str, given: Sequence[Any]) -> Iterator[migrate.SpacedRecord]:
        for row, id_, space, header, text, rules, redactions in self._fetch_all(query, given):
            passages = self._fetch_all(
                "SELECT p.facts, v.data FROM passages p JOIN vectors v USING (pid) WHERE p.row = ? ORDER BY p.ordinal",
                (row,),
            )
            matrices = dict(self._fetch_all("SELECT name, data FROM matrices WHERE row = ?", (row,)))
            with sqlite_errors(self._path):
                item = migrate.unpack_record(
                    migrate.RecordColumns(id_, header, text, rules, redactions, passages, matrices)
                )
            yield migrate.SpacedRecord(space, item)

    def _fetch_all(self, query: str, given: Sequence[Any]) -> list[Any]:
        with sqlite_errors(self._path), closing(sqlite3.connect(self._path)) as db:
            return db.execute(query, tuple(given)).fetchall()


class FolderTables:
    """SQLite files beside the records; implements `StoreTables`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, store: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one transaction on the tables of a store and return its result."""
        if store == "keys":
            path = self._folder / "keys.sqlite"
            ApiKeys(path).close()
        else:
            name, migrations = TABLE_FILES[store]
            path = self._folder / name
            SqliteTables(path, migrations).create()
        with sqlite_errors(path), closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            with db:
                return work(db)

    def reset_sequence(self, store: str, table: str, key: str) -> None:
        """Do nothing: SQLite continues after the highest key automatically."""


class FolderFiles:
    """Builds, page pictures and the redaction salt of a folder; implements `StoreFiles`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> Sequence[tuple[str, str]]:
        """Place and name of every file, oldest build first."""
        builds = sorted(
            (self._folder / migrate.BUILDS_FOLDER).glob("ctx-*.json"), key=lambda path: path.stat().st_mtime_ns
        )
        pictures = sorted((self._folder / migrate.PICTURES_FOLDER).glob("*/*.jpg"))
        salt = [(migrate.SALT_FOLDER, path.name) for path in self._folder.glob("redaction.salt")]
        return [
            *((migrate.BUILDS_FOLDER, path.stem) for path in builds),
            *((f"{migrate.PICTURES_FOLDER}/{path.parent.name}", path.name) for path in pictures),
            *salt,
        ]

    def read(self, place: str, name: str) -> bytes | None:
        """Content of a file, or None if it does not exist."""
        path = self._path(place, name)
        return path.read_bytes() if path.is_file() else None

    def write(self, place: str, name: str, data: bytes) -> None:
        """Write a file, replacing an existing one."""
        path = self._path(place, name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(data)

    def _path(self, place: str, name: str) -> Path:
        if place == migrate.SALT_FOLDER:
            return self._folder / name
        return self._folder / place / (f"{name}.json" if place == migrate.BUILDS_FOLDER else name)
