"""An index in one SQLite file that compares a question with every passage that its scope may read.

The file holds each record as one value, and a tenant's collection is read into memory when it is used first.
"""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from contexture.adapters.index.checks import (
    check_query,
    check_records,
    check_tenant,
    check_unchanged,
    is_valid_id,
    merge_collection,
    unknown_collection_error,
)
from contexture.adapters.index.codec import (
    PassageFacts,
    extract_facts,
    facts_to_passage,
    pack_facts,
    pack_header,
    pack_vectors,
    term_arrays,
    unpack_facts,
    unpack_header,
    unpack_vectors,
)
from contexture.adapters.index.filters import check_filter, field_types, record_matches
from contexture.adapters.index.matrices import pack_matrix, unpack_matrix
from contexture.config import IndexOptions
from contexture.errors import InvalidRequest, NotPermitted, SourceUnavailable
from contexture.types import (
    ChannelCandidates,
    Collection,
    FieldType,
    Filter,
    Hit,
    Matrix,
    PassageKey,
    PreparedRecord,
    Query,
    Record,
    Scope,
    Span,
    Vector,
)

T = TypeVar("T")

BM25 = "bm25"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS collections (
  tenant TEXT, name TEXT, fields TEXT NOT NULL, version INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (tenant, name));
CREATE TABLE IF NOT EXISTS records (
  tenant TEXT, collection TEXT, id TEXT, data BLOB NOT NULL, PRIMARY KEY (tenant, collection, id)) WITHOUT ROWID;
