"""Collections, versions and writes in Chroma; each tenant has Chroma collections of its own."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from contexture.adapters.index.checks import check_tenant, check_unchanged, merged, unknown
from contexture.adapters.index.chroma.client import Box, Client
from contexture.adapters.index.chroma.items import (
    DATA,
    SEQ,
    Kept,
    digest,
    gone,
    item_id,
    kept_of,
    metadata_of,
    packed,
    passage_metadata,
    read,
)
from contexture.adapters.index.chroma.mirror import Mirror, may_read
from contexture.adapters.index.codec import unpack_header
from contexture.adapters.index.filters import BUILT_IN, field_types
from contexture.adapters.index.matrices import pack_matrix
from contexture.errors import InvalidRequest, NotPermitted, SourceError
from contexture.types import Collection, FieldType, Prepared, Record, Scope, Vector

_META = "contexture.meta"
_OWNER, _NAME = "owner", "name"
_SAFE = re.compile(r"[A-Za-z0-9]{1,40}")


class _Made(NamedTuple):
    """A tenant's collection, and the sequence number at which each of its fields was declared."""

    collection: Collection
    since: Mapping[str, int]


_Packed = tuple[Prepared, Kept, bytes]
"""A record to be written, how a mirror keeps it, and its head as bytes."""


class Store:
    """Everything that is written to Chroma and read from it but texts and vectors. Blocking: not for the event loop.

    One process writes at a time; others that read see a write with their next call.
    """

    def __init__(self, client: Client, vectors: Mapping[str, int], *, exact_limit: int) -> None:
        self._client = client
        self._meta = client.box(_META)
        self.vectors = dict(vectors)
        self.exact_limit = exact_limit
        self._lock = threading.RLock()
        self._made: dict[tuple[str, str], _Made] = {}
        self._old: Mapping[str, _Made] | None = None
        self._mirrors: dict[tuple[str, str], Mirror] = {}
        self._last = 0

    def close(self) -> None:
        """Let go of Chroma."""
        self._client.close()

    # --- collections ---

    def create(self, scope: Scope, collection: Collection) -> None:
        """Make the collection for the tenant, or add fields to it."""
        check_tenant(scope)
        with self._lock:
            made = self._find(scope).get(collection.name)
            wanted = merged(made.collection if made else None, collection)
            if made and wanted == made.collection:
                return
            seq = self._next()
            since = {name: made.since.get(name, seq) if made else 0 for name in wanted.fields}
            self._declare(scope, _Made(wanted, since))

    def collections(self, scope: Scope) -> list[Collection]:
        """Every collection of the tenant, by name."""
        found = self._find(scope)
        return [found[name].collection for name in sorted(found)]

    def known(self, scope: Scope, name: str) -> Collection:
        """The tenant's collection; one that it has not is refused with those that it has."""
        check_tenant(scope)
        made = self._made.get((scope.tenant, name)) or self._find(scope).get(name)
        if made is None:
            raise unknown(name, self.collections(scope))
        return made.collection

    def filterable(self, scope: Scope, name: str, oldest: int) -> dict[str, FieldType]:
        """The fields that every vector was written with, when the oldest record has this sequence number."""
        made = self._made[scope.tenant, name]
        late = {field for field, since in made.since.items() if since > oldest}
        return {**{key: kind for key, kind in made.collection.fields.items() if key not in late}, **BUILT_IN}

    # --- reading ---

    def version(self, scope: Scope, name: str) -> int:
        """The sequence number of the tenant's last write to a collection; 0 before the first."""
        id_ = _version_id(scope, name)
        return int(self._meta.metadata([id_]).get(id_, {}).get(SEQ, 0))

    def mirror(self, scope: Scope, name: str) -> Mirror:
        """The mirror of a tenant's part of a collection, brought up to the last write."""
        version, place = self.version(scope, name), (scope.tenant, name)
        known = self._mirrors.get(place)
        if known is not None and known.seq == version:
            return known
        with self._lock:
            known = self._mirrors.get(place)
            found = Mirror() if known is None else known
            if known is None or found.seq < version:
                items = self.records(scope, name).walk({SEQ: {"$gt": found.seq}})
                found.follow([read(metadata) for _, metadata in items], version)
            self._mirrors[place] = found
            return found

    def records(self, scope: Scope, name: str) -> Box:
        """The Chroma collection of a tenant's records."""
        return self._client.box(_box_name(scope, name))

    def dense(self, scope: Scope, name: str, vector: str) -> Box:
        """The Chroma collection of a tenant's vectors of one name."""
        return self._client.box(_box_name(scope, name, "vectors", vector), vectors=True)

    def rows(self, scope: Scope, name: str) -> Box:
        """The Chroma collection of a tenant's matrices."""
        return self._client.box(_box_name(scope, name, "matrices"))

    def whole(self, scope: Scope, name: str, found: Sequence[Kept]) -> list[Record]:
        """The records with their texts; one that was replaced meanwhile is left out."""
        texts = self.records(scope, name).documents([kept.item for kept in found]) if found else {}
        return [unpack_header(kept.header, kept.record.id, texts[kept.item])[0] for kept in found if kept.item in texts]

    # --- writing ---

    def upsert(self, scope: Scope, name: str, records: Sequence[Prepared], unchanged: Sequence[Record] = ()) -> int:
        """Write the records: first what they are found by, then, in one call, themselves."""
        with self._writing(scope, name):
            mirror = self.mirror(scope, name)
            held = [kept for record in unchanged if (kept := mirror.held(record.id)) is not None]
            check_unchanged(unchanged, self.whole(scope, name, held))
            seq = max(self._next(), mirror.seq + 1)
            newest = {item.record.id: item for item in records}
            old = [kept for id_ in newest if (kept := mirror.held(id_)) is not None]
            for kept in old:
                if not may_read(kept, scope):
                    raise NotPermitted(f"record {kept.record.id!r} cannot be written by user {scope.user!r}")
            made = [self._packed(item, seq) for item in newest.values()]
            self._put_vectors(scope, name, made)
            self._put_matrices(scope, name, made)
            self.records(scope, name).put(
                [kept.item for _, kept, _ in made],
                [metadata_of(kept, data) for _, kept, data in made],
                documents=[item.record.text for item, _, _ in made],
            )
            return self._done(scope, name, mirror, seq, [(kept.key, seq, kept) for _, kept, _ in made], old)

    def delete(self, scope: Scope, name: str, ids: Sequence[str]) -> int:
        """Remove those of these records that the scope may see; returns how many."""
        with self._writing(scope, name):
            mirror = self.mirror(scope, name)
            seq = max(self._next(), mirror.seq + 1)
            old = [kept for id_ in dict.fromkeys(ids) if (kept := mirror.find(id_, scope)) is not None]
            said = [gone(kept.key, seq) for kept in old]
            self.records(scope, name).put([item_id(kept.key, seq) for kept in old], said, documents=["" for _ in old])
            self._done(scope, name, mirror, seq, [(kept.key, seq, None) for kept in old], old)
            return len(old)

    # --- inside ---

    def _find(self, scope: Scope) -> Mapping[str, _Made]:
        """Every collection of the tenant; another process may have made some."""
        mine = self._read({_OWNER: {"$eq": digest(scope.tenant)}})
        for name, made in self._unowned().items():
            if name not in mine and self.version(scope, name):
                mine[name] = made
        self._made |= {(scope.tenant, name): made for name, made in mine.items()}
        return mine

    def _unowned(self) -> Mapping[str, _Made]:
        """Collections from before they belonged to tenants: each is of those who have written to it."""
        if self._old is None:
            self._old = self._read({_NAME: {"$ne": ""}}, owned=False)
        return self._old

    def _read(self, where: Mapping[str, Any], *, owned: bool = True) -> dict[str, _Made]:
        """Declarations by name, with or without an owner; Chroma lets what has no such value pass a `$ne` too."""
        found: dict[str, _Made] = {}
        for _, said in self._meta.walk(where):
            if "fields" in said and (_OWNER in said) == owned:
                fields: dict[str, tuple[str, int]] = json.loads(said["fields"])
                kinds = {name: FieldType(kind) for name, (kind, _) in fields.items()}
                since = {name: seq for name, (_, seq) in fields.items()}
                found[said[_NAME]] = _Made(Collection(name=said[_NAME], fields=kinds), since)
        return found

    def _declare(self, scope: Scope, made: _Made) -> None:
        name, kinds = made.collection.name, made.collection.fields
        fields = {field: [str(kind), made.since[field]] for field, kind in kinds.items()}
        said = {_OWNER: digest(scope.tenant), _NAME: name, "fields": json.dumps(fields)}
        self._meta.put([f"declared.{digest(scope.tenant, name)}"], [said])
        self._made[scope.tenant, name] = made

    @contextmanager
    def _writing(self, scope: Scope, name: str) -> Generator[None]:
        """One write at a time; after one that failed Chroma is asked what became of it."""
        with self._lock:
            try:
                yield
            except SourceError:
                self._mirrors.pop((scope.tenant, name), None)
                raise

    def _next(self) -> int:
        """A number larger than any before it, also than those of another process before this one."""
        self._last = max(self._last + 1, time.time_ns() // 1_000)
        return self._last

    def _packed(self, item: Prepared, seq: int) -> _Packed:
        try:
            item.record.text.encode()  # a text that is not valid Unicode would fail in the middle of the write
            return (item, *kept_of(item, seq, self.vectors))
        except (TypeError, ValueError, OverflowError, RecursionError) as failure:
            raise InvalidRequest(f"record {item.record.id!r} cannot be stored: {failure}") from failure

    def _put_vectors(self, scope: Scope, name: str, made: Sequence[_Packed]) -> None:
        """Write the vectors of passages; nothing finds them before their record is there."""
        fields = field_types(self._made[scope.tenant, name].collection)
        found: dict[str, list[tuple[str, dict[str, Any], Vector]]] = {}
        for item, kept, _ in made:
            metadata = passage_metadata(kept, fields)
            for ordinal, names in enumerate(kept.vectors):
                for vector in names:
                    numbers = item.passages[ordinal].vectors[vector]
                    found.setdefault(vector, []).append((kept.passage(ordinal), metadata, numbers))
        for vector, rows in found.items():
            ids, metadatas, vectors = zip(*rows, strict=True)
            self.dense(scope, name, vector).put(ids, metadatas, vectors=vectors)

    def _put_matrices(self, scope: Scope, name: str, made: Sequence[_Packed]) -> None:
        """Write matrices; nothing finds them before their record is there."""
        rows = [(kept.matrix(each), item.matrices[each]) for item, kept, _ in made for each in kept.matrices]
        data = [{DATA: packed(pack_matrix(matrix))} for _, matrix in rows]
        if rows:
            self.rows(scope, name).put([id_ for id_, _ in rows], data)

    def _done(
        self,
        scope: Scope,
        name: str,
        mirror: Mirror,
        seq: int,
        items: Sequence[tuple[str, int, Kept | None]],
        old: Sequence[Kept],
    ) -> int:
        """Make the write known, then sweep what it replaced."""
        self._meta.put([_version_id(scope, name)], [{SEQ: seq}])
        mirror.follow(items, seq)
        self.records(scope, name).remove([kept.item for kept in old])
        self.rows(scope, name).remove([kept.matrix(each) for kept in old for each in kept.matrices])
        for vector in sorted({each for kept in old for names in kept.vectors for each in names}):
            swept = [kept.passage(at) for kept in old for at, names in enumerate(kept.vectors) if vector in names]
            self.dense(scope, name, vector).remove(swept)
        return seq


def _version_id(scope: Scope, name: str) -> str:
    return f"version.{digest(scope.tenant, name)}"


def _box_name(scope: Scope, name: str, *part: str) -> str:
    """A name that Chroma takes and people recognise; the digest keeps different ones apart."""
    tenant = f".{scope.tenant}" if _SAFE.fullmatch(scope.tenant) else ""
    return f"contexture.{name}{tenant}{''.join(f'.{each}' for each in part[:1])}.{digest(name, scope.tenant, *part)}"
