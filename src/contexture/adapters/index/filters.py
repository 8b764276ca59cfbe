"""Filters: checked against a collection's fields, evaluated on a record."""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from contexture.adapters.index.codec import to_timestamp
from contexture.errors import InvalidRequest, UnknownField
from contexture.filters import Leaf, check_form, map_leaves
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
_MAX_DEPTH = 64  # deeper than callers may nest, because the pipeline adds conditions to their filters


def field_types(collection: Collection) -> dict[str, FieldType]:
    """Every field a filter on this collection may name."""
    return {**collection.fields, **BUILT_IN}


def column_name(name: str, kind: FieldType) -> str:
    """Column name of a field in the index that all tenants share: declared fields carry their type.

    Tenants may declare the same name with different types, and no tenant may learn about another's fields.
    """
    return name if name in BUILT_IN else f"{name}:{kind}"


def column_type(column: str) -> FieldType:
    """The type of a field, by its column name."""
    return BUILT_IN[column] if column in BUILT_IN else FieldType(column.rpartition(":")[2])


def rename_to_columns(where: Filter, fields: Mapping[str, FieldType]) -> Filter:
    """A filter that `check_filter` accepted, with every field under its column name."""

    def rename_leaf(leaf: Leaf) -> Filter:
        return replace(leaf, field=column_name(leaf.field, fields[leaf.field]))

    return map_leaves(where, rename_leaf)


def check_filter(where: Filter, fields: Mapping[str, FieldType]) -> None:
    """Raise `UnknownField` for an unknown field, `InvalidRequest` for a malformed filter or an invalid value."""
    check_form(where, levels=_MAX_DEPTH)
    _check_node(where, fields)


def _check_node(where: Filter, fields: Mapping[str, FieldType]) -> None:
    match where:
        case And(parts) | Or(parts):
            for part in parts:
                _check_node(part, fields)
        case Not(part):
            _check_node(part, fields)
        case Equals(name, value):
            _check_value(name, value, fields)
        case AnyOf(name, values):
            _field_type(name, fields)
            for value in values:
                _check_value(name, value, fields)
        case Contains(name, piece):
            if _field_type(name, fields) is not FieldType.KEYWORD:
                raise InvalidRequest(f"contains needs a text field, but {name!r} holds a {fields[name]}")
            _check_text(piece)
        case Range():
            _check_range(where, fields)


def build_payload(record: Record, fields: Mapping[str, FieldType]) -> dict[str, Any]:
    """The payload of a record's points: every filterable field that has a value of the right type."""
    found = ((name, stored_value(record, name, kind)) for name, kind in fields.items())
    return {
        f"f.{name}": float(stored) if isinstance(stored, bool) else stored
        for name, stored in found
        if stored is not None
    }


def stored_value(record: Record, name: str, kind: FieldType) -> Any:
    """A field's value in the form filters compare, or None when it is missing or of another type.

    `name` is a field name or a column name (`column_name`).
    """
    value: Any = getattr(record, name) if name in BUILT_IN else record.payload.get(name.partition(":")[0])
    if isinstance(value, (list, tuple)) and kind is FieldType.KEYWORD:
        return [item for item in value if isinstance(item, str)]  # pyright: ignore[reportUnknownVariableType]
    if kind is FieldType.TIME:
        return _parse_time(value)
    if kind is FieldType.NUMBER:
        return _finite_number(value)
    wanted = bool if kind is FieldType.FLAG else str
    return value if isinstance(value, wanted) else None


def record_matches(where: Filter, record: Record, fields: Mapping[str, FieldType]) -> bool:
    """Whether a record passes a filter; the reference that every search backend must agree with."""
    match where:
        case And(parts):
            return all(record_matches(part, record, fields) for part in parts)
        case Or(parts):
            return any(record_matches(part, record, fields) for part in parts)
        case Not(part):
            return not record_matches(part, record, fields)
        case Equals(name, value):
            return _matches_value(stored_value(record, name, fields[name]), value)
        case AnyOf(name, values):
            return any(_matches_value(stored_value(record, name, fields[name]), value) for value in values)
        case Contains(name, piece):
            return any(piece in text for text in _list_texts(stored_value(record, name, fields[name])))
        case Range():
            return _in_range(where, stored_value(record, where.field, fields[where.field]))


def _field_type(name: str, fields: Mapping[str, FieldType]) -> FieldType:
    if name not in fields:
        raise UnknownField(f"unknown filter field {name!r}; this collection has {', '.join(sorted(fields))}")
    return fields[name]


def _check_value(name: str, value: Scalar, fields: Mapping[str, FieldType]) -> None:
    kind = _field_type(name, fields)
    fits = {
        FieldType.KEYWORD: isinstance(value, str),
        FieldType.FLAG: isinstance(value, bool),
        FieldType.NUMBER: _finite_number(value) is not None,
        FieldType.TIME: False,
    }[kind]
    if not fits:
        raise InvalidRequest(f"field {name!r} holds a {kind}: it cannot equal {value!r}")
    if isinstance(value, str):
        _check_text(value)


def _check_range(where: Range, fields: Mapping[str, FieldType]) -> None:
    kind = _field_type(where.field, fields)
    bounds = [bound for bound in (where.gte, where.gt, where.lte, where.lt) if bound is not None]
    fits = {
        FieldType.TIME: all(isinstance(bound, datetime) for bound in bounds),
        FieldType.NUMBER: all(_finite_number(bound) is not None for bound in bounds),
    }
    if not fits.get(kind, False):
        raise InvalidRequest(f"field {where.field!r} holds a {kind}: it has no range {bounds!r}")


def _check_text(value: str) -> None:
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidRequest(f"{value!r} is not valid Unicode")


def payload_key(name: str) -> str:
    """Payload key of a field in Qdrant; quoted, so that dots in a name are not read as a path."""
    return f'"f.{name}"'


def bound_value(value: float | datetime | None) -> float | None:
    """A bound of a range as a number; None when there is no bound."""
    return to_timestamp(value) if isinstance(value, datetime) else _finite_number(value)


def _finite_number(value: Any) -> float | None:
    """A finite number as a float; None for everything else."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _parse_time(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            return to_timestamp(datetime.fromisoformat(value))
        except ValueError:
            return None
    return to_timestamp(value) if isinstance(value, datetime) else None


def _matches_value(stored: Any, value: Scalar) -> bool:
    if isinstance(stored, list):
        return value in stored
    return stored == (_finite_number(value) if isinstance(stored, float) else value)


def _list_texts(stored: Any) -> list[str]:
    return [stored] if isinstance(stored, str) else stored if isinstance(stored, list) else []  # pyright: ignore[reportUnknownVariableType]


def _in_range(where: Range, stored: Any) -> bool:
    if not isinstance(stored, float):
        return False
    gte, gt, lte, lt = (bound_value(bound) for bound in (where.gte, where.gt, where.lte, where.lt))
    return (
        (gte is None or stored >= gte)
        and (gt is None or stored > gt)
        and (lte is None or stored <= lte)
        and (lt is None or stored < lt)
    )
