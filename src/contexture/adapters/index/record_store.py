"""SQLite record store of the embedded index: records, passages, access classes and term statistics.

It is the source of truth; every search index can be rebuilt from it.
"""

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from contexture.adapters.index import codec
from contexture.adapters.index.access_classes import AccessClass
from contexture.adapters.index.checks import check_unchanged
from contexture.adapters.index.collection_registry import Declaration, merge_columns, pack_fields, unpack_collection
from contexture.adapters.index.id_spaces import SHARED, find_id_space
from contexture.adapters.index.journal import TouchedRecord
from contexture.adapters.index.matrices import pack_matrix, unpack_matrix
from contexture.adapters.index.schema import migrate
from contexture.adapters.private_files import create_private_database
from contexture.adapters.store_damage import check_at_open, sqlite_errors
from contexture.errors import InvalidRequest, NotPermitted, SourceUnavailable
from contexture.types import Collection, FieldType, Matrix, PreparedRecord, Record, Scope

_T = TypeVar("_T")
_MMAP_BYTES = 1 << 34  # rows of one result are far apart; reads by system call cost ten times as much
_PASSAGE_COLUMNS = "p.pid, r.class, r.id, r.header, r.hash, r.rules, p.ordinal, p.text, p.facts"
_NO_VECTORS = codec.pack_named_vectors({})
_MAX_PARAMETERS = 500  # SQLite limits the number of parameters per statement
_PARTITION_BATCH = 2_000
_BY_SPACE = "id, space"  # of records with one id, the private ones first


class StoreState(NamedTuple):
    """Version of a store: the number of its last write, and a mark that is unique to that write."""

    seq: int
    mark: str


class StoredVectors(NamedTuple):
    """Packed vectors of one passage, with its access class and its key, which breaks ties."""

    pid: int
    access: int
    vectors: bytes
    passage_key: tuple[str, int]


class PassageRow(NamedTuple):
    """One stored passage with the header of its record.

    `vectors` is filled only for reads that rebuild an index.
    """

    pid: int
    access: int
    record_id: str
    header: bytes
    hash: str
    rules: str
    ordinal: int
    text: str
    facts: codec.PassageFacts
    vectors: bytes = b""


class IndexedPassage(NamedTuple):
    """What a search index holds of one passage: its terms with their weights and its vectors, all still as bytes."""

    pid: int
    access: int
    terms: bytes
    weights: bytes
    vectors: bytes


class PackedRecord(NamedTuple):
    """A record as it is stored; of each passage the text, the facts and the vectors, of each matrix name and bytes.

    `space` is its id space; None for the one of its readers and its writer. A record with one is copied from another
    store and replaces what is there, whoever may read it.
    """

    id: str
    readers: tuple[str, ...]
    hash: str
    header: bytes
    text: str
    rules: str
    redactions: bytes
    passages: tuple[tuple[str, bytes, bytes], ...]
    matrices: tuple[tuple[str, bytes], ...]
    unembedded: bool = False
    space: str | None = None


@dataclass(frozen=True, slots=True)
class StoreChange:
    """What one write changed: passages added and removed, records touched, access classes."""

    seq: int
    added: tuple[PassageRow, ...]
    removed: tuple[int, ...]
    touched: tuple[TouchedRecord, ...] = ()
    classes: Mapping[int, AccessClass] = field(default_factory=dict[int, AccessClass])