"""


class PackedRecord(msgspec.Struct, array_like=True):
    """A record as it stands in the file."""

    header: bytes
    text: str
    rules: str
    facts: list[bytes]
    vectors: list[bytes]
    matrices: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class LoadedPassage:
    """A passage in memory: its facts, the weights of its terms, and its vectors."""

    facts: PassageFacts
    terms: Mapping[int, float]
    vectors: Mapping[str, Vector]


@dataclass(frozen=True, slots=True)
class LoadedRecord:
    """A record in memory."""

    record: Record
    title_redactions: tuple[Span, ...]
    rules: str
    passages: tuple[LoadedPassage, ...]
    matrices: Mapping[str, bytes]


class PlainIndex:
    """An `Index` in one file; every call runs in a thread, one after another."""

    def __init__(self, path: Path, vectors: Mapping[str, int]) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._vectors = vectors
        self._guard = threading.Lock()
        self._loaded: dict[tuple[str, str], dict[str, LoadedRecord]] = {}
        with _source_errors():
            self._file = sqlite3.connect(path, check_same_thread=False)
            self._file.executescript(_SCHEMA)

    @classmethod
    async def open(cls, address: str, options: IndexOptions) -> PlainIndex:
        """The index in the file that the address names, `plain:PATH`; by default `plain.sqlite` of the store."""
        given = address.partition(":")[2]
        path = Path(given) if given else options.settings.home / "plain.sqlite"
        return await asyncio.to_thread(cls, path, options.vectors)

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Create the collection for the tenant, or add fields to it."""

        def write() -> None:
            check_tenant(scope)
            old = self._collections(scope).get(collection.name)
            fields = json.dumps({name: kind.value for name, kind in merge_collection(old, collection).fields.items()})
            with self._file:
                self._file.execute(
                    "INSERT INTO collections (tenant, name, fields) VALUES (?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET fields = excluded.fields",
                    (scope.tenant, collection.name, fields),
                )

        await self._run(write)

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant, ordered by name."""
        return await self._run(lambda: list(self._collections(scope).values()))

    async def upsert(
        self, scope: Scope, collection: str, records: Sequence[PreparedRecord], *, unchanged: Sequence[Record] = ()
    ) -> int:
        """Write all records or none; returns the sequence number of the write."""

        def write() -> int:
            self._known(scope, collection)
            check_records(records, self._vectors)
            held = self._load(scope, collection)
            check_unchanged(unchanged, [each.record for each in held.values() if _may_read(scope, each)])
            for each in records:
                if (old := held.get(each.record.id)) is not None and not _may_read(scope, old):
                    raise NotPermitted(f"record {each.record.id!r} cannot be written by user {scope.user!r}")
            packed = {each.record.id: _pack(each) for each in records}
            rows = [(scope.tenant, collection, name, data) for name, data in packed.items()]
            with self._file:
                self._file.executemany("REPLACE INTO records VALUES (?, ?, ?, ?)", rows)
                version = self._bump(scope, collection)
            held.update({name: _unpack(name, data) for name, data in packed.items()})
            return version

        return await self._run(write)

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove those of `ids` that the scope may read; returns how many were removed."""

        def write() -> int:
            self._known(scope, collection)
            gone = {each.record.id for each in self._readable(scope, collection, ids)}
            with self._file:
                rows = [(scope.tenant, collection, name) for name in gone]
                self._file.executemany("DELETE FROM records WHERE tenant = ? AND collection = ? AND id = ?", rows)
                self._bump(scope, collection)
            for name in gone:
                del self._load(scope, collection)[name]
            return len(gone)

        return await self._run(write)

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """The records of `ids` that exist and that the scope may read, in the order of `ids`."""

        def read() -> list[Record]:
            self._known(scope, collection)
            return [each.record for each in self._readable(scope, collection, ids)]

        return await self._run(read)

    async def scroll(
        self, scope: Scope, collection: str, *, where: Filter | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """Up to `limit` records that the scope may read, in id order, starting after the id `after`."""

        def read() -> list[Record]:
            fields = field_types(self._known(scope, collection))
            if limit < 1 or not is_valid_id(after):
                raise InvalidRequest(f"cannot scroll {limit} records behind {after!r}")
            if where is not None:
                check_filter(where, fields)
            found = [each.record for each in self._load(scope, collection).values() if _may_read(scope, each)]
            passing = (each for each in found if each.id > after and _passes(where, each, fields))
            return sorted(passing, key=lambda record: record.id)[:limit]

        return await self._run(read)

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The passages that `query.fuse` chooses from the candidates of every channel, with all their scores."""

        def read() -> list[Hit]:
            fields = field_types(self._known(scope, query.collection))
            check_query(query, fields, self._vectors)
            held = self._load(scope, query.collection)
            return _search([each for each in held.values() if _may_read(scope, each)], query, fields)

        return await self._run(read)

    async def matrices(self, scope: Scope, collection: str, name: str, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """The matrices written under `name`, by record id, of the records that the scope may read."""

        def read() -> dict[str, Matrix]:
            self._known(scope, collection)
            found = self._readable(scope, collection, ids)
            return {each.record.id: unpack_matrix(each.matrices[name]) for each in found if name in each.matrices}

        return await self._run(read)

    async def version(self, scope: Scope, collection: str) -> int:
        """A number that changes with every write to the tenant's collection."""

        def read() -> int:
            self._known(scope, collection)
            return self._version(scope, collection)

        return await self._run(read)

    async def optimize(self) -> None:
        """Do nothing: everything is compared anyway."""

    async def warm(self) -> None:
        """Do nothing: a collection is read when it is used."""

    async def check_health(self) -> str:
        """Raise `SourceError` when the file cannot be read; searches fail for no other reason."""
        await self._run(lambda: self._file.execute("SELECT count(*) FROM collections").fetchone())
        return ""

    async def close(self) -> None:
        """Close the file; writes are in it already."""
        await self._run(self._file.close)

    async def _run(self, work: Callable[[], T]) -> T:
        def guarded() -> T:
            with self._guard, _source_errors():
                return work()

        return await asyncio.to_thread(guarded)

    def _collections(self, scope: Scope) -> dict[str, Collection]:
        asked = "SELECT name, fields FROM collections WHERE tenant = ? ORDER BY name"
        rows: list[tuple[str, str]] = self._file.execute(asked, (scope.tenant,)).fetchall()
        return {
            name: Collection(name=name, fields={field: FieldType(kind) for field, kind in json.loads(fields).items()})
            for name, fields in rows
        }

    def _known(self, scope: Scope, name: str) -> Collection:
        mine = self._collections(scope) if is_valid_id(scope.tenant) else {}
        if name not in mine:
            raise unknown_collection_error(name, mine.values())
        return mine[name]

    def _load(self, scope: Scope, collection: str) -> dict[str, LoadedRecord]:
        """Every record of the tenant's collection, by id."""
        place = scope.tenant, collection
        if place not in self._loaded:
            rows = self._file.execute("SELECT id, data FROM records WHERE tenant = ? AND collection = ?", place)
            self._loaded[place] = {name: _unpack(name, data) for name, data in rows}
        return self._loaded[place]

    def _readable(self, scope: Scope, collection: str, ids: Sequence[str]) -> list[LoadedRecord]:
        held = self._load(scope, collection)
        return [held[name] for name in ids if name in held and _may_read(scope, held[name])]

    def _version(self, scope: Scope, collection: str) -> int:
        asked = "SELECT version FROM collections WHERE tenant = ? AND name = ?"
        return int(self._file.execute(asked, (scope.tenant, collection)).fetchone()[0])

    def _bump(self, scope: Scope, collection: str) -> int:
        changed = "UPDATE collections SET version = version + 1 WHERE tenant = ? AND name = ?"
        self._file.execute(changed, (scope.tenant, collection))
        return self._version(scope, collection)


@contextmanager
def _source_errors() -> Generator[None]:
    """Raise every failure of the vendor as a `SourceError`."""
    try:
        yield
    except sqlite3.Error as failure:
        raise SourceUnavailable(f"the plain index failed: {failure}") from failure


def _may_read(scope: Scope, held: LoadedRecord) -> bool:
    return not set(scope.principals).isdisjoint(held.record.acl)


def _passes(where: Filter | None, record: Record, fields: Mapping[str, FieldType]) -> bool:
    return where is None or record_matches(where, record, fields)


def _pack(prepared: PreparedRecord) -> bytes:
    """The record as bytes; raises `InvalidRequest` for one that cannot be stored."""
    try:
        packed = PackedRecord(
            header=pack_header(prepared),
            text=prepared.record.text,
            rules=prepared.rules,
            facts=[pack_facts(extract_facts(each)) for each in prepared.passages],
            vectors=[pack_vectors(each) for each in prepared.passages],
            matrices={name: pack_matrix(matrix) for name, matrix in prepared.matrices.items()},
        )
        return msgspec.msgpack.encode(packed)
    except (TypeError, ValueError, OverflowError) as failure:
        raise InvalidRequest(f"record {prepared.record.id!r} cannot be stored: {failure}") from failure


def _unpack(name: str, data: bytes) -> LoadedRecord:
    packed = msgspec.msgpack.decode(data, type=PackedRecord)
    record, title_redactions = unpack_header(packed.header, name, packed.text)
    passages: list[LoadedPassage] = []
    for facts, vectors in zip(map(unpack_facts, packed.facts), packed.vectors, strict=True):
        terms, weights = term_arrays(facts)
        found = dict(zip(terms.tolist(), weights.tolist(), strict=True))
        passages.append(LoadedPassage(facts, found, unpack_vectors(vectors)))
    return LoadedRecord(record, title_redactions, packed.rules, tuple(passages), packed.matrices)


def _search(readable: Sequence[LoadedRecord], query: Query, fields: Mapping[str, FieldType]) -> list[Hit]:
    """Score every passage that passes the filter in every channel; statistics count readable passages only."""
    passing = [each for each in readable if _passes(query.where, each.record, fields)]
    rows = [(each, ordinal) for each in passing for ordinal in range(len(each.passages))]
    idf = _idf(query.terms, [passage for each in readable for passage in each.passages])
    scores: dict[str, dict[int, float]] = {}
    if idf:
        scores[BM25] = {
            at: math.fsum(weight * each.passages[ordinal].terms.get(term, 0.0) for term, weight in idf.items())
            for at, (each, ordinal) in enumerate(rows)
        }
    for name, vector in query.vectors.items():
        scores[name] = {
            at: float(np.dot(each.passages[ordinal].vectors[name], vector))
            for at, (each, ordinal) in enumerate(rows)
            if name in each.passages[ordinal].vectors
        }

    def keys(passages: Sequence[int]) -> dict[int, PassageKey]:
        return {at: (rows[at][0].record.id, rows[at][1]) for at in passages}

    proposed = dict(scores)
    if idf:
        proposed[BM25] = {at: score for at, score in scores[BM25].items() if score > 0}
    ranks = query.fuse(ChannelCandidates(query.k, proposed, keys))
    order = sorted(ranks, key=lambda at: (rows[at][0].record.id, rows[at][1]))
    return [
        _hit(*rows[at], {name: found[at] for name, found in scores.items() if at in found}, ranks[at]) for at in order
    ]


def _idf(terms: Sequence[int], readable: Sequence[LoadedPassage]) -> dict[int, float]:
    """The inverse document frequency of the query's terms that a readable passage holds."""
    counts = {term: sum(term in passage.terms for passage in readable) for term in dict.fromkeys(terms)}
    return {
        term: math.log(1 + (len(readable) - count + 0.5) / (count + 0.5)) for term, count in counts.items() if count
    }


def _hit(held: LoadedRecord, ordinal: int, scores: Mapping[str, float], ranks: Mapping[str, int]) -> Hit:
    facts = held.passages[ordinal].facts
    return Hit(
        record=replace(held.record, text=""),
        hash=held.record.hash,
        ordinal=ordinal,
        text=held.record.text[facts.start : facts.end],
        passage=facts_to_passage(facts),
        title_redactions=held.title_redactions,
        rules=held.rules,
        scores=scores,
        ranks=ranks,
    )
