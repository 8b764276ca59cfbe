"""A store in a folder, as one end of a move."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from contexture.adapters.blocks.schema import MIGRATIONS as BLOCKS
from contexture.adapters.graph.sqlite import MIGRATIONS as GRAPH
from contexture.adapters.index.lock import StoreLock
from contexture.adapters.index.truth import Truth
from contexture.adapters.keys import ApiKeys
from contexture.adapters.moving.files import BUILDS, PICTURES, SALT, FilesPlace
from contexture.adapters.moving.records import Kept, Part, RecordsPlace, prepared_of
from contexture.adapters.moving.tables import TablesPlace
from contexture.adapters.outbox.rows import MIGRATIONS as OUTBOX
from contexture.adapters.replies.sqlite import MIGRATIONS as REPLIES
from contexture.adapters.sessions.database import Database
from contexture.adapters.sessions.sqlite import MIGRATIONS as SESSIONS
from contexture.types import Collection, Prepared, Scope

T = TypeVar("T")

_FILES = {
    "sessions": ("sessions.sqlite", SESSIONS),
    "replies": ("replies.sqlite", REPLIES),
    "outbox": ("outbox.sqlite", OUTBOX),
    "graph": ("graph.sqlite", GRAPH),
    "blocks": ("blocks.db", BLOCKS),
}
_SELECT = "SELECT row, id, header, text, rules, redactions FROM records WHERE collection = ? AND tenant = ? AND "


class FolderStore:
    """Everything that a folder holds; nobody else may have it open meanwhile."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = StoreLock(folder)
        self.name = str(folder)
        self._truth = Truth(folder / "truth.sqlite")
        self.records: RecordsPlace = FolderRecords(folder / "truth.sqlite", self._truth)
        self.tables: TablesPlace = FolderTables(folder)
        self.files: FilesPlace = FolderFiles(folder)

    def close(self) -> None:
        """Let others have it."""
        self._truth.close()
        self._lock.release()


class FolderRecords:
    """The records in SQLite."""

    def __init__(self, path: Path, truth: Truth) -> None:
        self._path = path
        self._truth = truth

    def declared(self) -> Mapping[Part, Collection]:
        """Every collection of every tenant, with the fields that it has declared."""
        return {Part(collection.name, tenant): collection for tenant, collection in self._truth.declared()}

    def declare(self, tenant: str, collection: Collection) -> None:
        """Let a tenant have a collection, or replace the fields it has declared there."""
        self._truth.declare(tenant, collection)

    def parts(self) -> Mapping[Part, int]:
        """Every part that holds a record, and how many."""
        rows = self._all("SELECT collection, tenant, count(*) FROM records GROUP BY collection, tenant", ())
        return {Part(collection, tenant): count for collection, tenant, count in rows}

    def page(self, part: Part, after: str, limit: int) -> Sequence[Prepared]:
        """Records of a part in id order, behind `after`."""
        return list(self._records(f"{_SELECT} id > ? ORDER BY id LIMIT ?", (*part, after, limit)))

    def among(self, part: Part, ids: Sequence[str]) -> Mapping[str, Prepared]:
        """Those of `ids` that the part holds."""
        marks = ",".join("?" * len(ids))
        found = self._records(f"{_SELECT} id IN ({marks})", (*part, *ids))
        return {item.record.id: item for item in found}

    def write(self, part: Part, records: Sequence[Prepared]) -> None:
        """Write records instead of those of the same ids."""
        old = self.among(part, [item.record.id for item in records])
        for readers in {item.record.acl for item in old.values()}:
            gone = [id_ for id_, item in old.items() if item.record.acl == readers]
            self._truth.delete(_reader(part.tenant, readers), part.collection, gone)
        self._truth.upsert(Scope(tenant=part.tenant, user="migration"), part.collection, records)

    def _records(self, query: str, given: Sequence[Any]) -> Iterator[Prepared]:
        for row, id_, header, text, rules, redactions in self._all(query, given):
            passages = self._all(
                "SELECT p.facts, v.data FROM passages p JOIN vectors v USING (pid) WHERE p.row = ? ORDER BY p.ordinal",
                (row,),
            )
            matrices = dict(self._all("SELECT name, data FROM matrices WHERE row = ?", (row,)))
            yield prepared_of(Kept(id_, header, text, rules, redactions, passages, matrices))

    def _all(self, query: str, given: Sequence[Any]) -> list[Any]:
        with closing(sqlite3.connect(self._path)) as db:
            return db.execute(query, tuple(given)).fetchall()


class FolderTables:
    """The small SQLite files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, store: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, inside one transaction on the tables of a store."""
        if store == "keys":
            path = self._folder / "keys.sqlite"
            ApiKeys(path).close()
        else:
            name, migrations = _FILES[store]
            path = self._folder / name
            Database(path, migrations).make()
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            with db:
                return work(db)

    def written(self, store: str, table: str, key: str) -> None:
        """Nothing: SQLite counts on from the highest number by itself."""


class FolderFiles:
    """Builds, pictures and the salt as files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> Sequence[tuple[str, str]]:
        """Every file by place and name, the oldest build first."""
        builds = sorted((self._folder / BUILDS).glob("ctx-*.json"), key=lambda path: path.stat().st_mtime_ns)
        pictures = sorted((self._folder / PICTURES).glob("*/*.jpg"))
        salt = [(SALT, path.name) for path in self._folder.glob("redaction.salt")]
        return [
            *((BUILDS, path.stem) for path in builds),
            *((f"{PICTURES}/{path.parent.name}", path.name) for path in pictures),
            *salt,
        ]

    def read(self, place: str, name: str) -> bytes | None:
        """A file, or None where there is none."""
        path = self._path(place, name)
        return path.read_bytes() if path.is_file() else None

    def write(self, place: str, name: str, data: bytes) -> None:
        """Write a file instead of the one there was."""
        path = self._path(place, name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(data)

    def _path(self, place: str, name: str) -> Path:
        if place == SALT:
            return self._folder / name
        return self._folder / place / (f"{name}.json" if place == BUILDS else name)


def _reader(tenant: str, readers: Sequence[str]) -> Scope:
    """Somebody who may read what these may read."""
    users = [name.removeprefix("user:") for name in readers if name.startswith("user:")]
    groups = [name.removeprefix("group:") for name in readers if name.startswith("group:")]
    return Scope(tenant=tenant, user=users[0] if users else "migration", groups=tuple(groups))
