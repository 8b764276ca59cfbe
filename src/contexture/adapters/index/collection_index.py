"""Search index of one partition, a tenant's part of a collection, in memory: words, vectors, permissions and filters.

Search is exact and reads only what the scope may read where that is little; hidden passages affect no result.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from contexture.adapters.index import codec
from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.append_array import AppendArray
from contexture.adapters.index.filter_columns import FilterColumns, Mask, filter_fields
from contexture.adapters.index.filters import column_type
from contexture.adapters.index.postings import (
    PositionArray,
    PostingList,
    Postings,
    PostingsView,
    WeightedList,
    find_best,
    find_positions,
    score_positions,
)
from contexture.adapters.index.quantized_vectors import (
    IntArray,
    QuantizedVectors,
    QuantizedView,
    dot_products,
    dot_products_at,
    prefilter_by_signs,
)
from contexture.adapters.index.record_store import IndexedPassage, PassageRow
from contexture.adapters.index.scoring import TermWeights, idf_weights, to_impacts
from contexture.types import BM25, Filter, PassageKeyLookup, Record, Vector

REMOVED_CLASS = 0
"""Access class of a removed passage; no stored class has this number."""

HeaderReader = Callable[[int], Iterator[tuple[int, Record]]]
"""Passage id and record, without its text, of every passage above an id, in order of passage id."""

_BATCH_ROWS = 2_000
_SEALED_ROWS = 50_000  # passages after which posting lists are sorted while a partition is loaded
_BLOCK_SIZE = 64
_FEW = 1 << 10  # up to this many readable passages are looked up one by one in the posting lists
_SPARSE = 4  # vectors are picked out, instead of masked, where at most one in so many may be read
_FULL_SCAN_LIMIT = 1 << 14  # up to this many vectors are all compared by int8 dot product
_MIN_RESCORED = 1 << 12  # with more vectors, at least this many are compared by dot product,
_RESCORED_PER_RESULT = 128  # and at least this many per requested result
_MIN_REMOVED_TO_COMPACT = 1_000  # up to this many removed passages are not worth a compaction
_MAX_CACHED_MASKS = 64
_MAX_MASK_BYTES = 1 << 26  # of all cached masks together
_EMPTY_RECORD = Record(id="", text="", acl=())


class PermittedPassages:
    """The passages of a partition that a scope may read and that pass a filter: as positions if few, else as a mask."""

    def __init__(self, size: int, *, few: PositionArray | None = None, mask: Mask | None = None) -> None:
        self.size = size
        self.few = few
        self.mask = mask
        self.count = size if mask is None else int(np.count_nonzero(mask))
        if few is not None:
            self.count = len(few)
        self._by_space: dict[str, tuple[IntArray | None, Mask | None, int]] = {}

    @property
    def nbytes(self) -> int:
        """Size in memory, the masks of vector spaces included."""
        return self.size * (1 + len(self._by_space)) if self.mask is not None else 4 * self.count

    def among_vectors(self, name: str, slots: IntArray) -> tuple[IntArray | None, Mask | None, int]:
        """Which vectors of a space, whose passages are given, may be read: their places or a mask, and their number.

        Both are None if all of them may.
        """
        known = self._by_space.get(name)
        if known is None:
            known = self._by_space[name] = self._find_vectors(slots)
        return known

    def _find_vectors(self, slots: IntArray) -> tuple[IntArray | None, Mask | None, int]:
        if self.few is not None:
            at = find_positions(slots, self.few.astype(np.int64))
            return at, None, len(at)
        if self.mask is None:
            return None, None, len(slots)
        mask = self.mask[slots]
        count = int(np.count_nonzero(mask))
        return (np.flatnonzero(mask), None, count) if count * _SPARSE < len(slots) else (None, mask, count)


@dataclass(frozen=True, slots=True)
class ScopedView:
    """Snapshot of a partition, restricted to one scope and one filter.

    `readable` are the passages the scope may read, `permitted` those of them that pass the filter.
    """

    pids: IntArray
    readable: PermittedPassages
    permitted: PermittedPassages
    postings: PostingsView
    vectors: Mapping[str, QuantizedView]
    passage_keys: PassageKeyLookup
    executor: Executor | None

    def weigh_terms(self, terms: Sequence[int]) -> TermWeights:
        """BM25 weights of these terms over what the scope may read."""
        found = {term: self._count_readable(self._find(term)) for term in terms}
        return idf_weights(terms, found, self.readable.count)

    def find_candidates(
        self, weights: TermWeights, vectors: Mapping[str, Vector], k: int
    ) -> dict[str, dict[int, float]]:
        """By channel, its best `k` passages and all that tie with the last; BM25 comes first."""
        words = {BM25: self.search_lexical(weights.terms, k)} if weights.terms else {}
        return words | {name: self.search_dense(name, vector, k) for name, vector in vectors.items()}

    def search_lexical(self, weights: Mapping[int, int], k: int) -> dict[int, float]:
        """The best `k` passages by sums of whole numbers, with every passage that ties with the last."""
        lists = [WeightedList(weight, self._find(term)) for term, weight in weights.items()]
        few = self.permitted.few
        if few is None:
            found, scores = find_best(lists, self.permitted.mask, self.permitted.size, k)
        else:
            sums = score_positions(lists, few)
            at = _top_with_ties(np.where(sums > 0, sums.astype(np.float32), -np.inf), k)
            found, scores = few[at], sums[at]
        return dict(zip(self.pids[found].tolist(), scores.astype(np.float64).tolist(), strict=True))

    def search_dense(self, name: str, vector: Vector, k: int) -> dict[int, float]:
        """The best `k` passages by dot product, with every passage that ties with the last."""
        view = self.vectors[name]
        places, mask, count = self.permitted.among_vectors(name, view.slots)
        if places is not None:
            view = view.take(places, signs=count > _FULL_SCAN_LIMIT)
        if count > _FULL_SCAN_LIMIT:
            wanted = max(_MIN_RESCORED, _RESCORED_PER_RESULT * k)
            view, mask = view.take(prefilter_by_signs(view, vector, mask, wanted, self.executor)), None
        scores = dot_products(view, vector, self.executor)
        if mask is not None:
            scores[~mask] = -np.inf
        at = _top_with_ties(scores, k)
        return dict(zip(self.pids[view.slots[at]].tolist(), scores[at].tolist(), strict=True))

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; passages without this vector are left out."""
        slots = find_positions(self.pids, np.array(sorted(pids), np.int64))
        known, scores = dot_products_at(self.vectors[name], vector, slots)
        return dict(zip(self.pids[known].tolist(), scores.tolist(), strict=True))

    def _find(self, term: int) -> PostingList:
        return self.postings.find(term, self.permitted.size)

    def _count_readable(self, found: PostingList) -> int:
        if self.readable.few is not None:
            return int(np.count_nonzero(score_positions([WeightedList(1, found)], self.readable.few)))
        mask = self.readable.mask
        return len(found.positions) if mask is None else int(np.count_nonzero(mask[found.positions]))


