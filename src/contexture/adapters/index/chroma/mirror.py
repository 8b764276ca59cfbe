"""What one tenant has in a collection of Chroma, without texts and vectors, kept in step by sequence numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from contexture.adapters.index import codec
from contexture.adapters.index.chroma.items import Kept, digest
from contexture.adapters.index.columns import Columns, Mask, fields_in
from contexture.adapters.index.scoring import Weights, impacts
from contexture.types import FieldType, Filter, Scope

Numbers = npt.NDArray[np.int64]


class Mirror:
    """The newest version of every record; `board` is a picture of it that later writes do not change."""

    def __init__(self) -> None:
        self.seq = 0
        self._newest: dict[str, int] = {}
        self._records: dict[str, Kept] = {}
        self._pictured: tuple[dict[str, Kept], Board] = ({}, Board(()))

    def follow(self, items: Iterable[tuple[str, int, Kept | None]], seq: int) -> None:
        """Take items into account; those older than what is known are passed over. Calls come one at a time."""
        records = self._records.copy()  # readers go on with the one they have
        for key, number, kept in items:
            if number < self._newest.get(key, 0):
                continue
            self._newest[key] = number
            records.pop(key, None)
            if kept is not None:
                records[key] = kept
        self._records = records
        self.seq = max(self.seq, seq)  # after them: whoever sees the number sees the records

    def find(self, record_id: str, scope: Scope) -> Kept | None:
        """The record of this id, when the scope may read it."""
        kept = self.held(record_id)
        return kept if kept is not None and may_read(kept, scope) else None

    def held(self, record_id: str) -> Kept | None:
        """The record of this id, whoever may read it."""
        return self._records.get(digest(record_id))

    def __len__(self) -> int:
        return len(self._records)

    @property
    def board(self) -> Board:
        """All there is now."""
        records, (pictured, board) = self._records, self._pictured
        if pictured is not records:
            board = Board(sorted(records.values(), key=lambda kept: kept.record.id))
            self._pictured = (records, board)
        return board


@dataclass(frozen=True, slots=True)
class _Postings:
    """Every term of every passage, in the order of terms."""

    terms: npt.NDArray[np.uint32]
    owners: Numbers
    impacts: npt.NDArray[np.float64]

    def of(self, term: int) -> slice:
        """Where a term's passages stand."""
        first, last = np.searchsorted(self.terms, [term, term + 1])
        return slice(int(first), int(last))


@dataclass(eq=False)
class Board:
    """Records in the order of their ids; their passages are numbered in the order in which ties are broken."""

    records: Sequence[Kept]
    _columns: dict[frozenset[str], Columns] = field(default_factory=dict[frozenset[str], Columns])
    _having: dict[str, Mask] = field(default_factory=dict[str, Mask])

    @cached_property
    def passages(self) -> Sequence[tuple[Kept, int]]:
        """Each passage's record and ordinal, by number."""
        return [(kept, ordinal) for kept in self.records for ordinal in range(len(kept.facts))]

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of the passage with this item id."""
        return {kept.passage(ordinal): number for number, (kept, ordinal) in enumerate(self.passages)}

    @cached_property
    def owner(self) -> Numbers:
        """Each passage's record, by its place among the records."""
        return np.repeat(np.arange(len(self.records)), [len(kept.facts) for kept in self.records])

    @cached_property
    def readers(self) -> Mapping[tuple[str, ...], int]:
        """Every list of readers that a record has, numbered."""
        return {acl: number for number, acl in enumerate(dict.fromkeys(kept.record.acl for kept in self.records))}

    @cached_property
    def _classes(self) -> Numbers:
        """The number of each record's list of readers."""
        return np.array([self.readers[kept.record.acl] for kept in self.records], np.int64)

    @property
    def oldest(self) -> int:
        """The sequence number of the oldest record."""
        return min((kept.seq for kept in self.records), default=0)

    def readable(self, scope: Scope) -> frozenset[tuple[str, ...]]:
        """The lists of readers that name a scope."""
        principals = set(scope.principals)
        return frozenset(acl for acl in self.readers if not principals.isdisjoint(acl))

    def visible(self, scope: Scope) -> Mask:
        """Which records a scope may read."""
        readable = self.readable(scope)
        return np.array([acl in readable for acl in self.readers], np.bool_)[self._classes]

    def passing(self, where: Filter | None, fields: Mapping[str, FieldType]) -> Mask:
        """Which records pass a filter."""
        if where is None or not self.records:
            return np.ones(len(self.records), np.bool_)
        named = frozenset(fields_in(where))
        columns = self._columns.get(named)
        if columns is None:
            columns = Columns({name: fields[name] for name in sorted(named)})
            columns.append([kept.record for kept in self.records])
            self._columns[named] = columns
        return columns.passing(where, len(self.records))

    def having(self, vector: str) -> Mask:
        """Which passages have a vector of this name."""
        found = self._having.get(vector)
        if found is None:
            held = (vector in names for kept in self.records for names in kept.vectors)
            found = self._having[vector] = np.fromiter(held, np.bool_, len(self.passages))
        return found

    def frequencies(self, terms: Sequence[int], mask: Mask) -> dict[int, int]:
        """In how many of these passages each term occurs."""
        return {term: int(mask[self._postings.owners[self._postings.of(term)]].sum()) for term in terms}

    def lexical(self, weights: Weights, mask: Mask, k: int) -> dict[int, float]:
        """The best `k` of these passages by BM25."""
        sums = np.zeros(len(self.passages), np.float64)
        for term, idf in weights.terms.items():
            at = self._postings.of(term)
            sums[self._postings.owners[at]] += self._postings.impacts[at] * idf
        among = np.flatnonzero(mask & (sums > 0))
        best = among[np.argsort(-sums[among], kind="stable")[:k]]
        return dict(zip(best.tolist(), (sums[best] * weights.unit).tolist(), strict=True))

    @cached_property
    def _postings(self) -> _Postings:
        arrays = [codec.term_arrays(kept.facts[ordinal]) for kept, ordinal in self.passages]
        terms = np.concatenate([np.zeros(0, np.uint32), *(found for found, _ in arrays)])
        values = np.concatenate([np.zeros(0, np.float32), *(found for _, found in arrays)])
        owners = np.repeat(np.arange(len(arrays)), [len(found) for found, _ in arrays])
        order = np.argsort(terms, kind="stable")
        return _Postings(terms[order], owners[order], impacts(values[order]))


def may_read(kept: Kept, scope: Scope) -> bool:
    """Whether a scope may read a record."""
    return not set(scope.principals).isdisjoint(kept.record.acl)
