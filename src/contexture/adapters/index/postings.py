"""Posting lists in memory: by key, positions and a small number each; append-only, and readable while they grow."""

from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from contexture.adapters.index.append_array import AppendArray, D

KeyArray: TypeAlias = npt.NDArray[np.uint32]
PositionArray: TypeAlias = npt.NDArray[np.int32]
ValueArray: TypeAlias = npt.NDArray[np.uint16]
Mask: TypeAlias = npt.NDArray[np.bool_]

_MAX_TAIL = 1 << 16  # postings that a lookup compares one by one before they are sorted
_GROWTH = 4  # a segment that is less than this many times as long as the next one is merged with it,
_MAX_MERGED = 1 << 23  # up to this length: a merge of so many takes a quarter of a second
_MERGE_BLOCK = 1 << 22
_MIN_PRUNED = 20_000  # remaining postings from which on it pays to look for a bound


class PostingList(NamedTuple):
    """The postings of one key: ascending positions, and the value at each."""

    positions: PositionArray
    values: ValueArray


def find_positions(known: npt.NDArray[D], wanted: npt.NDArray[D]) -> npt.NDArray[np.intp]:
    """Where these values are in an ascending array; unknown ones are left out."""
    at = np.searchsorted(known, wanted)
    inside = at < len(known)
    at, wanted = at[inside], wanted[inside]
    return at[known[at] == wanted]


class PostingSegment(NamedTuple):
    """Immutable postings sorted by key, then by position; those of `keys[i]` begin at `starts[i]`."""

    keys: KeyArray
    starts: npt.NDArray[np.int64]
    positions: PositionArray
    values: ValueArray

    def find(self, key: int) -> PostingList | None:
        """The postings of a key; None if it has none."""
        at = int(np.searchsorted(self.keys, np.uint32(key)))
        if at == len(self.keys) or self.keys[at] != key:
            return None
        held = slice(int(self.starts[at]), int(self.starts[at + 1]))
        return PostingList(self.positions[held], self.values[held])

    def ranges(self, keys: KeyArray) -> list[tuple[int, int]]:
        """Where the postings of each of these keys begin and end; keys without any are left out."""
        at = find_positions(self.keys, keys)
        return list(zip(self.starts[at].tolist(), self.starts[at + 1].tolist(), strict=True))


class PostingsView(NamedTuple):
    """Immutable view of all postings; every segment holds later positions than the one before, the tail the last."""

    segments: tuple[PostingSegment, ...]
    tail_keys: KeyArray
    tail_positions: PositionArray
    tail_values: ValueArray

    def find(self, key: int, before: int) -> PostingList:
        """The postings of a key at positions below `before`."""
        chunks = [found for segment in self.segments if (found := segment.find(key)) is not None]
        at = np.flatnonzero(self.tail_keys == np.uint32(key))
        if len(at) or not chunks:
            chunks.append(PostingList(self.tail_positions[at], self.tail_values[at]))
        positions, values = (
            chunks[0] if len(chunks) == 1 else (np.concatenate(parts) for parts in zip(*chunks, strict=True))
        )
        if len(positions) and positions[-1] >= before:
            end = int(np.searchsorted(positions, before))
            return PostingList(positions[:end], values[:end])
        return PostingList(positions, values)

    def find_positions(self, keys: Collection[int], before: int, limit: int) -> PositionArray | None:
        """Ascending positions below `before` of all these keys; None if there are more than `limit`."""
        wanted = np.fromiter(keys, np.uint32, len(keys))
        held = [(segment, segment.ranges(wanted)) for segment in self.segments]
        tail = self.tail_positions[np.isin(self.tail_keys, wanted)]
        if len(tail) + sum(end - start for _, ranges in held for start, end in ranges) > limit:
            return None
        found = np.concatenate(
            [tail, *(segment.positions[start:end] for segment, ranges in held for start, end in ranges)]
        )
        found.sort()
        return found[: np.searchsorted(found, before)]


class Postings:
    """Posting lists by key. Writes must be serialised; `view` is everything appended so far and never changes."""

    def __init__(self) -> None:
        self._segments: tuple[PostingSegment, ...] = ()
        self._clear_tail()
        self.view = self._make_view()

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return sum(array.nbytes for segment in self._segments for array in segment) + 10 * len(self._keys.view)

    def append(self, keys: KeyArray, positions: PositionArray, values: ValueArray) -> None:
        """Append postings, whose positions must be ascending and above those before."""
        self._keys.append(keys)
        self._positions.append(positions)
        self._values.append(values)
        self.view = self._make_view()

    def settle(self) -> None:
        """Sort what was appended once it is much, and merge short segments; call it after each write."""
        if len(self._keys.view) > _MAX_TAIL:
            self.seal()
            self._merge_short_segments()
            self.view = self._make_view()

    def seal(self) -> None:
        """Sort what was appended into a segment."""
        if len(self._keys.view):
            self._segments = (*self._segments, self._sort_tail())
            self._clear_tail()
            self.view = self._make_view()

    def merge(self) -> None:
        """Merge everything into one segment."""
        self.seal()
        if len(self._segments) > 1:
            self._segments = (_merge_segments(self._segments),)
            self.view = self._make_view()

    def _clear_tail(self) -> None:
        self._keys = AppendArray(np.uint32)
        self._positions = AppendArray(np.int32)
        self._values = AppendArray(np.uint16)

    def _make_view(self) -> PostingsView:
        return PostingsView(self._segments, self._keys.view, self._positions.view, self._values.view)

    def _sort_tail(self) -> PostingSegment:
        order = np.argsort(self._keys.view, kind="stable")
        keys, starts = np.unique(self._keys.view[order], return_index=True)
        ends = np.append(starts, len(order)).astype(np.int64)
        return PostingSegment(keys, ends, self._positions.view[order], self._values.view[order])

    def _merge_short_segments(self) -> None:
        while len(self._segments) > 1:
            before, last = (len(segment.positions) for segment in self._segments[-2:])
            if before >= _GROWTH * last or before + last > _MAX_MERGED:
                return
            self._segments = (*self._segments[:-2], _merge_segments(self._segments[-2:]))


