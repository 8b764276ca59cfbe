"""Writes to an index in PostgreSQL: each in one transaction that locks its part only, rows by COPY."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from psycopg.types.numeric import Int4

from contexture.adapters.index import codec
from contexture.adapters.index.collection_registry import pack_fields as pack_field_types
from contexture.adapters.index.id_spaces import SHARED, find_id_space, is_private
from contexture.adapters.index.matrices import pack_matrix
from contexture.adapters.index.postgres.filters_sql import pack_fields
from contexture.adapters.index.postgres.schema import ORDINAL_BITS
from contexture.adapters.index.quantized_vectors import quantize
from contexture.adapters.index.scoring import to_impacts
from contexture.adapters.postgres.pool import Connection
from contexture.errors import InvalidRequest, NotPermitted
from contexture.types import Collection, PreparedRecord, Scope

_KEPT_SECONDS = 86_400  # for how long writes and the records they touched are listed
_LOG_LOCK = 0x6C6F67  # "log" in ASCII
_MAX_LISTED = 256  # more touched records of one class and one write are not listed one by one
_NO_VECTORS = codec.pack_named_vectors({})
_COPY_START, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_TERM_SHIFT, _CLASS_MASK = np.uint64(32), np.uint64(0xFFFF_FFFF)  # a term and a class packed in one number
_BUMP = (
    "UPDATE parts SET version = greatest(version + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) "
    "WHERE part = %s RETURNING version, (SELECT logs FROM store)"
)
_COUNT_TERMS = (
    "INSERT INTO frequencies AS f SELECT %s, * FROM unnest(%s::int[], %s::int[], %s::bigint[]) "
    "ON CONFLICT (part, term, class) DO UPDATE SET passages = f.passages + excluded.passages"
)
_COUNT_PASSAGES = (
    "UPDATE classes c SET passages = c.passages + n.passages "
    "FROM unnest(%s::int[], %s::bigint[]) AS n (class, passages) WHERE c.class = n.class"
)

_COUNT_VECTORS = (
    "INSERT INTO vector_counts AS v SELECT %s, * FROM unnest(%s::int[], %s::smallint[], %s::bigint[]) "
    "ON CONFLICT (part, class, space) DO UPDATE SET vectors = v.vectors + excluded.vectors"
)
_FIND_PASSAGES = (
    "SELECT p.pid, r.class, r.id, u.pid IS NOT NULL FROM passages p "
    f"JOIN records r ON r.part = p.part AND r.record = p.pid >> {ORDINAL_BITS} "
    "LEFT JOIN unembedded u ON u.part = p.part AND u.pid = p.pid WHERE p.part = %s AND p.pid = ANY(%s)"
)

Ints = npt.NDArray[np.int64]


class PackedPassage(NamedTuple):
    """A passage in its stored form."""

    text: bytes
    facts: codec.PassageFacts
    packed_facts: bytes
    vectors: bytes
    is_unembedded: bool


@dataclass(frozen=True, slots=True)
class PreparedRow:
    """A record in its stored form, packed before the transaction.

    `space` is its id space; None for the one of its readers and its writer. A record with one is copied from another
    store and replaces what is there, whoever may read it.
    """

    id: bytes
    readers: tuple[str, ...]
    columns: tuple[bytes, ...]
    fields: bytes
    passages: tuple[PackedPassage, ...]
    matrices: tuple[tuple[bytes, bytes], ...]
    space: str | None = None


class StoredRecord(NamedTuple):
    """A record that is replaced or removed."""

    record: int
    id: bytes
    access: int
    passages: int

    def pids(self) -> list[int]:
        """The numbers of its passages."""
        return [self.record << ORDINAL_BITS | at for at in range(self.passages)]


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes to one part in one transaction, which holds its lock since `lock_part`.

    With `logs` each write ends with an entry in the log for another search engine.
    """

    db: Connection
    part: int
    version: int
    logs: bool

    def upsert(self, scope: Scope, records: Sequence[PreparedRow]) -> None:
        """Write records; raises `NotPermitted` if the scope may not read one that it would replace."""
        spaces = [find_id_space(each.readers, scope) if each.space is None else each.space for each in records]
        written = {each.id: encode_text(space) for each, space in zip(records, spaces, strict=True)}
        copied = {each.id for each in records if each.space is not None}
        gone = self._find_replaced(scope, written, copied)
        self._remove(gone)
        classes = self._ensure_classes({each.readers for each in records})
        access = [classes[each.readers] for each in records]
        query = "SELECT nextval('record_numbers') FROM generate_series(1, %s)"
        numbers = [row[0] for row in self.db.execute(query, (len(records),)).fetchall()]
        self._copy_records(numbers, access, [written[each.id] for each in records], records)
        self._copy_passages(numbers, access, records)
        self._list_touched([*((each.id, each.access) for each in gone), *zip(written, access, strict=True)])
        added = (
            number << ORDINAL_BITS | at
            for number, each in zip(numbers, records, strict=True)
            for at in range(len(each.passages))
        )
        self._append_log(list(added), [pid for each in gone for pid in each.pids()])

    def delete(self, scope: Scope, ids: Iterable[str]) -> int:
        """Remove the records that the scope may read; returns how many."""
        gone = self._find_replaced(scope, dict.fromkeys(map(encode_text, ids)))
        self._remove(gone)
        self._list_touched([(each.id, each.access) for each in gone])
        self._append_log((), [pid for each in gone for pid in each.pids()])
        return len(gone)

    def add_vectors(self, vectors: Mapping[int, bytes]) -> frozenset[int]:
        """Give passages their packed vectors; returns those that are still there."""
        rows = self.db.execute(_FIND_PASSAGES.encode(), (self.part, list(vectors)), binary=True).fetchall()
        waiting = {pid: (access, id_) for pid, access, id_, waits in rows if waits}
        pids = list(waiting)
        self.db.execute("DELETE FROM unembedded WHERE part = %s AND pid = ANY(%s)", (self.part, pids))
        self.db.execute(
            "UPDATE passages p SET vectors = n.vectors FROM unnest(%s::bigint[], %b::bytea[]) AS n (pid, vectors) "
            "WHERE p.part = %s AND p.pid = n.pid",
            (pids, [vectors[pid] for pid in pids], self.part),
        )
        access = np.array([waiting[pid][0] for pid in pids], np.int64)
        self._copy_vectors(np.array(pids, np.int64), access, [vectors[pid] for pid in pids])
        self._list_touched([(id_, class_) for class_, id_ in waiting.values()])
        self._append_log(pids, ())
        return frozenset(row[0] for row in rows)

    # --- inside ---

    def _find_replaced(
        self, scope: Scope, spaces: Mapping[bytes, bytes | None], copied: AbstractSet[bytes] = frozenset()
    ) -> list[StoredRecord]:
        """The first record of each id that the scope may read, and those of the id spaces that the ids are written to.

        One there that the scope may not read raises `NotPermitted`, unless the scope has written it. Of `copied` ids
        only the records there are returned.
        """
        rows = self.db.execute(
            "SELECT r.record, r.id, r.class, r.passages, r.space, c.acl FROM records r JOIN classes c USING (class) "
            "WHERE r.part = %s AND r.id = ANY(%b) ORDER BY r.id, r.space",
            (self.part, list(spaces)),
            binary=True,
        ).fetchall()
        principals, shared = set(scope.principals), encode_text(SHARED)
        replaced: list[StoredRecord] = []
        seen: set[bytes] = set()
        for record, id_, access, passages, space, acl in rows:
            is_readable = not principals.isdisjoint(json.loads(acl))
            if id_ not in copied and space == shared == spaces[id_] and not is_readable:
                raise NotPermitted(f"record {decode_text(id_)!r} cannot be written by user {scope.user!r}")
            if space == spaces[id_] or (is_readable and id_ not in seen and id_ not in copied):
                replaced.append(StoredRecord(record, id_, access, passages))
                seen.add(id_)
        return replaced

    def _remove(self, gone: Sequence[StoredRecord]) -> None:
        """Remove records with all that was computed of them."""
        if not gone:
            return
        access = {pid: each.access for each in gone for pid in each.pids()}
        pids, classes = list(access), sorted({each.access for each in gone})
        rows = self.db.execute(
            "DELETE FROM passages WHERE part = %s AND pid = ANY(%s) RETURNING pid, facts",
            (self.part, pids),
            binary=True,
        ).fetchall()
        facts = [codec.unpack_facts(packed) for _, packed in rows]
        owners = np.array([[access[pid], pid] for pid, _ in rows], np.int64).reshape(-1, 2)
        terms, counts = _term_numbers(facts), [len(each.terms) // 4 for each in facts]
        self._count(np.repeat(owners[:, 0], counts), terms, owners[:, 0], -1)
        self.db.execute(
            "DELETE FROM postings p USING unnest(%s::int[], %s::int[], %s::bigint[]) AS n (term, class, pid) "
            "WHERE p.part = %s AND p.term = n.term AND p.class = n.class AND p.pid = n.pid",
            (*map(_sql_array, (terms, *(np.repeat(owners[:, at], counts) for at in range(2)))), self.part),
        )
        held = self.db.execute(
            "WITH gone AS (DELETE FROM vectors WHERE part = %s AND space = ANY(ARRAY(SELECT space FROM spaces)) "
            "AND class = ANY(%s) AND pid = ANY(%s) RETURNING class, space) "
            "SELECT class, space, count(*) FROM gone GROUP BY class, space",
            (self.part, classes, pids),
        ).fetchall()
        self._count_vectors({(class_, space): -count for class_, space, count in held})
        self.db.execute("DELETE FROM unembedded WHERE part = %s AND pid = ANY(%s)", (self.part, pids))
        records = [each.record for each in gone]
        for table in (b"matrices", b"records"):
            self.db.execute(b"DELETE FROM %s WHERE part = %%s AND record = ANY(%%s)" % table, (self.part, records))
        self.db.execute(
            "DELETE FROM fields WHERE part = %s AND class = ANY(%s) AND record = ANY(%s)", (self.part, classes, records)
        )

    def _ensure_classes(self, lists: AbstractSet[tuple[str, ...]]) -> dict[tuple[str, ...], int]:
        """The access class of each list of readers, created if missing."""
        acls = {readers: _pack_acl(readers) for readers in lists}
        digests = {acl: sha256(acl).digest() for acl in sorted(set(acls.values()))}
        query = "SELECT acl, class FROM classes WHERE part = %s AND digest = ANY(%s)"
        found: dict[bytes, int] = dict(
            self.db.execute(query, (self.part, list(digests.values())), binary=True).fetchall()
        )
        for acl in digests.keys() - found.keys():
            readers: list[str] = json.loads(acl)
            (found[acl],) = self.db.execute(
                "INSERT INTO classes (part, digest, acl, private) VALUES (%s, %s, %s, %s) RETURNING class",
                (self.part, digests[acl], acl, is_private(readers)),
            ).fetchone() or (0,)
            query = "INSERT INTO readers SELECT %s, reader, %s FROM unnest(%b::bytea[]) AS r (reader)"
            self.db.execute(query, (self.part, found[acl], reader_digests(readers)))
        return {readers: found[acl] for readers, acl in acls.items()}

    def _copy_records(
        self, numbers: Sequence[int], access: Sequence[int], spaces: Sequence[bytes], records: Sequence[PreparedRow]
    ) -> None:
        part = _int4(self.part)
        stored = list(zip(numbers, access, spaces, records, strict=True))
        rows = (
            (part, _int8(number), each.id, space, _int4(class_), _int4(len(each.passages)), *each.columns)
            for number, class_, space, each in stored
        )
        _copy(self.db, "records", map(_pack_row, rows))
        _copy(
            self.db,
            "fields",
            (_pack_row((part, _int4(class_), _int8(number), each.fields)) for number, class_, _, each in stored),
        )
        named = [(number, *matrix) for number, _, _, each in stored for matrix in each.matrices]
        if named:
            _copy(self.db, "matrices", (_pack_row((part, _int8(number), name, data)) for number, name, data in named))

    def _copy_passages(self, numbers: Sequence[int], access: Sequence[int], records: Sequence[PreparedRow]) -> None:
        passages = list(chain.from_iterable(each.passages for each in records))
        if not passages:
            return
        counts = [len(each.passages) for each in records]
        ordinals = np.fromiter(chain.from_iterable(map(range, counts)), np.int64, len(passages))
        pids = np.repeat(np.array(numbers, np.int64) << ORDINAL_BITS, counts) | ordinals
        classes = np.repeat(np.array(access, np.int64), counts)
        part, facts = _int4(self.part), [each.facts for each in passages]
        rows = zip(pids.tolist(), passages, strict=True)
        _copy(
            self.db,
            "passages",
            (_pack_row((part, _int8(pid), each.text, each.packed_facts, each.vectors)) for pid, each in rows),
        )
        self._copy_vectors(pids, classes, [each.vectors for each in passages])
        lengths = [len(each.terms) // 4 for each in facts]
        terms, owners = _term_numbers(facts), np.repeat(classes, lengths)
        impacts = to_impacts(np.frombuffer(b"".join(each.weights for each in facts), np.float32))
        _copy_columns(
            self.db,
            "postings",
            {
                "term": (">i4", terms),
                "class": (">i4", owners),
                "pid": (">i8", np.repeat(pids, lengths)),
                "impact": (">i2", impacts),
            },
            part=self.part,
        )
        self._count(owners, terms, classes, +1)
        waiting = [at for at, each in enumerate(passages) if each.is_unembedded]
        if waiting:
            query = "INSERT INTO unembedded SELECT %s, * FROM unnest(%s::bigint[], %s::int[])"
            self.db.execute(query, (self.part, _sql_array(pids[waiting]), _sql_array(classes[waiting])))

    def _copy_vectors(self, pids: Ints, classes: Ints, packed: Sequence[bytes]) -> None:
        """Copy the vectors of passages in the form in which they are compared."""
        held: dict[tuple[str, int], tuple[list[int], list[bytes]]] = {}
        for at, data in enumerate(packed):
            for name, half in codec.unpack_vector_bytes(data).items() if data != _NO_VECTORS else ():
                slots, halves = held.setdefault((name, len(half) // 2), ([], []))
                slots.append(at)
                halves.append(half)
        spaces = find_spaces(self.db, list(held)) if held else {}
        for key, (slots, halves) in held.items():
            numbers = np.frombuffer(b"".join(halves), np.float16).astype(np.float32).reshape(len(slots), -1)
            codes, scales = quantize(numbers)
            signs, halfvecs = pack_codes(codes)
            _copy_columns(
                self.db,
                "vectors",
                {
                    "space": (">i2", spaces[key]), "class": (">i4", classes[slots]), "pid": (">i8", pids[slots]),
                    "scale": (">f4", scales), "signs": (f"V{signs.shape[1]}", signs),
                    "codes": (f"V{halfvecs.shape[1]}", halfvecs),
                },
                part=self.part,
            )  # fmt: skip
            owners, counts = np.unique(classes[slots], return_counts=True)
            named = zip(owners.tolist(), counts.tolist(), strict=True)
            self._count_vectors({(class_, spaces[key]): count for class_, count in named})

    def _count_vectors(self, counts: Mapping[tuple[int, int], int]) -> None:
        """Add vectors to those of each access class and space."""
        columns = [(*key, count) for key, count in counts.items()]
        self.db.execute(_COUNT_VECTORS, (self.part, *([row[at] for row in columns] for at in range(3))))

    def _count(self, owners: Ints, terms: npt.NDArray[np.int32], classes: Ints, sign: int) -> None:
        """Count passages, by class, and their terms, whose classes are `owners`; subtract them for `sign` -1."""
        keys = terms.view(np.uint32).astype(np.uint64) << _TERM_SHIFT | owners.astype(np.uint64)
        found, counts = np.unique(keys, return_counts=True)
        named = (found >> _TERM_SHIFT).astype(np.uint32).view(np.int32), found & _CLASS_MASK, sign * counts
        self.db.execute(_COUNT_TERMS, (self.part, *map(_sql_array, named)))
        held, passages = np.unique(classes, return_counts=True)
        self.db.execute(_COUNT_PASSAGES, (_sql_array(held), _sql_array(sign * passages)))

    def _append_log(self, added: Sequence[int], removed: Sequence[int]) -> None:
        """Log what the write did, if logs are kept; call it last, because it waits for others that are at this point.

        So the numbers of the log rise in the order of commits.
        """
        if self.logs:
            self.db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOG_LOCK,))
            self.db.execute(
                "INSERT INTO log SELECT coalesce(max(seq), 0) + 1, gen_random_uuid(), %s, %b::bigint[], %b::bigint[] "
                "FROM log",
                (self.part, list(added), list(removed)),
            )

    def _list_touched(self, touched: Iterable[tuple[bytes, int]]) -> None:
        """List the write and the records that it touched, for caches, and forget those of long ago."""
        rows = list(dict.fromkeys(touched))
        counts = Counter(access for _, access in rows)
        listed = [(id_, access) for id_, access in rows if counts[access] <= _MAX_LISTED]
        listed += [(None, access) for access, count in counts.items() if count > _MAX_LISTED]
        self.db.execute("INSERT INTO versions VALUES (%s, %s) ON CONFLICT DO NOTHING", (self.part, self.version))
        self.db.execute(
            "INSERT INTO touched SELECT %s, %s, t.class, t.id FROM unnest(%s::int[], %b::bytea[]) AS t (class, id)",
            (self.part, self.version, [access for _, access in listed], [id_ for id_, _ in listed]),
        )
        horizon = self.version - _KEPT_SECONDS * 1_000_000
        for table in (b"touched", b"versions"):
            self.db.execute(b"DELETE FROM %s WHERE part = %%s AND version < %%s" % table, (self.part, horizon))


def lock_part(db: Connection, part: int) -> Writer | None:
    """Lock a part until the end of the transaction, and number the write; None if there is no such part."""
    found = db.execute(_BUMP, (part,)).fetchone()
    return None if found is None else Writer(db, part, *found)


def declare(db: Connection, tenant: str, collection: Collection) -> int:
    """Declare a collection for a tenant, or replace the fields declared there; returns its part."""
    (part, version), *_ = db.execute(
        "INSERT INTO parts AS p (tenant, name, fields, version) "
        "VALUES (%s, %s, %s, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) "
        "ON CONFLICT (tenant, name) DO UPDATE "
        "SET fields = excluded.fields, version = greatest(p.version + 1, excluded.version) RETURNING part, version",
        (encode_text(tenant), collection.name, pack_field_types(collection.fields)),
    ).fetchall()
    db.execute("INSERT INTO versions VALUES (%s, %s)", (part, version))
    return int(part)


def find_part(db: Connection, tenant: str, collection: str) -> int:
    """The part of a tenant's collection; 0 if there is none."""
    query = "SELECT part FROM parts WHERE tenant = %s AND name = %s"
    found = db.execute(query, (encode_text(tenant), collection)).fetchone()
    return Int4(0 if found is None else found[0])


def find_spaces(db: Connection, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The numbers of vector spaces by name and size, of those that have one."""
    names = list({name for name, _ in wanted})
    rows = db.execute("SELECT name, size, space FROM spaces WHERE name = ANY(%s)", (names,)).fetchall()
    return {(name, size): space for name, size, space in rows}


def ensure_spaces(db: Connection, wanted: Iterable[tuple[str, int]]) -> None:
    """Number vector spaces; call it outside the transaction of a write, which others would wait for."""
    new = [each for each in wanted if each not in find_spaces(db, [each])]
    for name, size in new:
        db.execute("INSERT INTO spaces (name, size) VALUES (%s, %s) ON CONFLICT DO NOTHING", (name, size))


def list_vector_spaces(records: Iterable[PreparedRow]) -> set[tuple[str, int]]:
    """Name and size of every vector of these records."""
    packed = {passage.vectors for each in records for passage in each.passages}
    return {(name, len(half) // 2) for data in packed for name, half in codec.unpack_vector_bytes(data).items()}


def pack_records(prepared: Sequence[PreparedRecord]) -> list[PreparedRow]:
    """Records in their stored form; of two with the same id, the last.

    Raises `InvalidRequest`, which names the record, for one that cannot be stored.
    """
    newest = {item.record.id: item for item in prepared}
    return [_pack_record(item) for item in newest.values()]


def pack_codes(codes: npt.NDArray[np.int8]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Rows of int8 as PostgreSQL sends bit strings, of their signs, and half-precision vectors."""
    rows, size = codes.shape
    signs = np.hstack((np.tile(_big_endian(size, ">i4"), (rows, 1)), np.packbits(codes > 0, axis=1)))
    numbers = codes.astype(">f2").view(np.uint8).reshape(rows, 2 * size)
    return signs, np.hstack((np.tile(_big_endian(size << 16, ">i4"), (rows, 1)), numbers))


def encode_text(text: str) -> bytes:
    """Text as stored: UTF-8 bytes; lone surrogates are kept."""
    return text.encode("utf-8", "surrogatepass")


def decode_text(data: bytes) -> str:
    """The text that `encode_text` encoded."""
    return data.decode("utf-8", "surrogatepass")


def reader_digests(readers: Iterable[str]) -> list[bytes]:
    """The keys of readers in the table of readers."""
    return [_reader_digest(reader) for reader in readers]


@lru_cache(maxsize=4_096)
def _reader_digest(reader: str) -> bytes:
    return sha256(encode_text(reader)).digest()[:16]


def _pack_record(item: PreparedRecord) -> PreparedRow:
    record = item.record
    if len(item.passages) >> ORDINAL_BITS:
        raise InvalidRequest(f"record {record.id!r} has more than {1 << ORDINAL_BITS} passages")
    try:
        columns = (
            *(record.hash.encode(), codec.pack_header(item), record.text.encode(), item.rules.encode()),
            codec.pack_spans(item.redactions),
        )
        passages: list[PackedPassage] = []
        for passage in item.passages:
            facts, vectors = codec.extract_facts(passage), codec.pack_vectors(passage)
            text = record.text[passage.start : passage.end].encode()
            waits = item.unembedded and vectors == _NO_VECTORS
            passages.append(PackedPassage(text, facts, codec.pack_facts(facts), vectors, waits))
        return PreparedRow(
            id=encode_text(record.id),
            readers=record.acl,
            columns=columns,
            fields=b"\x01" + pack_fields(record).encode(),
            passages=tuple(passages),
            matrices=tuple((name.encode(), pack_matrix(matrix)) for name, matrix in item.matrices.items()),
        )
    except (TypeError, ValueError, OverflowError, RecursionError) as failure:
        raise InvalidRequest(f"record {record.id!r} cannot be stored: {failure}") from failure


def with_space(record: PreparedRow, space: str) -> PreparedRow:
    """The record as it is copied from another store, with its id space there."""
    return replace(record, space=space)


@lru_cache(maxsize=1_024)
def _pack_acl(acl: tuple[str, ...]) -> bytes:
    return json.dumps(sorted(set(acl))).encode()


def _term_numbers(facts: Sequence[codec.PassageFacts]) -> npt.NDArray[np.int32]:
    """The terms of all passages, one passage after another, as signed numbers of 32 bits."""
    return np.frombuffer(b"".join(each.terms for each in facts), np.int32)


def _sql_array(numbers: npt.NDArray[Any]) -> str:
    """Numbers as a PostgreSQL array literal; much faster than the driver, which inspects each number four times."""
    return f"{{{','.join(map(str, numbers.tolist()))}}}"


def _copy_columns(db: Connection, table: str, columns: Mapping[str, tuple[str, npt.ArrayLike]], *, part: int) -> None:
    """Copy rows from arrays, one for each column; a `V` type holds rows of bytes."""
    typed = {"part": (">i4", np.int64(part)), **columns}
    sizes = {name: np.dtype(kind).itemsize for name, (kind, _) in typed.items()}
    pieces = [piece for name, (kind, _) in typed.items() for piece in ((f"{name} size", ">i4"), (name, kind))]
    count = next(len(np.asarray(values)) for _, values in columns.values() if np.ndim(values))
    rows = np.zeros(count, np.dtype([("columns", ">i2"), *pieces]))
    rows["columns"] = len(typed)
    for name, (kind, values) in typed.items():
        rows[f"{name} size"] = sizes[name]
        rows[name] = np.ascontiguousarray(values).view(kind).reshape(count) if kind.startswith("V") else values
    _copy(db, table, [rows.tobytes()])


def _copy(db: Connection, table: str, rows: Iterable[bytes]) -> None:
    with db.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT BINARY)".encode()) as copy:
        copy.write(b"".join((_COPY_START, *rows, _COPY_END)))


def _pack_row(columns: Sequence[bytes]) -> bytes:
    sized = chain.from_iterable((_int4(len(column)), column) for column in columns)
    return b"".join((len(columns).to_bytes(2, "big"), *sized))


def _int4(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def _int8(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def _big_endian(number: int, kind: str) -> npt.NDArray[np.uint8]:
    return np.array([number], kind).view(np.uint8)
