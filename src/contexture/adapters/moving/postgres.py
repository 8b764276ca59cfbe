"""A store in PostgreSQL, as one end of a move."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from contexture.adapters.blocks.postgres import MIGRATIONS as BLOCKS
from contexture.adapters.graph.postgres import MIGRATIONS as GRAPH
from contexture.adapters.index.declared import collection_of
from contexture.adapters.index.postgres import write
from contexture.adapters.index.postgres.packing import pack
from contexture.adapters.index.postgres.schema import MIGRATIONS as INDEX
from contexture.adapters.index.postgres.truth import packed
from contexture.adapters.moving.files import FilesPlace
from contexture.adapters.moving.records import Kept, Part, RecordsPlace, prepared_of
from contexture.adapters.moving.tables import TablesPlace
from contexture.adapters.outbox.postgres import MIGRATIONS as OUTBOX
from contexture.adapters.postgres.files import PostgresFiles
from contexture.adapters.postgres.keys import MIGRATIONS as KEYS
from contexture.adapters.postgres.migrating import is_made, migrate
from contexture.adapters.postgres.pool import Pool
from contexture.adapters.postgres.tables import PostgresTables
from contexture.adapters.replies.postgres import MIGRATIONS as REPLIES
from contexture.adapters.sessions.postgres import MIGRATIONS as SESSIONS
from contexture.errors import NotFound
from contexture.types import Collection, Prepared, Scope

T = TypeVar("T")

_PARTS = {
    "sessions": SESSIONS,
    "replies": REPLIES,
    "outbox": OUTBOX,
    "graph": GRAPH,
    "blocks": BLOCKS,
    "keys": KEYS,
}
_SELECT = (
    "SELECT record, id, header, text, rules, redactions FROM records "
    "WHERE collection = %s AND tenant = %s AND id > %s {} ORDER BY id LIMIT %s"
)


class PostgresStore:
    """Everything that a database holds."""

    def __init__(self, url: str, *, existing: bool) -> None:
        self._pool = Pool(url)
        if existing and not is_made(self._pool, self._pool.schema):
            raise NotFound(f"there is no store in schema {self._pool.schema!r} of {self._pool.name}")
        migrate(self._pool, self._pool.schema, INDEX)
        self.name = self._pool.name
        self.records: RecordsPlace = PostgresRecords(self._pool)
        self.tables: TablesPlace = PostgresSmall(self._pool)
        self.files: FilesPlace = PostgresFiles(self._pool)

    def close(self) -> None:
        """Let go of the connections."""
        self._pool.close()


class PostgresRecords:
    """The records in PostgreSQL."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def declared(self) -> Mapping[Part, Collection]:
        """Every collection of every tenant, with the fields that it has declared."""
        rows = self._all("SELECT tenant, name, fields FROM declared ORDER BY tenant, name")
        return {Part(name, _text(tenant)): collection_of(name, fields) for tenant, name, fields in rows}

    def declare(self, tenant: str, collection: Collection) -> None:
        """Let a tenant have a collection, or replace the fields it has declared there."""
        with self._pool.transaction() as db:
            write.declare(db, tenant, collection)

    def parts(self) -> Mapping[Part, int]:
        """Every part that holds a record, and how many."""
        rows = self._all("SELECT collection, tenant, count(*) FROM records GROUP BY collection, tenant")
        return {Part(collection, _text(tenant)): count for collection, tenant, count in rows}

    def page(self, part: Part, after: str, limit: int) -> Sequence[Prepared]:
        """Records of a part in id order, behind `after`."""
        return self._records("", (part.collection, packed(part.tenant), packed(after), limit))

    def among(self, part: Part, ids: Sequence[str]) -> Mapping[str, Prepared]:
        """Those of `ids` that the part holds."""
        wanted = [packed(id_) for id_ in ids]
        given = (part.collection, packed(part.tenant), b"", wanted, len(wanted))
        return {item.record.id: item for item in self._records("AND id = ANY(%s)", given)}

    def write(self, part: Part, records: Sequence[Prepared]) -> None:
        """Write records instead of those of the same ids."""
        rows = pack(records)
        with self._pool.transaction() as db:
            write.upsert(db, Scope(tenant=part.tenant, user="migration"), part.collection, rows, anyone=True)

    def _records(self, condition: str, given: Sequence[Any]) -> list[Prepared]:
        rows = self._all(_SELECT.format(condition), given)
        numbers = [row[0] for row in rows]
        passages: dict[int, list[tuple[bytes, bytes]]] = {number: [] for number in numbers}
        for number, facts, vectors in self._all(
            "SELECT p.record, p.facts, v.data FROM passages p JOIN vectors v USING (pid) "
            "WHERE p.record = ANY(%s) ORDER BY p.record, p.ordinal",
            (numbers,),
        ):
            passages[number].append((facts, vectors))
        matrices: dict[int, dict[str, bytes]] = {number: {} for number in numbers}
        for number, name, data in self._all(
            "SELECT record, name, data FROM matrices WHERE record = ANY(%s)", (numbers,)
        ):
            matrices[number][name] = data
        return [
            prepared_of(Kept(_text(id_), header, _text(text), rules, spans, passages[number], matrices[number]))
            for number, id_, header, text, rules, spans in rows
        ]

    def _all(self, query: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._pool.lent() as connection:
            return connection.execute(query.encode(), given, binary=True).fetchall()


class PostgresSmall:
    """The small stores."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def run(self, store: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """What `work` returns, inside one transaction on the tables of a store."""
        return PostgresTables(self._pool, store, _PARTS[store]).run(work)

    def written(self, store: str, table: str, key: str) -> None:
        """Let the next number be behind the highest."""
        query = f"SELECT setval(pg_get_serial_sequence('{table}', '{key}'), coalesce(max({key}), 0) + 1, false) FROM {table}"  # noqa: E501, S608 - fixed
        self.run(store, lambda db: db.execute(query).fetchall())


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
