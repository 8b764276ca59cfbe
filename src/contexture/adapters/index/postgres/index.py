"""Index in PostgreSQL: the database searches, and a process holds no records, words or vectors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from psycopg.types.numeric import Int4

from contexture.adapters.index import codec
from contexture.adapters.index.checks import (
    check_query,
    check_records,
    check_tenant,
    check_unchanged,
    is_valid_id,
    merge_collection,
    unknown_collection_error,
)
from contexture.adapters.index.collection_registry import unpack_collection
from contexture.adapters.index.filters import check_filter, field_types, rename_to_columns
from contexture.adapters.index.id_spaces import find_owner
from contexture.adapters.index.matrices import unpack_matrix
from contexture.adapters.index.postgres import write
from contexture.adapters.index.postgres.earlier import convert_earlier
from contexture.adapters.index.postgres.schema import MIGRATIONS, ORDINAL_BITS, check_earlier_schema
from contexture.adapters.index.postgres.search import (
    READABLE,
    SNAPSHOT,
    Part,
    PostgresView,
    answer,
    fetch,
    iter_graph_indexes,
    load_statistics,
    passing_records,
)
from contexture.adapters.index.postgres.write import decode_text, encode_text, reader_digests
from contexture.adapters.index.reader_latch import ReaderLatch
from contexture.adapters.index.write_queue import SLOW_SECONDS, WriteQueue
from contexture.adapters.postgres.migrations import migrate
from contexture.adapters.postgres.pool import Connection, PostgresPool
from contexture.errors import InvalidRequest, SourceError
from contexture.types import (
    Collection,
    CollectionChanges,
    Filter,
    Hit,
    Matrix,
    PreparedRecord,
    Query,
    Record,
    Scope,
    UnembeddedBatch,
    UnembeddedPassage,
    Vector,
)

_T = TypeVar("_T")

_WRITE_THREADS = 32  # writes of so many tenants at a time, so that one that waits for its part delays no other
_SEARCH_THREADS = 16  # words of so many searches at a time
_MAX_CHANGES = 4_096  # more touched records are not told to caches
_CLAIM_SECONDS = 120  # for how long passages that one process embeds are left to it

_FIND_PART = "SELECT part, fields, version FROM parts WHERE tenant = %(tenant)s AND name = %(name)s"
_RECORDS = f"""
    SELECT DISTINCT ON (r.id) r.id, r.record, r.header, r.text FROM records r
    WHERE r.part = %(part)s AND r.class = ANY({READABLE}) AND {{}} ORDER BY r.id, r.space
"""
_TOUCHED = f"""
    SELECT DISTINCT id FROM touched
    WHERE part = %(part)s AND version > %(since)s AND class = ANY({READABLE}) LIMIT {_MAX_CHANGES}
"""
# Vacuumed tables are read from their indexes alone; those that never were have no statistics for the planner.
_UNTIDY = """
    SELECT s.relid::regclass::text FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
    WHERE s.schemaname = current_schema() AND (
        s.n_ins_since_vacuum + s.n_dead_tup > 1000 OR c.reltuples < 0 AND pg_relation_size(c.oid) > 0
    )
"""
_CLAIM = f"""
    UPDATE unembedded u SET claimed = now() FROM (
        SELECT part, pid FROM unembedded WHERE part = (
            SELECT p.part FROM parts p WHERE (p.tenant > %(after)s) = %(later)s AND EXISTS (
                SELECT FROM unembedded w WHERE w.part = p.part AND w.claimed < now() - interval '{_CLAIM_SECONDS} s'
            ) ORDER BY p.tenant, p.part LIMIT 1
        ) AND claimed < now() - interval '{_CLAIM_SECONDS} s' ORDER BY pid LIMIT %(limit)s FOR UPDATE SKIP LOCKED
    ) n WHERE u.part = n.part AND u.pid = n.pid RETURNING u.part, u.pid
"""
_CLAIMED = f"""
    SELECT c.tenant, c.name, p.pid, p.facts, r.id, r.header, r.text FROM parts c
    JOIN passages p ON p.part = c.part AND p.pid = ANY(%(pids)s)
    JOIN records r ON r.part = c.part AND r.record = p.pid >> {ORDINAL_BITS} WHERE c.part = %(part)s ORDER BY p.pid
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class PostgresOptions:
    """Layout of an index in PostgreSQL: names and lengths of its vectors.

    A scope that may read up to `exact_limit` passages of a collection gets exact answers. Beyond it `optimize` builds
    HNSW graphs, and results may miss some of the nearest passages.
    """

    vectors: Mapping[str, int]
    exact_limit: int = 50_000