class CollectionIndex:
    """Search index of one partition: posting lists, quantized vectors, access classes and filter columns by position.

    Concurrent searches see a write as a whole or not at all.
    """

    def __init__(
        self,
        vectors: Mapping[str, int],
        read_headers: HeaderReader,
        passage_keys: PassageKeyLookup,
        executor: Executor | None = None,
    ) -> None:
        self._read_headers = read_headers
        self._passage_keys = passage_keys
        self._executor = executor
        self._vectors = {name: QuantizedVectors(size) for name, size in vectors.items()}
        self._postings = Postings()
        self._class_postings = Postings()
        self._access = AppendArray(np.int32)
        self._pids = AppendArray(np.int64)
        self._classes_by_space: dict[str, set[int]] = {name: set() for name in vectors}
        self._columns = FilterColumns({})
        self._mask_cache: dict[tuple[frozenset[int], Filter | None], tuple[tuple[int, int], PermittedPassages]] = {}
        self._writing = threading.Lock()
        self.removed = 0

    def __len__(self) -> int:
        return len(self._pids.view) - self.removed

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        vectors = sum(held.nbytes for held in self._vectors.values())
        return vectors + self._postings.nbytes + self._class_postings.nbytes + 12 * len(self._pids.view)

    @property
    def pids(self) -> IntArray:
        """Passage ids by position, including removed passages."""
        return self._pids.view

    @property
    def needs_compaction(self) -> bool:
        """Whether removed passages outnumber the others by more than `_MIN_REMOVED_TO_COMPACT`."""
        return self.removed > len(self) + _MIN_REMOVED_TO_COMPACT

    def fill(self, stored: Iterable[IndexedPassage], expected: int = 0) -> None:
        """Load passages, which must come in order of passage id; room is made for `expected` of them."""
        for held in self._vectors.values():
            held.reserve(expected)
        rows = iter(stored)
        sealed = _SEALED_ROWS
        while batch := list(islice(rows, _BATCH_ROWS)):
            self._append(batch)
            if len(self._pids.view) >= sealed:
                self._postings.seal()
                sealed += _SEALED_ROWS
        self.merge()

    def merge(self) -> None:
        """Merge the posting lists; worth it after many writes."""
        with self._writing:
            self._postings.merge()
            self._class_postings.merge()

    def apply(self, added: Sequence[PassageRow], removed: Sequence[int]) -> None:
        """Apply a committed change; passages that were loaded with it already are left out."""
        with self._writing:
            last = self._pids.view[-1] if len(self._pids.view) else -1
            fresh = [row for row in added if row.pid > last]
            at = find_positions(self._pids.view, np.unique(np.array(removed, np.int64)))
            if fresh:  # before the removals, so that a replaced record can be found at any time
                if self._columns.names:
                    self._columns.append([unpack_record(row) for row in fresh])
                self._append(
                    [
                        IndexedPassage(row.pid, row.access, row.facts.terms, row.facts.weights, row.vectors)
                        for row in fresh
                    ]
                )
                self._postings.settle()
                self._class_postings.settle()
            at = at[self._access.view[at] != REMOVED_CLASS]
            if len(at):
                self._access.view[at] = REMOVED_CLASS
                self.removed += len(at)  # last, so that a mask computed before is not taken for a current one

    def spaces(self, access: ScopeAccess) -> frozenset[str]:
        """Names of the vector spaces that passages of the readable classes have, or had before their removal."""
        return frozenset(
            name for name, readers in self._classes_by_space.items() if not readers.isdisjoint(access.allowed)
        )

    def scoped_view(self, access: ScopeAccess, where: Filter | None) -> ScopedView:
        """Snapshot of the passages of these access classes that pass the filter."""
        if where is not None:
            self.load_columns(filter_fields(where))
        permitted = self._find_permitted(access.allowed, where)
        readable = permitted if where is None else self._find_permitted(access.allowed, None, permitted.size)
        size = permitted.size
        return ScopedView(
            self._pids.view[:size],
            readable,
            permitted,
            self._postings.view,
            {name: codes.view.before_slot(size) for name, codes in self._vectors.items()},
            self._passage_keys,
            self._executor,
        )

    def load_columns(self, names: Iterable[str]) -> None:
        """Load the columns of these fields, so that filters may name them."""
        missing = set(names) - self._columns.names
        if not missing:
            return
        columns = FilterColumns({name: column_type(name) for name in sorted(missing)})
        pids = self._pids.view
        self._append_columns(columns, pids, after=-1)  # most of them without keeping writes waiting
        with self._writing:
            self._append_columns(columns, self._pids.view[len(pids) :], after=int(pids[-1]) if len(pids) else -1)
            self._columns = self._columns.merge(columns)
            self._mask_cache.clear()

    # --- inside ---

    def _append_columns(self, columns: FilterColumns, pids: IntArray, *, after: int) -> None:
        """Append the fields of these passages, which follow the id `after`; a removed one has none."""
        known = self._read_headers(after)
        pid, record = next(known, (None, _EMPTY_RECORD))
        for start in range(0, len(pids), _BATCH_ROWS):
            records: list[Record] = []
            for wanted in pids[start : start + _BATCH_ROWS].tolist():
                while pid is not None and pid < wanted:
                    pid, record = next(known, (None, _EMPTY_RECORD))
                records.append(record if pid == wanted else _EMPTY_RECORD)
            columns.append(records)

    def _find_permitted(self, allowed: frozenset[int], where: Filter | None, size: int = -1) -> PermittedPassages:
        """The passages of these access classes that pass the filter, among the first `size`; kept until a write."""
        access = self._access.view if size < 0 else self._access.view[:size]
        state = (self.removed, len(access))
        kept = self._mask_cache.get((allowed, where))
        if kept is not None and kept[0] == state:
            return kept[1]
        found = self._select_permitted(access, allowed, where)
        kept_bytes = sum(each.nbytes for _, each in list(self._mask_cache.values()))
        if len(self._mask_cache) >= _MAX_CACHED_MASKS or kept_bytes > _MAX_MASK_BYTES:
            self._mask_cache.clear()
        self._mask_cache[allowed, where] = (state, found)
        return found

    def _select_permitted(
        self, access: npt.NDArray[np.int32], allowed: frozenset[int], where: Filter | None
    ) -> PermittedPassages:
        size = len(access)
        few = self._class_postings.view.find_positions(allowed, size, min(_FEW, size // _SPARSE))
        if few is not None:
            few = few[access[few] != REMOVED_CLASS]
            if where is not None:
                few = few[self._columns.filter_mask(where, few)]
            return PermittedPassages(size, few=few)
        table = np.zeros(max(allowed, default=0) + 2, np.bool_)
        table[list(allowed)] = True
        # A class beyond the table is newer than `allowed`, so it is not readable.
        mask = table[np.minimum(access, len(table) - 1)]
        if where is not None:
            mask &= self._columns.filter_mask(where, slice(size))
        return PermittedPassages(size, mask=None if mask.all() else mask)

    def _append(self, batch: Sequence[IndexedPassage]) -> None:
        first = len(self._pids.view)
        positions = np.arange(first, first + len(batch), dtype=np.int32)
        access = np.array([row.access for row in batch], np.int32)
        self._append_vectors(batch, first)
        weights = np.frombuffer(b"".join(row.weights for row in batch), np.float32)
        self._postings.append(
            np.frombuffer(b"".join(row.terms for row in batch), np.uint32),
            np.repeat(positions, [len(row.terms) // 4 for row in batch]),
            to_impacts(weights).astype(np.uint16),
        )
        self._class_postings.append(access.astype(np.uint32), positions, np.ones(len(batch), np.uint16))
        # The access class makes a passage visible, so it is appended last.
        self._pids.append(np.array([row.pid for row in batch], np.int64))
        self._access.append(access)

    def _append_vectors(self, batch: Sequence[IndexedPassage], first: int) -> None:
        held: dict[str, tuple[list[int], list[bytes]]] = {name: ([], []) for name in self._vectors}
        for position, row in enumerate(batch, start=first):
            for name, half in codec.unpack_vector_bytes(row.vectors).items():
                if name in held:
                    held[name][0].append(position)
                    held[name][1].append(half)
                    self._classes_by_space[name].add(row.access)
        for name, (positions, halves) in held.items():
            if positions:
                numbers = np.frombuffer(b"".join(halves), np.float16).astype(np.float32)
                self._vectors[name].append(np.array(positions, np.int64), numbers.reshape(len(positions), -1))


def unpack_record(row: PassageRow) -> Record:
    """The record of a passage, without its text."""
    return codec.unpack_header(row.header, row.record_id, "")[0]


def _top_with_ties(scores: Vector, k: int) -> IntArray:
    """Positions of the best `k` scores and of all that equal the last; minus infinity counts as no score."""
    among = np.flatnonzero(scores >= _lower_bound(scores, k))
    some = scores[among]
    last = np.partition(some, len(some) - k)[len(some) - k] if len(some) > k else -np.inf
    return among[(some >= last) & (some > -np.inf)]


def _lower_bound(scores: Vector, k: int) -> float:
    """A lower bound of the `k`-th best score: the `k`-th best of the block maxima."""
    blocks = len(scores) // _BLOCK_SIZE
    if blocks < k:
        return -np.inf
    highest = scores[: blocks * _BLOCK_SIZE].reshape(blocks, _BLOCK_SIZE).max(axis=1)
    return float(np.partition(highest, blocks - k)[blocks - k])
