"""Migrates a whole store into another one and compares the two afterwards.

Copies records with everything computed about them, the tables of the smaller stores (sessions, outbox, blocks...),
and files.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from contexture.adapters.index import codec
from contexture.adapters.index.checks import merge_collection
from contexture.adapters.index.matrices import pack_matrix, unpack_matrix
from contexture.errors import BrokenPromise, InvalidRequest, NotFound
from contexture.types import Collection, Passage, PreparedRecord, Record

MigrationProgress = Callable[[str, int, int], None]

_PAGE_SIZE = 250


class MigrationStore(Protocol):
    """The source or target of a migration."""

    name: str
    records: StoreRecords
    tables: StoreTables
    files: StoreFiles

    def close(self) -> None:
        """Release the store and its lock."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class MigrationResult:
    """Number of records, rows and files that source and target share, and of records the target had before."""

    records: int
    rows: int
    files: int
    known_records: int


def open_migration_store(where: str, *, existing: bool) -> MigrationStore:
    """Open the store at an address: a folder, or `postgres://HOST/NAME`.

    Raises `InvalidRequest` for another URL scheme, and `NotFound` if `existing` and there is no store.
    """
    if where.startswith(("postgres://", "postgresql://")):
        from contexture.adapters.store_migration._postgres import PostgresStore

        return PostgresStore(where, existing=existing)
    from contexture.adapters.store_migration._folder import FolderStore

    if "://" in where:
        raise InvalidRequest(
            f"{where.partition('://')[0]!r} is not a store to migrate: use a folder or postgres://HOST/NAME; "
            "for a store in Qdrant, migrate its record store, from which Qdrant is rebuilt"
        )
    if existing and not (Path(where) / "truth.sqlite").is_file():
        raise NotFound(f"there is no store in {where!r}")
    return FolderStore(Path(where))


def migrate_store(
    source: MigrationStore, target: MigrationStore, progress: MigrationProgress | None = None
) -> MigrationResult:
    """Copy everything from the source into the target, then compare the two.

    Identical data in the target is skipped, so an interrupted migration resumes where it stopped. Raises
    `InvalidRequest` if a table of the target holds other rows, and `BrokenPromise` if the comparison fails.
    """
    tell = progress or _ignore_progress
    _copy_declared(source.records, target.records)
    before = sum(_copy_part(source, target, part, count, tell) for part, count in source.records.parts().items())
    for store in STORE_TABLES:
        tell("copying other tables", 0, 0)
        _copy_store_tables(source, target, store)
    _copy_files(source.files, target.files)
    return compare_stores(source, target, before, tell)


def compare_stores(
    source: MigrationStore, target: MigrationStore, before: int, tell: MigrationProgress
) -> MigrationResult:
    """Compare records, rows and files by number and content; raises `BrokenPromise` naming the first difference."""
    _compare_declared(source, target)
    records = sum(_compare_part(source, target, part, count, tell) for part, count in source.records.parts().items())
    rows = 0
    for store in STORE_TABLES:
        mine, theirs = digest_tables(source.tables, store), digest_tables(target.tables, store)
        if mine != theirs:
            raise BrokenPromise(
                f"{store}: the {mine.rows} rows in {source.name} differ from the {theirs.rows} in {target.name}"
            )
        rows += mine.rows
    return MigrationResult(records=records, rows=rows, files=_compare_files(source, target), known_records=before)


def _copy_declared(source: StoreRecords, target: StoreRecords) -> None:
    """Declare in the target the collections and fields that every tenant has in the source."""
    known = target.list_collections()
    for part, collection in source.list_collections().items():
        wanted = merge_collection(known.get(part), collection)
        if wanted != known.get(part):
            target.declare(part.tenant, wanted)


def _compare_declared(source: MigrationStore, target: MigrationStore) -> None:
    theirs = target.records.list_collections()
    for part, mine in source.records.list_collections().items():
        found = theirs.get(part)
        if found is None or not mine.fields.items() <= found.fields.items():
            raise BrokenPromise(f"the fields of {part.collection!r} differ in {target.name}")


