"""In-memory mirror of one tenant's records in a Chroma collection, updated by sequence number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from contexture.adapters.index import codec
from contexture.adapters.index.chroma.items import ChromaRecord, short_digest
from contexture.adapters.index.filter_columns import FilterColumns, Mask, filter_fields
from contexture.adapters.index.scoring import TermWeights, to_impacts
from contexture.types import FieldType, Filter, Scope

IntArray = npt.NDArray[np.int64]


class RecordMirror:
    """In-memory copy of one tenant's records in a collection, without texts and vectors.

    A `snapshot`, once taken, never changes.
    """

    def __init__(self) -> None:
        self.seq = 0
        self._newest: dict[str, int] = {}
        self._records: dict[str, ChromaRecord] = {}
        self._snapshot_cache: tuple[dict[str, ChromaRecord], MirrorSnapshot] = ({}, MirrorSnapshot(()))

    def apply_items(self, items: Iterable[tuple[str, int, ChromaRecord | None]], seq: int) -> None:
        """Apply items; those older than the known version of their record are skipped. Calls must be serialised."""
        records = self._records.copy()  # concurrent readers keep the old dict
        for key, number, kept in items:
            if number < self._newest.get(key, 0):
                continue
            self._newest[key] = number
            records.pop(key, None)
            if kept is not None:
                records[key] = kept
        self._records = records
        self.seq = max(self.seq, seq)  # last, so that a reader who sees the number sees the records

    def find_readable(self, record_id: str, scope: Scope) -> ChromaRecord | None:
        """The record with this id, if the scope may read it."""
        kept = self.find_any(record_id)
        return kept if kept is not None and may_read(kept, scope) else None

    def find_any(self, record_id: str) -> ChromaRecord | None:
        """The record with this id, regardless of its readers."""
        return self._records.get(short_digest(record_id))

    def __len__(self) -> int:
        return len(self._records)

    @property
    def snapshot(self) -> MirrorSnapshot:
        """Immutable snapshot of all records."""
        records, (pictured, board) = self._records, self._snapshot_cache
        if pictured is not records:
            board = MirrorSnapshot(sorted(records.values(), key=lambda kept: kept.record.id))
            self._snapshot_cache = (records, board)
        return board


@dataclass(frozen=True, slots=True)
class _PostingLists:
    """Posting lists: every term of every passage, sorted by term."""

    terms: npt.NDArray[np.uint32]
    owners: IntArray
    impacts: npt.NDArray[np.float64]

    def term_slice(self, term: int) -> slice:
        """Range of a term's postings."""
        first, last = np.searchsorted(self.terms, [term, term + 1])
        return slice(int(first), int(last))


@dataclass(eq=False)
class MirrorSnapshot:
    """Immutable records in id order; passages are numbered in the order that breaks ties."""

    records: Sequence[ChromaRecord]
    _columns: dict[frozenset[str], FilterColumns] = field(default_factory=dict[frozenset[str], FilterColumns])
    _vector_masks: dict[str, Mask] = field(default_factory=dict[str, Mask])

    @cached_property
    def passages(self) -> Sequence[tuple[ChromaRecord, int]]:
        """Each passage's record and ordinal, by number."""
        return [(kept, ordinal) for kept in self.records for ordinal in range(len(kept.facts))]

    @cached_property
    def passage_numbers(self) -> Mapping[str, int]:
        """Passage number by item id."""
        return {kept.passage_id(ordinal): number for number, (kept, ordinal) in enumerate(self.passages)}

    @cached_property
    def record_numbers(self) -> IntArray:
        """By passage number, the position of its record in `records`."""
        return np.repeat(np.arange(len(self.records)), [len(kept.facts) for kept in self.records])

    @cached_property
    def acl_numbers(self) -> Mapping[tuple[str, ...], int]:
        """Every distinct list of readers, numbered."""
        return {acl: number for number, acl in enumerate(dict.fromkeys(kept.record.acl for kept in self.records))}

    @cached_property
    def _record_acls(self) -> IntArray:
        """By record, the number of its list of readers."""
        return np.array([self.acl_numbers[kept.record.acl] for kept in self.records], np.int64)

    @property
    def oldest_seq(self) -> int:
        """The sequence number of the oldest record."""
        return min((kept.seq for kept in self.records), default=0)

    def readable_acls(self, scope: Scope) -> frozenset[tuple[str, ...]]:
        """Lists of readers that include a principal of the scope."""
        principals = set(scope.principals)
        return frozenset(acl for acl in self.acl_numbers if not principals.isdisjoint(acl))

    def visible_mask(self, scope: Scope) -> Mask:
        """Mask of the records a scope may read."""
        readable = self.readable_acls(scope)
        return np.array([acl in readable for acl in self.acl_numbers], np.bool_)[self._record_acls]

    def filter_mask(self, where: Filter | None, fields: Mapping[str, FieldType]) -> Mask:
        """Mask of the records that pass a filter."""
        if where is None or not self.records:
            return np.ones(len(self.records), np.bool_)
        named = frozenset(filter_fields(where))
        columns = self._columns.get(named)
        if columns is None:
            columns = FilterColumns({name: fields[name] for name in sorted(named)})
            columns.append([kept.record for kept in self.records])
            self._columns[named] = columns
        return columns.filter_mask(where, slice(len(self.records)))

    def vector_mask(self, vector: str) -> Mask:
        """Mask of the passages that have a vector of this name."""
        found = self._vector_masks.get(vector)
        if found is None:
            held = (vector in names for kept in self.records for names in kept.vectors)
            found = self._vector_masks[vector] = np.fromiter(held, np.bool_, len(self.passages))
        return found

    def document_frequencies(self, terms: Sequence[int], mask: Mask) -> dict[int, int]:
        """By term, the number of these passages that contain it."""
        return {term: int(mask[self._postings.owners[self._postings.term_slice(term)]].sum()) for term in terms}

    def search_lexical(self, weights: TermWeights, mask: Mask, k: int) -> dict[int, float]:
        """The best `k` of these passages by BM25, with their scores."""
        sums = np.zeros(len(self.passages), np.float64)
        for term, idf in weights.terms.items():
            at = self._postings.term_slice(term)
            sums[self._postings.owners[at]] += self._postings.impacts[at] * idf
        among = np.flatnonzero(mask & (sums > 0))
        best = among[np.argsort(-sums[among], kind="stable")[:k]]
        return dict(zip(best.tolist(), (sums[best] * weights.unit).tolist(), strict=True))

    @cached_property
    def _postings(self) -> _PostingLists:
        arrays = [codec.term_arrays(kept.facts[ordinal]) for kept, ordinal in self.passages]
        terms = np.concatenate([np.zeros(0, np.uint32), *(found for found, _ in arrays)])
        values = np.concatenate([np.zeros(0, np.float32), *(found for _, found in arrays)])
        owners = np.repeat(np.arange(len(arrays)), [len(found) for found, _ in arrays])
        order = np.argsort(terms, kind="stable")
        return _PostingLists(terms[order], owners[order], to_impacts(values[order]))


def may_read(kept: ChromaRecord, scope: Scope) -> bool:
    """Whether a scope may read a record."""
    return not set(scope.principals).isdisjoint(kept.record.acl)
