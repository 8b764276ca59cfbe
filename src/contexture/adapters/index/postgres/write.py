"""Writes to an index in PostgreSQL: each in one transaction, rows by COPY."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from contexture.adapters.index import codec
from contexture.adapters.index.collection_registry import pack_fields
from contexture.adapters.index.id_spaces import SHARED, find_id_space
from contexture.adapters.index.postgres.packing import PackedRow
from contexture.adapters.index.postgres.record_store import encode_text
from contexture.adapters.index.record_store import PassageRow, StoreChange
from contexture.adapters.postgres.pool import Connection
from contexture.errors import NotPermitted
from contexture.types import Collection, Scope

_RECORD_TYPES = ("int8", "text", "bytea", "bytea", "int4", "text", "bytea", "bytea", "text", "bytea", "bytea")
_PASSAGE_TYPES = ("int8", "int8", "text", "int4", "int8", "bytea", "bytea")
_TERM_BYTES = 4  # bytes per term in `PassageFacts.terms`
_TERM_SHIFT, _CLASS_MASK = np.uint64(32), np.uint64(0xFFFF_FFFF)  # a term and an access class packed in one number
_ALLOCATE = (
    "UPDATE counter SET seq = seq + 1, mark = gen_random_uuid(), pid = pid + %s, record = record + %s "
    "RETURNING seq, mark, pid - %s, record - %s"
)


class WriteNumbers(NamedTuple):
    """Sequence number and unique mark of a write; its passage and record numbers start after `pid` and `record`."""

    seq: int
    mark: UUID
    pid: int
    record: int


class ReplacedRecord(NamedTuple):
    """A record that is replaced or removed."""

    record: int
    id: bytes
    access: int


def declare(db: Connection, tenant: str, collection: Collection) -> None:
    """Declare a collection for a tenant, or replace the fields declared there; call it inside a transaction."""
    numbers = _allocate_numbers(db, 0, 0)
    db.execute(
        "INSERT INTO declared VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (tenant, name) DO UPDATE SET fields = excluded.fields, seq = excluded.seq",
        (encode_text(tenant), collection.name, pack_fields(collection.fields), numbers.seq),
    )
    _log_write(db, numbers, b"", collection.name, (), (), 0)


def upsert(
    db: Connection,
    scope: Scope,
    collection: str,
    records: Sequence[PackedRow],
    meanwhile: Callable[[StoreChange], None] = lambda _: None,
) -> StoreChange:
    """Write records; returns the passages added and removed. Call it inside a transaction.

    Raises `NotPermitted` if the scope may not read a record it would replace. `meanwhile` is called with the change
    before the rows are written.
    """
    tenant, passages = encode_text(scope.tenant), sum(len(each.passages) for each in records)
    numbers = _allocate_numbers(db, passages, len(records))
    spaces = [encode_text(find_id_space(each.readers, scope) if each.space is None else each.space) for each in records]
    written_to = {each.id: space for each, space in zip(records, spaces, strict=True)}
    copied = {each.id for each in records if each.space is not None}
    gone = _find_replaced(db, scope, collection, written_to, copied)
    removed = _remove_records(db, gone)
    classes = _ensure_access_classes(db, collection, tenant, {each.acl for each in records})
    done = StoreChange(
        seq=numbers.seq, added=tuple(_passage_rows(numbers.pid, records, classes)), removed=tuple(removed)
    )
    meanwhile(done)
    numbered = list(enumerate(records, start=numbers.record + 1))
    _copy_records(
        db,
        collection,
        tenant,
        [(number, classes[each.acl], space, each) for (number, each), space in zip(numbered, spaces, strict=True)],
    )
    _copy_passages(db, collection, numbers, numbered)
    _update_statistics(
        db, [(classes[each.acl], passage.unpacked_facts) for each in records for passage in each.passages], +1
    )
    touched = [(each.id, each.access) for each in gone] + [(each.id, classes[each.acl]) for each in records]
    _log_write(db, numbers, tenant, collection, touched, removed, passages)
    return done


def delete(db: Connection, scope: Scope, collection: str, ids: Sequence[str]) -> int:
    """Remove the records that the scope may read; returns how many. Call it inside a transaction."""
    numbers = _allocate_numbers(db, 0, 0)
    gone = _find_replaced(db, scope, collection, dict.fromkeys(map(encode_text, ids)))
    removed = _remove_records(db, gone)
    _log_write(
        db, numbers, encode_text(scope.tenant), collection, [(each.id, each.access) for each in gone], removed, 0
    )
    return len(gone)


def _passage_rows(last: int, records: Sequence[PackedRow], classes: Mapping[bytes, int]) -> Iterator[PassageRow]:
    """The new passages, as reading them from the database would return them."""
    pids = count(last + 1)
    for each in records:
        access, id_ = classes[each.acl], each.id.decode()
        for at, (text, known, _, vectors) in enumerate(each.passages):
            yield PassageRow(next(pids), access, id_, each.header, each.hash, each.rules, at, text, known, vectors)


def _allocate_numbers(db: Connection, passages: int, records: int) -> WriteNumbers:
    """Allocate the numbers of a write; locks the counter row, so that other writers wait for the commit."""
    found = db.execute(_ALLOCATE, (passages, records, passages, records), binary=True).fetchone()
    if found is None:
        raise AssertionError("the counter has exactly one row")
    return WriteNumbers(*found)


def _find_replaced(
    db: Connection,
    scope: Scope,
    collection: str,
    spaces: Mapping[bytes, bytes | None],
    copied: AbstractSet[bytes] = frozenset(),
) -> list[ReplacedRecord]:
    """The first record of each id that the scope may read, and those of the id spaces that the ids are written to.

    One there that the scope may not read raises `NotPermitted`, unless the scope has written it. Of `copied` ids only
    the records there are returned.
    """
    rows = db.execute(
        "SELECT r.record, r.id, r.class, r.space, c.acl FROM records r JOIN classes c USING (class) "
        "WHERE r.collection = %s AND r.tenant = %s AND r.id = ANY(%b) ORDER BY r.id, r.space",
        (collection, encode_text(scope.tenant), list(spaces)),
        binary=True,
    ).fetchall()
    principals, shared = set(scope.principals), encode_text(SHARED)
    replaced: list[ReplacedRecord] = []
    seen: set[bytes] = set()
    for record, id_, access, space, acl in rows:
        is_readable = not principals.isdisjoint(json.loads(acl))
        if id_ not in copied and space == shared == spaces[id_] and not is_readable:
            raise NotPermitted(f"record {id_.decode()!r} cannot be written by user {scope.user!r}")
        if space == spaces[id_] or (is_readable and id_ not in seen and id_ not in copied):
            replaced.append(ReplacedRecord(record, id_, access))
            seen.add(id_)
    return sorted(replaced)


def _remove_records(db: Connection, gone: Sequence[ReplacedRecord]) -> list[int]:
    """Remove records with their passages, vectors and matrices; returns the ids of the passages."""
    if not gone:
        return []
    records = [each.record for each in gone]
    rows = db.execute(
        "SELECT p.pid, r.class, p.facts FROM passages p JOIN records r USING (record) WHERE p.record = ANY(%s)",
        (records,),
        binary=True,
    ).fetchall()
    _update_statistics(db, [(access, codec.unpack_facts(facts)) for _, access, facts in rows], -1)
    pids: list[int] = sorted(row[0] for row in rows)
    db.execute("DELETE FROM vectors WHERE pid = ANY(%s)", (pids,))
    for table in (b"passages", b"matrices", b"records"):
        db.execute(b"DELETE FROM %s WHERE record = ANY(%%s)" % table, (records,))
    return pids


def _ensure_access_classes(
    db: Connection, collection: str, tenant: bytes, acls: Iterable[bytes]
) -> Mapping[bytes, int]:
    """The access class of each list of readers, created if missing."""
    digests = {acl: sha256(acl).digest() for acl in sorted(acls)}
    query = "SELECT acl, class FROM classes WHERE collection = %s AND tenant = %s AND digest = ANY(%s)"
    rows = db.execute(query, (collection, tenant, list(digests.values())), binary=True).fetchall()
    found: dict[bytes, int] = dict(rows)
    for acl, digest in digests.items():
        if acl not in found:
            made = db.execute(
                "INSERT INTO classes (collection, tenant, acl, digest) VALUES (%s, %s, %s, %s) RETURNING class",
                (collection, tenant, acl, digest),
            ).fetchone()
            found[acl] = made[0] if made else 0
    return found


def _copy_records(
    db: Connection, collection: str, tenant: bytes, records: Sequence[tuple[int, int, bytes, PackedRow]]
) -> None:
    rows = (
        (
            *(number, collection, tenant, each.id, access, each.hash, each.header, each.text, each.rules),
            *(each.redactions, space),
        )
        for number, access, space, each in records
    )
    _copy(db, "records", _RECORD_TYPES, rows)
    matrices = [(number, *named) for number, _, _, each in records for named in each.matrices]
    if matrices:
        _copy(db, "matrices", ("int8", "text", "bytea"), matrices)


def _copy_passages(
    db: Connection, collection: str, numbers: WriteNumbers, records: Sequence[tuple[int, PackedRow]]
) -> None:
    all_ = [(number, at, passage) for number, each in records for at, passage in enumerate(each.passages)]
    numbered = list(enumerate(all_, start=numbers.pid + 1))
    rows = (
        (pid, number, collection, at, numbers.seq, passage.text.encode(), passage.facts)
        for pid, (number, at, passage) in numbered
    )
    _copy(db, "passages", _PASSAGE_TYPES, rows)
    _copy(db, "vectors", ("int8", "bytea"), ((pid, passage.vectors) for pid, (*_, passage) in numbered))


def _copy(db: Connection, table: str, types: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with db.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)".encode()) as copy:
        copy.set_types(types)
        for row in rows:
            copy.write_row(row)


def _update_statistics(db: Connection, passages: Sequence[tuple[int, codec.PassageFacts]], sign: int) -> None:
    """Add passages, each an access class and its facts, to the term statistics, or subtract them for `sign` -1."""
    if not passages:
        return
    access = np.fromiter((each for each, _ in passages), np.uint64, len(passages))
    lengths = [len(facts.terms) // _TERM_BYTES for _, facts in passages]
    terms = np.frombuffer(b"".join(facts.terms for _, facts in passages), np.uint32).astype(np.uint64)
    keys, counts = np.unique(terms << _TERM_SHIFT | np.repeat(access, lengths), return_counts=True)
    db.execute(
        "INSERT INTO frequencies AS f SELECT * FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) "
        "ON CONFLICT (term, class) DO UPDATE SET passages = f.passages + excluded.passages",
        (_sql_array(keys >> _TERM_SHIFT), _sql_array(keys & _CLASS_MASK), _sql_array(sign * counts)),
    )
    held = np.unique(access, return_counts=True)
    db.execute(
        "UPDATE classes c SET passages = c.passages + n.passages "
        "FROM unnest(%s::int[], %s::bigint[]) AS n (class, passages) WHERE c.class = n.class",
        (_sql_array(held[0]), _sql_array(sign * held[1])),
    )


def _sql_array(numbers: npt.NDArray[Any]) -> str:
    """Numbers as a PostgreSQL array literal; much faster than the driver, which inspects each number four times."""
    return f"{{{','.join(map(str, numbers.tolist()))}}}"


def _log_write(
    db: Connection,
    numbers: WriteNumbers,
    tenant: bytes,
    collection: str,
    touched: Sequence[tuple[bytes, int]],
    removed: Sequence[int],
    added: int,
) -> None:
    """Append to the write log, and notify the other processes at commit."""
    ids, classes = [id_ for id_, _ in touched], [access for _, access in touched]
    db.execute(
        "INSERT INTO writes VALUES (%s, %s, %s, %b::bytea[], %b::int[], %b::bigint[], %s, %s)",
        (numbers.seq, tenant, collection, ids, classes, list(removed), added, numbers.mark),
    )
    db.execute("SELECT pg_notify(current_schema() || '_writes', '')")


def batch_ends(writes: Iterable[tuple[int, int]], most: int) -> Iterator[int]:
    """Sequence numbers at which to stop while replaying writes, so that about `most` passages are held at once."""
    total, last = 0, None
    for seq, size in writes:
        total, last = total + size, seq
        if total >= most:
            yield seq
            total, last = 0, None
    if last is not None:
        yield last
