"""Collections, versions and writes in Chroma; each tenant has Chroma collections of its own."""

import json
import re
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from contexture.adapters.index.checks import check_tenant, check_unchanged, merge_collection, unknown_collection_error
from contexture.adapters.index.chroma.client import ChromaClient, ChromaCollection
from contexture.adapters.index.chroma.items import (
    DATA,
    SEQ,
    ChromaRecord,
    encode_base64,
    format_item_id,
    pack_record,
    parse_item,
    passage_metadata,
    record_metadata,
    short_digest,
    tombstone_metadata,
)
from contexture.adapters.index.chroma.mirror import RecordMirror, may_read
from contexture.adapters.index.codec import unpack_header
from contexture.adapters.index.filters import BUILT_IN, field_types
from contexture.adapters.index.matrices import pack_matrix
from contexture.errors import InvalidRequest, NotPermitted, SourceError
from contexture.types import Collection, FieldType, PreparedRecord, Record, Scope, Vector

_META_COLLECTION = "contexture.meta"
_OWNER, _NAME = "owner", "name"
_PLAIN_TENANT = re.compile(r"[A-Za-z0-9]{1,40}")


class _DeclaredCollection(NamedTuple):
    """A tenant's collection, and the sequence number at which each of its fields was declared."""

    collection: Collection
    since: Mapping[str, int]


_PackedItem = tuple[PreparedRecord, ChromaRecord, bytes]
"""A record to be written, the form in which the mirror holds it, and its packed `_RecordHead`."""