def _merge_segments(segments: Sequence[PostingSegment]) -> PostingSegment:
    """One segment with the postings of all, in the same order."""
    keys = np.unique(np.concatenate([segment.keys for segment in segments]))
    places = [np.searchsorted(keys, segment.keys) for segment in segments]
    counts = np.zeros(len(keys), np.int64)
    for segment, at in zip(segments, places, strict=True):
        counts[at] += np.diff(segment.starts)
    starts = np.concatenate(([0], np.cumsum(counts)))
    positions, values = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.uint16)
    filled = starts[:-1].copy()
    for segment, at in zip(segments, places, strict=True):
        shifts, sizes = filled[at] - segment.starts[:-1], np.diff(segment.starts)
        blocks = np.arange(0, len(segment.positions), _MERGE_BLOCK)
        edges: list[int] = np.searchsorted(segment.starts, blocks).tolist()
        for first, last in zip(edges, [*edges[1:], len(sizes)], strict=True):
            held = slice(int(segment.starts[first]), int(segment.starts[last]))
            target = np.repeat(shifts[first:last], sizes[first:last]) + np.arange(held.start, held.stop)
            positions[target], values[target] = segment.positions[held], segment.values[held]
        filled[at] += sizes
    return PostingSegment(keys, starts, positions, values)


class WeightedList(NamedTuple):
    """The postings of one query term, and its weight."""

    weight: int
    postings: PostingList

    @property
    def bound(self) -> int:
        """The most that this term can add to a score."""
        return self.weight * int(self.postings.values.max())

    def scores(self, at: slice | npt.NDArray[np.bool_] | npt.NDArray[np.intp] = slice(None)) -> npt.NDArray[np.int32]:
        """What this term adds to the passages of these postings."""
        return self.postings.values[at] * np.int32(self.weight)

    def add_to(self, scores: npt.NDArray[np.int32], positions: PositionArray) -> None:
        """Add this term's share to the scores of passages at ascending positions."""
        known = self.postings.positions
        at = np.searchsorted(known, positions)
        at[at == len(known)] = 0
        match = known[at] == positions
        scores[match] += self.scores(at[match])


def score_positions(lists: Sequence[WeightedList], positions: PositionArray) -> npt.NDArray[np.int32]:
    """Sums of the weighted values at ascending positions; reads nothing else."""
    scores = np.zeros(len(positions), np.int32)
    for each in lists:
        if len(each.postings.positions):
            each.add_to(scores, positions)
    return scores


def find_best(
    lists: Sequence[WeightedList], mask: Mask | None, size: int, k: int
) -> tuple[PositionArray, npt.NDArray[np.int32]]:
    """The positions in the mask with the `k` highest sums, and all that tie with the last; sums are positive.

    Lists are added up from the one that can add most. Once the rest together can add less than the `k`-th best sum, no
    further position can be among the best, and the rest is read only at the positions found so far.
    """
    ordered = sorted((each for each in lists if len(each.postings.positions)), key=lambda each: -each.bound)
    bounds = [*accumulate((each.bound for each in reversed(ordered)), initial=0)][::-1]
    waiting = sum(len(each.postings.positions) for each in ordered)
    sums = np.zeros(size, np.int32)
    fresh: list[PositionArray] = [np.empty(0, np.int32)]
    floor, done = 0, len(ordered)
    for number, each in enumerate(ordered):
        if number and waiting > _MIN_PRUNED:
            floor = _kth_best(sums[_visible(fresh, mask)], k)
            if floor > bounds[number]:
                done = number
                break
        positions = each.postings.positions
        before = sums[positions]
        fresh.append(positions[before == 0] if number else positions)
        sums[positions] = before + each.scores()
        waiting -= len(positions)
    found = _visible(fresh, mask)
    scores = sums[found]
    if done < len(ordered):
        found = np.sort(found[scores + bounds[done] >= floor])
        scores = sums[found]
        for each in ordered[done:]:
            each.add_to(scores, found)
    best = scores >= _kth_best(scores, k)
    return found[best], scores[best]


def _visible(fresh: Sequence[PositionArray], mask: Mask | None) -> PositionArray:
    found = np.concatenate(fresh)
    return found if mask is None else found[mask[found]]


def _kth_best(scores: npt.NDArray[np.int32], k: int) -> int:
    """The `k`-th highest score; 0 if there are fewer."""
    return int(np.partition(scores, len(scores) - k)[len(scores) - k]) if len(scores) >= k else 0