class PostgresIndex:
    """Implements the `Index` port, and those beside it, over a database that several processes share.

    index = await PostgresIndex.open("postgres://db/app", PostgresOptions(vectors={"minilm-en-2": 384}))

    Writes of one collection of a tenant are made one after another; no write waits for those of another tenant.
    """

    def __init__(self, pool: PostgresPool, options: PostgresOptions) -> None:
        self.pool = pool
        self._options = options
        self._latch = ReaderLatch(f"the store in {pool.name!r} is closed")
        self._last_error = ""
        with ExitStack() as undo:
            undo.callback(pool.close)
            prepare_tables(pool)
            with pool.connection() as db:
                _ensure_spaces(db, options.vectors)
            self._writes = WriteQueue(_WRITE_THREADS)
            self._executor = ThreadPoolExecutor(_SEARCH_THREADS, thread_name_prefix="contexture-words")
            undo.pop_all()

    @classmethod
    async def open(cls, url: str, options: PostgresOptions) -> PostgresIndex:
        """Open or create the store; the records of an earlier schema are converted first."""
        return await asyncio.to_thread(lambda: cls(PostgresPool(url), options))

    # --- the `Index` port ---

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Create the collection for the tenant, or add fields to it."""
        check_tenant(scope)

        def wanted(db: Connection) -> Collection | None:
            old = _load_collection(db, scope.tenant, collection.name)
            merged = merge_collection(old, collection)
            return None if merged == old else merged

        def save(db: Connection) -> None:
            # Another process may be adding other fields; a new collection has no row to lock yet.
            key = encode_text(scope.tenant), collection.name
            db.execute("SELECT pg_advisory_xact_lock(hashtextextended(encode(%s, 'hex') || %s, 0))", key)
            merged = wanted(db)
            if merged is not None:
                write.declare(db, scope.tenant, merged)

        if await self._read(wanted) is not None:
            await self._write(scope, save)

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant, by name."""
        return await self._read(lambda db: _list_collections(db, scope.tenant))

    async def upsert(
        self, scope: Scope, collection: str, records: Sequence[PreparedRecord], *, unchanged: Sequence[Record] = ()
    ) -> int:
        """Write all records or none; returns the version of the collection with them.

        Raises `Outdated` if a record of `unchanged` differs from what is stored, and `NotPermitted` if the scope may
        not read a record it would replace.
        """
        check_tenant(scope)

        def prepare() -> list[write.PreparedRow]:
            check_records(records, self._options.vectors)
            return write.pack_records(records)

        def store(db: Connection) -> int:
            writer = self._lock(db, scope, collection)
            if unchanged:
                where, ids = "r.id = ANY(%(ids)b::bytea[])", [encode_text(record.id) for record in unchanged]
                rows = fetch(db, _RECORDS.format(where), _given(writer.part, scope, ids=ids))
                check_unchanged(unchanged, map(_to_record, rows))
            writer.upsert(scope, packed)
            self._writes.check_cancelled()
            return writer.version

        await self._read(lambda db: _require_part(db, scope, collection))
        packed = await asyncio.to_thread(prepare)
        spaces = write.list_vector_spaces(packed)
        if spaces - {*self._options.vectors.items()}:
            await self._read(lambda db: write.ensure_spaces(db, sorted(spaces)))
        return await self._write(scope, store)

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove the records that the scope may read; returns how many were removed."""
        valid = [id_ for id_ in ids if is_valid_id(id_)]
        return await self._write(scope, lambda db: self._lock(db, scope, collection).delete(scope, valid))

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Records that exist and that the scope may read, in the order of `ids`."""

        def read(db: Connection) -> list[Record]:
            part = _require_part(db, scope, collection)
            wanted = [encode_text(id_) for id_ in ids if is_valid_id(id_)]
            rows = fetch(db, _RECORDS.format("r.id = ANY(%(ids)b::bytea[])"), _given(part.part, scope, ids=wanted))
            found = {record.id: record for record in map(_to_record, rows)}
            return [found[id_] for id_ in ids if id_ in found]

        return await self._read(read)

    async def scroll(
        self, scope: Scope, collection: str, *, where: Filter | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """Up to `limit` records that pass the filter, in id order, with ids greater than `after`."""

        def read(db: Connection) -> list[Record]:
            part = _require_part(db, scope, collection)
            if limit < 1 or not is_valid_id(after):
                raise InvalidRequest(f"cannot scroll {limit} records after {after!r}")
            given = _given(part.part, scope, after=encode_text(after), limit=limit)
            statement = f"SELECT * FROM ({_RECORDS.format('r.id > %(after)s')}) d"
            if where is not None:
                fields = field_types(part.collection)
                check_filter(where, fields)
                statement += f" WHERE record IN ({passing_records(rename_to_columns(where, fields), given)})"
            return list(map(_to_record, fetch(db, f"{statement} ORDER BY id LIMIT %(limit)s", given)))

        return await self._read(read)

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The passages that `query.fuse` chooses from the best of every channel, each with all its scores."""

        def read(db: Connection) -> list[Hit]:
            part = _require_part(db, scope, query.collection)
            fields = field_types(part.collection)
            check_query(query, fields, self._options.vectors)
            where = None if query.where is None else rename_to_columns(query.where, fields)
            asked = replace(query, where=where)
            hits, is_whole = self._search(db, part, scope, asked, self._executor)
            if not is_whole:
                with self._snapshot():
                    hits, _ = self._search(db, part, scope, asked, None)
            return hits

        try:
            found = await self._read(read)
        except SourceError as failure:
            self._last_error = str(failure)
            raise
        self._last_error = ""
        return found

    async def matrices(self, scope: Scope, collection: str, name: str, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """By record id, the matrix stored under `name`, for records that the scope may read."""

        def read(db: Connection) -> dict[str, Matrix]:
            part = _require_part(db, scope, collection)
            wanted = [encode_text(id_) for id_ in ids if is_valid_id(id_)]
            statement = (
                f"SELECT d.id, m.data FROM ({_RECORDS.format('r.id = ANY(%(ids)b::bytea[])')}) d "
                "JOIN matrices m ON m.part = %(part)s AND m.record = d.record AND m.name = %(name)s"
            )
            rows = fetch(db, statement, _given(part.part, scope, ids=wanted, name=name))
            return {decode_text(id_): unpack_matrix(data) for id_, data in rows}

        return await self._read(read)

    async def version(self, scope: Scope, collection: str) -> int:
        """Number of the last write to the tenant's collection, made from its time; greater than all before."""
        return (await self._read(lambda db: _require_part(db, scope, collection))).version

    async def optimize(self) -> None:
        """Tidy the tables, and build HNSW graphs for vector spaces of collections that have outgrown `exact_limit`."""
        await self._read(self._optimize)

    async def warm(self) -> None:
        """Do nothing: a process holds nothing that it could load."""

    async def check_health(self) -> str:
        """Error of the last search, or a write that is stuck; empty if all is well.

        Raises `SourceError` when the records cannot be read.
        """
        running = self._writes.running_seconds()
        if running > SLOW_SECONDS:
            return f"a write has been running for {running:.0f} seconds"
        await self._read(lambda db: db.execute("SELECT FROM store").fetchone())
        return self._last_error

    async def close(self) -> None:
        """Wait for running calls and close the connections."""
        await asyncio.to_thread(self._close)

    # --- the `Journal`, `VectorSpaces`, `PrivateIds` and `VectorBacklog` ports ---

    async def changes(self, scope: Scope, collection: str, since: int) -> CollectionChanges | None:
        """Records written after `since` that the scope may read or could read before; None when unknown."""

        def read(db: Connection) -> CollectionChanges | None:
            part = _require_part(db, scope, collection)
            given = _given(part.part, scope, since=since)
            # A version that is not listed is too old, or of a state that was replaced by a backup.
            listed = db.execute("SELECT FROM versions WHERE part = %(part)s AND version = %(since)s", given).fetchone()
            rows = fetch(db, _TOUCHED, given)
            if listed is None or (None,) in rows or len(rows) == _MAX_CHANGES:
                return None
            query = f"SELECT coalesce(sum(passages), 0)::bigint FROM classes WHERE class = ANY({READABLE})"
            ((passages,),) = fetch(db, query, given)
            return CollectionChanges(ids=tuple(sorted(decode_text(id_) for (id_,) in rows)), passages=passages)

        return await self._read(read)

    async def spaces(self, scope: Scope, collection: str) -> frozenset[str] | None:
        """Names of the vector spaces of the passages the scope may read, perhaps more; None without the collection."""

        def read(db: Connection) -> frozenset[str] | None:
            row = _find_part(db, scope.tenant, collection)
            if row is None:
                return None
            query = (
                "SELECT name FROM spaces WHERE space IN (SELECT space FROM vector_counts "
                f"WHERE part = %(part)s AND class = ANY({READABLE}) AND vectors > 0)"
            )
            return frozenset(name for (name,) in fetch(db, query, _given(row.part, scope)))

        return await self._read(read)

    async def list_owners(self, tenant: str, collection: str, ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """By id, the users who have a private record of it, and "" for a shared one; applies no permissions."""

        def read(db: Connection) -> dict[str, frozenset[str]]:
            query = (
                "SELECT r.id, r.space FROM parts p JOIN records r ON r.part = p.part "
                "WHERE p.tenant = %(tenant)s AND p.name = %(name)s AND r.id = ANY(%(ids)b::bytea[])"
            )
            wanted = [encode_text(id_) for id_ in ids if is_valid_id(id_)]
            given = {"tenant": encode_text(tenant), "name": collection, "ids": wanted}
            owners: dict[str, set[str]] = {}
            for id_, space in fetch(db, query, given):
                owners.setdefault(decode_text(id_), set()).add(find_owner(decode_text(space)))
            return {id_: frozenset(some) for id_, some in owners.items()}

        return await self._read(read)

    async def count_unembedded(self, scope: Scope, collection: str) -> int:
        """How many passages that the scope may read have no vectors yet."""

        def read(db: Connection) -> int:
            part = _find_part(db, scope.tenant, collection)
            query = f"SELECT count(*) FROM unembedded WHERE part = %(part)s AND class = ANY({READABLE})"
            return 0 if part is None else int(fetch(db, query, _given(part.part, scope))[0][0])

        return await self._read(read)

    async def next_unembedded(self, *, after: str, limit: int) -> UnembeddedBatch | None:
        """The next passages to embed, those of the first tenant after `after` that has some; None without any.

        Other processes leave them to this one for two minutes.
        """

        def read(db: Connection) -> UnembeddedBatch | None:
            ((waiting,),) = fetch(db, "SELECT count(*) FROM unembedded", {})
            rows: list[tuple[int, int]] = []
            for later in (True, False) if waiting else ():
                rows = rows or fetch(db, _CLAIM, {"after": encode_text(after), "later": later, "limit": limit})
            return _load_claimed(db, rows, waiting) if rows else None

        return await self._read(read)

    async def add_vectors(self, batch: UnembeddedBatch, vectors: Mapping[int, Mapping[str, Vector]]) -> frozenset[int]:
        """Write vectors by passage number; returns the passages that were still there to get them."""
        scope = Scope(tenant=batch.tenant, user="vectors")
        packed = {number: codec.pack_named_vectors(row) for number, row in vectors.items()}
        return await self._write(scope, lambda db: self._lock(db, scope, batch.collection).add_vectors(packed))

    # --- beyond the ports ---

    async def names(self) -> Sequence[str]:
        """Names of the collections of all tenants; for operators."""
        return await self._read(
            lambda db: [name for (name,) in fetch(db, "SELECT DISTINCT name FROM parts ORDER BY name", {})]
        )

    def count(self, collection: str) -> int:
        """Number of passages in a collection, over all tenants and readers; for operators."""
        query = (
            "SELECT coalesce(sum(c.passages), 0)::bigint FROM parts p JOIN classes c USING (part) WHERE name = %(name)s"
        )
        with self._latch.reader(), self.pool.connection() as db:
            return int(fetch(db, query, {"name": collection})[0][0])

    # --- inside ---

    def _search(
        self, db: Connection, part: Part, scope: Scope, query: Query, executor: ThreadPoolExecutor | None
    ) -> tuple[list[Hit], bool]:
        """The hits, and whether all statements read one version of the part."""
        asked, version = load_statistics(db, part, scope, query)
        if not asked.passages:
            return [], True
        view = self._open_view(PostgresView(self.pool, executor, asked, self._options.exact_limit, {version}))
        hits = answer(view)
        return hits, len(view.versions) == 1

    def _snapshot(self) -> AbstractContextManager[object]:
        """Transaction in which a search is repeated, so that all its statements read one version."""
        return self.pool.transaction(SNAPSHOT)

    def _open_view(self, view: PostgresView) -> PostgresView:
        """What answers a search; another search engine may propose the candidates."""
        return view

    def _lock(self, db: Connection, scope: Scope, collection: str) -> write.Writer:
        part = _require_part(db, scope, collection)
        writer = write.lock_part(db, part.part)
        if writer is None:
            raise unknown_collection_error(collection, _list_collections(db, scope.tenant))
        return writer

    async def _read(self, work: Callable[[Connection], _T]) -> _T:
        def run() -> _T:
            with self._latch.reader(), self.pool.connection() as db:
                return work(db)

        return await asyncio.to_thread(run)

    async def _write(self, scope: Scope, work: Callable[[Connection], _T]) -> _T:
        """Run a write when it is the tenant's turn; one whose caller is cancelled before it is committed is undone."""

        def run() -> _T:
            with self._latch.reader(), self.pool.transaction() as db:
                return work(db)

        return await self._writes.run(scope.tenant, run)

    def _optimize(self, db: Connection) -> None:
        for (table,) in fetch(db, _UNTIDY, {}):
            db.execute(f"VACUUM (ANALYZE, SKIP_LOCKED) {table}".encode())
        db.execute("SET maintenance_work_mem = '1GB'")  # a graph that does not fit takes many times as long to build
        query = (
            "SELECT part, space, size FROM vector_counts JOIN spaces USING (space) "
            "GROUP BY part, space, size HAVING sum(vectors) > %(limit)s"
        )
        for part, space, size in fetch(db, query, {"limit": self._options.exact_limit}):
            leaf = "SELECT tableoid::regclass::text FROM vectors WHERE part = %(part)s LIMIT 1"
            for (table,) in fetch(db, leaf, {"part": Int4(part)}):
                for statement in iter_graph_indexes(part, space, size):
                    db.execute(statement.format(table).encode())
        db.execute("RESET maintenance_work_mem")

    def _close(self) -> None:
        if self._latch.close():
            self._writes.close()
            self._executor.shutdown()
            self.pool.close()


def prepare_tables(pool: PostgresPool) -> None:
    """Create the tables, or bring those of an earlier version up to date; raises what `check_earlier_schema` raises."""
    check_earlier_schema(pool)
    migrate(pool, pool.schema, MIGRATIONS)
    convert_earlier(pool)


def _find_part(db: Connection, tenant: str, name: str) -> Part | None:
    rows = fetch(db, _FIND_PART, {"tenant": encode_text(tenant), "name": name})
    for number, fields, version in rows:
        # As an integer of 32 bits, so that the planner compares it with the partitions.
        return Part(part=Int4(number), tenant=tenant, collection=unpack_collection(name, fields), version=version)
    return None


def _require_part(db: Connection, scope: Scope, name: str) -> Part:
    """The tenant's collection; raises `UnknownCollection`, which names those the tenant has."""
    check_tenant(scope)
    found = _find_part(db, scope.tenant, name)
    if found is None:
        raise unknown_collection_error(name, _list_collections(db, scope.tenant))
    return found


def _load_collection(db: Connection, tenant: str, name: str) -> Collection | None:
    found = _find_part(db, tenant, name)
    return None if found is None else found.collection


def _list_collections(db: Connection, tenant: str) -> list[Collection]:
    query = 'SELECT name, fields FROM parts WHERE tenant = %(tenant)s ORDER BY name COLLATE "C"'
    return [unpack_collection(name, fields) for name, fields in fetch(db, query, {"tenant": encode_text(tenant)})]


def _given(part: int, scope: Scope, **more: object) -> dict[str, object]:
    return {"part": part, "readers": reader_digests(scope.principals), **more}


def _to_record(row: Sequence[Any]) -> Record:
    id_, _, header, text = row
    return codec.unpack_header(header, decode_text(id_), decode_text(text))[0]


def _load_claimed(db: Connection, rows: Sequence[tuple[int, int]], waiting: int) -> UnembeddedBatch | None:
    given = {"part": Int4(rows[0][0]), "pids": [pid for _, pid in rows]}
    records: dict[str, Record] = {}
    found: list[UnembeddedPassage] = []
    where = "", ""
    for tenant, name, pid, facts, id_, header, text in fetch(db, _CLAIMED, given):
        where = decode_text(tenant), name
        record = records.setdefault(
            decode_text(id_), codec.unpack_header(header, decode_text(id_), decode_text(text))[0]
        )
        known = codec.unpack_facts(facts)
        found.append(UnembeddedPassage(number=pid, record=record, start=known.start, end=known.end))
    return (
        UnembeddedBatch(tenant=where[0], collection=where[1], passages=tuple(found), waiting=waiting) if found else None
    )


def _ensure_spaces(db: Connection, vectors: Mapping[str, int]) -> None:
    """Number the vector spaces; a database that only reads keeps those that it has."""
    missing = [each for each in vectors.items() if each not in write.find_spaces(db, [each])]
    read_only = db.execute("SHOW transaction_read_only").fetchone() == ("on",)
    if missing and not read_only:
        write.ensure_spaces(db, missing)
