"""The parts of all collections, kept in step with SQLite: opened, healed, followed, flushed."""

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
from contexture.adapters.index.classes import Access
from contexture.adapters.index.engine import Draft, Engine, EngineOptions
from contexture.adapters.index.filters import BUILT_IN, payload_of
from contexture.adapters.index.part import Part, record_of
from contexture.adapters.index.scanner import Scanner
from contexture.adapters.index.source import Source
from contexture.adapters.index.truth import Change, Row
from contexture.errors import SourceError, SourceUnavailable
from contexture.types import FieldType, Record, Vector

_REPLAY = 1_000
_FLUSH = 20_000
_FORMAT = "whole impacts"  # what the engine holds besides vectors and fields; another format needs another engine
_EVERY = "yes"  # what stores of before say of a collection whose every space has a graph
_REMOVED = Record(id="", text="", acl=())


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddedOptions:
    """How the embedded index is laid out.

    Up to `exact_limit` passages a vector space is searched exactly, and what a scope may not see
    cannot move a score; above it, or with `exact_limit=0`, an HNSW graph is used.
    """

    vectors: Mapping[str, int]
    threads: int = 2
    exact_limit: int = 1_000_000


class Shelf:
    """A part for each collection; whatever a part lost can be read from SQLite again."""

    def __init__(self, folder: Path, truth: Source, options: EmbeddedOptions) -> None:
        self._folder = folder
        self._truth = truth
        self._options = options
        self._parts: dict[str, Part] = {}
        self._unflushed = 0
        self._helpers: Executor | None = None
        if options.threads > 1:
            self._helpers = ThreadPoolExecutor(options.threads - 1, thread_name_prefix="contexture-scan")
        self.columns = truth.columns()
        self.ailing = ""

    def part(self, name: str) -> Part:
        """The part of a collection."""
        found = self._parts.get(name)
        if found is None:
            raise SourceUnavailable(f"the index of {name!r} is being rebuilt; try again")
        return found

    def spaces(self, name: str, access: Access) -> frozenset[str] | None:
        """The names of the vectors that what may be read has, and perhaps others; None while they are read anew."""
        part = self._parts.get(name)
        return None if part is None else part.spaces(access)

    def add(self, name: str, columns: Mapping[str, FieldType]) -> None:
        """Take a new collection, or new fields of a known one; what is known already costs nothing."""
        known, part = self.columns.get(name, {}), self._parts.get(name)
        wanted = {**known, **columns}
        if part is None:
            self.columns[name] = wanted
            self._rebuild(name)  # what an earlier collection of this name may have left is of no use
        elif wanted != known:
            part.add_fields({**wanted, **BUILT_IN})
            self._fill(part.engine, name, {column: wanted[column] for column in wanted.keys() - known.keys()})
            part.engine.flush()  # what was written before is not replayed after a crash, so it must have them on disk
            self.columns[name] = wanted  # after all else: one that failed is tried again
        else:
            return
        self._truth.set_meta(f"layout {name}", self._layout(name))

    def forget(self, name: str) -> None:
        """Let go of a collection that is no longer there."""
        self.columns.pop(name, None)
        self._drop(name)

    def draft(self, name: str, added: Sequence[Row]) -> Draft:
        """Do beforehand what following a change that adds these passages takes; nothing finds them yet."""
        return self.part(name).engine.draft(added)

    def follow(self, name: str, done: Change, draft: Draft | None = None) -> bool:
        """Let a part follow a committed change; one that cannot is built anew from what the truth holds."""
        anew = False
        try:
            part = self.part(name)
            part.apply(done.added, done.removed, draft)
        except SourceUnavailable:
            part, anew = self._rebuild(name), True
        if part.worn:
            self._parts[name], anew = self._part(name, part.engine), True
        self._unflushed += len(done.added) + len(done.removed)
        if self._unflushed >= _FLUSH:
            with suppress(SourceError):  # the truth has it, and the next change tries again
                self.flush()
        return anew

    def rebuild(self) -> None:
        """Build every part anew, for too much was missed to follow it."""
        for name in self.columns:
            self._rebuild(name)

    def add_columns(self, name: str, fields: set[str]) -> None:
        """Let filters that name these fields be tested on all passages of a collection at once."""
        scanner, known = self.part(name).scanner, {**self.columns[name], **BUILT_IN}
        if scanner is not None and fields:
            scanner.add_columns({field: known[field] for field in sorted(fields)}, self._records(scanner, name))

    def heal(self) -> None:
        """Bring every part up to the last committed write; one that lost something is built anew."""
        flushed = int(self._truth.meta("flushed") or 0)
        for name in self.columns:
            if self._truth.meta(f"layout {name}") != self._layout(name):
                self._discard(name)
            try:
                whole = self._open(name, flushed).engine.count() == self._truth.count(name)
            except SourceUnavailable:
                whole = False
            if not whole:
                self._rebuild(name)
            self._truth.set_meta(f"layout {name}", self._layout(name))
        self.flush()

    def flush(self) -> None:
        """Make everything applied so far durable."""
        seq = self._truth.seq
        for part in self._parts.values():
            part.engine.flush()
        self._truth.set_meta("flushed", str(seq))
        self._truth.forget_removed(seq)
        self._unflushed = 0

    def optimize(self) -> None:
        """Merge what was written in small pieces; a collection that grew beyond the limit gets its graph."""
        for name in list(self._parts):
            wanted = self._large(name)
            if wanted - self._graphs(name):
                self._truth.set_meta(f"graph {name}", json.dumps(sorted(wanted)))
                self._rebuild(name)
            self._parts[name].engine.optimize()
        self.flush()

    def add_declared_columns(self) -> None:
        """Prepare for filters on the fields that tenants have declared."""
        for name, part in self._parts.items():
            if part.scanner is not None:
                self.add_columns(name, self.columns[name].keys() - part.scanner.fields)

    def warm(self) -> None:
        """Touch every part once, so that the first real query does not pay for it."""
        for name, part in self._parts.items():
            row = next(self._truth.since(0, name), None)
            if row is None:
                continue
            sight = part.unlimited()
            terms, _ = codec.term_arrays(row.facts)
            if len(terms):
                part.engine.lexical(dict.fromkeys(terms.tolist(), 1), None, 1)
            for vector, numbers in self._known_vectors(row.vectors).items():
                sight.dense(vector, numbers, 1)

    def release(self) -> None:
        """Give the files back."""
        for part in self._parts.values():
            part.engine.abandon()
        self._parts.clear()
        if self._helpers is not None:
            self._helpers.shutdown(wait=False)

    # --- inside ---

    def _open(self, name: str, flushed: int) -> Part:
        """Open a collection's part and bring it up to the last committed write."""
        vectors = {vector: self._options.vectors[vector] for vector in sorted(self._graphs(name))}
        options = EngineOptions(vectors=vectors, threads=self._options.threads)
        engine = Engine(self._folder / "index" / name, options, {**self.columns[name], **BUILT_IN})
        if engine.fresh:
            self._truth.set_meta("flushed", "0")  # so that a rebuild that is cut short is not taken for a whole one
        self._replay(engine, name, 0 if engine.fresh else flushed)
        part = self._parts[name] = self._part(name, engine)
        return part

    def _part(self, name: str, engine: Engine) -> Part:
        """A collection with the spaces without a graph in memory, or all of them while it is small."""
        walked = self._graphs(name) if self._truth.count(name) > self._options.exact_limit else frozenset[str]()
        compared = {vector: size for vector, size in self._options.vectors.items() if vector not in walked}
        scanner = Scanner(compared, self._helpers) if compared or not walked else None
        part = Part(engine, scanner, self._truth.places, walked)
        part.fill(self._truth.stored(name))
        return part

    def _rebuild(self, name: str) -> Part:
        self._drop(name)
        return self._open(name, 0)

    def _drop(self, name: str) -> None:
        broken = self._parts.pop(name, None)
        if broken is not None:
            broken.engine.abandon()
        self._discard(name)

    def _discard(self, name: str) -> None:
        shutil.rmtree(self._folder / "index" / name, ignore_errors=True)

    def _layout(self, name: str) -> str:
        """What a part was built for; another layout needs another part."""
        fields = {column: str(kind) for column, kind in self.columns[name].items()}
        return json.dumps([_FORMAT, dict(self._options.vectors), fields], sort_keys=True)

    def _large(self, name: str) -> frozenset[str]:
        """The vector spaces of a collection that have outgrown exact search."""
        if self._truth.count(name) <= self._options.exact_limit:
            return frozenset()
        counts = Counter(vector for row in self._truth.stored(name) for vector in codec.packed_vectors(row.vectors))
        return frozenset(each for each in self._options.vectors if counts[each] > self._options.exact_limit)

    def _graphs(self, name: str) -> frozenset[str]:
        """The vector spaces that the engine of a collection holds; only `optimize` gives it some."""
        told = self._truth.meta(f"graph {name}") or "[]"
        known = self._options.vectors
        return frozenset(known if told == _EVERY else (each for each in json.loads(told) if each in known))

    def _replay(self, engine: Engine, name: str, seq: int) -> None:
        removed = self._truth.removed_since(seq, name)
        for at in range(0, len(removed), _REPLAY):
            engine.apply((), removed[at : at + _REPLAY])
        rows = self._truth.since(seq, name)
        while batch := list(islice(rows, _REPLAY)):
            engine.apply(batch, ())

    def _fill(self, engine: Engine, name: str, columns: Mapping[str, FieldType]) -> None:
        """Give the engine new columns of the passages that have any; what a tenant declares costs others no more."""
        rows = (row for row in self._truth.since(0, name) if payload_of(record_of(row), columns))
        while batch := list(islice(rows, _REPLAY)):
            engine.apply(batch, ())

    def _records(self, scanner: Scanner, name: str) -> Iterator[Record]:
        """The record of every slot; one that was removed has no field."""
        known = self._truth.headers(name)
        pid, record = next(known, (None, _REMOVED))
        for slot in scanner.pids.tolist():
            while pid is not None and pid < slot:
                pid, record = next(known, (None, _REMOVED))
            if slot == pid:
                yield record
                pid, record = next(known, (None, _REMOVED))
            else:
                yield _REMOVED

    def _known_vectors(self, data: bytes) -> dict[str, Vector]:
        stored = codec.unpack_vectors(data)
        return {name: numbers for name, numbers in stored.items() if name in self._options.vectors}