class SqliteRecordStore:
    """Reads and writes the SQLite file of an embedded store.

    Writes are serialised; each thread reads on its own connection. With `for_server` it also keeps what search
    indexes on a server need: which passages were removed, and how many of each access class contain a term.
    """

    def __init__(self, path: Path, *, for_server: bool = False) -> None:
        self._path = path
        self._for_server = for_server
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        check_at_open(path)
        with suppress(OSError, sqlite3.Error):  # the connection below reports the failure with a better message
            create_private_database(path)
        with ExitStack() as undo, sqlite_errors(path):
            undo.callback(self.close)
            migrate(self._connection())
            self.seq = int(self.meta("seq") or 0)
            self._unembedded = self._count_unembedded()
            self._prepare_for_server()
            undo.pop_all()

    # --- meta and collections ---

    def state(self) -> StoreState:
        """State after the last write; the mark is empty, because with a single writer `seq` identifies a write."""
        return StoreState(self.seq, "")

    def has_history_since(self, seen: StoreState) -> bool:
        """Whether the store was once in this state; every write since then can be replayed."""
        return seen.seq <= self.seq

    def meta(self, key: str) -> str | None:
        """Value of a setting of the store itself; None when it is not set."""
        found = self._connection().execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return found[0] if found else None

    def list_declarations(self) -> list[Declaration]:
        """Every collection of every tenant."""
        rows = self._connection().execute("SELECT tenant, name, fields FROM declared ORDER BY tenant, name").fetchall()
        return [(tenant, unpack_collection(name, fields)) for tenant, name, fields in rows]

    def declared_columns(self) -> dict[str, dict[str, FieldType]]:
        """By collection, the columns of every field that some tenant has declared."""
        rows = self._connection().execute("SELECT DISTINCT name, fields FROM declared ORDER BY name, fields").fetchall()
        return merge_columns(rows)

    def find_declaration(self, tenant: str, name: str) -> Collection:
        """A tenant's collection; one without fields if it is not declared."""
        found = self._connection().execute("SELECT fields FROM declared WHERE tenant = ? AND name = ?", (tenant, name))
        (fields,) = found.fetchone() or ("{}",)
        return unpack_collection(name, fields)

    def declare(self, tenant: str, collection: Collection) -> None:
        """Declare a collection for a tenant, or replace the fields declared there."""
        with self._write_transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO declared VALUES (?, ?, ?)",
                (tenant, collection.name, pack_fields(collection.fields)),
            )

    # --- permissions and statistics ---

    def load_access_classes(self, collection: str, tenant: str | None = None) -> dict[int, AccessClass]:
        """Every access class of a collection, or of a tenant's part of it."""
        rows = self._connection().execute(
            f"SELECT class, tenant, acl, passages FROM classes WHERE collection = ?{_tenant_condition(tenant)}",  # noqa: S608 - fixed
            (collection,) if tenant is None else (collection, tenant),
        )
        return {number: _to_access_class(*columns) for number, *columns in rows}

    def document_frequencies(self, terms: Sequence[int], classes: Iterable[int]) -> dict[int, int]:
        """By term, the number of passages of these access classes that contain it; only with `for_server`."""
        allowed = ",".join(str(int(access)) for access in sorted(classes))
        counts: Counter[int] = Counter()
        for some in _chunks(terms):
            rows = self._connection().execute(
                f"SELECT term, sum(passages) FROM frequencies WHERE term IN ({_placeholders(some)}) "  # noqa: S608 - integers
                f"AND class IN ({allowed}) GROUP BY term",
                some,
            )
            counts.update(dict(rows.fetchall()))
        return counts

    # --- reads ---

    def load_passages(self, pids: Sequence[int]) -> list[PassageRow]:
        """Passages by id; removed ones are left out."""
        return [row for some in _chunks(pids) for row in self._select(f"p.pid IN ({_placeholders(some)})", some)]

    def passages_since(self, seq: int, collection: str) -> Iterator[PassageRow]:
        """Every passage of a collection written after `seq`, oldest first."""
        rows = self._connection().execute(
            f"SELECT {_PASSAGE_COLUMNS}, v.data FROM passages p JOIN records r USING (row) JOIN vectors v USING (pid) "  # noqa: S608 - fixed
            "WHERE p.seq > ? AND +r.collection = ? ORDER BY p.seq, p.pid",  # by the index on `seq`, without sorting
            (seq, collection),
        )
        return map(_to_passage_row, rows)

    def iter_partition(self, collection: str, tenant: str) -> Iterator[IndexedPassage]:
        """Every passage of a tenant's part of a collection, in order of passage id; a snapshot."""
        db = self._connection()
        db.execute("BEGIN")
        try:
            for batch in _chunks(self._list_passages(db, collection, tenant), _PARTITION_BATCH):
                rows = db.execute(
                    "SELECT p.pid, r.class, p.facts, v.data FROM json_each(?) k "
                    "CROSS JOIN passages p ON p.pid = k.value JOIN records r USING (row) JOIN vectors v USING (pid)",
                    (json.dumps(batch),),
                )
                for pid, access, facts, vectors in rows:
                    yield IndexedPassage(pid, access, *codec.unpack_terms(facts), vectors)
        finally:
            db.execute("COMMIT")

    @staticmethod
    def _list_passages(db: sqlite3.Connection, collection: str, tenant: str) -> list[int]:
        """Ids of all passages of a tenant's part of a collection, ascending; reads indexes only."""
        rows = db.execute(
            "SELECT p.pid FROM records r JOIN passages p USING (row) WHERE r.collection = ? AND r.tenant = ?",
            (collection, tenant),
        )
        return sorted(pid for (pid,) in rows)

    def load_vectors(self, pids: Sequence[int]) -> list[StoredVectors]:
        """Vectors of these passages; removed ones are left out."""
        found: list[StoredVectors] = []
        for some in _chunks(pids):
            rows = self._connection().execute(
                "SELECT p.pid, r.class, v.data, r.id, p.ordinal "  # noqa: S608 - fixed
                "FROM passages p JOIN records r USING (row) JOIN vectors v USING (pid) "
                f"WHERE p.pid IN ({_placeholders(some)})",
                tuple(some),
            )
            found.extend(StoredVectors(pid, access, vectors, (id_, at)) for pid, access, vectors, id_, at in rows)
        return found

    def iter_headers(self, collection: str, tenant: str, after: int) -> Iterator[tuple[int, Record]]:
        """Passage id and record, without its text, of every passage of a partition above an id, in order of its id."""
        db = self._connection()
        columns, place = "SELECT p.pid, r.id, r.header FROM", (collection, tenant)
        if after < 0:
            batches = _chunks(self._list_passages(db, *place), _PARTITION_BATCH)
            some = f"{columns} json_each(?) k CROSS JOIN passages p ON p.pid = k.value JOIN records r USING (row)"
            found = (row for batch in batches for row in db.execute(some, (json.dumps(batch),)))
        else:
            later = f"{columns} passages p JOIN records r USING (row) WHERE p.pid > ? AND r.collection = ? "
            found = db.execute(f"{later} AND r.tenant = ? ORDER BY p.pid", (after, *place))
        return ((pid, codec.unpack_header(header, id_, "")[0]) for pid, id_, header in found)

    def passage_keys(self, pids: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Record id and ordinal of these passages, used to break ties; removed ones are left out."""
        found: dict[int, tuple[str, int]] = {}
        for some in _chunks(pids):
            rows = self._connection().execute(
                "SELECT p.pid, r.id, p.ordinal FROM passages p JOIN records r USING (row) "  # noqa: S608 - fixed
                f"WHERE p.pid IN ({_placeholders(some)})",
                tuple(some),
            )
            found.update((pid, (id_, ordinal)) for pid, id_, ordinal in rows)
        return found

    def removed_since(self, seq: int, collection: str) -> list[int]:
        """Every passage of a collection removed after `seq`."""
        rows = self._connection().execute("SELECT pid FROM removed WHERE seq > ? AND collection = ?", (seq, collection))
        return [row[0] for row in rows]

    def load_records(
        self, collection: str, tenant: str, ids: Sequence[str], classes: AbstractSet[int]
    ) -> dict[str, Record]:
        """Records of a tenant and these access classes by id; of one id the private one."""
        found: dict[str, Record] = {}
        for some in _chunks(ids):
            rows = self._connection().execute(
                f"SELECT id, class, header, text FROM records WHERE collection = ? AND tenant = ? "  # noqa: S608
                f"AND id IN ({_placeholders(some)}) ORDER BY {_BY_SPACE}",
                (collection, tenant, *some),
            )
            for id_, access, header, text in rows:
                if access in classes and id_ not in found:
                    found[id_] = codec.unpack_header(header, id_, text)[0]
        return found

    def find_shadowed(self, pids: Sequence[int], classes: AbstractSet[int]) -> set[int]:
        """Those of these passages whose record a private one of the same id and of these classes hides."""
        allowed = ",".join(str(int(access)) for access in sorted(classes))
        found: set[int] = set()
        for some in _chunks(pids):
            rows = self._connection().execute(
                "SELECT p.pid FROM passages p JOIN records r USING (row) "  # noqa: S608 - integers
                f"WHERE p.pid IN ({_placeholders(some)}) AND EXISTS (SELECT 1 FROM records o "
                "WHERE o.collection = r.collection AND o.tenant = r.tenant AND o.id = r.id AND o.space < r.space "
                f"AND o.class IN ({allowed}))",
                tuple(some),
            )
            found.update(pid for (pid,) in rows)
        return found

    def list_spaces(self, collection: str, tenant: str, ids: Sequence[str]) -> list[tuple[str, str]]:
        """Id and id space of every record of a tenant with one of these ids."""
        found: list[tuple[str, str]] = []
        for some in _chunks(ids):
            query = (
                f"SELECT id, space FROM records WHERE collection = ? AND tenant = ? AND id IN ({_placeholders(some)})"  # noqa: S608
            )
            found += self._connection().execute(query, (collection, tenant, *some)).fetchall()
        return found

    def iter_matrices(
        self, collection: str, tenant: str, name: str, ids: Sequence[str], classes: AbstractSet[int]
    ) -> Iterator[tuple[str, Matrix]]:
        """Id and matrix `name` of each of these records of a tenant and these access classes that has one."""
        for some in _chunks(ids):
            rows = self._connection().execute(
                "SELECT r.id, r.class, m.data FROM records r LEFT JOIN matrices m ON m.row = r.row AND m.name = ? "  # noqa: S608 - fixed
                f"WHERE r.collection = ? AND r.tenant = ? AND r.id IN ({_placeholders(some)}) ORDER BY {_BY_SPACE}",
                (name, collection, tenant, *some),
            )
            seen: set[str] = set()
            for id_, access, data in rows:
                if access in classes and id_ not in seen:
                    seen.add(id_)
                    if data is not None:
                        yield id_, unpack_matrix(data)

    def iter_records(self, collection: str, tenant: str, classes: Iterable[int], after: str) -> Iterator[Record]:
        """Records of these access classes with an id greater than `after`, in id order; of one id the private one."""
        allowed = ",".join(str(int(access)) for access in sorted(classes))
        rows = self._connection().execute(
            f"SELECT id, header, text FROM records WHERE collection = ? AND tenant = ? AND id > ? "  # noqa: S608
            f"AND class IN ({allowed}) ORDER BY {_BY_SPACE}",
            (collection, tenant, after),
        )
        last = None
        for id_, header, text in rows:
            if id_ != last:
                last = id_
                yield codec.unpack_header(header, id_, text)[0]

    def count_unembedded(self, classes: Iterable[int]) -> int:
        """Number of passages of these access classes that wait for their vectors; read from memory."""
        waiting = self._unembedded
        return sum(waiting[access] for access in classes) if waiting else 0

    @property
    def unembedded(self) -> int:
        """Number of passages of all tenants that wait for their vectors; read from memory."""
        return self._unembedded.total()

    def next_unembedded(self, limit: int, after: str) -> tuple[str, str, list[tuple[PassageRow, str]]] | None:
        """Up to `limit` passages without vectors, the oldest of one tenant's collection, each with its record's text.

        The tenant is the next one after `after`, in alphabetical order and around. Also returns tenant and collection.
        """
        db = self._connection()
        next_of = "SELECT tenant, pid FROM unembedded WHERE tenant > ? ORDER BY tenant, pid LIMIT 1"
        found = db.execute(next_of, (after,)).fetchone() or db.execute(next_of, ("",)).fetchone()
        if found is None:
            return None
        tenant, first = found
        (collection,) = db.execute(
            "SELECT collection FROM passages JOIN records USING (row) WHERE pid = ?", (first,)
        ).fetchone()
        rows = db.execute(
            f"SELECT r.text, {_PASSAGE_COLUMNS} "  # noqa: S608 - fixed
            "FROM unembedded u JOIN passages p USING (pid) JOIN records r USING (row) "
            "WHERE u.tenant = ? AND r.collection = ? ORDER BY u.pid LIMIT ?",
            (tenant, collection, limit),
        )
        return tenant, collection, [(_to_passage_row(columns), text) for text, *columns in rows]

    def count(self, collection: str, tenant: str | None = None) -> int:
        """Number of passages in a collection, or in a tenant's part of it."""
        total = self._connection().execute(
            f"SELECT sum(passages) FROM classes WHERE collection = ?{_tenant_condition(tenant)}",  # noqa: S608 - fixed
            (collection,) if tenant is None else (collection, tenant),
        )
        return int(total.fetchone()[0] or 0)

    def largest_partitions(self, limit: int) -> list[tuple[str, str, int]]:
        """Tenant, collection and number of passages of the largest partitions, the largest first."""
        return self._connection().execute(_LARGEST_PARTITIONS, (limit,)).fetchall()

    # --- writes ---

    def upsert(
        self,
        scope: Scope,
        collection: str,
        packed: Sequence[PackedRecord],
        unchanged: Sequence[Record] = (),
        check: Callable[[], None] = lambda: None,
    ) -> StoreChange:
        """Write all records or none; of two with the same id, the last.

        `check` is called between records; an exception of it ends the write. Raises `Outdated` if a record of
        `unchanged` differs from what is stored, and `NotPermitted` if the scope may not read a record it would replace.
        """
        newest = {item.id: item for item in packed}
        with self._write_transaction() as db:
            if unchanged:
                check_unchanged(unchanged, self._load_readable(db, scope, collection, [each.id for each in unchanged]))
            seq = self._next_seq(db)
            waiting = self._unembedded.copy()
            spaces = {
                id_: find_id_space(item.readers, scope) if item.space is None else item.space
                for id_, item in newest.items()
            }
            copied = {item.id for item in newest.values() if item.space is not None}
            before, removed = self._remove(
                db, scope, collection, spaces, seq, waiting=waiting, check=check, copied=copied
            )
            access = {
                readers: _ensure_access_class(db, collection, scope.tenant, readers)
                for readers in dict.fromkeys(item.readers for item in newest.values())
            }
            added: list[PassageRow] = []
            for item in newest.values():
                check()
                stored_as = access[item.readers], spaces[item.id]
                added += self._insert_rows(db, scope, collection, stored_as, item, seq, waiting)
            self._count_passages(db, added, +1)
            touched = (*before, *((item.id, item.readers) for item in newest.values()))
            classes = self._load_touched_classes(db, scope, collection, touched)
        self._unembedded = +waiting
        self.seq = seq
        return StoreChange(seq=seq, added=tuple(added), removed=tuple(removed), touched=touched, classes=classes)

    def delete(
        self, scope: Scope, collection: str, ids: Sequence[str], check: Callable[[], None] = lambda: None
    ) -> tuple[StoreChange, int]:
        """Remove the records that the scope may read; returns the change and how many were removed.

        `check` is called between records, as in `upsert`.
        """
        with self._write_transaction() as db:
            seq = self._next_seq(db)
            waiting = self._unembedded.copy()
            wanted = dict.fromkeys(ids)
            gone, removed = self._remove(db, scope, collection, wanted, seq, waiting=waiting, check=check)
            classes = self._load_touched_classes(db, scope, collection, gone)
        self._unembedded = +waiting
        self.seq = seq
        done = StoreChange(seq=seq, added=(), removed=tuple(removed), touched=tuple(gone), classes=classes)
        return done, len(gone)

    def add_vectors(self, tenant: str, collection: str, vectors: Mapping[int, bytes]) -> StoreChange:
        """Give passages that wait for them their vectors; those that were replaced or removed meanwhile are left out.

        Each passage gets a new number, so that the change is replayed and applied like any other.
        """
        added, removed = list[PassageRow](), list[int]()
        touched = dict[TouchedRecord, None]()
        with self._write_transaction() as db:
            seq = self._next_seq(db)
            waiting = self._unembedded.copy()
            for pid, data in vectors.items():
                found = db.execute(
                    "DELETE FROM unembedded WHERE tenant = ? AND pid = ? RETURNING class", (tenant, pid)
                ).fetchall()
                if not found:
                    continue
                waiting[found[0][0]] -= 1
                renumbered = db.execute(
                    "INSERT INTO passages (row, ordinal, seq, text, facts) "
                    "SELECT row, ordinal, ?, text, facts FROM passages WHERE pid = ?",
                    (seq, pid),
                ).lastrowid
                db.execute("DELETE FROM passages WHERE pid = ?", (pid,))
                db.execute("UPDATE vectors SET pid = ?, data = ? WHERE pid = ?", (renumbered, data, pid))
                removed.append(pid)
                for row in self._select("p.pid = ?", (renumbered,)):
                    added.append(row._replace(vectors=data))
                    readers = tuple(codec.unpack_header(row.header, row.record_id, "")[0].acl)
                    touched[row.record_id, readers] = None
            self._note_removed(db, collection, removed, seq)
        self._unembedded = +waiting
        self.seq = seq
        return StoreChange(seq=seq, added=tuple(added), removed=tuple(removed), touched=tuple(touched))

    def prune_removed(self, seq: int) -> None:
        """Delete tombstones up to `seq`, once the search indexes have made those removals durable."""
        with self._write_transaction() as db:
            db.execute("DELETE FROM removed WHERE seq <= ?", (seq,))

    def empty_log(self) -> None:
        """Move the write-ahead log into the file and empty it; deleted rows are overwritten there."""
        with sqlite_errors(self._path):
            self._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close every thread's connection."""
        with self._guard:
            for connection in self._connections:
                connection.close()
            self._connections.clear()

    # --- inside ---

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None, timeout=30)
            found.execute("PRAGMA journal_mode = WAL")
            found.execute("PRAGMA synchronous = FULL")
            found.execute("PRAGMA secure_delete = ON")
            found.execute("PRAGMA cache_size = -65536")
            found.execute(f"PRAGMA mmap_size = {_MMAP_BYTES}")
            self._local.connection = found
            with self._guard:
                self._connections.append(found)
        return found

    @contextmanager
    def _write_transaction(self) -> Generator[sqlite3.Connection]:
        """One write transaction, committed as a whole or rolled back."""
        with sqlite_errors(self._path):
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            with db:
                yield db

    def _next_seq(self, db: sqlite3.Connection) -> int:
        seq = self.seq + 1
        db.execute("INSERT OR REPLACE INTO meta VALUES ('seq', ?)", (str(seq),))
        return seq

    def _remove(
        self,
        db: sqlite3.Connection,
        scope: Scope,
        collection: str,
        spaces: Mapping[str, str | None],
        seq: int,
        *,
        waiting: Counter[int],
        check: Callable[[], None] = lambda: None,
        copied: AbstractSet[str] = frozenset(),
    ) -> tuple[list[TouchedRecord], list[int]]:
        """Remove the first record of each id that the scope may read; returns those removed, with their readers.

        Also returns the ids of their passages; those that wait for vectors are taken off `waiting`. `spaces` holds the
        id spaces that the ids are written to: the records there are removed too, and one there that the scope may not
        read raises `NotPermitted`, unless the scope has written it. Of `copied` ids only the records there are removed.
        """
        gone, removed = list[TouchedRecord](), list[int]()
        principals = set(scope.principals)
        for record_id, space in spaces.items():
            check()
            stored = db.execute(
                "SELECT r.row, r.space, c.acl FROM records r JOIN classes c USING (class) "  # noqa: S608 - fixed
                f"WHERE r.collection = ? AND r.tenant = ? AND r.id = ? ORDER BY {_BY_SPACE}",
                (collection, scope.tenant, record_id),
            ).fetchall()
            replaced: list[tuple[int, tuple[str, ...]]] = []
            for row, held_in, acl in stored:
                readers: tuple[str, ...] = tuple(json.loads(acl))
                is_readable = not principals.isdisjoint(readers)
                if record_id not in copied and held_in == SHARED == space and not is_readable:
                    raise NotPermitted(f"record {record_id!r} cannot be written by user {scope.user!r}")
                if held_in == space or (is_readable and not replaced and record_id not in copied):
                    replaced.append((row, readers))
            for row, readers in replaced:
                removed += self._remove_row(db, scope, collection, row, seq, waiting=waiting)
                gone.append((record_id, readers))
        return gone, removed

    def _remove_row(
        self, db: sqlite3.Connection, scope: Scope, collection: str, row: int, seq: int, *, waiting: Counter[int]
    ) -> list[int]:
        """Remove one record; returns the ids of its passages."""
        passages = list(self._select("p.row = ?", (row,)))
        self._count_passages(db, passages, -1)
        self._note_removed(db, collection, [each.pid for each in passages], seq)
        if waiting:
            gone_from_backlog = db.execute(
                "DELETE FROM unembedded WHERE tenant = ? AND pid IN (SELECT pid FROM passages WHERE row = ?) "
                "RETURNING class",
                (scope.tenant, row),
            )
            waiting.subtract(access for (access,) in gone_from_backlog.fetchall())
        db.execute("DELETE FROM vectors WHERE pid IN (SELECT pid FROM passages WHERE row = ?)", (row,))
        db.execute("DELETE FROM passages WHERE row = ?", (row,))
        db.execute("DELETE FROM matrices WHERE row = ?", (row,))
        db.execute("DELETE FROM records WHERE row = ?", (row,))
        return [each.pid for each in passages]

    @staticmethod
    def _load_readable(db: sqlite3.Connection, scope: Scope, collection: str, ids: Sequence[str]) -> Iterator[Record]:
        """The first record of each of these ids that the scope may read."""
        principals = set(scope.principals)
        for id_ in dict.fromkeys(ids):
            rows = db.execute(
                "SELECT c.acl, r.header, r.text FROM records r JOIN classes c USING (class) "  # noqa: S608 - fixed
                f"WHERE r.collection = ? AND r.tenant = ? AND r.id = ? ORDER BY {_BY_SPACE}",
                (collection, scope.tenant, id_),
            )
            readable = (row for row in rows.fetchall() if not principals.isdisjoint(json.loads(row[0])))
            if (found := next(readable, None)) is not None:
                yield codec.unpack_header(found[1], id_, found[2])[0]

    def _load_touched_classes(
        self, db: sqlite3.Connection, scope: Scope, collection: str, touched: Sequence[TouchedRecord]
    ) -> dict[int, AccessClass]:
        """Access classes, by number, of a tenant's touched records."""
        found: dict[int, AccessClass] = {}
        for some in _chunks(sorted({_pack_acl(each) for each in {readers for _, readers in touched}})):
            rows = db.execute(
                "SELECT class, tenant, acl, passages FROM classes WHERE collection = ? AND tenant = ? "  # noqa: S608 - fixed
                f"AND acl IN ({_placeholders(some)})",
                (collection, scope.tenant, *some),
            )
            found.update((number, _to_access_class(*columns)) for number, *columns in rows)
        return found

    def _insert_rows(
        self,
        db: sqlite3.Connection,
        scope: Scope,
        collection: str,
        stored_as: tuple[int, str],
        item: PackedRecord,
        seq: int,
        waiting: Counter[int],
    ) -> Iterator[PassageRow]:
        access, space = stored_as
        row = db.execute(
            "INSERT INTO records (collection, tenant, id, space, class, hash, header, text, rules, redactions) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(collection, scope.tenant, item.id, space, access),
                *(item.hash, item.header, item.text, item.rules, item.redactions),
            ),
        ).lastrowid
        for name, matrix in item.matrices:
            db.execute("INSERT INTO matrices VALUES (?, ?, ?)", (row, name, matrix))
        for ordinal, (text, facts, vectors) in enumerate(item.passages):
            pid = db.execute(
                "INSERT INTO passages (row, ordinal, seq, text, facts) VALUES (?, ?, ?, ?, ?)",
                (row, ordinal, seq, text, facts),
            ).lastrowid
            if pid is None:
                raise SourceUnavailable("SQLite returned no id for a new passage")
            db.execute("INSERT INTO vectors VALUES (?, ?)", (pid, vectors))
            if item.unembedded and vectors == _NO_VECTORS:
                db.execute("INSERT INTO unembedded VALUES (?, ?, ?)", (scope.tenant, pid, access))
                waiting[access] += 1
            columns = (pid, access, item.id, item.header, item.hash, item.rules, ordinal, text, facts, vectors)
            yield _to_passage_row(columns)

    def _count_unembedded(self) -> Counter[int]:
        rows = self._connection().execute("SELECT class, count(*) FROM unembedded GROUP BY class")
        return Counter(dict(rows.fetchall()))

    def _count_passages(self, db: sqlite3.Connection, rows: Sequence[PassageRow], sign: int) -> None:
        if self._for_server:
            _add_term_counts(db, ((row.access, row.facts.terms) for row in rows), sign)
        db.executemany(
            "UPDATE classes SET passages = passages + ? WHERE class = ?",
            [(sign * count, access) for access, count in Counter(row.access for row in rows).items()],
        )

    def _note_removed(self, db: sqlite3.Connection, collection: str, pids: Sequence[int], seq: int) -> None:
        if self._for_server:
            db.executemany("INSERT INTO removed VALUES (?, ?, ?)", [(pid, collection, seq) for pid in pids])

    def _prepare_for_server(self) -> None:
        """Count the terms of all passages if a server needs that and it was not done; drop the counts if none does."""
        db = self._connection()
        exists = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'frequencies'").fetchone() is not None
        if exists == self._for_server:
            return
        with self._write_transaction() as db:
            if not self._for_server:
                db.execute("DROP TABLE frequencies")
                db.execute("DELETE FROM removed")
                return
            db.execute(
                "CREATE TABLE frequencies (term INTEGER NOT NULL, class INTEGER NOT NULL, passages INTEGER NOT NULL, "
                "PRIMARY KEY (term, class)) WITHOUT ROWID"
            )
            rows = db.execute("SELECT r.class, p.facts FROM passages p JOIN records r USING (row) ORDER BY r.class")
            while some := rows.fetchmany(_PARTITION_BATCH):
                _add_term_counts(db, ((access, codec.unpack_terms(facts)[0]) for access, facts in some), +1)

    def _select(self, condition: str, parameters: Sequence[Any]) -> Iterator[PassageRow]:
        rows = self._connection().execute(
            f"SELECT {_PASSAGE_COLUMNS} FROM passages p JOIN records r USING (row) WHERE {condition}",  # noqa: S608 - fixed
            tuple(parameters),
        )
        return map(_to_passage_row, rows)