def _copy_part(
    source: MigrationStore, target: MigrationStore, part: TenantCollection, count: int, tell: MigrationProgress
) -> int:
    """Copy the records of one tenant and collection; returns how many the target had already."""
    done = before = 0
    for page in _iterate_pages(source.records, part):
        there = target.records.get_many(part, [each.record.id for each in page])
        new = [each for each in page if not _is_same_record(each, there.get(each.key))]
        if new:
            target.records.write(part, new)
        done, before = done + len(page), before + len(page) - len(new)
        tell(f"copying {part.collection}", done, count)
    return before


def _compare_part(
    source: MigrationStore, target: MigrationStore, part: TenantCollection, count: int, tell: MigrationProgress
) -> int:
    done = 0
    for page in _iterate_pages(source.records, part):
        there = target.records.get_many(part, [each.record.id for each in page])
        for each in page:
            if not _is_same_record(each, there.get(each.key)):
                raise BrokenPromise(f"record {each.record.id!r} of {part.collection!r} differs in {target.name}")
        done += len(page)
        tell(f"comparing {part.collection}", done, count)
    held = target.records.parts().get(part, 0)
    if not done == count == held:
        raise BrokenPromise(f"{part.collection!r} has {done} records in {source.name} and {held} in {target.name}")
    return done


def _is_same_record(item: SpacedRecord, other: SpacedRecord | None) -> bool:
    return other is not None and digest_record(item.prepared) == digest_record(other.prepared)


def _iterate_pages(records: StoreRecords, part: TenantCollection) -> Iterator[Sequence[SpacedRecord]]:
    after = "", ""
    while page := records.page(part, after, _PAGE_SIZE):
        yield page
        after = page[-1].key


def _copy_store_tables(source: MigrationStore, target: MigrationStore, store: str) -> None:
    mine, theirs = digest_tables(source.tables, store), digest_tables(target.tables, store)
    if mine == theirs:
        return
    if theirs.rows:
        raise InvalidRequest(f"{target.name} already has other {store}; migrate into an empty store")
    copy_tables(source.tables, target.tables, store)


def _copy_files(source: StoreFiles, target: StoreFiles) -> None:
    for place, name in source.names():
        data = source.read(place, name)
        if data is not None and target.read(place, name) != data:
            target.write(place, name, data)


def _compare_files(source: MigrationStore, target: MigrationStore) -> int:
    names = source.files.names()
    for place, name in names:
        if source.files.read(place, name) != target.files.read(place, name):
            raise BrokenPromise(f"the file {name!r} of {place} differs in {target.name}")
    return len(names)


def _ignore_progress(task: str, done: int, total: int) -> None:
    del task, done, total


class TenantCollection(NamedTuple):
    """The records of one tenant in one collection."""

    collection: str
    tenant: str


RecordKey: TypeAlias = tuple[str, str]
"""Id and id space of a record."""


class SpacedRecord(NamedTuple):
    """A record with its id space."""

    space: str
    prepared: PreparedRecord

    @property
    def record(self) -> Record:
        """The record itself."""
        return self.prepared.record

    @property
    def key(self) -> RecordKey:
        """Id and id space."""
        return self.prepared.record.id, self.space


def split_by_id(records: Sequence[SpacedRecord]) -> Iterator[list[SpacedRecord]]:
    """The records in as few parts as possible in which every id is unique; nearly always one."""
    rest = list(records)
    while rest:
        first: dict[str, SpacedRecord] = {}
        later = [each for each in rest if first.setdefault(each.record.id, each) is not each]
        yield list(first.values())
        rest = later


