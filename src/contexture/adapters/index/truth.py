"""SQLite, the truth of the embedded store: records, passages, access classes, term statistics."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from contexture.adapters.index import codec
from contexture.adapters.index.checks import check_unchanged
from contexture.adapters.index.classes import AccessClass
from contexture.adapters.index.declared import Declaration, all_columns, collection_of, pack_fields
from contexture.adapters.index.journal import Touched
from contexture.adapters.index.matrices import pack_matrix, unpack_matrix
from contexture.adapters.index.schema import migrate
from contexture.errors import InvalidRequest, NotPermitted, SourceUnavailable, StoreUnwritable
from contexture.types import Collection, FieldType, Matrix, Prepared, Record, Scope

_T = TypeVar("_T")
_MAPPED = 1 << 34  # rows of one answer are far apart: reading them by system call costs ten times as much
_COLUMNS = "p.pid, r.class, r.id, r.header, r.hash, r.rules, p.ordinal, p.text, p.facts"
_CHUNK = 500  # SQLite takes a limited number of parameters in one statement


class State(NamedTuple):
    """How far a store has come: the number of its last write, and what tells that write from all others."""

    seq: int
    mark: str


class Stored(NamedTuple):
    """What comparing vectors needs of a passage, and its place, by which ties are broken."""

    pid: int
    access: int
    vectors: bytes
    place: tuple[str, int]


class Row(NamedTuple):
    """One passage as it is stored, with its record; vectors only where the engine is to be filled."""

    pid: int
    access: int
    record_id: str
    header: bytes
    hash: str
    rules: str
    ordinal: int
    text: str
    facts: codec.Facts
    vectors: bytes = b""


@dataclass(frozen=True, slots=True)
class Change:
    """What a write did to the passages, which the engine follows, and to the access classes."""

    seq: int
    added: tuple[Row, ...]
    removed: tuple[int, ...]
    touched: tuple[Touched, ...] = ()
    classes: Mapping[int, AccessClass] = field(default_factory=dict[int, AccessClass])


class Truth:
    """All reads and writes of the SQLite file; writes are serialised, each thread reads for itself."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        with suppress(OSError):  # SQLite says it better
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600))
        with ExitStack() as undo, store_errors(path):
            undo.callback(self.close)
            migrate(self._reader())
            self.seq = int(self.meta("seq") or 0)
            undo.pop_all()

    # --- meta and collections ---

    def state(self) -> State:
        """How far the store has come; its numbers alone tell writes apart, for nobody else makes any."""
        return State(self.seq, "")

    def tells_since(self, seen: State) -> bool:
        """Whether the store can have been in this state."""
        return seen.seq <= self.seq

    def meta(self, key: str) -> str | None:
        """A stored setting of the store itself."""
        found = self._reader().execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return found[0] if found else None

    def set_meta(self, key: str, value: str) -> None:
        """Store a setting of the store itself."""
        with self._writing() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def declared(self) -> list[Declaration]:
        """Every collection of every tenant."""
        rows = self._reader().execute("SELECT tenant, name, fields FROM declared ORDER BY tenant, name").fetchall()
        return [(tenant, collection_of(name, fields)) for tenant, name, fields in rows]

    def columns(self) -> dict[str, dict[str, FieldType]]:
        """By collection, every field that some tenant has declared."""
        rows = self._reader().execute("SELECT DISTINCT name, fields FROM declared ORDER BY name, fields").fetchall()
        return all_columns(rows)

    def declare(self, tenant: str, collection: Collection) -> None:
        """Let a tenant have a collection, or replace the fields it has declared there."""
        with self._writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO declared VALUES (?, ?, ?)",
                (tenant, collection.name, pack_fields(collection.fields)),
            )

    # --- permissions and statistics ---

    def classes(self, collection: str) -> dict[int, AccessClass]:
        """Every access class of a collection."""
        rows = self._reader().execute(
            "SELECT class, tenant, acl, passages FROM classes WHERE collection = ?", (collection,)
        )
        return {number: _access_class(*columns) for number, *columns in rows}

    def frequencies(self, terms: Sequence[int], classes: Iterable[int]) -> dict[int, int]:
        """In how many passages of these classes each term occurs."""
        allowed = ",".join(str(int(access)) for access in sorted(classes))
        counts: Counter[int] = Counter()
        for some in _chunks(terms):
            rows = self._reader().execute(
                f"SELECT term, sum(passages) FROM frequencies WHERE term IN ({_marks(some)}) "  # noqa: S608 - integers
                f"AND class IN ({allowed}) GROUP BY term",
                some,
            )
            counts.update(dict(rows.fetchall()))
        return counts

    # --- reads ---

    def rows(self, pids: Sequence[int]) -> list[Row]:
        """Passages by id; one that is gone is left out."""
        return [row for some in _chunks(pids) for row in self._select(f"p.pid IN ({_marks(some)})", some)]

    def since(self, seq: int, collection: str) -> Iterator[Row]:
        """Every passage of a collection written after `seq`, oldest first."""
        rows = self._reader().execute(
            f"SELECT {_COLUMNS}, v.data FROM passages p JOIN records r USING (row) JOIN vectors v USING (pid) "  # noqa: S608 - fixed
            "WHERE p.seq > ? AND r.collection = ? ORDER BY p.pid",
            (seq, collection),
        )
        return map(_row, rows)

    def stored(self, collection: str) -> Iterator[Stored]:
        """What a scanner needs of every passage of a collection, in the order of their ids."""
        rows = self._reader().execute(
            "SELECT p.pid, r.class, v.data, r.id, p.ordinal "
            "FROM passages p JOIN records r USING (row) JOIN vectors v USING (pid) "
            "WHERE r.collection = ? ORDER BY p.pid",
            (collection,),
        )
        return (Stored(pid, access, vectors, (id_, ordinal)) for pid, access, vectors, id_, ordinal in rows)

    def stored_at(self, pids: Sequence[int]) -> list[Stored]:
        """What comparing vectors needs of passages, by id; one that is gone is left out."""
        found: list[Stored] = []
        for some in _chunks(pids):
            rows = self._reader().execute(
                "SELECT p.pid, r.class, v.data, r.id, p.ordinal "  # noqa: S608 - fixed
                "FROM passages p JOIN records r USING (row) JOIN vectors v USING (pid) "
                f"WHERE p.pid IN ({_marks(some)})",
                tuple(some),
            )
            found.extend(Stored(pid, access, vectors, (id_, at)) for pid, access, vectors, id_, at in rows)
        return found

    def headers(self, collection: str) -> Iterator[tuple[int, Record]]:
        """The record, without its text, of every passage of a collection, in the order of the passages' ids."""
        rows = self._reader().execute(
            "SELECT p.pid, r.id, r.header FROM passages p JOIN records r USING (row) "
            "WHERE r.collection = ? ORDER BY p.pid",
            (collection,),
        )
        return ((pid, codec.unpack_header(header, id_, "")[0]) for pid, id_, header in rows)

    def places(self, pids: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Record id and ordinal of passages, by which ties are broken."""
        found: dict[int, tuple[str, int]] = {}
        for some in _chunks(pids):
            rows = self._reader().execute(
                "SELECT p.pid, r.id, p.ordinal FROM passages p JOIN records r USING (row) "  # noqa: S608 - fixed
                f"WHERE p.pid IN ({_marks(some)})",
                tuple(some),
            )
            found.update((pid, (id_, ordinal)) for pid, id_, ordinal in rows)
        return found

    def removed_since(self, seq: int, collection: str) -> list[int]:
        """Every passage of a collection removed after `seq`."""
        rows = self._reader().execute("SELECT pid FROM removed WHERE seq > ? AND collection = ?", (seq, collection))
        return [row[0] for row in rows]

    def records(self, collection: str, tenant: str, ids: Sequence[str]) -> dict[str, tuple[int, Record]]:
        """Records of a tenant by id, each with its access class."""
        found: dict[str, tuple[int, Record]] = {}
        for some in _chunks(ids):
            rows = self._reader().execute(
                f"SELECT id, class, header, text FROM records WHERE collection = ? AND tenant = ? "  # noqa: S608
                f"AND id IN ({_marks(some)})",
                (collection, tenant, *some),
            )
            found.update(
                (id_, (access, codec.unpack_header(header, id_, text)[0])) for id_, access, header, text in rows
            )
        return found

    def matrices(
        self, collection: str, tenant: str, name: str, ids: Sequence[str]
    ) -> Iterator[tuple[str, int, Matrix]]:
        """The rows of vectors of this name of a tenant's records, each with its record's id and access class."""
        for some in _chunks(ids):
            rows = self._reader().execute(
                "SELECT r.id, r.class, m.data FROM records r JOIN matrices m USING (row) "  # noqa: S608 - fixed
                f"WHERE r.collection = ? AND r.tenant = ? AND r.id IN ({_marks(some)}) AND m.name = ?",
                (collection, tenant, *some, name),
            )
            yield from ((id_, access, unpack_matrix(data)) for id_, access, data in rows)

    def walk(self, collection: str, tenant: str, classes: Iterable[int], after: str) -> Iterator[Record]:
        """Records of these classes in id order, behind `after`."""
        allowed = ",".join(str(int(access)) for access in sorted(classes))
        rows = self._reader().execute(
            f"SELECT id, header, text FROM records WHERE collection = ? AND tenant = ? AND id > ? "  # noqa: S608
            f"AND class IN ({allowed}) ORDER BY id",
            (collection, tenant, after),
        )
        for id_, header, text in rows:
            yield codec.unpack_header(header, id_, text)[0]

    def count(self, collection: str) -> int:
        """How many passages a collection holds."""
        total = self._reader().execute("SELECT sum(passages) FROM classes WHERE collection = ?", (collection,))
        return int(total.fetchone()[0] or 0)

    # --- writes ---

    def upsert(
        self, scope: Scope, collection: str, prepared: Sequence[Prepared], unchanged: Sequence[Record] = ()
    ) -> Change:
        """Write all records or none."""
        newest = {item.record.id: item for item in prepared}
        with self._writing() as db:
            stored = self.records(collection, scope.tenant, [record.id for record in unchanged])
            check_unchanged(unchanged, (record for _, record in stored.values()))
            seq = self._next_seq(db)
            before, removed = self._remove(db, scope, collection, list(newest), seq, must_see=True)
            added = [row for item in newest.values() for row in self._inserted(db, scope, collection, item, seq)]
            self._count_terms(db, added, +1)
            touched = (*before, *((item.record.id, item.record.acl) for item in newest.values()))
            classes = self._classes_of(db, scope, collection, touched)
        self.seq = seq
        return Change(seq=seq, added=tuple(added), removed=tuple(removed), touched=touched, classes=classes)

    def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> tuple[Change, int]:
        """Remove the records the scope may see, and say how many there were."""
        with self._writing() as db:
            seq = self._next_seq(db)
            gone, removed = self._remove(db, scope, collection, ids, seq, must_see=False)
            classes = self._classes_of(db, scope, collection, gone)
        self.seq = seq
        done = Change(seq=seq, added=(), removed=tuple(removed), touched=tuple(gone), classes=classes)
        return done, len(gone)

    def forget_removed(self, seq: int) -> None:
        """Drop tombstones the engine has made durable."""
        with self._writing() as db:
            db.execute("DELETE FROM removed WHERE seq <= ?", (seq,))

    def close(self) -> None:
        """Close every thread's connection."""
        with self._guard:
            for connection in self._open:
                connection.close()
            self._open.clear()

    # --- inside ---

    def _reader(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None, timeout=30)
            found.execute("PRAGMA journal_mode = WAL")
            found.execute("PRAGMA synchronous = FULL")
            found.execute("PRAGMA cache_size = -65536")
            found.execute(f"PRAGMA mmap_size = {_MAPPED}")
            self._local.connection = found
            with self._guard:
                self._open.append(found)
        return found

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        """One transaction: committed as a whole, or not at all."""
        db = self._reader()
        with store_errors(self._path):
            db.execute("BEGIN IMMEDIATE")
            with db:
                yield db

    def _next_seq(self, db: sqlite3.Connection) -> int:
        seq = self.seq + 1
        db.execute("INSERT OR REPLACE INTO meta VALUES ('seq', ?)", (str(seq),))
        return seq

    def _remove(
        self, db: sqlite3.Connection, scope: Scope, collection: str, ids: Sequence[str], seq: int, *, must_see: bool
    ) -> tuple[list[Touched], list[int]]:
        """What was removed, by record with who could read it, and by passage."""
        gone, removed = list[Touched](), list[int]()
        principals = set(scope.principals)
        for record_id in ids:
            found = db.execute(
                "SELECT r.row, c.acl FROM records r JOIN classes c USING (class) "
                "WHERE r.collection = ? AND r.tenant = ? AND r.id = ?",
                (collection, scope.tenant, record_id),
            ).fetchone()
            if found is None:
                continue
            readers: list[str] = json.loads(found[1])
            if principals.isdisjoint(readers):
                if must_see:
                    raise NotPermitted(f"record {record_id!r} cannot be written by user {scope.user!r}")
                continue
            rows = list(self._select("p.row = ?", (found[0],)))
            self._count_terms(db, rows, -1)
            removed.extend(row.pid for row in rows)
            db.executemany("INSERT INTO removed VALUES (?, ?, ?)", [(row.pid, collection, seq) for row in rows])
            db.execute("DELETE FROM vectors WHERE pid IN (SELECT pid FROM passages WHERE row = ?)", (found[0],))
            db.execute("DELETE FROM passages WHERE row = ?", (found[0],))
            db.execute("DELETE FROM matrices WHERE row = ?", (found[0],))
            db.execute("DELETE FROM records WHERE row = ?", (found[0],))
            gone.append((record_id, tuple(readers)))
        return gone, removed

    def _classes_of(
        self, db: sqlite3.Connection, scope: Scope, collection: str, touched: Sequence[Touched]
    ) -> dict[int, AccessClass]:
        """The access classes of a tenant's records that were touched."""
        found: dict[int, AccessClass] = {}
        for some in _chunks(sorted({_packed(readers) for _, readers in touched})):
            rows = db.execute(
                "SELECT class, tenant, acl, passages FROM classes WHERE collection = ? AND tenant = ? "  # noqa: S608 - fixed
                f"AND acl IN ({_marks(some)})",
                (collection, scope.tenant, *some),
            )
            found.update((number, _access_class(*columns)) for number, *columns in rows)
        return found

    def _inserted(self, db: sqlite3.Connection, scope: Scope, collection: str, item: Prepared, seq: int) -> list[Row]:
        try:
            return list(self._insert(db, scope, collection, item, seq))
        except (TypeError, ValueError, OverflowError, RecursionError) as failure:
            raise InvalidRequest(f"record {item.record.id!r} cannot be stored: {failure}") from failure

    def _insert(self, db: sqlite3.Connection, scope: Scope, collection: str, item: Prepared, seq: int) -> Iterator[Row]:
        record, digest = item.record, item.record.hash
        access = _class_number(db, collection, scope.tenant, record.acl)
        header = codec.pack_header(item)
        row = db.execute(
            "INSERT INTO records (collection, tenant, id, class, hash, header, text, rules, redactions) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (collection, scope.tenant, record.id, access, digest, header, record.text, item.rules,
             codec.pack_spans(item.redactions)),
        ).lastrowid  # fmt: skip
        for name, matrix in item.matrices.items():
            db.execute("INSERT INTO matrices VALUES (?, ?, ?)", (row, name, pack_matrix(matrix)))
        for ordinal, passage in enumerate(item.passages):
            text = record.text[passage.start : passage.end]
            facts = codec.pack_facts(codec.facts_of(passage))
            pid = db.execute(
                "INSERT INTO passages (row, ordinal, seq, text, facts) VALUES (?, ?, ?, ?, ?)",
                (row, ordinal, seq, text, facts),
            ).lastrowid
            if pid is None:
                raise SourceUnavailable("SQLite gave a new passage no id")
            vectors = codec.pack_vectors(passage)
            db.execute("INSERT INTO vectors VALUES (?, ?)", (pid, vectors))
            yield _row((pid, access, record.id, header, digest, item.rules, ordinal, text, facts, vectors))

    def _count_terms(self, db: sqlite3.Connection, rows: Sequence[Row], sign: int) -> None:
        terms: Counter[tuple[int, int]] = Counter()
        passages: Counter[int] = Counter()
        for row in rows:
            passages[row.access] += 1
            terms.update((term, row.access) for term in codec.term_arrays(row.facts)[0].tolist())
        db.executemany(
            "INSERT INTO frequencies VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET passages = passages + excluded.passages",
            [(term, access, sign * count) for (term, access), count in terms.items()],
        )
        db.executemany(
            "UPDATE classes SET passages = passages + ? WHERE class = ?",
            [(sign * count, access) for access, count in passages.items()],
        )

    def _select(self, condition: str, parameters: Sequence[Any]) -> Iterator[Row]:
        rows = self._reader().execute(
            f"SELECT {_COLUMNS} FROM passages p JOIN records r USING (row) WHERE {condition}",  # noqa: S608 - fixed
            tuple(parameters),
        )
        return map(_row, rows)