_LARGEST_PARTITIONS = (
    "SELECT tenant, collection, sum(passages) AS total FROM classes GROUP BY tenant, collection "
    "HAVING total > 0 ORDER BY total DESC, tenant, collection LIMIT ?"
)


def find_largest_partition(path: Path) -> tuple[str, str, int] | None:
    """Tenant, collection and number of passages of the largest partition; the store may be in use."""
    with sqlite_errors(path), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        return db.execute(_LARGEST_PARTITIONS, (1,)).fetchone()


def pack_records(prepared: Sequence[PreparedRecord]) -> list[PackedRecord]:
    """The records as they are stored; raises `InvalidRequest` if one cannot be stored. Needs no lock."""
    return [_pack_record(item) for item in prepared]


def _pack_record(item: PreparedRecord) -> PackedRecord:
    record = item.record
    try:
        record.text.encode()
        return PackedRecord(
            id=record.id,
            readers=record.acl,
            hash=record.hash,
            header=codec.pack_header(item),
            text=record.text,
            rules=item.rules,
            redactions=codec.pack_spans(item.redactions),
            passages=tuple(
                (
                    record.text[passage.start : passage.end],
                    codec.pack_facts(codec.extract_facts(passage)),
                    codec.pack_vectors(passage),
                )
                for passage in item.passages
            ),
            matrices=tuple((name, pack_matrix(matrix)) for name, matrix in item.matrices.items()),
            unembedded=item.unembedded,
        )
    except (TypeError, ValueError, OverflowError, RecursionError) as failure:
        raise InvalidRequest(f"record {record.id!r} cannot be stored: {failure}") from failure


