"""Filters as SQL conditions on the fields of records, which are stored as one JSON object per record.

Its keys are column names (`filters.column_name`); a payload value is stored under every type that can read it, so that
a field that is declared later filters records from before. `filters.record_matches` is the reference.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from contexture.adapters.index.filters import BUILT_IN, bound_value, column_name, stored_value
from contexture.types import And, AnyOf, Contains, Equals, FieldType, Filter, Not, Or, Range, Record, Scalar

AddParameter: TypeAlias = Callable[[Any], str]
"""Takes a parameter of a statement and returns its placeholder."""

_MAX_NAME = 64  # longer names cannot be declared
_BUILT_IN_TEXTS = frozenset(name for name, kind in BUILT_IN.items() if kind is FieldType.KEYWORD)
# JSON in PostgreSQL cannot hold NUL. The codes of these characters begin with one that occurs nowhere else and go on
# with others that are escaped themselves: a piece of a text is in the escaped text exactly if it is in the text.
_ESCAPES = str.maketrans(
    {"\x00": "\x01\x02\x02", "\x01": "\x01\x02\x03", "\x02": "\x01\x03\x02", "\x03": "\x01\x03\x03"}
)
_RANGE_OPERATORS = {"gte": ">=", "gt": ">", "lte": "<=", "lt": "<"}


def pack_fields(record: Record) -> str:
    """The filterable fields of a record as JSON; without its id, which has a column, and empty built-in texts."""
    return json.dumps(dict(_list_fields(record)))


def _list_fields(record: Record) -> Iterator[tuple[str, Any]]:
    for name, kind in BUILT_IN.items():
        value = stored_value(record, name, kind)
        if name != "id" and value is not None and value != "":
            yield name, _to_json(value)
    for name in record.payload:
        if name not in BUILT_IN and len(name) <= _MAX_NAME and name.isascii() and ":" not in name:
            for kind in FieldType:
                value = stored_value(record, column_name(name, kind), kind)
                if value is not None:
                    yield column_name(name, kind).translate(_ESCAPES), _to_json(value)


def _to_json(value: Any) -> Any:
    if isinstance(value, str):
        return value.translate(_ESCAPES)
    if isinstance(value, list):
        return [item.translate(_ESCAPES) for item in cast("list[str]", value)]
    return float(value)


def compile_filter(where: Filter, add: AddParameter) -> str:
    """A condition on `f`, a row of the table `fields`; it is never NULL.

    `where` has passed `check_filter` and names columns; the statement has the parameter `part`.
    """
    match where:
        case And(parts):
            return _join(" AND ", parts, add) if parts else "TRUE"
        case Or(parts):
            return _join(" OR ", parts, add) if parts else "FALSE"
        case Not(part):
            return f"(NOT {compile_filter(part, add)})"
        case Equals(name, value):
            return _compile_equals(name, [value], add)
        case AnyOf(name, values):
            return _compile_equals(name, values, add) if values else "FALSE"
        case Contains(name, piece):
            return _compile_contains(name, piece, add)
        case Range():
            return _compile_range(where, add)


def _join(operator: str, parts: Sequence[Filter], add: AddParameter) -> str:
    return f"({operator.join(compile_filter(part, add) for part in parts)})"


def _compile_equals(name: str, values: Sequence[Scalar], add: AddParameter) -> str:
    texts = [value for value in values if isinstance(value, str)]
    if name == "id":
        return _match_ids(f"r.id = ANY({add([text.encode() for text in texts])}::bytea[])")
    if not texts:
        numbers = [float(value) for value in values]
        return f"(({_column(name, add)})::float8 = ANY({add(numbers)}::float8[])) IS TRUE"
    return f"({_column(name, add)} ?| {add([text.translate(_ESCAPES) for text in texts])}::text[]) IS TRUE"


def _compile_contains(name: str, piece: str, add: AddParameter) -> str:
    if name == "id":
        return _match_ids(f"position({add(piece.encode())}::bytea in r.id) > 0")
    column, escaped = _column(name, add), add(piece.translate(_ESCAPES))
    items = f"CASE jsonb_typeof({column}) WHEN 'array' THEN {column} WHEN 'string' THEN jsonb_build_array({column}) END"
    return (
        f"EXISTS (SELECT FROM jsonb_array_elements_text({items}) i (item) WHERE position({escaped}::text in item) > 0)"
    )


def _compile_range(where: Range, add: AddParameter) -> str:
    column = f"({_column(where.field, add)})::float8"
    bounds = {name: bound_value(getattr(where, name)) for name in _RANGE_OPERATORS}
    conditions = [
        f"{column} {_RANGE_OPERATORS[name]} {add(bound)}::float8" for name, bound in bounds.items() if bound is not None
    ]
    return f"({' AND '.join(conditions or [f'{column} IS NOT NULL'])}) IS TRUE"


def _match_ids(condition: str) -> str:
    return f"f.record IN (SELECT r.record FROM records r WHERE r.part = %(part)s AND {condition})"


def _column(name: str, add: AddParameter) -> str:
    column = f"f.data -> {add(name)}::text"
    return f"coalesce({column}, '\"\"')" if name in _BUILT_IN_TEXTS else column