class ChromaStore:
    """Reads and writes collections, versions and records in Chroma.

    Calls block. Only one process may write at a time; other processes see a write with their next call.
    """

    def __init__(self, client: ChromaClient, vectors: Mapping[str, int], *, exact_limit: int) -> None:
        self._client = client
        self._meta = client.collection(_META_COLLECTION)
        self.vectors = dict(vectors)
        self.exact_limit = exact_limit
        self._lock = threading.RLock()
        self._declared: dict[tuple[str, str], _DeclaredCollection] = {}
        self._unowned_declarations: Mapping[str, _DeclaredCollection] | None = None
        self._mirrors: dict[tuple[str, str], RecordMirror] = {}
        self._last_seq = 0

    def close(self) -> None:
        """Close the Chroma client."""
        self._client.close()

    # --- collections ---

    def create(self, scope: Scope, collection: Collection) -> None:
        """Create the collection for the tenant, or add fields to it."""
        check_tenant(scope)
        with self._lock:
            made = self._load_declarations(scope).get(collection.name)
            wanted = merge_collection(made.collection if made else None, collection)
            if made and wanted == made.collection:
                return
            seq = self._next_seq()
            since = {name: made.since.get(name, seq) if made else 0 for name in wanted.fields}
            self._declare(scope, _DeclaredCollection(wanted, since))

    def collections(self, scope: Scope) -> list[Collection]:
        """Every collection of the tenant, by name."""
        found = self._load_declarations(scope)
        return [found[name].collection for name in sorted(found)]

    def require_collection(self, scope: Scope, name: str) -> Collection:
        """The tenant's collection; raises `UnknownCollection`, which names those the tenant has."""
        check_tenant(scope)
        made = self._declared.get((scope.tenant, name)) or self._load_declarations(scope).get(name)
        if made is None:
            raise unknown_collection_error(name, self.collections(scope))
        return made.collection

    def filterable_fields(self, scope: Scope, name: str, oldest: int) -> dict[str, FieldType]:
        """Fields that every stored vector has; `oldest` is the sequence number of the oldest record."""
        made = self._declared[scope.tenant, name]
        late = {field for field, since in made.since.items() if since > oldest}
        return {**{key: kind for key, kind in made.collection.fields.items() if key not in late}, **BUILT_IN}

    # --- reading ---

    def version(self, scope: Scope, name: str) -> int:
        """Sequence number of the tenant's last write to a collection; 0 before the first."""
        id_ = _version_id(scope, name)
        return int(self._meta.metadata([id_]).get(id_, {}).get(SEQ, 0))

    def load_mirror(self, scope: Scope, name: str) -> RecordMirror:
        """Mirror of a tenant's records in a collection, with every write applied."""
        version, place = self.version(scope, name), (scope.tenant, name)
        known = self._mirrors.get(place)
        if known is not None and known.seq == version:
            return known
        with self._lock:
            known = self._mirrors.get(place)
            found = RecordMirror() if known is None else known
            if known is None or found.seq < version:
                items = self.record_collection(scope, name).scroll({SEQ: {"$gt": found.seq}})
                found.apply_items([parse_item(metadata) for _, metadata in items], version)
            self._mirrors[place] = found
            return found

    def record_collection(self, scope: Scope, name: str) -> ChromaCollection:
        """The Chroma collection of a tenant's records."""
        return self._client.collection(_collection_name(scope, name))

    def vector_collection(self, scope: Scope, name: str, vector: str) -> ChromaCollection:
        """The Chroma collection of a tenant's vectors of one name."""
        return self._client.collection(_collection_name(scope, name, "vectors", vector), vectors=True)

    def matrix_collection(self, scope: Scope, name: str) -> ChromaCollection:
        """The Chroma collection of a tenant's matrices."""
        return self._client.collection(_collection_name(scope, name, "matrices"))

    def load_records(self, scope: Scope, name: str, found: Sequence[ChromaRecord]) -> list[Record]:
        """Records with their texts; records replaced since the mirror was read are left out."""
        texts = self.record_collection(scope, name).documents([kept.item_id for kept in found]) if found else {}
        return [
            unpack_header(kept.header, kept.record.id, texts[kept.item_id])[0]
            for kept in found
            if kept.item_id in texts
        ]

    # --- writing ---

    def upsert(
        self, scope: Scope, name: str, records: Sequence[PreparedRecord], unchanged: Sequence[Record] = ()
    ) -> int:
        """Write records; returns the sequence number of the write.

        Vectors and matrices are written first, then the records, so that nothing is visible before its record is.
        Raises `Outdated` if a record of `unchanged` differs from what is stored, `NotPermitted` if the scope may not
        read a record it would replace, and `InvalidRequest` if a record cannot be stored.
        """
        with self._write_session(scope, name):
            mirror = self.load_mirror(scope, name)
            held = [kept for record in unchanged if (kept := mirror.find_any(record.id)) is not None]
            check_unchanged(unchanged, self.load_records(scope, name, held))
            seq = max(self._next_seq(), mirror.seq + 1)
            newest = {item.record.id: item for item in records}
            old = [kept for id_ in newest if (kept := mirror.find_any(id_)) is not None]
            for kept in old:
                if not may_read(kept, scope):
                    raise NotPermitted(f"record {kept.record.id!r} cannot be written by user {scope.user!r}")
            made = [self._pack_item(item, seq) for item in newest.values()]
            self._put_vectors(scope, name, made)
            self._put_matrices(scope, name, made)
            self.record_collection(scope, name).upsert(
                [kept.item_id for _, kept, _ in made],
                [record_metadata(kept, data) for _, kept, data in made],
                documents=[item.record.text for item, _, _ in made],
            )
            return self._finish_write(scope, name, mirror, seq, [(kept.key, seq, kept) for _, kept, _ in made], old)

    def delete(self, scope: Scope, name: str, ids: Sequence[str]) -> int:
        """Remove the records that the scope may read; returns how many were removed."""
        with self._write_session(scope, name):
            mirror = self.load_mirror(scope, name)
            seq = max(self._next_seq(), mirror.seq + 1)
            old = [kept for id_ in dict.fromkeys(ids) if (kept := mirror.find_readable(id_, scope)) is not None]
            said = [tombstone_metadata(kept.key, seq) for kept in old]
            self.record_collection(scope, name).upsert(
                [format_item_id(kept.key, seq) for kept in old], said, documents=["" for _ in old]
            )
            self._finish_write(scope, name, mirror, seq, [(kept.key, seq, None) for kept in old], old)
            return len(old)

    # --- inside ---

    def _load_declarations(self, scope: Scope) -> Mapping[str, _DeclaredCollection]:
        """Every collection of the tenant, read from Chroma, because another process may have created some."""
        mine = self._read_declarations({_OWNER: {"$eq": short_digest(scope.tenant)}})
        for name, made in self._load_unowned().items():
            if name not in mine and self.version(scope, name):
                mine[name] = made
        self._declared |= {(scope.tenant, name): made for name, made in mine.items()}
        return mine

    def _load_unowned(self) -> Mapping[str, _DeclaredCollection]:
        """Declarations from before collections had an owner; each applies to the tenants that have written there."""
        if self._unowned_declarations is None:
            self._unowned_declarations = self._read_declarations({_NAME: {"$ne": ""}}, owned=False)
        return self._unowned_declarations

    def _read_declarations(self, where: Mapping[str, Any], *, owned: bool = True) -> dict[str, _DeclaredCollection]:
        """Declarations by name, with or without an owner, which is checked here: `$ne` matches missing values too."""
        found: dict[str, _DeclaredCollection] = {}
        for _, said in self._meta.scroll(where):
            if "fields" in said and (_OWNER in said) == owned:
                fields: dict[str, tuple[str, int]] = json.loads(said["fields"])
                kinds = {name: FieldType(kind) for name, (kind, _) in fields.items()}
                since = {name: seq for name, (_, seq) in fields.items()}
                found[said[_NAME]] = _DeclaredCollection(Collection(name=said[_NAME], fields=kinds), since)
        return found

    def _declare(self, scope: Scope, made: _DeclaredCollection) -> None:
        name, kinds = made.collection.name, made.collection.fields
        fields = {field: [str(kind), made.since[field]] for field, kind in kinds.items()}
        said = {_OWNER: short_digest(scope.tenant), _NAME: name, "fields": json.dumps(fields)}
        self._meta.upsert([f"declared.{short_digest(scope.tenant, name)}"], [said])
        self._declared[scope.tenant, name] = made

    @contextmanager
    def _write_session(self, scope: Scope, name: str) -> Generator[None]:
        """Serialise writes; a failed write drops the mirror, so that the next call reads the result from Chroma."""
        with self._lock:
            try:
                yield
            except SourceError:
                self._mirrors.pop((scope.tenant, name), None)
                raise

    def _next_seq(self) -> int:
        """Next sequence number, from the clock: larger than any before it, in this process or an earlier one."""
        self._last_seq = max(self._last_seq + 1, time.time_ns() // 1_000)
        return self._last_seq

    def _pack_item(self, item: PreparedRecord, seq: int) -> _PackedItem:
        try:
            item.record.text.encode()  # invalid Unicode would otherwise fail in the middle of the write
            return (item, *pack_record(item, seq, self.vectors))
        except (TypeError, ValueError, OverflowError, RecursionError) as failure:
            raise InvalidRequest(f"record {item.record.id!r} cannot be stored: {failure}") from failure

    def _put_vectors(self, scope: Scope, name: str, made: Sequence[_PackedItem]) -> None:
        """Write the vectors of passages; no search returns them before their record is written."""
        fields = field_types(self._declared[scope.tenant, name].collection)
        found: dict[str, list[tuple[str, dict[str, Any], Vector]]] = {}
        for item, kept, _ in made:
            metadata = passage_metadata(kept, fields)
            for ordinal, names in enumerate(kept.vectors):
                for vector in names:
                    numbers = item.passages[ordinal].vectors[vector]
                    found.setdefault(vector, []).append((kept.passage_id(ordinal), metadata, numbers))
        for vector, rows in found.items():
            ids, metadatas, vectors = zip(*rows, strict=True)
            self.vector_collection(scope, name, vector).upsert(ids, metadatas, vectors=vectors)

    def _put_matrices(self, scope: Scope, name: str, made: Sequence[_PackedItem]) -> None:
        """Write matrices; no read returns them before their record is written."""
        rows = [(kept.matrix_id(each), item.matrices[each]) for item, kept, _ in made for each in kept.matrices]
        data = [{DATA: encode_base64(pack_matrix(matrix))} for _, matrix in rows]
        if rows:
            self.matrix_collection(scope, name).upsert([id_ for id_, _ in rows], data)

    def _finish_write(
        self,
        scope: Scope,
        name: str,
        mirror: RecordMirror,
        seq: int,
        items: Sequence[tuple[str, int, ChromaRecord | None]],
        old: Sequence[ChromaRecord],
    ) -> int:
        """Publish the write by storing its version, then delete the items it replaced; returns `seq`."""
        self._meta.upsert([_version_id(scope, name)], [{SEQ: seq}])
        mirror.apply_items(items, seq)
        self.record_collection(scope, name).remove([kept.item_id for kept in old])
        self.matrix_collection(scope, name).remove([kept.matrix_id(each) for kept in old for each in kept.matrices])
        for vector in sorted({each for kept in old for names in kept.vectors for each in names}):
            swept = [kept.passage_id(at) for kept in old for at, names in enumerate(kept.vectors) if vector in names]
            self.vector_collection(scope, name, vector).remove(swept)
        return seq


def _version_id(scope: Scope, name: str) -> str:
    return f"version.{short_digest(scope.tenant, name)}"


def _collection_name(scope: Scope, name: str, *part: str) -> str:
    """A valid, readable Chroma collection name, made unique by a digest."""
    tenant = f".{scope.tenant}" if _PLAIN_TENANT.fullmatch(scope.tenant) else ""
    return (
        f"contexture.{name}{tenant}{''.join(f'.{each}' for each in part[:1])}.{short_digest(name, scope.tenant, *part)}"
    )
