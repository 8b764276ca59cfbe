"""What was extracted from records, in tables and in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from contexture.adapters.sessions.database import Database, Tables, storable
from contexture.errors import SourceUnavailable
from contexture.types import Extracted

MIGRATIONS = (
    """
    CREATE TABLE records (
        tenant TEXT NOT NULL, id TEXT NOT NULL, version TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (tenant, id)
    ) WITHOUT ROWID;
    CREATE TABLE names (
        tenant TEXT NOT NULL, key TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (tenant, key, id)
    ) WITHOUT ROWID;
    CREATE INDEX names_of ON names (tenant, id);
    """,
)


class StoredGraph:
    """Implements the `GraphCache` port in tables; what is put is there after a restart.

    A damaged row is a `SourceUnavailable`; everything can be deleted, and is filled again.
    """

    def __init__(self, tables: Tables) -> None:
        self._database = tables

    async def get(self, tenant: str, version: str, ids: Sequence[str]) -> Mapping[str, Extracted]:
        """What is kept of these records by this version of the extraction."""
        if not ids or not self._database.exists:
            return {}
        return await self._database.read(lambda db: _get(db, tenant, version, ids))

    async def put(self, tenant: str, version: str, found: Sequence[Extracted]) -> None:
        """Keep these, each instead of what was kept of its record."""
        storable("the tenant", tenant)
        await self._database.write(lambda db: _put(db, tenant, version, found))

    async def mentioning(self, tenant: str, version: str, keys: Sequence[str]) -> Sequence[str]:
        """Ids of the records in which one of these names is kept, in order."""
        if not keys or not self._database.exists:
            return ()
        return await self._database.read(lambda db: _mentioning(db, tenant, version, keys))

    async def forget(self, tenant: str, ids: Sequence[str]) -> None:
        """Keep nothing of these records."""
        if ids and self._database.exists:
            await self._database.write(lambda db: _forget(db, tenant, ids))

    def close(self) -> None:
        """Release the tables."""
        self._database.close()


class SqliteGraphCache(StoredGraph):
    """What was extracted, in one file; a damaged one is a `SourceUnavailable`."""

    def __init__(self, path: Path) -> None:
        super().__init__(Database(path, MIGRATIONS))


def _get(db: sqlite3.Connection, tenant: str, version: str, ids: Sequence[str]) -> dict[str, Extracted]:
    query = "SELECT body FROM records WHERE tenant = ? AND id = ? AND version = ?"
    rows = (db.execute(query, (tenant, name, version)).fetchone() for name in ids)
    found = (_unpacked(row[0]) for row in rows if row is not None)
    return {each.record_id: each for each in found}


def _put(db: sqlite3.Connection, tenant: str, version: str, found: Sequence[Extracted]) -> None:
    _forget(db, tenant, [each.record_id for each in found])
    db.executemany(
        "INSERT INTO records (tenant, id, version, body) VALUES (?, ?, ?, ?)",
        [(tenant, each.record_id, version, msgspec.msgpack.encode(each)) for each in found],
    )
    db.executemany(
        "INSERT INTO names (tenant, key, id) VALUES (?, ?, ?)",
        [(tenant, key, each.record_id) for each in found for key in each.keys],
    )


def _mentioning(db: sqlite3.Connection, tenant: str, version: str, keys: Sequence[str]) -> list[str]:
    found: set[str] = set()
    for key in keys:
        rows = db.execute(
            "SELECT n.id FROM names n JOIN records r ON r.tenant = n.tenant AND r.id = n.id "
            "WHERE n.tenant = ? AND n.key = ? AND r.version = ?",
            (tenant, key, version),
        )
        found.update(str(row[0]) for row in rows)
    return sorted(found)


def _forget(db: sqlite3.Connection, tenant: str, ids: Sequence[str]) -> None:
    rows = [(tenant, name) for name in ids]
    db.executemany("DELETE FROM records WHERE tenant = ? AND id = ?", rows)
    db.executemany("DELETE FROM names WHERE tenant = ? AND id = ?", rows)


def _unpacked(body: bytes) -> Extracted:
    try:
        return msgspec.msgpack.decode(body, type=Extracted)
    except msgspec.DecodeError as failure:
        raise SourceUnavailable(f"what was extracted from a record is damaged: {failure}") from failure
