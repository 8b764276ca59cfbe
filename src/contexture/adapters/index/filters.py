"""One filter tree: checked against a collection's fields, compiled for the engine, evaluated on a record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import qdrant_edge as qe

from contexture.adapters.index.codec import timestamp
from contexture.errors import InvalidRequest, UnknownField
from contexture.filters import Leaf, check_form, with_leaves
from contexture.types import And, AnyOf, Collection, Contains, Equals, FieldType, Filter, Not, Or, Range, Record, Scalar

BUILT_IN: Mapping[str, FieldType] = {
    "id": FieldType.KEYWORD,
    "kind": FieldType.KEYWORD,
    "lang": FieldType.KEYWORD,
    "source": FieldType.KEYWORD,
    "session": FieldType.KEYWORD,
    "title": FieldType.KEYWORD,
    "time": FieldType.TIME,
    "position": FieldType.NUMBER,
}
_LEVELS = 64  # more than callers may write, because what they wrote is narrowed on its way here


def field_types(collection: Collection) -> dict[str, FieldType]:
    """Every field a filter on this collection may name."""
    return {**collection.fields, **BUILT_IN}


def column_of(name: str, kind: FieldType) -> str:
    """What a field is called where the records of all tenants are: a declared one by its type too.

    Tenants may mean different things by one name, and none may learn of another's.
    """
    return name if name in BUILT_IN else f"{name}:{kind}"


def in_columns(where: Filter, fields: Mapping[str, FieldType]) -> Filter:
    """A filter that `check` accepted, with every field named as it is where the records of all tenants are."""

    def renamed(leaf: Leaf) -> Filter:
        return replace(leaf, field=column_of(leaf.field, fields[leaf.field]))

    return with_leaves(where, renamed)


def check(where: Filter, fields: Mapping[str, FieldType]) -> None:
    """Raise a clear error for no filter, a field that does not exist or a value that cannot be compared to it."""
    check_form(where, levels=_LEVELS)
    _check(where, fields)


def _check(where: Filter, fields: Mapping[str, FieldType]) -> None:
    match where:
        case And(parts) | Or(parts):
            for part in parts:
                _check(part, fields)
        case Not(part):
            _check(part, fields)
        case Equals(name, value):
            _check_value(name, value, fields)
        case AnyOf(name, values):
            _kind(name, fields)
            for value in values:
                _check_value(name, value, fields)
        case Contains(name, piece):
            if _kind(name, fields) is not FieldType.KEYWORD:
                raise InvalidRequest(f"contains needs a text field, but {name!r} holds a {fields[name]}")
            _check_text(piece)
        case Range():
            _check_range(where, fields)


def compile_filter(where: Filter) -> qe.Filter:
    """The engine's form of a filter that `check` accepted."""
    match where:
        case And(parts):
            return qe.Filter(must=[compile_filter(part) for part in parts])
        case Or(parts):
            return qe.Filter(should=[compile_filter(part) for part in parts]) if parts else _never()
        case Not(part):
            return qe.Filter(must_not=[compile_filter(part)])
        case Equals(name, value):
            return qe.Filter(must=[_equals(name, value)])
        case AnyOf(name, values):
            return qe.Filter(should=[_equals(name, value) for value in values]) if values else _never()
        case Contains(name, piece):
            return qe.Filter(must=[qe.FieldCondition(key=key_of(name), match=qe.MatchSubstring(piece))])
        case Range():
            return qe.Filter(must=[_range(where)])