class StoreRecords(Protocol):
    """The records of a store, without access control."""

    def list_collections(self) -> Mapping[TenantCollection, Collection]:
        """Every collection of every tenant, with its declared fields."""
        ...

    def declare(self, tenant: str, collection: Collection) -> None:
        """Declare a collection for a tenant, or replace its declared fields."""
        ...

    def parts(self) -> Mapping[TenantCollection, int]:
        """Number of records by tenant and collection, without empty ones."""
        ...

    def page(self, part: TenantCollection, after: RecordKey, limit: int) -> Sequence[SpacedRecord]:
        """Up to `limit` records of a part with keys greater than `after`, in the order of their keys."""
        ...

    def get_many(self, part: TenantCollection, ids: Sequence[str]) -> Mapping[RecordKey, SpacedRecord]:
        """All records of a part with these ids."""
        ...

    def write(self, part: TenantCollection, records: Sequence[SpacedRecord]) -> None:
        """Write records, replacing those with the same keys."""
        ...


class RecordColumns(NamedTuple):
    """Packed columns of a record, the same in both kinds of store."""

    id: str
    header: bytes
    text: str
    rules: str
    redactions: bytes
    passages: Sequence[tuple[bytes, bytes]]
    matrices: Mapping[str, bytes]


def unpack_record(kept: RecordColumns) -> PreparedRecord:
    """Decode a record from its packed columns."""
    record, title_redactions = codec.unpack_header(kept.header, kept.id, kept.text)
    passages = tuple(_unpack_passage(facts, vectors) for facts, vectors in kept.passages)
    return PreparedRecord(
        record=record,
        passages=passages,
        redactions=codec.unpack_spans(kept.redactions),
        title_redactions=title_redactions,
        rules=kept.rules,
        matrices={name: unpack_matrix(data) for name, data in kept.matrices.items()},
        unembedded=not all(passage.vectors for passage in passages),
    )


def digest_record(item: PreparedRecord) -> bytes:
    """SHA-256 over everything stored for a record; records with equal digests are the same."""
    sum_ = hashlib.sha256()
    pieces = [
        item.record.id.encode("utf-8", "surrogatepass"),
        item.record.text.encode("utf-8", "surrogatepass"),
        codec.pack_header(item),
        item.rules.encode(),
        codec.pack_spans(item.redactions),
        *(codec.pack_facts(codec.extract_facts(passage)) for passage in item.passages),
        *(codec.pack_vectors(passage) for passage in item.passages),
        *(name.encode() + pack_matrix(item.matrices[name]) for name in sorted(item.matrices)),
    ]
    for piece in pieces:
        sum_.update(len(piece).to_bytes(8, "big") + piece)
    return sum_.digest()


def _unpack_passage(packed_facts: bytes, vectors: bytes) -> Passage:
    facts = codec.unpack_facts(packed_facts)
    terms, weights = codec.term_arrays(facts)
    return Passage(
        start=facts.start,
        end=facts.end,
        sentences=tuple(facts.sentences),
        redactions=codec.facts_to_passage(facts).redactions,
        tokens=facts.tokens,
        simhash=facts.simhash,
        terms=dict(zip(terms.tolist(), weights.tolist(), strict=True)),
        vectors=codec.unpack_vectors(vectors),
    )


T = TypeVar("T")

_INSERT_BATCH = 1_000


class TableSpec(NamedTuple):
    """A table, its columns, and its auto-increment column if it has one."""

    name: str
    columns: tuple[str, ...]
    numbered: str = ""


