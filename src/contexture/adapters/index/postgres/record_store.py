"""PostgreSQL record store, read side: records, passages, access classes, term statistics and the write log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from contexture.adapters.index import codec
from contexture.adapters.index.access_classes import AccessClass
from contexture.adapters.index.collection_registry import Declaration, merge_columns, unpack_collection
from contexture.adapters.index.matrices import unpack_matrix
from contexture.adapters.index.postgres.key_value_file import KeyValueFile
from contexture.adapters.index.record_store import IndexedPassage, PassageRow, StoredVectors, StoreState
from contexture.adapters.postgres.pool import PostgresPool
from contexture.types import Collection, FieldType, Matrix, Record

_PASSAGE_COLUMNS = "p.pid, r.class, r.id, r.header, r.hash, r.rules, p.ordinal, p.text, p.facts"
_PAGE_ROWS = 2_000
FLUSHED_KEY = "flushed"
"""Key of the sequence number up to which the search indexes are on disk."""
MARK_KEY = "mark"
"""Key of the mark of that write."""
_NEXT_PAGE = "p.collection = %s AND (p.seq, p.pid) > (%s, %s) ORDER BY p.seq, p.pid LIMIT 2000"


class WriteLogEntry(NamedTuple):
    """One entry of the write log, from which other processes catch up."""

    seq: int
    tenant: str
    collection: str
    ids: Sequence[str]
    classes: Sequence[int]
    removed: Sequence[int]
    added: int


class PostgresRecordStore:
    """Reads the tables of a shared store.

    `applied_state` is the last write that the search indexes of this process have applied.
    """

    def __init__(self, pool: PostgresPool, notes: KeyValueFile) -> None:
        self._pool = pool
        self._state_file = notes
        self.applied_state = StoreState(0, "")

    @property
    def seq(self) -> int:
        """Sequence number of the last write that the search indexes of this process have applied."""
        return self.applied_state.seq

    # --- local state of this process ---

    def meta(self, key: str) -> str | None:
        """Stored state of the search indexes of this process; None when it is not set."""
        return self._state_file.get(key)

    def set_meta(self, key: str, value: str) -> None:
        """Store state of the search indexes of this process; `FLUSHED_KEY` is stored with the mark of its write."""
        self._state_file.set({key: value, MARK_KEY: self.applied_state.mark} if key == FLUSHED_KEY else {key: value})

    def prune_removed(self, seq: int) -> None:
        """Do nothing: other processes may still need the tombstones."""

    # --- write log ---

    def last_seq(self) -> int:
        """Sequence number of the last write in the database."""
        return self.state().seq

    def state(self) -> StoreState:
        """State after the last write in the database."""
        return StoreState(*self._fetch_one("SELECT seq, mark::text FROM counter"))

    def has_history_since(self, seen: StoreState) -> bool:
        """Whether the store was once in this state, and the write log has every write since then."""
        query = "SELECT forgotten <= %s AND EXISTS (SELECT FROM writes WHERE seq = %s AND mark::text = %s) FROM counter"
        return bool(self._fetch_one(query, (seen.seq, *seen))[0])

    def store_id(self) -> str:
        """Unique id of this store."""
        return str(self._fetch_one("SELECT store FROM counter")[0])

    def load_writes(self, seq: int, until: int) -> list[WriteLogEntry]:
        """Write log entries after `seq`, up to and including `until`, oldest first."""
        rows = self._fetch_all(
            "SELECT seq, tenant, collection, ids, classes, removed, added FROM writes "
            "WHERE seq > %s AND seq <= %s ORDER BY seq",
            (seq, until),
        )
        return [
            WriteLogEntry(
                number, _decode_text(tenant), collection, [_decode_text(id_) for id_ in ids], classes, removed, added
            )
            for number, tenant, collection, ids, classes, removed, added in rows
        ]

    def passages_between(self, seq: int, until: int, tenant: str, collection: str) -> list[PassageRow]:
        """Passages of a partition written after `seq`, up to and including `until`, that still exist."""
        rows = self._fetch_all(
            f"SELECT {_PASSAGE_COLUMNS}, v.data FROM passages p "
            "JOIN records r USING (record) JOIN vectors v USING (pid) "
            "WHERE p.collection = %s AND r.tenant = %s AND p.seq > %s AND p.seq <= %s ORDER BY p.seq, p.pid",
            (collection, encode_text(tenant), seq, until),
        )
        return [_to_passage_row(columns) for columns in rows]

    # --- collections, permissions and statistics ---

    def list_declarations(self) -> list[Declaration]:
        """Every collection of every tenant."""
        return self.declarations_since(-1)

    def declarations_since(self, seq: int) -> list[Declaration]:
        """Every collection that was declared, or got new fields, after `seq`."""
        query = "SELECT tenant, name, fields FROM declared WHERE seq > %s ORDER BY tenant, name"
        return [
            (_decode_text(tenant), unpack_collection(name, fields))
            for tenant, name, fields in self._fetch_all(query, (seq,))
        ]

    def find_declaration(self, tenant: str, name: str) -> Collection:
        """A tenant's collection as currently stored in the database; one without fields if it is not declared."""
        query = "SELECT fields FROM declared WHERE tenant = %s AND name = %s"
        found = self._fetch_all(query, (encode_text(tenant), name))
        return unpack_collection(name, found[0][0] if found else "{}")

    def declared_columns(self) -> dict[str, dict[str, FieldType]]:
        """By collection, the columns of every field that some tenant has declared."""
        rows = self._fetch_all("SELECT DISTINCT name, fields FROM declared ORDER BY name, fields")
        return merge_columns((name, fields) for name, fields in rows)

    def load_access_classes(self, collection: str, tenant: str | None = None) -> dict[int, AccessClass]:
        """Every access class of a collection, or of a tenant's part of it."""
        rows = self._fetch_all(
            "SELECT class, tenant, acl, passages FROM classes WHERE collection = %s AND tenant = coalesce(%s, tenant)",
            (collection, None if tenant is None else encode_text(tenant)),
        )
        return {number: _to_access_class(*columns) for number, *columns in rows}

    def load_access_classes_at(self, numbers: Iterable[int]) -> dict[int, AccessClass]:
        """Access classes by number."""
        rows = self._fetch_all(
            "SELECT class, tenant, acl, passages FROM classes WHERE class = ANY(%s)", (sorted(numbers),)
        )
        return {number: _to_access_class(*columns) for number, *columns in rows}

    def document_frequencies(self, terms: Sequence[int], classes: Iterable[int]) -> Mapping[int, int]:
        """By term, the number of passages of these access classes that contain it."""
        rows = self._fetch_all(
            "SELECT term, sum(passages)::bigint FROM frequencies WHERE term = ANY(%s) AND class = ANY(%s) "
            "GROUP BY term",
            (list(terms), sorted(classes)),
        )
        return dict(rows)

    def count(self, collection: str, tenant: str | None = None) -> int:
        """Number of passages in a collection, or in a tenant's part of it."""
        return int(
            self._fetch_one(
                "SELECT coalesce(sum(passages), 0)::bigint FROM classes "
                "WHERE collection = %s AND tenant = coalesce(%s, tenant)",
                (collection, None if tenant is None else encode_text(tenant)),
            )[0]
        )

    def largest_partitions(self, limit: int) -> list[tuple[str, str, int]]:
        """Tenant, collection and number of passages of the largest partitions, the largest first."""
        rows = self._fetch_all(
            "SELECT tenant, collection, sum(passages)::bigint AS total FROM classes GROUP BY tenant, collection "
            "HAVING sum(passages) > 0 ORDER BY total DESC, tenant, collection LIMIT %s",
            (limit,),
        )
        return [(_decode_text(tenant), collection, total) for tenant, collection, total in rows]

    def iter_partition(self, collection: str, tenant: str) -> Iterator[IndexedPassage]:
        """Every passage of a tenant's part of a collection, in order of passage id."""
        query = (
            "SELECT p.seq, p.pid, r.class, p.facts, v.data FROM passages p JOIN records r USING (record) "
            f"JOIN vectors v USING (pid) WHERE r.tenant = %s AND {_NEXT_PAGE}"
        )
        for _, pid, access, facts, vectors in self._fetch_pages(query, collection, 0, encode_text(tenant)):
            yield IndexedPassage(pid, access, *codec.unpack_terms(facts), vectors)

    # --- passages ---

    def load_passages(self, pids: Sequence[int]) -> list[PassageRow]:
        """Passages by id; removed ones are left out."""
        query = f"SELECT {_PASSAGE_COLUMNS} FROM passages p JOIN records r USING (record) WHERE p.pid = ANY(%s)"
        return [_to_passage_row(columns) for columns in self._fetch_all(query, (list(pids),))]

    def passages_since(self, seq: int, collection: str) -> Iterator[PassageRow]:
        """Every passage of a collection written after `seq`, oldest first, with its vectors."""
        query = (
            f"SELECT p.seq, {_PASSAGE_COLUMNS}, v.data FROM passages p JOIN records r USING (record) "
            f"JOIN vectors v USING (pid) WHERE {_NEXT_PAGE}"
        )
        for columns in self._fetch_pages(query, collection, seq):
            yield _to_passage_row(columns[1:])

    def load_vectors(self, pids: Sequence[int]) -> list[StoredVectors]:
        """Vectors of these passages; removed ones are left out."""
        rows = self._fetch_all(
            "SELECT p.pid, r.class, v.data, r.id, p.ordinal FROM passages p JOIN records r USING (record) "
            "JOIN vectors v USING (pid) WHERE p.pid = ANY(%s)",
            (list(pids),),
        )
        return [StoredVectors(pid, access, vectors, (_decode_text(id_), at)) for pid, access, vectors, id_, at in rows]

    def iter_headers(self, collection: str, tenant: str, after: int) -> Iterator[tuple[int, Record]]:
        """Passage id and record, without its text, of every passage of a partition above an id, in order of its id."""
        query = (
            "SELECT p.seq, p.pid, r.id, r.header FROM passages p JOIN records r USING (record) "
            f"WHERE p.pid > %s AND r.tenant = %s AND {_NEXT_PAGE}"
        )
        for _, pid, id_, header in self._fetch_pages(query, collection, 0, after, encode_text(tenant)):
            yield pid, codec.unpack_header(header, _decode_text(id_), "")[0]

    def removed_since(self, seq: int, collection: str) -> list[int]:
        """Every passage of a collection removed after `seq`."""
        rows = self._fetch_all(
            "SELECT unnest(removed) FROM writes WHERE seq > %s AND collection = %s", (seq, collection)
        )
        return [row[0] for row in rows]

    def passage_keys(self, pids: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Record id and ordinal of these passages, used to break ties; removed ones are left out."""
        rows = self._fetch_all(
            "SELECT p.pid, r.id, p.ordinal FROM passages p JOIN records r USING (record) WHERE p.pid = ANY(%s)",
            (list(pids),),
        )
        return {pid: (_decode_text(id_), ordinal) for pid, id_, ordinal in rows}

    # --- records ---

    def load_records(
        self, collection: str, tenant: str, ids: Sequence[str], classes: AbstractSet[int]
    ) -> dict[str, Record]:
        """Records of a tenant and these access classes by id; of one id the private one."""
        rows = self._fetch_all(
            "SELECT DISTINCT ON (id) id, header, text FROM records WHERE collection = %s AND tenant = %s "
            "AND id = ANY(%s) AND class = ANY(%s) ORDER BY id, space",
            (collection, encode_text(tenant), [encode_text(id_) for id_ in ids], sorted(classes)),
        )
        return {
            _decode_text(id_): codec.unpack_header(header, _decode_text(id_), _decode_text(text))[0]
            for id_, header, text in rows
        }

    def find_shadowed(self, pids: Sequence[int], classes: AbstractSet[int]) -> set[int]:
        """Those of these passages whose record a private one of the same id and of these classes hides."""
        rows = self._fetch_all(
            "SELECT p.pid FROM passages p JOIN records r USING (record) WHERE p.pid = ANY(%s) AND EXISTS ("
            "SELECT FROM records o WHERE o.collection = r.collection AND o.tenant = r.tenant AND o.id = r.id "
            "AND o.space < r.space AND o.class = ANY(%s))",
            (list(pids), sorted(classes)),
        )
        return {pid for (pid,) in rows}

    def list_spaces(self, collection: str, tenant: str, ids: Sequence[str]) -> list[tuple[str, str]]:
        """Id and id space of every record of a tenant with one of these ids."""
        rows = self._fetch_all(
            "SELECT id, space FROM records WHERE collection = %s AND tenant = %s AND id = ANY(%s)",
            (collection, encode_text(tenant), [encode_text(id_) for id_ in ids]),
        )
        return [(_decode_text(id_), _decode_text(space)) for id_, space in rows]

    def iter_matrices(
        self, collection: str, tenant: str, name: str, ids: Sequence[str], classes: AbstractSet[int]
    ) -> Iterator[tuple[str, Matrix]]:
        """Id and matrix `name` of each of these records of a tenant and these access classes that has one."""
        rows = self._fetch_all(
            "SELECT DISTINCT ON (r.id) r.id, m.data FROM records r LEFT JOIN matrices m "
            "ON m.record = r.record AND m.name = %s WHERE r.collection = %s AND r.tenant = %s AND r.id = ANY(%s) "
            "AND r.class = ANY(%s) ORDER BY r.id, r.space",
            (name, collection, encode_text(tenant), [encode_text(id_) for id_ in ids], sorted(classes)),
        )
        return ((_decode_text(id_), unpack_matrix(data)) for id_, data in rows if data is not None)

    def iter_records(self, collection: str, tenant: str, classes: Iterable[int], after: str) -> Iterator[Record]:
        """Records of these access classes with an id greater than `after`, in id order; of one id the private one."""
        allowed, behind, size = sorted(classes), encode_text(after), 100
        while True:
            rows = self._fetch_all(
                "SELECT DISTINCT ON (id) id, header, text FROM records WHERE collection = %s AND tenant = %s "
                "AND id > %s AND class = ANY(%s) ORDER BY id, space LIMIT %s",
                (collection, encode_text(tenant), behind, allowed, size),
            )
            for id_, header, text in rows:
                yield codec.unpack_header(header, _decode_text(id_), _decode_text(text))[0]
            if len(rows) < size:
                return
            behind, size = rows[-1][0], _PAGE_ROWS

    # --- inside ---

    def _fetch_all(self, query: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._pool.connection() as connection:
            return connection.execute(query.encode(), given, binary=True).fetchall()

    def _fetch_one(self, query: str, given: Sequence[Any] = ()) -> tuple[Any, ...]:
        return self._fetch_all(query, given)[0]

    def _fetch_pages(self, query: str, collection: str, seq: int, *given: object) -> Iterator[tuple[Any, ...]]:
        """Rows of a query, fetched page by page; each must begin with `seq` and `pid`."""
        at = (seq, 1 << 62)
        while True:
            page = self._fetch_all(query, (*given, collection, *at))
            yield from page
            if len(page) < _PAGE_ROWS:
                return
            at = page[-1][0], page[-1][1]


def encode_text(text: str) -> bytes:
    """Text as stored: UTF-8 bytes; lone surrogates are kept."""
    return text.encode("utf-8", "surrogatepass")


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _to_access_class(tenant: bytes, acl: str, passages: int) -> AccessClass:
    return AccessClass(_decode_text(tenant), tuple(json.loads(acl)), passages)


def _to_passage_row(columns: Sequence[Any]) -> PassageRow:
    """A `PassageRow` from `_PASSAGE_COLUMNS`, with vectors if they were selected."""
    pid, access, id_, header, digest, rules, ordinal, text, facts, *vectors = columns
    return PassageRow(
        pid,
        access,
        _decode_text(id_),
        header,
        digest,
        rules,
        ordinal,
        _decode_text(text),
        codec.unpack_facts(facts),
        *vectors,
    )
