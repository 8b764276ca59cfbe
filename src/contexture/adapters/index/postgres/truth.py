"""PostgreSQL, the truth of a shared store: what is read of records, passages, access classes and term statistics."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from contexture.adapters.index import codec
from contexture.adapters.index.classes import AccessClass
from contexture.adapters.index.declared import Declaration, all_columns, collection_of
from contexture.adapters.index.matrices import unpack_matrix
from contexture.adapters.index.postgres.notes import Notes
from contexture.adapters.index.truth import Row, State, Stored
from contexture.adapters.postgres.pool import Pool
from contexture.types import Collection, FieldType, Matrix, Record

_COLUMNS = "p.pid, r.class, r.id, r.header, r.hash, r.rules, p.ordinal, p.text, p.facts"
_PAGE = 2_000
FLUSHED = "flushed"
"""Under which key is noted up to which write the parts are on the disk, and under which what tells that write."""
MARK = "mark"
_NEWER = "p.collection = %s AND (p.seq, p.pid) > (%s, %s) ORDER BY p.seq, p.pid LIMIT 2000"


class Write(NamedTuple):
    """What one write did, as those who follow need to know it."""

    seq: int
    tenant: str
    collection: str
    ids: Sequence[str]
    classes: Sequence[int]
    removed: Sequence[int]
    added: int


class PostgresTruth:
    """All reads of the tables; `at` is the last write that the parts of this process have seen.

    Each thread reads through the connection that the pool has lent it, inside a snapshot if it has begun one.
    """

    def __init__(self, pool: Pool, notes: Notes) -> None:
        self._pool = pool
        self._notes = notes
        self.at = State(0, "")

    @property
    def seq(self) -> int:
        """The number of the last write that the parts of this process have seen."""
        return self.at.seq

    # --- what this process notes for itself ---

    def meta(self, key: str) -> str | None:
        """Something noted about the parts of this process."""
        return self._notes.get(key)

    def set_meta(self, key: str, value: str) -> None:
        """Note something about the parts of this process."""
        self._notes.set({key: value, MARK: self.at.mark} if key == FLUSHED else {key: value})

    def forget_removed(self, seq: int) -> None:
        """Nothing: others may still have to follow."""

    # --- writes ---

    def last(self) -> int:
        """The number of the last write there is."""
        return self.state().seq

    def state(self) -> State:
        """How far the store has come."""
        return State(*self._one("SELECT seq, mark::text FROM counter"))

    def tells_since(self, seen: State) -> bool:
        """Whether the store was once in this state, and all that was written since is told to those who follow."""
        query = "SELECT forgotten <= %s AND EXISTS (SELECT FROM writes WHERE seq = %s AND mark::text = %s) FROM counter"
        return bool(self._one(query, (seen.seq, *seen))[0])

    def identity(self) -> str:
        """What tells this store from every other."""
        return str(self._one("SELECT store FROM counter")[0])

    def writes(self, seq: int, until: int) -> list[Write]:
        """Every write behind `seq`, up to `until`, oldest first."""
        rows = self._all(
            "SELECT seq, tenant, collection, ids, classes, removed, added FROM writes "
            "WHERE seq > %s AND seq <= %s ORDER BY seq",
            (seq, until),
        )
        return [
            Write(number, _text(tenant), collection, [_text(id_) for id_ in ids], classes, removed, added)
            for number, tenant, collection, ids, classes, removed, added in rows
        ]

    def between(self, seq: int, until: int, collection: str) -> list[Row]:
        """The passages of a collection written behind `seq`, up to `until`, that are still there."""
        rows = self._all(
            f"SELECT {_COLUMNS}, v.data FROM passages p JOIN records r USING (record) JOIN vectors v USING (pid) "  # noqa: S608 - fixed
            "WHERE p.collection = %s AND p.seq > %s AND p.seq <= %s ORDER BY p.seq, p.pid",
            (collection, seq, until),
        )
        return [_row(columns) for columns in rows]

    # --- collections, permissions and statistics ---

    def declared(self) -> list[Declaration]:
        """Every collection of every tenant."""
        return self.declared_since(-1)

    def declared_since(self, seq: int) -> list[Declaration]:
        """Every collection that a tenant made, or gave fields, behind `seq`."""
        query = "SELECT tenant, name, fields FROM declared WHERE seq > %s ORDER BY tenant, name"
        return [(_text(tenant), collection_of(name, fields)) for tenant, name, fields in self._all(query, (seq,))]

    def declared_by(self, tenant: str, name: str) -> Collection | None:
        """A tenant's collection as it is in the database now."""
        query = "SELECT fields FROM declared WHERE tenant = %s AND name = %s"
        found = self._all(query, (packed(tenant), name))
        return collection_of(name, found[0][0]) if found else None

    def columns(self) -> dict[str, dict[str, FieldType]]:
        """By collection, every field that some tenant has declared."""
        rows = self._all("SELECT DISTINCT name, fields FROM declared ORDER BY name, fields")
        return all_columns((name, fields) for name, fields in rows)

    def classes(self, collection: str) -> dict[int, AccessClass]:
        """Every access class of a collection."""
        rows = self._all("SELECT class, tenant, acl, passages FROM classes WHERE collection = %s", (collection,))
        return {number: _access_class(*columns) for number, *columns in rows}

    def classes_at(self, numbers: Iterable[int]) -> dict[int, AccessClass]:
        """Some access classes."""
        rows = self._all("SELECT class, tenant, acl, passages FROM classes WHERE class = ANY(%s)", (sorted(numbers),))
        return {number: _access_class(*columns) for number, *columns in rows}

    def frequencies(self, terms: Sequence[int], classes: Iterable[int]) -> Mapping[int, int]:
        """In how many passages of these classes each term occurs."""
        rows = self._all(
            "SELECT term, sum(passages)::bigint FROM frequencies WHERE term = ANY(%s) AND class = ANY(%s) "
            "GROUP BY term",
            (list(terms), sorted(classes)),
        )
        return dict(rows)

    def count(self, collection: str) -> int:
        """How many passages a collection holds."""
        return int(
            self._one("SELECT coalesce(sum(passages), 0)::bigint FROM classes WHERE collection = %s", (collection,))[0]
        )

    # --- passages ---

    def rows(self, pids: Sequence[int]) -> list[Row]:
        """Passages by id; one that is gone is left out."""
        query = f"SELECT {_COLUMNS} FROM passages p JOIN records r USING (record) WHERE p.pid = ANY(%s)"  # noqa: S608 - fixed
        return [_row(columns) for columns in self._all(query, (list(pids),))]

    def since(self, seq: int, collection: str) -> Iterator[Row]:
        """Every passage of a collection written after `seq`, oldest first, with its vectors."""
        query = (
            f"SELECT p.seq, {_COLUMNS}, v.data FROM passages p JOIN records r USING (record) "  # noqa: S608 - fixed
            f"JOIN vectors v USING (pid) WHERE {_NEWER}"
        )
        for columns in self._pages(query, collection, seq):
            yield _row(columns[1:])

    def stored(self, collection: str) -> Iterator[Stored]:
        """What a scanner needs of every passage of a collection, in the order of their ids."""
        query = (
            "SELECT p.seq, p.pid, r.class, v.data, r.id, p.ordinal FROM passages p JOIN records r USING (record) "  # noqa: S608 - fixed
            f"JOIN vectors v USING (pid) WHERE {_NEWER}"
        )
        for _, pid, access, vectors, id_, ordinal in self._pages(query, collection, 0):
            yield Stored(pid, access, vectors, (_text(id_), ordinal))

    def stored_at(self, pids: Sequence[int]) -> list[Stored]:
        """What comparing vectors needs of passages, by id; one that is gone is left out."""
        rows = self._all(
            "SELECT p.pid, r.class, v.data, r.id, p.ordinal FROM passages p JOIN records r USING (record) "
            "JOIN vectors v USING (pid) WHERE p.pid = ANY(%s)",
            (list(pids),),
        )
        return [Stored(pid, access, vectors, (_text(id_), at)) for pid, access, vectors, id_, at in rows]

    def headers(self, collection: str) -> Iterator[tuple[int, Record]]:
        """The record, without its text, of every passage of a collection, in the order of the passages' ids."""
        query = f"SELECT p.seq, p.pid, r.id, r.header FROM passages p JOIN records r USING (record) WHERE {_NEWER}"  # noqa: S608 - fixed
        for _, pid, id_, header in self._pages(query, collection, 0):
            yield pid, codec.unpack_header(header, _text(id_), "")[0]

    def removed_since(self, seq: int, collection: str) -> list[int]:
        """Every passage of a collection removed after `seq`."""
        rows = self._all("SELECT unnest(removed) FROM writes WHERE seq > %s AND collection = %s", (seq, collection))
        return [row[0] for row in rows]

    def places(self, pids: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Record id and ordinal of passages, by which ties are broken."""
        rows = self._all(
            "SELECT p.pid, r.id, p.ordinal FROM passages p JOIN records r USING (record) WHERE p.pid = ANY(%s)",
            (list(pids),),
        )
        return {pid: (_text(id_), ordinal) for pid, id_, ordinal in rows}

    # --- records ---

    def records(self, collection: str, tenant: str, ids: Sequence[str]) -> dict[str, tuple[int, Record]]:
        """Records of a tenant by id, each with its access class."""
        rows = self._all(
            "SELECT id, class, header, text FROM records WHERE collection = %s AND tenant = %s AND id = ANY(%s)",
            (collection, packed(tenant), [packed(id_) for id_ in ids]),
        )
        return {
            _text(id_): (access, codec.unpack_header(header, _text(id_), _text(text))[0])
            for id_, access, header, text in rows
        }

    def matrices(
        self, collection: str, tenant: str, name: str, ids: Sequence[str]
    ) -> Iterator[tuple[str, int, Matrix]]:
        """The rows of vectors of this name of a tenant's records, each with its record's id and access class."""
        rows = self._all(
            "SELECT r.id, r.class, m.data FROM records r JOIN matrices m USING (record) "
            "WHERE r.collection = %s AND r.tenant = %s AND r.id = ANY(%s) AND m.name = %s",
            (collection, packed(tenant), [packed(id_) for id_ in ids], name),
        )
        return ((_text(id_), access, unpack_matrix(data)) for id_, access, data in rows)

    def walk(self, collection: str, tenant: str, classes: Iterable[int], after: str) -> Iterator[Record]:
        """Records of these classes in id order, behind `after`."""
        allowed, behind, size = sorted(classes), packed(after), 100
        while True:
            rows = self._all(
                "SELECT id, header, text FROM records WHERE collection = %s AND tenant = %s AND id > %s "
                "AND class = ANY(%s) ORDER BY id LIMIT %s",
                (collection, packed(tenant), behind, allowed, size),
            )
            for id_, header, text in rows:
                yield codec.unpack_header(header, _text(id_), _text(text))[0]
            if len(rows) < size:
                return
            behind, size = rows[-1][0], _PAGE

    # --- inside ---

    def _all(self, query: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._pool.lent() as connection:
            return connection.execute(query.encode(), given, binary=True).fetchall()

    def _one(self, query: str, given: Sequence[Any] = ()) -> tuple[Any, ...]:
        return self._all(query, given)[0]

    def _pages(self, query: str, collection: str, seq: int) -> Iterator[tuple[Any, ...]]:
        """Rows of a query that begin with the number of a write and a passage's id, a page at a time."""
        at = (seq, 1 << 62)
        while True:
            page = self._all(query, (collection, *at))
            yield from page
            if len(page) < _PAGE:
                return
            at = page[-1][0], page[-1][1]


def packed(text: str) -> bytes:
    """A text as it is kept."""
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _access_class(tenant: bytes, acl: str, passages: int) -> AccessClass:
    return AccessClass(_text(tenant), tuple(json.loads(acl)), passages)


def _row(columns: Sequence[Any]) -> Row:
    """A row of `_COLUMNS`, with its vectors where they were asked for."""
    pid, access, id_, header, digest, rules, ordinal, text, facts, *vectors = columns
    return Row(
        pid, access, _text(id_), header, digest, rules, ordinal, _text(text), codec.unpack_facts(facts), *vectors
    )
