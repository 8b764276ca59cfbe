"""Exact vector search: every vector a scope may read is compared, and hidden vectors do not affect the result.

If there are many, all are compared by sign bits first, and only the nearest of them by int8 dot product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from itertools import islice

import numpy as np

from contexture.adapters.index import codec
from contexture.adapters.index.append_array import AppendArray
from contexture.adapters.index.filter_columns import FilterColumns, Mask
from contexture.adapters.index.quantized_vectors import (
    IntArray,
    QuantizedVectors,
    QuantizedView,
    dot_products,
    dot_products_at,
    prefilter_by_signs,
)
from contexture.adapters.index.record_store import StoredVectors
from contexture.types import FieldType, Filter, Record, Vector

REMOVED_CLASS = 0
"""Access class of a removed passage; no stored class has this number."""

_BATCH_ROWS = 2_000
_BLOCK_SIZE = 64
_FULL_SCAN_LIMIT = 1 << 14  # up to this many vectors are all compared by int8 dot product
_MIN_RESCORED = 1 << 12  # with more vectors, at least this many are compared by dot product,
_RESCORED_PER_RESULT = 128  # and at least this many per requested result
_MAX_CACHED_MASKS = 64
_MAX_MASK_BYTES = 1 << 26  # of all cached masks together


class VectorScanner:
    """Exact vector search over one collection in memory: vectors, access classes and filter columns by slot.

    Writes must be serialised; concurrent searches see a write as a whole or not at all.
    """

    def __init__(self, vectors: Mapping[str, int], helpers: Executor | None) -> None:
        self._executor = helpers
        self._vectors = {name: QuantizedVectors(size) for name, size in vectors.items()}
        self._access = AppendArray(np.int32)
        self._pids = AppendArray(np.int64)
        self._passage_keys: list[tuple[str, int]] = []
        self._classes_by_space: dict[str, set[int]] = {name: set() for name in vectors}
        self._columns = FilterColumns({})
        self._mask_cache: dict[tuple[frozenset[int], Filter | None], tuple[tuple[int, int], AccessMask]] = {}
        self.removed = 0

    def __len__(self) -> int:
        return len(self._pids.view) - self.removed

    @property
    def pids(self) -> IntArray:
        """Passage ids by slot, including removed passages."""
        return self._pids.view

    @property
    def fields(self) -> frozenset[str]:
        """Fields with a loaded column, which filters may name."""
        return self._columns.names

    def missing_columns(self, where: Filter) -> set[str]:
        """Fields that must be added with `add_columns` before this filter can be evaluated."""
        return self._columns.missing_columns(where)

    def fill(self, stored: Iterable[StoredVectors]) -> None:
        """Add passages, which must come in order of passage id."""
        rows = iter(stored)
        while batch := list(islice(rows, _BATCH_ROWS)):
            self._append(batch)

    def apply(self, added: Sequence[StoredVectors], records: Sequence[Record], removed: Sequence[int]) -> None:
        """Apply a committed change; `records` are the records of the added passages."""
        at = self._find_slots(np.array(removed, np.int64))
        if added:  # before the removals, so that a replaced record can be found at any time
            self._columns.append(records)
            self._append(added)
        if len(at):
            self._access.view[at] = REMOVED_CLASS
            self.removed += len(at)  # last, so that a mask computed before is not taken for a current one

    def add_columns(self, fields: Mapping[str, FieldType], records: Iterable[Record]) -> None:
        """Load columns for these fields; `records` are the records of all passages, by slot."""
        columns = FilterColumns(fields)
        rows = iter(records)
        while batch := list(islice(rows, _BATCH_ROWS)):
            columns.append(batch)
        self._columns = self._columns.merge(columns)
        self._mask_cache.clear()

    def spaces(self, allowed: frozenset[int]) -> frozenset[str]:
        """Names of the vector spaces that passages of these access classes have, or had before their removal."""
        return frozenset(name for name, readers in self._classes_by_space.items() if not readers.isdisjoint(allowed))

    def view(self, allowed: frozenset[int], where: Filter | None) -> VectorView:
        """Snapshot of the passages of these access classes that pass the filter."""
        reach = self._cached_mask(allowed, where)
        views = {name: codes.view for name, codes in self._vectors.items()}
        return VectorView(self._pids.view[: len(reach.mask)], reach, views, self._passage_keys, self._executor)

    def _cached_mask(self, allowed: frozenset[int], where: Filter | None) -> AccessMask:
        """Mask of the slots of these access classes that pass the filter; cached until the next write."""
        state = (self.removed, len(self._access.view))
        kept = self._mask_cache.get((allowed, where))
        if kept is not None and kept[0] == state:
            return kept[1]
        mask = self._class_mask(allowed)
        if where is not None:
            mask = mask & self._columns.filter_mask(where, len(mask))
        size = len(mask) * (1 + len(self._vectors))
        if len(self._mask_cache) >= min(_MAX_CACHED_MASKS, _MAX_MASK_BYTES // (size + 1)):
            self._mask_cache.clear()
        reach = AccessMask(mask)
        self._mask_cache[allowed, where] = (state, reach)
        return reach

    def _class_mask(self, allowed: frozenset[int]) -> Mask:
        """Mask of the slots of these access classes."""
        table = np.zeros(max(allowed, default=0) + 2, np.bool_)
        table[list(allowed)] = True
        # A class beyond the table is newer than `allowed`, so it is not readable.
        return table[np.minimum(self._access.view, len(table) - 1)]

    def _append(self, batch: Sequence[StoredVectors]) -> None:
        first = len(self._pids.view)
        held: dict[str, tuple[list[int], list[bytes]]] = {name: ([], []) for name in self._vectors}
        for slot, row in enumerate(batch, start=first):
            for name, half in codec.unpack_vector_bytes(row.vectors).items():
                if name in held:
                    held[name][0].append(slot)
                    held[name][1].append(half)
                    self._classes_by_space[name].add(row.access)
        for name, (slots, halves) in held.items():
            if slots:
                numbers = np.frombuffer(b"".join(halves), np.float16).astype(np.float32)
                self._vectors[name].append(np.array(slots, np.int64), numbers.reshape(len(slots), -1))
        self._passage_keys.extend(row.passage_key for row in batch)
        # The access class makes a slot visible, so it is appended last.
        self._pids.append(np.array([row.pid for row in batch], np.int64))
        self._access.append(np.array([row.access for row in batch], np.int32))

    def _find_slots(self, pids: IntArray) -> IntArray:
        known = self._pids.view
        at = np.searchsorted(known, pids)
        inside = at < len(known)
        at, pids = at[inside], pids[inside]
        return at[known[at] == pids]


class AccessMask:
    """Boolean mask of the slots a scope may read, and, per vector space, of its vectors."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        self.count = int(np.count_nonzero(mask))
        self._all_visible = self.count == len(mask)
        self._by_space: dict[str, tuple[Mask | None, int]] = {}

    def for_space(self, name: str, slots: IntArray) -> tuple[Mask | None, int]:
        """Mask and number of the readable vectors of a space, whose slots are given; the mask is None for all."""
        known = self._by_space.get(name)
        if known is None:
            mask = None if self._all_visible else self.mask[slots]
            known = self._by_space[name] = (mask, len(slots) if mask is None else int(np.count_nonzero(mask)))
        return known