def _to_passage_row(columns: Sequence[Any]) -> PassageRow:
    """A `PassageRow` from `_PASSAGE_COLUMNS`, with vectors if they were selected."""
    pid, access, record_id, header, digest, rules, ordinal, text, facts, *vectors = columns
    return PassageRow(pid, access, record_id, header, digest, rules, ordinal, text, codec.unpack_facts(facts), *vectors)


def _to_access_class(tenant: str, acl: str, passages: int) -> AccessClass:
    return AccessClass(tenant, tuple(json.loads(acl)), passages)


def _pack_acl(acl: tuple[str, ...]) -> str:
    return json.dumps(sorted(set(acl)))


def _ensure_access_class(db: sqlite3.Connection, collection: str, tenant: str, acl: tuple[str, ...]) -> int:
    key = (collection, tenant, _pack_acl(acl))
    db.execute("INSERT OR IGNORE INTO classes (collection, tenant, acl) VALUES (?, ?, ?)", key)
    found = db.execute("SELECT class FROM classes WHERE collection = ? AND tenant = ? AND acl = ?", key)
    return int(found.fetchone()[0])


def _add_term_counts(db: sqlite3.Connection, passages: Iterable[tuple[int, bytes]], sign: int) -> None:
    """Add the terms of passages, each with its access class, to the counts."""
    by_class: dict[int, list[bytes]] = {}
    for access, terms in passages:
        by_class.setdefault(access, []).append(terms)
    for access, held in by_class.items():
        terms, counts = np.unique(np.frombuffer(b"".join(held), np.uint32), return_counts=True)  # in table order
        db.executemany(
            "INSERT INTO frequencies VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET passages = passages + excluded.passages",
            zip(terms.tolist(), repeat(access), (sign * counts).tolist(), strict=False),
        )


def _tenant_condition(tenant: str | None) -> str:
    return "" if tenant is None else " AND tenant = ?"


def _chunks(items: Sequence[_T], size: int = _MAX_PARAMETERS) -> Iterator[Sequence[_T]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]


def _placeholders(items: Sequence[object]) -> str:
    return ",".join("?" * len(items))
