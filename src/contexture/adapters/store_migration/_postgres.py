"""A store in PostgreSQL, as the source or target of a migration."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from contexture.adapters.blocks.postgres import MIGRATIONS as BLOCKS
from contexture.adapters.conversation.postgres import OUTBOX_MIGRATIONS as OUTBOX
from contexture.adapters.conversation.postgres import REPLY_MIGRATIONS as REPLIES
from contexture.adapters.conversation.postgres import SESSION_MIGRATIONS as SESSIONS
from contexture.adapters.graph.postgres import MIGRATIONS as GRAPH
from contexture.adapters.index.collection_registry import unpack_collection
from contexture.adapters.index.postgres import write
from contexture.adapters.index.postgres.index import prepare_tables
from contexture.adapters.index.postgres.schema import ORDINAL_BITS
from contexture.adapters.index.postgres.write import decode_text, encode_text
from contexture.adapters.postgres.files import PostgresFiles
from contexture.adapters.postgres.keys import MIGRATIONS as KEYS
from contexture.adapters.postgres.migrations import has_schema
from contexture.adapters.postgres.pool import PostgresPool
from contexture.adapters.postgres.tables import PostgresTables
from contexture.adapters.store_migration.migrate import (
    RecordColumns,
    RecordKey,
    SpacedRecord,
    StoreFiles,
    StoreRecords,
    StoreTables,
    TenantCollection,
    split_by_id,
    unpack_record,
)
from contexture.errors import NotFound
from contexture.types import Collection, Scope

T = TypeVar("T")

_TABLE_MIGRATIONS = {
    "sessions": SESSIONS,
    "replies": REPLIES,
    "outbox": OUTBOX,
    "graph": GRAPH,
    "blocks": BLOCKS,
    "keys": KEYS,
}
_SELECT = (
    "SELECT record, passages, id, space, header, text, rules, redactions FROM records "
    "WHERE part = %s AND {} ORDER BY id, space"
)


class PostgresStore:
    """Store in a schema of a PostgreSQL database; raises `NotFound` if `existing` and there is none."""

    def __init__(self, url: str, *, existing: bool) -> None:
        self._pool = PostgresPool(url)
        if existing and not has_schema(self._pool, self._pool.schema):
            raise NotFound(f"there is no store in schema {self._pool.schema!r} of {self._pool.name}")
        prepare_tables(self._pool)
        self.name = self._pool.name
        self.records: StoreRecords = PostgresRecords(self._pool)
        self.tables: StoreTables = PostgresStoreTables(self._pool)
        self.files: StoreFiles = PostgresFiles(self._pool)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


class PostgresRecords:
    """Records in PostgreSQL; implements `StoreRecords`."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    def list_collections(self) -> Mapping[TenantCollection, Collection]:
        """Every collection of every tenant, with its declared fields."""
        rows = self._fetch_all("SELECT tenant, name, fields FROM parts ORDER BY tenant, name")
        return {
            TenantCollection(name, decode_text(tenant)): unpack_collection(name, fields)
            for tenant, name, fields in rows
        }

    def declare(self, tenant: str, collection: Collection) -> None:
        """Declare a collection for a tenant, or replace its declared fields."""
        with self._pool.transaction() as db:
            write.declare(db, tenant, collection)

    def parts(self) -> Mapping[TenantCollection, int]:
        """Number of records by tenant and collection, without empty ones."""
        rows = self._fetch_all(
            "SELECT name, tenant, count(*) FROM parts JOIN records USING (part) GROUP BY name, tenant"
        )
        return {TenantCollection(collection, decode_text(tenant)): count for collection, tenant, count in rows}

    def page(self, part: TenantCollection, after: RecordKey, limit: int) -> Sequence[SpacedRecord]:
        """Up to `limit` records of a part with keys greater than `after`, in the order of their keys."""
        return self._select_records(part, "(id, space) > (%s, %s)", (*map(encode_text, after), limit), " LIMIT %s")

    def get_many(self, part: TenantCollection, ids: Sequence[str]) -> Mapping[RecordKey, SpacedRecord]:
        """All records of a part with these ids."""
        given = ([encode_text(id_) for id_ in ids],)
        return {each.key: each for each in self._select_records(part, "id = ANY(%s)", given)}

    def write(self, part: TenantCollection, records: Sequence[SpacedRecord]) -> None:
        """Write records, replacing those with the same keys."""
        scope = Scope(tenant=part.tenant, user="migration")
        for some in split_by_id(records):
            packed = write.pack_records([each.prepared for each in some])
            rows = [write.with_space(row, each.space) for row, each in zip(packed, some, strict=True)]
            with self._pool.connection() as db:
                write.ensure_spaces(db, sorted(write.list_vector_spaces(rows)))
            with self._pool.transaction() as db:
                writer = write.lock_part(db, write.find_part(db, part.tenant, part.collection))
                if writer is None:
                    raise NotFound(f"{part.tenant!r} has no collection {part.collection!r} in {self._pool.name}")
                writer.upsert(scope, rows)

    def _select_records(
        self, part: TenantCollection, condition: str, given: Sequence[Any], end: str = ""
    ) -> list[SpacedRecord]:
        with self._pool.connection() as db:
            number = write.find_part(db, part.tenant, part.collection)
        rows = self._fetch_all(_SELECT.format(condition) + end, (number, *given))
        records = [row[0] for row in rows]
        pids = [record << ORDINAL_BITS | at for record, count, *_ in rows for at in range(count)]
        passages: dict[int, list[tuple[bytes, bytes]]] = {record: [] for record in records}
        query = "SELECT pid, facts, vectors FROM passages WHERE part = %s AND pid = ANY(%s) ORDER BY pid"
        for pid, facts, vectors in self._fetch_all(query, (number, pids)):
            passages[pid >> ORDINAL_BITS].append((facts, vectors))
        matrices: dict[int, dict[str, bytes]] = {record: {} for record in records}
        query = "SELECT record, name, data FROM matrices WHERE part = %s AND record = ANY(%s)"
        for record, name, data in self._fetch_all(query, (number, records)):
            matrices[record][name] = data
        return [
            SpacedRecord(
                decode_text(space),
                unpack_record(
                    RecordColumns(
                        decode_text(id_), header, decode_text(text), rules, spans, passages[record], matrices[record]
                    )
                ),
            )
            for record, _, id_, space, header, text, rules, spans in rows
        ]

    def _fetch_all(self, query: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._pool.connection() as connection:
            return connection.execute(query.encode(), given, binary=True).fetchall()


class PostgresStoreTables:
    """SQL tables beside the records; implements `StoreTables`."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool

    def run(self, store: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one transaction on the tables of a store and return its result."""
        return PostgresTables(self._pool, store, _TABLE_MIGRATIONS[store]).run(work)

    def reset_sequence(self, store: str, table: str, key: str) -> None:
        """Set the sequence of a table after its highest key."""
        query = f"SELECT setval(pg_get_serial_sequence('{table}', '{key}'), coalesce(max({key}), 0) + 1, false) FROM {table}"  # noqa: E501, S608 - fixed
        self.run(store, lambda db: db.execute(query).fetchall())
