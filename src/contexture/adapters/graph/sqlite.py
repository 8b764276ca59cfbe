"""Cache of entities and relations extracted from records, in SQL tables and in a SQLite file."""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from contexture.adapters.sqlite import SqliteTables, Tables, check_storable
from contexture.errors import SourceUnavailable
from contexture.types import ExtractedMentions

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


class StoredGraphCache:
    """Extracted entities and relations of records in SQL tables; implements `GraphCache`.

    A damaged row raises `SourceUnavailable`. The tables are a cache: they can be deleted and are filled again.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def get(self, tenant: str, version: str, ids: Sequence[str]) -> Mapping[str, ExtractedMentions]:
        """Cached extractions of these records by this version of the extractor; missing ones are left out."""
        if not ids or not self._tables.exists:
            return {}
        return await self._tables.read(lambda db: _get(db, tenant, version, ids))

    async def put(self, tenant: str, version: str, found: Sequence[ExtractedMentions]) -> None:
        """Store extractions, each replacing the one of its record."""
        check_storable("the tenant", tenant)
        await self._tables.write(lambda db: _put(db, tenant, version, found), grows=True)

    async def mentioning(self, tenant: str, version: str, keys: Sequence[str]) -> Sequence[str]:
        """Sorted ids of the records that mention one of these names."""
        if not keys or not self._tables.exists:
            return ()
        return await self._tables.read(lambda db: _find_mentioning(db, tenant, version, keys))

    async def forget(self, tenant: str, ids: Sequence[str]) -> None:
        """Delete the extractions of these records, also from the log of the database."""
        if ids and self._tables.exists:
            await self._tables.write(lambda db: _forget(db, tenant, ids))
            await self._tables.scrub()

    def close(self) -> None:
        """Release the tables."""
        self._tables.close()


class SqliteGraphCache(StoredGraphCache):
    """Extracted entities and relations in one SQLite file."""

    def __init__(self, path: Path) -> None:
        super().__init__(SqliteTables(path, MIGRATIONS))


def _get(db: sqlite3.Connection, tenant: str, version: str, ids: Sequence[str]) -> dict[str, ExtractedMentions]:
    query = "SELECT body FROM records WHERE tenant = ? AND id = ? AND version = ?"
    rows = (db.execute(query, (tenant, name, version)).fetchone() for name in ids)
    found = (_decode_extracted(row[0]) for row in rows if row is not None)
    return {each.record_id: each for each in found}


def _put(db: sqlite3.Connection, tenant: str, version: str, found: Sequence[ExtractedMentions]) -> None:
    _forget(db, tenant, [each.record_id for each in found])
    db.executemany(
        "INSERT INTO records (tenant, id, version, body) VALUES (?, ?, ?, ?)",
        [(tenant, each.record_id, version, msgspec.msgpack.encode(each)) for each in found],
    )
    db.executemany(
        "INSERT INTO names (tenant, key, id) VALUES (?, ?, ?)",
        [(tenant, key, each.record_id) for each in found for key in each.keys],
    )


def _find_mentioning(db: sqlite3.Connection, tenant: str, version: str, keys: Sequence[str]) -> list[str]:
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


def _decode_extracted(body: bytes) -> ExtractedMentions:
    try:
        return msgspec.msgpack.decode(body, type=ExtractedMentions)
    except msgspec.DecodeError as failure:
        raise SourceUnavailable(f"the stored entities of a record are damaged: {failure}") from failure
