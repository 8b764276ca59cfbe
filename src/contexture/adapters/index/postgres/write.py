"""One write to an index in PostgreSQL: all of it in one transaction, large ones by COPY."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from contexture.adapters.index import codec
from contexture.adapters.index.declared import pack_fields
from contexture.adapters.index.postgres.packing import PackedRecord
from contexture.adapters.index.postgres.truth import packed
from contexture.adapters.index.truth import Change, Row
from contexture.adapters.postgres.pool import Connection
from contexture.errors import NotPermitted
from contexture.types import Collection, Scope

_RECORD = ("int8", "text", "bytea", "bytea", "int4", "text", "bytea", "bytea", "text", "bytea")
_PASSAGE = ("int8", "int8", "text", "int4", "int8", "bytea", "bytea")
_TERM = 4  # bytes of a term in a passage's facts
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFF_FFFF)  # a term and a class in one number
_COUNT = (
    "UPDATE counter SET seq = seq + 1, mark = gen_random_uuid(), pid = pid + %s, record = record + %s "
    "RETURNING seq, mark, pid - %s, record - %s"
)


class Numbers(NamedTuple):
    """The number of a write and what tells it from all others, and the last numbers of passages and records."""

    seq: int
    mark: UUID
    pid: int
    record: int


class Gone(NamedTuple):
    """A record that is replaced or removed."""

    record: int
    id: bytes
    access: int


def declare(db: Connection, tenant: str, collection: Collection) -> None:
    """Let a tenant have a collection, or replace the fields it has declared there, inside a transaction."""
    numbers = _numbers(db, 0, 0)
    db.execute(
        "INSERT INTO declared VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (tenant, name) DO UPDATE SET fields = excluded.fields, seq = excluded.seq",
        (packed(tenant), collection.name, pack_fields(collection.fields), numbers.seq),
    )
    _tell(db, numbers, b"", collection.name, (), (), 0)


def upsert(
    db: Connection,
    scope: Scope,
    collection: str,
    records: Sequence[PackedRecord],
    meanwhile: Callable[[Change], None] = lambda _: None,
    *,
    anyone: bool = False,
) -> Change:
    """Write records inside a transaction; returns what it did to the passages.

    What the scope may not read it cannot replace, unless `anyone` may. `meanwhile` is told that before it is done.
    """
    tenant, passages = packed(scope.tenant), sum(len(each.passages) for each in records)
    numbers = _numbers(db, passages, len(records))
    gone = _found(db, scope, collection, [each.id for each in records], must_see=not anyone, sees_all=anyone)
    removed = _remove(db, gone)
    classes = _classes(db, collection, tenant, {each.acl for each in records})
    done = Change(seq=numbers.seq, added=tuple(_rows(numbers.pid, records, classes)), removed=tuple(removed))
    meanwhile(done)
    numbered = list(enumerate(records, start=numbers.record + 1))
    _copy_records(db, collection, tenant, [(number, classes[each.acl], each) for number, each in numbered])
    _copy_passages(db, collection, numbers, numbered)
    _count(db, [(classes[each.acl], passage.known) for each in records for passage in each.passages], +1)
    touched = [(each.id, each.access) for each in gone] + [(each.id, classes[each.acl]) for each in records]
    _tell(db, numbers, tenant, collection, touched, removed, passages)
    return done


def delete(db: Connection, scope: Scope, collection: str, ids: Sequence[str]) -> int:
    """Remove those of the records that the scope may see inside a transaction; returns how many there were."""
    numbers = _numbers(db, 0, 0)
    gone = _found(db, scope, collection, [packed(id_) for id_ in dict.fromkeys(ids)], must_see=False, sees_all=False)
    removed = _remove(db, gone)
    _tell(db, numbers, packed(scope.tenant), collection, [(each.id, each.access) for each in gone], removed, 0)
    return len(gone)


def _rows(last: int, records: Sequence[PackedRecord], classes: Mapping[bytes, int]) -> Iterator[Row]:
    """The passages as they would be read again."""
    pids = count(last + 1)
    for each in records:
        access, id_ = classes[each.acl], each.id.decode()
        for at, (text, known, _, vectors) in enumerate(each.passages):
            yield Row(next(pids), access, id_, each.header, each.hash, each.rules, at, text, known, vectors)


def _numbers(db: Connection, passages: int, records: int) -> Numbers:
    """The numbers of a write of so many passages and records; nobody else writes now."""
    found = db.execute(_COUNT, (passages, records, passages, records), binary=True).fetchone()
    if found is None:
        raise AssertionError("the counter has exactly one row")
    return Numbers(*found)


def _found(
    db: Connection, scope: Scope, collection: str, ids: Sequence[bytes], *, must_see: bool, sees_all: bool
) -> list[Gone]:
    """The records of these ids that are there; one that the scope may not see is refused, or passed over."""
    rows = db.execute(
        "SELECT r.record, r.id, r.class, c.acl FROM records r JOIN classes c USING (class) "
        "WHERE r.collection = %s AND r.tenant = %s AND r.id = ANY(%b) ORDER BY r.record",
        (collection, packed(scope.tenant), list(ids)),
        binary=True,
    ).fetchall()
    principals = set(scope.principals)
    hidden = [id_ for _, id_, _, acl in rows if not sees_all and principals.isdisjoint(json.loads(acl))]
    if hidden and must_see:
        raise NotPermitted(f"record {hidden[0].decode()!r} cannot be written by user {scope.user!r}")
    return [Gone(record, id_, access) for record, id_, access, _ in rows if id_ not in hidden]


def _remove(db: Connection, gone: Sequence[Gone]) -> list[int]:
    """Remove records with all that belongs to them; the passages there were."""
    if not gone:
        return []
    records = [each.record for each in gone]
    rows = db.execute(
        "SELECT p.pid, r.class, p.facts FROM passages p JOIN records r USING (record) WHERE p.record = ANY(%s)",
        (records,),
        binary=True,
    ).fetchall()
    _count(db, [(access, codec.unpack_facts(facts)) for _, access, facts in rows], -1)
    pids: list[int] = sorted(row[0] for row in rows)
    db.execute("DELETE FROM vectors WHERE pid = ANY(%s)", (pids,))
    for table in (b"passages", b"matrices", b"records"):
        db.execute(b"DELETE FROM %s WHERE record = ANY(%%s)" % table, (records,))
    return pids


def _classes(db: Connection, collection: str, tenant: bytes, acls: Iterable[bytes]) -> Mapping[bytes, int]:
    """The access class of each list of readers, made where it is missing."""
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
    db: Connection, collection: str, tenant: bytes, records: Sequence[tuple[int, int, PackedRecord]]
) -> None:
    rows = (
        (number, collection, tenant, each.id, access, each.hash, each.header, each.text, each.rules, each.redactions)
        for number, access, each in records
    )
    _copy(db, "records", _RECORD, rows)
    matrices = [(number, *named) for number, _, each in records for named in each.matrices]
    if matrices:
        _copy(db, "matrices", ("int8", "text", "bytea"), matrices)


def _copy_passages(
    db: Connection, collection: str, numbers: Numbers, records: Sequence[tuple[int, PackedRecord]]
) -> None:
    all_ = [(number, at, passage) for number, each in records for at, passage in enumerate(each.passages)]
    numbered = list(enumerate(all_, start=numbers.pid + 1))
    rows = (
        (pid, number, collection, at, numbers.seq, passage.text.encode(), passage.facts)
        for pid, (number, at, passage) in numbered
    )
    _copy(db, "passages", _PASSAGE, rows)
    _copy(db, "vectors", ("int8", "bytea"), ((pid, passage.vectors) for pid, (*_, passage) in numbered))


def _copy(db: Connection, table: str, types: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with db.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)".encode()) as copy:
        copy.set_types(types)
        for row in rows:
            copy.write_row(row)


def _count(db: Connection, passages: Sequence[tuple[int, codec.Facts]], sign: int) -> None:
    """Let the statistics know passages that came or went, each by its class and terms."""
    if not passages:
        return
    access = np.fromiter((each for each, _ in passages), np.uint64, len(passages))
    lengths = [len(facts.terms) // _TERM for _, facts in passages]
    terms = np.frombuffer(b"".join(facts.terms for _, facts in passages), np.uint32).astype(np.uint64)
    keys, counts = np.unique(terms << _HALF | np.repeat(access, lengths), return_counts=True)
    db.execute(
        "INSERT INTO frequencies AS f SELECT * FROM unnest(%s::bigint[], %s::int[], %s::bigint[]) "
        "ON CONFLICT (term, class) DO UPDATE SET passages = f.passages + excluded.passages",
        (_array(keys >> _HALF), _array(keys & _LOW), _array(sign * counts)),
    )
    held = np.unique(access, return_counts=True)
    db.execute(
        "UPDATE classes c SET passages = c.passages + n.passages "
        "FROM unnest(%s::int[], %s::bigint[]) AS n (class, passages) WHERE c.class = n.class",
        (_array(held[0]), _array(sign * held[1])),
    )


def _array(numbers: npt.NDArray[Any]) -> str:
    """Numbers as an array in SQL; the driver would look at each of them four times."""
    return f"{{{','.join(map(str, numbers.tolist()))}}}"


def _tell(
    db: Connection,
    numbers: Numbers,
    tenant: bytes,
    collection: str,
    touched: Sequence[tuple[bytes, int]],
    removed: Sequence[int],
    added: int,
) -> None:
    """Note what was done for those who follow, and wake them when it is committed."""
    ids, classes = [id_ for id_, _ in touched], [access for _, access in touched]
    db.execute(
        "INSERT INTO writes VALUES (%s, %s, %s, %b::bytea[], %b::int[], %b::bigint[], %s, %s)",
        (numbers.seq, tenant, collection, ids, classes, list(removed), added, numbers.mark),
    )
    db.execute("SELECT pg_notify(current_schema() || '_writes', '')")


def chunks(writes: Iterable[tuple[int, int]], most: int) -> Iterator[int]:
    """Where to stop while following writes, given by number and size, so that about `most` are held at once."""
    total, last = 0, None
    for seq, size in writes:
        total, last = total + size, seq
        if total >= most:
            yield seq
            total, last = 0, None
    if last is not None:
        yield last