class VectorView:
    """Snapshot of the vectors one scope may read that pass one filter."""

    def __init__(
        self,
        pids: IntArray,
        reach: AccessMask,
        views: Mapping[str, QuantizedView],
        places: Sequence[tuple[str, int]],
        helpers: Executor | None,
    ) -> None:
        self._passage_keys = places
        self._pids = pids
        self._mask = reach
        self.count = reach.count
        self._views = views
        self._executor = helpers

    def search_dense(self, name: str, vector: Vector, k: int) -> dict[int, float]:
        """The best `k` passages by dot product, with every passage that ties with the last."""
        view = self._views[name].before_slot(len(self._pids))
        mask, seen = self._mask.for_space(name, view.slots)
        if seen > _FULL_SCAN_LIMIT:
            wanted = max(_MIN_RESCORED, _RESCORED_PER_RESULT * k)
            view, mask = view.take(prefilter_by_signs(view, vector, mask, wanted, self._executor)), None
        scores = dot_products(view, vector, self._executor)
        if mask is not None:
            scores[~mask] = -np.inf
        at = _top_with_ties(scores, k)
        pids = self._pids[view.slots[at]]
        return dict(zip(pids.tolist(), scores[at].tolist(), strict=True))

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; passages without this vector are left out."""
        wanted = np.array(sorted(pids), np.int64)
        slots = np.minimum(np.searchsorted(self._pids, wanted), max(len(self._pids) - 1, 0))
        slots = slots[self._pids[slots] == wanted] if len(self._pids) else slots[:0]
        known, scores = dot_products_at(self._views[name].before_slot(len(self._pids)), vector, slots)
        return dict(zip(self._pids[known].tolist(), scores.tolist(), strict=True))

    def keep_visible(self, found: Mapping[int, float]) -> dict[int, float]:
        """The found passages that the scope may read and that pass the filter."""
        pids = np.fromiter(found, np.int64, len(found))
        slots = np.searchsorted(self._pids, pids)
        # The shard may return a passage that was written after this view was taken.
        known = slots < len(self._pids)
        known[known] = self._mask.mask[slots[known]] & (self._pids[slots[known]] == pids[known])
        return {pid: found[pid] for pid in pids[known].tolist()}

    def passage_keys(self, pids: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Record id and ordinal of passages, used to break ties."""
        slots = np.searchsorted(self._pids, np.array(pids, np.int64)).tolist()
        places = self._passage_keys
        # The shard may return a passage that was written after this view was taken.
        return {pid: places[at] if at < len(places) else ("", 0) for pid, at in zip(pids, slots, strict=True)}


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
