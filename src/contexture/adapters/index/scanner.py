"""Search by meaning: every vector a scope may see is compared, and nothing it may not see has any say.

Where a scope may see many, the signs of all of them are compared first, and only the most alike again, as bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from itertools import islice

import numpy as np

from contexture.adapters.index import codec
from contexture.adapters.index.codes import Codes, Numbers, View, products, products_at, promising
from contexture.adapters.index.columns import Columns, Mask
from contexture.adapters.index.growing import Growing
from contexture.adapters.index.truth import Stored
from contexture.types import FieldType, Filter, Record, Vector

NOBODY = 0
"""The access class of a passage that was removed; no stored class has this number."""

_BATCH = 2_000
_BLOCK = 64
_MANY = 1 << 14  # vectors that are compared as bytes at once
_AGAIN = 1 << 12  # those compared as bytes when there are more, or
_AGAIN_FOR_ONE = 128  # so many for each that is wanted
_MASKS = 64
_MASKS_BYTES = 1 << 26  # of all of them


class Scanner:
    """Vectors, permissions and, once a filter names them, fields of one collection, in memory.

    Passages stand in slots in the order of their ids. Writes come one at a time; searches may run meanwhile and see
    a write whole or not at all.
    """

    def __init__(self, vectors: Mapping[str, int], helpers: Executor | None) -> None:
        self._helpers = helpers
        self._codes = {name: Codes(size) for name, size in vectors.items()}
        self._access = Growing(np.int32)
        self._pids = Growing(np.int64)
        self._places: list[tuple[str, int]] = []
        self._readers: dict[str, set[int]] = {name: set() for name in vectors}
        self._columns = Columns({})
        self._masks: dict[tuple[frozenset[int], Filter | None], tuple[tuple[int, int], Reach]] = {}
        self.removed = 0

    def __len__(self) -> int:
        return len(self._pids.view) - self.removed

    @property
    def pids(self) -> Numbers:
        """The passages by slot, those that were removed among them."""
        return self._pids.view

    @property
    def fields(self) -> frozenset[str]:
        """The fields that filters may name now."""
        return self._columns.names

    def lacking(self, where: Filter) -> set[str]:
        """The fields that must be added before this filter can be tested."""
        return self._columns.lacking(where)

    def fill(self, stored: Iterable[Stored]) -> None:
        """Add passages in the order of their ids."""
        rows = iter(stored)
        while batch := list(islice(rows, _BATCH)):
            self._append(batch)

    def apply(self, added: Sequence[Stored], records: Sequence[Record], removed: Sequence[int]) -> None:
        """Follow a change that SQLite has committed; `records` are those of the added passages."""
        at = self._slots(np.array(removed, np.int64))
        if added:  # first, so that what is replaced can be found at every moment
            self._columns.append(records)
            self._append(added)
        if len(at):
            self._access.view[at] = NOBODY
            self.removed += len(at)  # after it, so that no mask from before passes for one from now

    def add_columns(self, fields: Mapping[str, FieldType], records: Iterable[Record]) -> None:
        """Let filters name these fields too: `records` are those of all passages, by slot."""
        columns = Columns(fields)
        rows = iter(records)
        while batch := list(islice(rows, _BATCH)):
            columns.append(batch)
        self._columns = self._columns.joined(columns)
        self._masks.clear()

    def spaces(self, allowed: frozenset[int]) -> frozenset[str]:
        """The names of the vectors that passages of these access classes have, or had before they were removed."""
        return frozenset(name for name, readers in self._readers.items() if not readers.isdisjoint(allowed))

    def look(self, allowed: frozenset[int], where: Filter | None) -> Look:
        """The passages of these access classes that pass the filter, as they are now."""
        reach = self._kept(allowed, where)
        views = {name: codes.view for name, codes in self._codes.items()}
        return Look(self._pids.view[: len(reach.mask)], reach, views, self._places, self._helpers)

    def _kept(self, allowed: frozenset[int], where: Filter | None) -> Reach:
        """The slots of these classes and this filter; kept until something is written, for readers come back."""
        state = (self.removed, len(self._access.view))
        kept = self._masks.get((allowed, where))
        if kept is not None and kept[0] == state:
            return kept[1]
        mask = self._mask(allowed)
        if where is not None:
            mask = mask & self._columns.passing(where, len(mask))
        size = len(mask) * (1 + len(self._codes))
        if len(self._masks) >= min(_MASKS, _MASKS_BYTES // (size + 1)):
            self._masks.clear()
        reach = Reach(mask)
        self._masks[allowed, where] = (state, reach)
        return reach

    def _mask(self, allowed: frozenset[int]) -> Mask:
        """Which slots these classes may read."""
        table = np.zeros(max(allowed, default=0) + 2, np.bool_)
        table[list(allowed)] = True
        # A class beyond the table is one that the scope does not know of.
        return table[np.minimum(self._access.view, len(table) - 1)]

    def _append(self, batch: Sequence[Stored]) -> None:
        first = len(self._pids.view)
        held: dict[str, tuple[list[int], list[bytes]]] = {name: ([], []) for name in self._codes}
        for slot, row in enumerate(batch, start=first):
            for name, half in codec.packed_vectors(row.vectors).items():
                if name in held:
                    held[name][0].append(slot)
                    held[name][1].append(half)
                    self._readers[name].add(row.access)
        for name, (slots, halves) in held.items():
            if slots:
                numbers = np.frombuffer(b"".join(halves), np.float16).astype(np.float32)
                self._codes[name].append(np.array(slots, np.int64), numbers.reshape(len(slots), -1))
        self._places.extend(row.place for row in batch)
        # The access class makes a slot visible, so it comes last.
        self._pids.append(np.array([row.pid for row in batch], np.int64))
        self._access.append(np.array([row.access for row in batch], np.int32))

    def _slots(self, pids: Numbers) -> Numbers:
        known = self._pids.view
        at = np.searchsorted(known, pids)
        inside = at < len(known)
        at, pids = at[inside], pids[inside]
        return at[known[at] == pids]


class Reach:
    """Which slots may be seen, and which vectors of each space."""

    def __init__(self, mask: Mask) -> None:
        self.mask = mask
        self.count = int(np.count_nonzero(mask))
        self._whole = self.count == len(mask)
        self._of: dict[str, tuple[Mask | None, int]] = {}

    def of(self, name: str, slots: Numbers) -> tuple[Mask | None, int]:
        """Which vectors of a space, whose slots these are, and how many; None for all of them."""
        known = self._of.get(name)
        if known is None:
            mask = None if self._whole else self.mask[slots]
            known = self._of[name] = (mask, len(slots) if mask is None else int(np.count_nonzero(mask)))
        return known


class Look:
    """What one scope may see of a collection at one moment."""

    def __init__(
        self,
        pids: Numbers,
        reach: Reach,
        views: Mapping[str, View],
        places: Sequence[tuple[str, int]],
        helpers: Executor | None,
    ) -> None:
        self._places = places
        self._pids = pids
        self._reach = reach
        self.count = reach.count
        self._views = views
        self._helpers = helpers

    def dense(self, name: str, vector: Vector, k: int) -> dict[int, float]:
        """The best `k` passages by dot product, with every passage that ties with the last."""
        view = self._views[name].until(len(self._pids))
        mask, seen = self._reach.of(name, view.slots)
        if seen > _MANY:
            wanted = max(_AGAIN, _AGAIN_FOR_ONE * k)
            view, mask = view.at(promising(view, vector, mask, wanted, self._helpers)), None
        scores = products(view, vector, self._helpers)
        if mask is not None:
            scores[~mask] = -np.inf
        at = _best(scores, k)
        pids = self._pids[view.slots[at]]
        return dict(zip(pids.tolist(), scores[at].tolist(), strict=True))

    def similarities(self, name: str, vector: Vector, pids: Sequence[int]) -> dict[int, float]:
        """Dot products with these passages; one without such a vector is left out."""
        wanted = np.array(sorted(pids), np.int64)
        slots = np.minimum(np.searchsorted(self._pids, wanted), max(len(self._pids) - 1, 0))
        slots = slots[self._pids[slots] == wanted] if len(self._pids) else slots[:0]
        known, scores = products_at(self._views[name].until(len(self._pids)), vector, slots)
        return dict(zip(self._pids[known].tolist(), scores.tolist(), strict=True))

    def passing(self, found: Mapping[int, float]) -> dict[int, float]:
        """Those of the passages found that may be seen here."""
        pids = np.fromiter(found, np.int64, len(found))
        slots = np.searchsorted(self._pids, pids)
        # The engine may know a passage that was written after this look was taken.
        known = slots < len(self._pids)
        known[known] = self._reach.mask[slots[known]] & (self._pids[slots[known]] == pids[known])
        return {pid: found[pid] for pid in pids[known].tolist()}

    def places(self, pids: Sequence[int]) -> dict[int, tuple[str, int]]:
        """Record id and ordinal of passages, by which ties are broken."""
        slots = np.searchsorted(self._pids, np.array(pids, np.int64)).tolist()
        places = self._places
        # The engine may know a passage that was written after this look was taken.
        return {pid: places[at] if at < len(places) else ("", 0) for pid, at in zip(pids, slots, strict=True)}


def _best(scores: Vector, k: int) -> Numbers:
    """Where the best `k` scores are, and all that equal the last of them; minus infinity is no score."""
    among = np.flatnonzero(scores >= _bound(scores, k))
    some = scores[among]
    last = np.partition(some, len(some) - k)[len(some) - k] if len(some) > k else -np.inf
    return among[(some >= last) & (some > -np.inf)]


def _bound(scores: Vector, k: int) -> float:
    """A score that at least `k` others reach: the `k`-th best of the best of each block."""
    blocks = len(scores) // _BLOCK
    if blocks < k:
        return -np.inf
    highest = scores[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
    return float(np.partition(highest, blocks - k)[blocks - k])
