"""Filter fields as columns, so that one filter is tested on all passages at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from contexture.adapters.index.filters import bound_of, stored_value
from contexture.adapters.index.growing import Growing
from contexture.types import And, AnyOf, Contains, Equals, FieldType, Filter, Not, Or, Range, Record, Scalar

Mask: TypeAlias = npt.NDArray[np.bool_]


class Column(Protocol):
    """The values of one field, one per slot."""

    def append(self, values: Sequence[Any]) -> None:
        """Add the values of further slots."""
        ...

    def equals(self, value: Scalar) -> Mask:
        """Where the field holds the value."""
        ...


class Texts:
    """A keyword field: equal values, and equal lists of values, share one small number."""

    def __init__(self) -> None:
        self._codes = Growing(np.int32)
        self._known: dict[tuple[str, ...], int] = {}
        self._holding: dict[str, list[int]] = {}

    def append(self, values: Sequence[Any]) -> None:
        """Add the values of further slots; None is a missing one."""
        self._codes.append(np.fromiter((self._code(value) for value in values), np.int32, len(values)))

    def equals(self, value: Scalar) -> Mask:
        """Where the field is the value, or a list that has it."""
        return self._where(self._holding.get(str(value), ()))

    def contains(self, piece: str) -> Mask:
        """Where the field, or an item of it, contains the piece."""
        held = list(self._holding.items())  # a copy, for a write may add to it meanwhile
        return self._where([code for text, codes in held if piece in text for code in codes])

    def _where(self, codes: Sequence[int]) -> Mask:
        of_slot, some = self._codes.view, list(codes)
        table = np.zeros(len(self._known), np.bool_)  # last: a write may add to all three meanwhile
        table[some] = True
        return table[of_slot]

    def _code(self, value: Any) -> int:
        texts: tuple[str, ...] = () if value is None else (value,) if isinstance(value, str) else tuple(value)
        code = self._known.get(texts)
        if code is None:
            code = self._known[texts] = len(self._known)
            for text in set(texts):
                self._holding.setdefault(text, []).append(code)
        return code


class Numerals:
    """A number, time or flag field; a missing value is not a number and never passes."""

    def __init__(self) -> None:
        self._values = Growing(np.float64)

    def append(self, values: Sequence[Any]) -> None:
        """Add the values of further slots; None is a missing one."""
        known = (np.nan if value is None else value for value in values)
        self._values.append(np.fromiter(known, np.float64, len(values)))

    def equals(self, value: Scalar) -> Mask:
        """Where the field is the value."""
        return self._values.view == float(value)

    def within(self, where: Range) -> Mask:
        """Where the field is inside all bounds."""
        gte, gt, lte, lt = (bound_of(bound) for bound in (where.gte, where.gt, where.lte, where.lt))
        values = self._values.view
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


class Columns:
    """Filterable fields of a collection, one value per slot.

    `passing` says of every slot whether a record with these fields passes: exactly what `filters.holds` says.
    """

    def __init__(self, fields: Mapping[str, FieldType]) -> None:
        self._fields = dict(fields)
        self._texts = {name: Texts() for name, kind in fields.items() if kind is FieldType.KEYWORD}
        self._numerals = {name: Numerals() for name, kind in fields.items() if kind is not FieldType.KEYWORD}

    @property
    def names(self) -> frozenset[str]:
        """The fields that are here."""
        return frozenset(self._fields)

    def lacking(self, where: Filter) -> set[str]:
        """The fields that a filter names and that are not here."""
        return fields_in(where) - self._fields.keys()

    def joined(self, other: Columns) -> Columns:
        """These columns and those of another, as long as these."""
        both = Columns({})
        both._fields = {**self._fields, **other._fields}
        both._texts = {**self._texts, **other._texts}
        both._numerals = {**self._numerals, **other._numerals}
        return both

    def append(self, records: Sequence[Record]) -> None:
        """Add the fields of further slots."""
        columns: dict[str, Column] = {**self._texts, **self._numerals}
        for name, column in columns.items():
            column.append([stored_value(record, name, self._fields[name]) for record in records])

    def passing(self, where: Filter, count: int) -> Mask:
        """Of the first `count` slots, whether each passes a filter that was checked."""
        match where:
            case And(parts):
                return _all([self.passing(part, count) for part in parts], count)
            case Or(parts):
                return ~_all([~self.passing(part, count) for part in parts], count)
            case Not(part):
                return ~self.passing(part, count)
            case Equals(name, value):
                return self._equals(name, value)[:count]
            case AnyOf(name, values):
                return ~_all([~self._equals(name, value)[:count] for value in values], count)
            case Contains(name, piece):
                return self._texts[name].contains(piece)[:count]
            case Range():
                return self._numerals[where.field].within(where)[:count]

    def _equals(self, name: str, value: Scalar) -> Mask:
        column: Column = self._texts[name] if name in self._texts else self._numerals[name]
        return column.equals(value)


def _all(masks: Sequence[Mask], count: int) -> Mask:
    both = np.ones(count, np.bool_)
    for mask in masks:
        both &= mask
    return both


def fields_in(where: Filter) -> set[str]:
    """Every field that a filter names."""
    match where:
        case And(parts) | Or(parts):
            return set[str]().union(*(fields_in(part) for part in parts))
        case Not(part):
            return fields_in(part)
        case Equals(name) | AnyOf(name) | Contains(name):
            return {name}
        case Range():
            return {where.field}
