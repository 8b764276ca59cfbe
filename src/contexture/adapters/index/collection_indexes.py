"""Embedded search indexes of all collections: opened, recovered, updated after each write, flushed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from contexture.adapters.index import codec
from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.collection_index import CollectionIndex, unpack_record
from contexture.adapters.index.edge_shard import EdgeShard, EdgeShardOptions, PreparedPoints
from contexture.adapters.index.filters import BUILT_IN, build_payload
from contexture.adapters.index.record_store import PassageRow, StoreChange
from contexture.adapters.index.scanner import VectorScanner
from contexture.adapters.index.store_ports import ReplaySource
from contexture.adapters.private_files import create_private_folder
from contexture.errors import SourceError, SourceUnavailable
from contexture.types import FieldType, Record, Vector

_REPLAY_BATCH = 1_000
_FLUSH_AFTER_CHANGES = 20_000
# What a shard holds besides vectors and fields; a change of format needs a rebuild.
_LAYOUT_FORMAT = "whole impacts"
_ALL_SPACES = "yes"  # written by older stores for a collection with a graph for every vector space
_EMPTY_RECORD = Record(id="", text="", acl=())


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedOptions:
    """Layout of the embedded index.

    Up to `exact_limit` passages a vector space is searched exactly, and passages that a scope may not read cannot
    affect a score; above it, or with `exact_limit=0`, an HNSW graph is used.
    """

    vectors: Mapping[str, int]
    threads: int = 2
    exact_limit: int = 1_000_000


class CollectionIndexes:
    """Search backend with a `CollectionIndex` per collection; a damaged one is rebuilt from the record store."""

    def __init__(self, folder: Path, record_store: ReplaySource, options: EmbeddedOptions) -> None:
        self._folder = folder
        self._record_store = record_store
        self._options = options
        self._by_name: dict[str, CollectionIndex] = {}
        self._unflushed = 0
        create_private_folder(folder / "index")  # the files in it are created by native code, under the umask
        self._executor: Executor | None = None
        if options.threads > 1:
            self._executor = ThreadPoolExecutor(options.threads - 1, thread_name_prefix="contexture-scan")
        self.columns = record_store.declared_columns()
        self.last_error = ""

    def collection_index(self, name: str) -> CollectionIndex:
        """The search index of a collection; raises `SourceUnavailable` while it is being rebuilt."""
        found = self._by_name.get(name)
        if found is None:
            raise SourceUnavailable(f"the index of {name!r} is being rebuilt; try again")
        return found

    def spaces(self, name: str, access: ScopeAccess) -> frozenset[str] | None:
        """Names of the vector spaces of the readable passages, perhaps more; None while the index is rebuilt."""
        part = self._by_name.get(name)
        return None if part is None else part.spaces(access)

    def ensure_collection(self, name: str, columns: Mapping[str, FieldType]) -> None:
        """Add a collection, or fields to a known one; does nothing when all is known."""
        known, part = self.columns.get(name, {}), self._by_name.get(name)
        wanted = {**known, **columns}
        if part is None:
            self.columns[name] = wanted
            self._rebuild(name)  # files left by an earlier collection of this name are discarded
        elif wanted != known:
            part.add_fields({**wanted, **BUILT_IN})
            self._fill_columns(part.shard, name, {column: wanted[column] for column in wanted.keys() - known.keys()})
            part.shard.flush()  # earlier writes are not replayed after a crash, so the columns must be on disk
            self.columns[name] = wanted  # last, so that a failed attempt is repeated
        else:
            return
        self._record_store.set_meta(f"layout {name}", self._layout_key(name))

    def drop_collection(self, name: str) -> None:
        """Drop a collection that no longer exists, and delete its files."""
        self.columns.pop(name, None)
        self._drop(name)

    def prepare_points(self, name: str, added: Sequence[PassageRow]) -> PreparedPoints:
        """Build the points of these passages ahead of `apply_change`; no search finds them yet."""
        return self.collection_index(name).shard.prepare_points(added)

    def apply_change(self, name: str, done: StoreChange, draft: PreparedPoints | None = None) -> bool:
        """Apply a committed change; an index that cannot apply it is rebuilt. Returns whether it was."""
        anew = False
        try:
            part = self.collection_index(name)
            part.apply(done.added, done.removed, draft)
        except SourceUnavailable:
            part, anew = self._rebuild(name), True
        if part.needs_compaction:
            self._by_name[name], anew = self._load_collection(name, part.shard), True
        self._unflushed += len(done.added) + len(done.removed)
        if self._unflushed >= _FLUSH_AFTER_CHANGES:
            with suppress(SourceError):  # the record store has the change, and the next change flushes again
                self.flush()
        return anew

    def rebuild_all(self) -> None:
        """Rebuild every index from the record store; needed when the missed writes cannot be replayed."""
        for name in self.columns:
            self._rebuild(name)

    def add_columns(self, name: str, fields: set[str]) -> None:
        """Load these fields as columns, so that the scanner can evaluate filters on them."""
        scanner, known = self.collection_index(name).scanner, {**self.columns[name], **BUILT_IN}
        if scanner is not None and fields:
            scanner.add_columns({field: known[field] for field in sorted(fields)}, self._records_by_slot(scanner, name))

    def recover(self) -> None:
        """Bring every index up to the last committed write; one that lost passages is rebuilt."""
        flushed = int(self._record_store.meta("flushed") or 0)
        for name in self.columns:
            if self._record_store.meta(f"layout {name}") != self._layout_key(name):
                self._delete_files(name)
            try:
                whole = self._open_collection(name, flushed).shard.count() == self._record_store.count(name)
            except SourceUnavailable:
                whole = False
            if not whole:
                self._rebuild(name)
            self._record_store.set_meta(f"layout {name}", self._layout_key(name))
        self.flush()

    def flush(self) -> None:
        """Make everything applied so far durable."""
        seq = self._record_store.seq
        for part in self._by_name.values():
            part.shard.flush()
        self._record_store.set_meta("flushed", str(seq))
        self._record_store.prune_removed(seq)
        self._unflushed = 0

    def optimize(self) -> None:
        """Compact the shards; a vector space that grew beyond `exact_limit` gets an HNSW graph."""
        for name in list(self._by_name):
            wanted = self._spaces_over_limit(name)
            if wanted - self._graph_spaces(name):
                self._record_store.set_meta(f"graph {name}", json.dumps(sorted(wanted)))
                self._rebuild(name)
            self._by_name[name].shard.optimize()
        self.flush()

    def add_declared_columns(self) -> None:
        """Load the columns of all declared fields, for filters on them."""
        for name, part in self._by_name.items():
            if part.scanner is not None:
                self.add_columns(name, self.columns[name].keys() - part.scanner.fields)

    def warm(self) -> None:
        """Run one query per index, so that the first real query is not slower than later ones."""
        for name, part in self._by_name.items():
            row = next(self._record_store.passages_since(0, name), None)
            if row is None:
                continue
            vectors = part.unscoped_vectors()
            terms, _ = codec.term_arrays(row.facts)
            if len(terms):
                part.shard.search_lexical(dict.fromkeys(terms.tolist(), 1), None, 1)
            for vector, numbers in self._known_vectors(row.vectors).items():
                vectors.search_dense(vector, numbers, 1)

    def release(self) -> None:
        """Close the shards and stop the threads."""
        for part in self._by_name.values():
            part.shard.close_quietly()
        self._by_name.clear()
        if self._executor is not None:
            self._executor.shutdown(wait=False)

    # --- inside ---

    def _open_collection(self, name: str, flushed: int) -> CollectionIndex:
        """Open a collection's search index and bring it up to the last committed write."""
        vectors = {vector: self._options.vectors[vector] for vector in sorted(self._graph_spaces(name))}
        options = EdgeShardOptions(vectors=vectors, threads=self._options.threads)
        engine = EdgeShard(self._folder / "index" / name, options, {**self.columns[name], **BUILT_IN})
        if engine.is_new:
            # So that an interrupted rebuild is not taken for a complete one.
            self._record_store.set_meta("flushed", "0")
        self._replay(engine, name, 0 if engine.is_new else flushed)
        part = self._by_name[name] = self._load_collection(name, engine)
        return part

    def _load_collection(self, name: str, engine: EdgeShard) -> CollectionIndex:
        """A `CollectionIndex` with the vector spaces without a graph in memory; all of them up to `exact_limit`."""
        walked = (
            self._graph_spaces(name) if self._record_store.count(name) > self._options.exact_limit else frozenset[str]()
        )
        compared = {vector: size for vector, size in self._options.vectors.items() if vector not in walked}
        scanner = VectorScanner(compared, self._executor) if compared or not walked else None
        part = CollectionIndex(engine, scanner, self._record_store.passage_keys, walked)
        part.fill(self._record_store.iter_vectors(name))
        return part

    def _rebuild(self, name: str) -> CollectionIndex:
        self._drop(name)
        return self._open_collection(name, 0)

    def _drop(self, name: str) -> None:
        broken = self._by_name.pop(name, None)
        if broken is not None:
            broken.shard.close_quietly()
        self._delete_files(name)

    def _delete_files(self, name: str) -> None:
        shutil.rmtree(self._folder / "index" / name, ignore_errors=True)

    def _layout_key(self, name: str) -> str:
        """Layout that a collection's index is built for; an index of another layout is rebuilt."""
        fields = {column: str(kind) for column, kind in self.columns[name].items()}
        return json.dumps([_LAYOUT_FORMAT, dict(self._options.vectors), fields], sort_keys=True)

    def _spaces_over_limit(self, name: str) -> frozenset[str]:
        """Vector spaces of a collection with more than `exact_limit` vectors."""
        if self._record_store.count(name) <= self._options.exact_limit:
            return frozenset()
        counts = Counter(
            vector for row in self._record_store.iter_vectors(name) for vector in codec.unpack_vector_bytes(row.vectors)
        )
        return frozenset(each for each in self._options.vectors if counts[each] > self._options.exact_limit)

    def _graph_spaces(self, name: str) -> frozenset[str]:
        """Vector spaces that have a graph in the shard of a collection; only `optimize` adds some."""
        stored_names = self._record_store.meta(f"graph {name}") or "[]"
        known = self._options.vectors
        return frozenset(
            known if stored_names == _ALL_SPACES else (each for each in json.loads(stored_names) if each in known)
        )

    def _replay(self, engine: EdgeShard, name: str, seq: int) -> None:
        removed = self._record_store.removed_since(seq, name)
        for at in range(0, len(removed), _REPLAY_BATCH):
            engine.apply((), removed[at : at + _REPLAY_BATCH])
        rows = self._record_store.passages_since(seq, name)
        while batch := list(islice(rows, _REPLAY_BATCH)):
            engine.apply(batch, ())

    def _fill_columns(self, engine: EdgeShard, name: str, columns: Mapping[str, FieldType]) -> None:
        """Write passages that have a value for new columns to the shard again.

        Others are skipped, so that a field of one tenant causes no work for the passages of others.
        """
        rows = (row for row in self._record_store.passages_since(0, name) if build_payload(unpack_record(row), columns))
        while batch := list(islice(rows, _REPLAY_BATCH)):
            engine.apply(batch, ())

    def _records_by_slot(self, scanner: VectorScanner, name: str) -> Iterator[Record]:
        """The record of every slot; an empty record for a removed passage."""
        known = self._record_store.iter_headers(name)
        pid, record = next(known, (None, _EMPTY_RECORD))
        for slot in scanner.pids.tolist():
            while pid is not None and pid < slot:
                pid, record = next(known, (None, _EMPTY_RECORD))
            if slot == pid:
                yield record
                pid, record = next(known, (None, _EMPTY_RECORD))
            else:
                yield _EMPTY_RECORD

    def _known_vectors(self, data: bytes) -> dict[str, Vector]:
        stored = codec.unpack_vectors(data)
        return {name: numbers for name, numbers in stored.items() if name in self._options.vectors}
