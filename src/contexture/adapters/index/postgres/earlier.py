"""Conversion of the records of a store from before the database searched; nothing is embedded again."""

import json
from collections.abc import Sequence
from typing import Any

from psycopg.types.numeric import Int4

from contexture.adapters.index import codec
from contexture.adapters.index.collection_registry import unpack_collection
from contexture.adapters.index.postgres import write
from contexture.adapters.index.postgres.filters_sql import pack_fields
from contexture.adapters.index.postgres.schema import EARLIER
from contexture.adapters.index.postgres.write import decode_text
from contexture.adapters.postgres.pool import Connection, PostgresPool, errors
from contexture.errors import SourceTimeout
from contexture.types import Scope

_LOCK = 0x636F6E76657274  # "convert" in ASCII
_BATCH = 250
_RECORDS = f"""
    SELECT r.record, r.id, c.acl, r.hash, r.header, r.text, r.rules, r.redactions, r.space FROM {EARLIER}records r
    JOIN {EARLIER}classes c USING (class) WHERE r.tenant = %s AND r.collection = %s
    ORDER BY r.id, r.space LIMIT {_BATCH}
"""
_PASSAGES = f"""
    SELECT p.record, p.text, p.facts, v.data FROM {EARLIER}passages p JOIN {EARLIER}vectors v USING (pid)
    WHERE p.record = ANY(%s) ORDER BY p.record, p.ordinal
"""
_REMOVE = (
    f"DELETE FROM {EARLIER}vectors WHERE pid IN (SELECT pid FROM {EARLIER}passages WHERE record = ANY(%s))",
    *(f"DELETE FROM {EARLIER}{table} WHERE record = ANY(%s)" for table in ("passages", "matrices", "records")),
)


def convert_earlier(pool: PostgresPool) -> None:
    """Move every record of the earlier tables into those of today, then drop them; does nothing without them.

    It can be interrupted at any time and goes on where it stopped. Raises `SourceTimeout` while another process is at
    it.
    """
    with pool.connection() as db:
        if db.execute("SELECT to_regclass(%s)", (f"{EARLIER}records",)).fetchone() == (None,):
            return
        try:
            db.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        except errors.LockNotAvailable as busy:
            raise SourceTimeout(f"{pool.name} is being converted to a new schema by another process; wait") from busy
        try:
            if db.execute("SELECT to_regclass(%s)", (f"{EARLIER}records",)).fetchone() != (None,):
                _convert(pool, db)
        finally:
            db.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _convert(pool: PostgresPool, db: Connection) -> None:
    declared = db.execute(f"SELECT tenant, name, fields FROM {EARLIER}declared ORDER BY tenant, name").fetchall()
    for tenant, name, fields in declared:
        row = db.execute("SELECT part FROM parts WHERE tenant = %s AND name = %s", (tenant, name)).fetchone()
        if row is None:
            with pool.transaction():
                write.declare(db, decode_text(tenant), unpack_collection(name, fields))
            row = db.execute("SELECT part FROM parts WHERE tenant = %s AND name = %s", (tenant, name)).fetchone()
        while (rows := db.execute(_RECORDS.encode(), (tenant, name), binary=True).fetchall()) and row is not None:
            _convert_batch(pool, db, Int4(row[0]), decode_text(tenant), rows)
    with pool.transaction():
        tables = ", ".join(
            f"{EARLIER}{each}"
            for each in ("counter", "classes", "records", "passages", "vectors", "matrices", "declared")
        )
        db.execute(f"DROP TABLE {tables}".encode())


def _convert_batch(pool: PostgresPool, db: Connection, part: int, tenant: str, rows: Sequence[tuple[Any, ...]]) -> None:
    numbers = [row[0] for row in rows]
    passages: dict[int, list[write.PackedPassage]] = {number: [] for number in numbers}
    for number, text, facts, vectors in db.execute(_PASSAGES.encode(), (numbers,), binary=True):
        passages[number].append(
            write.PackedPassage(text, codec.unpack_facts(facts), facts, vectors, is_unembedded=False)
        )
    matrices: dict[int, list[tuple[bytes, bytes]]] = {number: [] for number in numbers}
    query = f"SELECT record, name, data FROM {EARLIER}matrices WHERE record = ANY(%s)"
    for number, name, data in db.execute(query.encode(), (numbers,), binary=True):
        matrices[number].append((name.encode(), data))
    packed: dict[bytes, list[write.PreparedRow]] = {}
    for number, id_, acl, digest, header, text, rules, redactions, space in rows:
        record, _ = codec.unpack_header(header, decode_text(id_), "")
        packed.setdefault(space, []).append(
            write.PreparedRow(
                id=id_,
                readers=tuple(json.loads(acl)),
                columns=(digest.encode(), header, text, rules.encode(), redactions),
                fields=b"\x01" + pack_fields(record).encode(),
                passages=tuple(passages[number]),
                matrices=tuple(matrices[number]),
                space=decode_text(space),
            )
        )
    write.ensure_spaces(db, sorted({each for some in packed.values() for each in write.list_vector_spaces(some)}))
    with pool.transaction():
        writer = write.lock_part(db, part)
        for some in packed.values():  # of one id space each, in which ids are unique
            if writer is not None:
                writer.upsert(Scope(tenant=tenant, user="migration"), some)
        for statement in _REMOVE:
            db.execute(statement.encode(), (numbers,))