def payload_of(record: Record, fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """The engine's payload of a record: every filterable field that has a value of the right kind."""
    found = ((name, stored_value(record, name, kind)) for name, kind in fields.items())
    return {
        f"f.{name}": float(stored) if isinstance(stored, bool) else stored
        for name, stored in found
        if stored is not None
    }


def stored_value(record: Record, name: str, kind: FieldType) -> Any:
    """A field's value in the form filters compare, or None when it is missing or of another kind.

    `name` is what a filter calls the field, or what it is called where the records of all tenants are.
    """
    value: Any = getattr(record, name) if name in BUILT_IN else record.payload.get(name.partition(":")[0])
    if isinstance(value, (list, tuple)) and kind is FieldType.KEYWORD:
        return [item for item in value if isinstance(item, str)]  # pyright: ignore[reportUnknownVariableType]
    if kind is FieldType.TIME:
        return _time_value(value)
    if kind is FieldType.NUMBER:
        return _number(value)
    wanted = bool if kind is FieldType.FLAG else str
    return value if isinstance(value, wanted) else None


def holds(where: Filter, record: Record, fields: Mapping[str, FieldType]) -> bool:
    """Whether a record passes; what the engine answers must equal this."""
    match where:
        case And(parts):
            return all(holds(part, record, fields) for part in parts)
        case Or(parts):
            return any(holds(part, record, fields) for part in parts)
        case Not(part):
            return not holds(part, record, fields)
        case Equals(name, value):
            return _same(stored_value(record, name, fields[name]), value)
        case AnyOf(name, values):
            return any(_same(stored_value(record, name, fields[name]), value) for value in values)
        case Contains(name, piece):
            return any(piece in text for text in _texts(stored_value(record, name, fields[name])))
        case Range():
            return _within(where, stored_value(record, where.field, fields[where.field]))


def _kind(name: str, fields: Mapping[str, FieldType]) -> FieldType:
    if name not in fields:
        raise UnknownField(f"unknown filter field {name!r}; this collection has {', '.join(sorted(fields))}")
    return fields[name]


def _check_value(name: str, value: Scalar, fields: Mapping[str, FieldType]) -> None:
    kind = _kind(name, fields)
    fits = {
        FieldType.KEYWORD: isinstance(value, str),
        FieldType.FLAG: isinstance(value, bool),
        FieldType.NUMBER: _number(value) is not None,
        FieldType.TIME: False,
    }[kind]
    if not fits:
        raise InvalidRequest(f"field {name!r} holds a {kind}: it cannot equal {value!r}")
    if isinstance(value, str):
        _check_text(value)


def _check_range(where: Range, fields: Mapping[str, FieldType]) -> None:
    kind = _kind(where.field, fields)
    bounds = [bound for bound in (where.gte, where.gt, where.lte, where.lt) if bound is not None]
    fits = {
        FieldType.TIME: all(isinstance(bound, datetime) for bound in bounds),
        FieldType.NUMBER: all(_number(bound) is not None for bound in bounds),
    }
    if not fits.get(kind, False):
        raise InvalidRequest(f"field {where.field!r} holds a {kind}: it has no range {bounds!r}")


def _check_text(value: str) -> None:
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidRequest(f"{value!r} is not valid Unicode")


def key_of(name: str) -> str:
    """A field's path in the engine; quoted, so that any name is one path."""
    return f'"f.{name}"'


def _equals(name: str, value: Scalar) -> qe.FieldCondition:
    if isinstance(value, str):
        return qe.FieldCondition(key=key_of(name), match=qe.MatchValue(value))
    # The engine takes a Python bool for an integer, so flags are kept as numbers there.
    number = float(value)
    return qe.FieldCondition(key=key_of(name), range=qe.RangeFloat(gte=number, lte=number))


def _range(where: Range) -> qe.FieldCondition:
    return qe.FieldCondition(
        key=key_of(where.field),
        range=qe.RangeFloat(
            gte=bound_of(where.gte), gt=bound_of(where.gt), lte=bound_of(where.lte), lt=bound_of(where.lt)
        ),
    )


def _never() -> qe.Filter:
    return qe.Filter(must=[qe.HasIdCondition(set())])


def bound_of(value: float | datetime | None) -> float | None:
    """A bound of a range as a number, or None where it does not bind."""
    return timestamp(value) if isinstance(value, datetime) else _number(value)


def _number(value: Any) -> float | None:
    """A finite number as the engine keeps it, or None for everything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _time_value(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            return timestamp(datetime.fromisoformat(value))
        except ValueError:
            return None
    return timestamp(value) if isinstance(value, datetime) else None


def _same(stored: Any, value: Scalar) -> bool:
    if isinstance(stored, list):
        return value in stored
    return stored == (_number(value) if isinstance(stored, float) else value)


def _texts(stored: Any) -> list[str]:
    return [stored] if isinstance(stored, str) else stored if isinstance(stored, list) else []  # pyright: ignore[reportUnknownVariableType]


def _within(where: Range, stored: Any) -> bool:
    if not isinstance(stored, float):
        return False
    gte, gt, lte, lt = (bound_of(bound) for bound in (where.gte, where.gt, where.lte, where.lt))
    return (
        (gte is None or stored >= gte)
        and (gt is None or stored > gt)
        and (lte is None or stored <= lte)
        and (lt is None or stored < lt)
    )
