"""Filterable fields as columns, so that one filter is evaluated on all passages at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from contexture.adapters.index.append_array import AppendArray
from contexture.adapters.index.filters import bound_value, stored_value
from contexture.types import And, AnyOf, Contains, Equals, FieldType, Filter, Not, Or, Range, Record, Scalar

Mask: TypeAlias = npt.NDArray[np.bool_]
Slots: TypeAlias = "slice | npt.NDArray[np.integer]"
"""Which slots a filter is evaluated on: the first ones, as a slice from 0, or some, by number."""


class FilterColumn(Protocol):
    """The values of one field, one per slot."""

    def append(self, values: Sequence[Any]) -> None:
        """Add the values of further slots."""
        ...

    def equals(self, value: Scalar, at: Slots) -> Mask:
        """Mask of these slots: whose field has the value."""
        ...


class KeywordColumn:
    """A keyword field, dictionary-encoded: equal values and equal lists share one code."""

    def __init__(self) -> None:
        self._codes = AppendArray(np.int32)
        self._code_by_value: dict[tuple[str, ...], int] = {}
        self._codes_by_text: dict[str, list[int]] = {}

    def append(self, values: Sequence[Any]) -> None:
        """Add the values of further slots; None stands for a missing value."""
        self._codes.append(np.fromiter((self._code_for(value) for value in values), np.int32, len(values)))

    def equals(self, value: Scalar, at: Slots) -> Mask:
        """Mask of these slots: whose field is the value, or a list with it."""
        return self._mask_of_codes(self._codes_by_text.get(str(value), ()), at)

    def contains(self, piece: str, at: Slots) -> Mask:
        """Mask of these slots: whose field, or an item of it, contains the piece."""
        held = list(self._codes_by_text.items())  # a copy, because a concurrent write may add to it
        return self._mask_of_codes([code for text, codes in held if piece in text for code in codes], at)

    def _mask_of_codes(self, codes: Sequence[int], at: Slots) -> Mask:
        of_slot, some = self._codes.view[at], list(codes)
        table = np.zeros(len(self._code_by_value), np.bool_)  # last, because a concurrent write may add to all three
        table[some] = True
        return table[of_slot]

    def _code_for(self, value: Any) -> int:
        texts: tuple[str, ...] = () if value is None else (value,) if isinstance(value, str) else tuple(value)
        code = self._code_by_value.get(texts)
        if code is None:
            code = self._code_by_value[texts] = len(self._code_by_value)
            for text in set(texts):
                self._codes_by_text.setdefault(text, []).append(code)
        return code


class NumericColumn:
    """A number, time or flag field; a missing value is NaN and never passes."""

    def __init__(self) -> None:
        self._values = AppendArray(np.float64)

    def append(self, values: Sequence[Any]) -> None:
        """Add the values of further slots; None stands for a missing value."""
        known = (np.nan if value is None else value for value in values)
        self._values.append(np.fromiter(known, np.float64, len(values)))

    def equals(self, value: Scalar, at: Slots) -> Mask:
        """Mask of these slots: whose field is the value."""
        return self._values.view[at] == float(value)

    def in_range(self, where: Range, at: Slots) -> Mask:
        """Mask of these slots: whose field is within all bounds."""
        gte, gt, lte, lt = (bound_value(bound) for bound in (where.gte, where.gt, where.lte, where.lt))
        values = self._values.view[at]
        inside = ~np.isnan(values)
        if gte is not None:
            inside &= values >= gte
        if gt is not None:
            inside &= values > gt
        if lte is not None:
            inside &= values <= lte
        if lt is not None:
            inside &= values < lt
        return inside


class FilterColumns:
    """Filterable fields of a collection, one value per slot.

    `filter_mask` agrees with `filters.record_matches`.
    """

    def __init__(self, fields: Mapping[str, FieldType]) -> None:
        self._fields = dict(fields)
        self._keyword_columns = {name: KeywordColumn() for name, kind in fields.items() if kind is FieldType.KEYWORD}
        self._numeric_columns = {
            name: NumericColumn() for name, kind in fields.items() if kind is not FieldType.KEYWORD
        }

    @property
    def names(self) -> frozenset[str]:
        """Fields that have a column."""
        return frozenset(self._fields)

    def merge(self, other: FilterColumns) -> FilterColumns:
        """These columns and those of `other`, which must have the same number of slots."""
        both = FilterColumns({})
        both._fields = {**self._fields, **other._fields}
        both._keyword_columns = {**self._keyword_columns, **other._keyword_columns}
        both._numeric_columns = {**self._numeric_columns, **other._numeric_columns}
        return both

    def append(self, records: Sequence[Record]) -> None:
        """Add the fields of further slots."""
        columns: dict[str, FilterColumn] = {**self._keyword_columns, **self._numeric_columns}
        for name, column in columns.items():
            column.append([stored_value(record, name, self._fields[name]) for record in records])

    def filter_mask(self, where: Filter, at: Slots) -> Mask:
        """Mask of these slots that pass a filter, which must be checked already."""
        match where:
            case And(parts):
                return self._all_of([self.filter_mask(part, at) for part in parts], at)
            case Or(parts):
                return ~self._all_of([~self.filter_mask(part, at) for part in parts], at)
            case Not(part):
                return ~self.filter_mask(part, at)
            case Equals(name, value):
                return self._equals(name, value, at)
            case AnyOf(name, values):
                return ~self._all_of([~self._equals(name, value, at) for value in values], at)
            case Contains(name, piece):
                return self._keyword_columns[name].contains(piece, at)
            case Range():
                return self._numeric_columns[where.field].in_range(where, at)

    def _equals(self, name: str, value: Scalar, at: Slots) -> Mask:
        column: FilterColumn = (
            self._keyword_columns[name] if name in self._keyword_columns else self._numeric_columns[name]
        )
        return column.equals(value, at)

    @staticmethod
    def _all_of(masks: Sequence[Mask], at: Slots) -> Mask:
        both = np.ones(at.stop if isinstance(at, slice) else len(at), np.bool_)
        for mask in masks:
            both &= mask
        return both


def filter_fields(where: Filter) -> set[str]:
    """Names of all fields in a filter."""
    match where:
        case And(parts) | Or(parts):
            return set[str]().union(*(filter_fields(part) for part in parts))
        case Not(part):
            return filter_fields(part)
        case Equals(name) | AnyOf(name) | Contains(name):
            return {name}
        case Range():
            return {where.field}