def _row(columns: Sequence[Any]) -> Row:
    """A row of `_COLUMNS`, with its vectors where they were asked for."""
    pid, access, record_id, header, digest, rules, ordinal, text, facts, *vectors = columns
    return Row(pid, access, record_id, header, digest, rules, ordinal, text, codec.unpack_facts(facts), *vectors)


@contextmanager
def store_errors(path: Path) -> Generator[None]:
    """SQLite's errors as ours: what the disk refused is told apart from what is broken."""
    try:
        yield
    except sqlite3.OperationalError as failure:
        text = str(failure)
        if any(word in text for word in ("full", "readonly", "read-only", "unable to open", "disk I/O")):
            raise StoreUnwritable(f"cannot write {str(path)!r}: {text}; nothing was stored") from failure
        raise SourceUnavailable(f"the store {str(path)!r} failed: {text}") from failure
    except sqlite3.DatabaseError as failure:
        raise SourceUnavailable(f"the store {str(path)!r} is damaged: {failure}") from failure


def _access_class(tenant: str, acl: str, passages: int) -> AccessClass:
    return AccessClass(tenant, tuple(json.loads(acl)), passages)


def _packed(acl: tuple[str, ...]) -> str:
    return json.dumps(sorted(set(acl)))


def _class_number(db: sqlite3.Connection, collection: str, tenant: str, acl: tuple[str, ...]) -> int:
    key = (collection, tenant, _packed(acl))
    db.execute("INSERT OR IGNORE INTO classes (collection, tenant, acl) VALUES (?, ?, ?)", key)
    found = db.execute("SELECT class FROM classes WHERE collection = ? AND tenant = ? AND acl = ?", key)
    return int(found.fetchone()[0])


def _chunks(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for at in range(0, len(items), _CHUNK):
        yield items[at : at + _CHUNK]


def _marks(items: Sequence[object]) -> str:
    return ",".join("?" * len(items))