STORE_TABLES: Mapping[str, tuple[TableSpec, ...]] = {
    "sessions": (
        TableSpec("sessions", ("row", "tenant", "user", "id", "last", "touched"), "row"),
        TableSpec("events", ("session", "position", "id", "time", "message", "metadata")),
        TableSpec("recalled", ("tenant", "record", "session", "id")),
    ),
    "replies": (
        TableSpec("replies", ("tenant", "user", "id", "session", "state", "time", "body")),
        TableSpec("cited", ("tenant", "reference", "user", "id")),
    ),
    "outbox": (
        TableSpec(
            "items",
            (
                *("seq", "tenant", "user", "groups", "key", "memory"),
                *("due", "tries", "blames", "parked", "failure"),
            ),
            "seq",
        ),
    ),
    "graph": (TableSpec("records", ("tenant", "id", "version", "body")), TableSpec("names", ("tenant", "key", "id"))),
    "blocks": (
        TableSpec("classes", ("class", "tenant", "acl"), "class"),
        TableSpec("readers", ("class", "principal", "tenant")),
        TableSpec(
            "blocks",
            (
                *("row", "tenant", "id", "parent", "position", "type", "text", "properties", "readers"),
                *("class", "author", "created", "modified", "due", "done", "deletion", "facts"),
                *("creator", "editors", "managers", "version", "writer", "written"),
            ),
            "row",
        ),
        TableSpec("names", ("tenant", "name", "rank", "id", "row")),
        TableSpec("links", ("source", "place", "tenant", "id", "kind", "label", "target", "name", "modified")),
        TableSpec("touches", ("tenant", "user", "row", "deed", "id", "count", "last")),
        TableSpec("cells", ("tenant", "value", "name", "shown", "row")),
        TableSpec("deletions", ("number", "tenant", "root", "time", "writer"), "number"),
        TableSpec("displaced", ("deletion", "row", "parent", "home", "readers")),
        TableSpec("revisions", ("row", "version", "type", "text", "properties", "class", "writer", "written")),
        TableSpec("pending", ("number", "tenant", "id", "class"), "number"),
    ),
    "keys": (
        TableSpec(
            "keys",
            (
                *("id", "name", "hash", "tenant", "user", "groups"),
                *("created", "expires", "revoked", "rights"),
            ),
        ),
    ),
}


class StoreTables(Protocol):
    """The SQL tables beside the records: the stores named in `STORE_TABLES`."""

    def run(self, store: str, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` in one transaction on the tables of a store and return its result."""
        ...

    def reset_sequence(self, store: str, table: str, key: str) -> None:
        """Set the auto-increment sequence of a table after its highest key, since rows were copied with their keys."""
        ...


class TablesDigest(NamedTuple):
    """Number of rows of a store, and a hash over them that does not depend on their order."""

    rows: int
    digest: int


def digest_tables(place: StoreTables, store: str) -> TablesDigest:
    """Row count and hash of all tables of a store."""

    def work(db: sqlite3.Connection) -> TablesDigest:
        sums = [_digest_row(table, row) for table in STORE_TABLES[store] for row in _select_rows(db, table)]
        return TablesDigest(len(sums), sum(sums) % (1 << 256))

    return place.run(store, work)


def copy_tables(source: StoreTables, target: StoreTables, store: str) -> None:
    """Copy all rows of a store into an empty one, in one transaction."""
    rows = source.run(store, lambda db: {table.name: _select_rows(db, table) for table in STORE_TABLES[store]})

    def work(db: sqlite3.Connection) -> None:
        for table in STORE_TABLES[store]:
            marks = ", ".join("?" * len(table.columns))
            query = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})"  # noqa: S608 - fixed
            for at in range(0, len(rows[table.name]), _INSERT_BATCH):
                db.executemany(query, rows[table.name][at : at + _INSERT_BATCH])

    target.run(store, work)
    for table in STORE_TABLES[store]:
        if table.numbered:
            target.reset_sequence(store, table.name, table.numbered)


def _select_rows(db: sqlite3.Connection, table: TableSpec) -> list[Sequence[Any]]:
    query = f"SELECT {', '.join(table.columns)} FROM {table.name}"  # noqa: S608 - fixed
    return db.execute(query).fetchall()


def _digest_row(table: TableSpec, row: Sequence[Any]) -> int:
    return int.from_bytes(hashlib.sha256(msgspec.msgpack.encode((table.name, *row))).digest())


BUILDS_FOLDER = "builds"
PICTURES_FOLDER = "pages"
SALT_FOLDER = "salt"


class StoreFiles(Protocol):
    """The files of a store, by place and name."""

    def names(self) -> Sequence[tuple[str, str]]:
        """Place and name of every file, oldest build first."""
        ...

    def read(self, place: str, name: str) -> bytes | None:
        """Content of a file, or None if it does not exist."""
        ...

    def write(self, place: str, name: str, data: bytes) -> None:
        """Write a file, replacing an existing one."""
        ...
