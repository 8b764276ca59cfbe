"""Filters as JSON, for the command line, the HTTP API and capsules.

{"and": [{"equals": ["source", "wiki"]}, {"not": {"any": ["lang", ["ru", "en"]]}},
         {"range": ["time", {"gte": "2026-01-01"}]}]}
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, TypeAlias, cast, get_args

from msgspec import Meta

from contexture.errors import InvalidRequest
from contexture.json_objects import JsonForm
from contexture.types import And, AnyOf, Contains, Equals, Filter, Not, Or, Range

_FILTER_FORMS = (
    '{"and": […]}, {"or": […]}, {"not": …}, {"equals": [field, value]}, {"any": [field, values]}, '
    '{"range": [field, bounds]} or {"contains": [field, piece]}'
)
Leaf: TypeAlias = Equals | AnyOf | Contains | Range
"""A filter that tests one field."""

_BOUNDS = ("gte", "gt", "lte", "lt")
_MAX_DEPTH = 32
_OPERAND_TYPES: Mapping[type, tuple[str, type | tuple[type, ...], str]] = {
    And: ("parts", tuple, "a tuple of filters"),
    Or: ("parts", tuple, "a tuple of filters"),
    AnyOf: ("values", tuple, "a tuple of strings, numbers or booleans"),
    Equals: ("value", (str, int, float), "a string, a number or a boolean"),
    Contains: ("piece", str, "a string"),
}

_SCALAR_SCHEMA = {"type": ["string", "number", "boolean"]}


def _pair_schema(description: str, operand: Mapping[str, Any]) -> dict[str, Any]:
    """Describe a list of a field's name and an operand."""
    field = {"type": "string", "description": "Name of the field."}
    return {
        "description": description,
        "type": "array",
        "prefixItems": [field, operand],
        "minItems": 2,
        "maxItems": 2,
    }


_FILTERS_SCHEMA = {"type": "array", "items": {"$ref": "#/$defs/Filter"}}
_BOUND_SCHEMA = {
    "description": "A number, or an ISO time.",
    "anyOf": [{"type": "number"}, *({"type": "string", "format": name} for name in ("date-time", "date"))],
}
FILTER_SCHEMA: Mapping[str, Any] = {
    "title": "Filter",
    "description": f"A filter over the fields of records, with one of these keys, nested at most {_MAX_DEPTH} deep.",
    "type": "object",
    "properties": {
        "and": {"description": "All of these match.", **_FILTERS_SCHEMA},
        "or": {"description": "At least one of these matches.", **_FILTERS_SCHEMA},
        "not": {"description": "This does not match.", "$ref": "#/$defs/Filter"},
        "equals": _pair_schema("The field equals this value; a list does when one of its items does.", _SCALAR_SCHEMA),
        "any": _pair_schema("The field equals one of these values.", {"type": "array", "items": _SCALAR_SCHEMA}),
        "range": _pair_schema(
            "The field lies within these bounds.",
            {
                "type": "object",
                "properties": dict.fromkeys(_BOUNDS, _BOUND_SCHEMA),
                "additionalProperties": False,
            },
        ),
        "contains": _pair_schema("The field is a text with this piece in it.", {"type": "string"}),
    },
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
    "examples": [{"and": [{"equals": ["source", "wiki"]}, {"range": ["time", {"gte": "2026-01-01"}]}]}],
}
"""JSON Schema of the objects that `filter_from_json` reads."""


def check_form(where: object, *, levels: int = _MAX_DEPTH) -> None:
    """Raise `InvalidRequest` for a value that is not a filter (it would match everything) or is nested too deeply."""
    level = [where]
    for _ in range(levels + 1):
        level = [part for each in level for part in _checked_parts(each)]
        if not level:
            return
    raise InvalidRequest(f"a filter may be nested {levels} levels deep")


def filter_to_json(where: Filter) -> dict[str, Any]:
    """The filter as a JSON object."""
    match where:
        case And(parts):
            return {"and": [filter_to_json(part) for part in parts]}
        case Or(parts):
            return {"or": [filter_to_json(part) for part in parts]}
        case Not(part):
            return {"not": filter_to_json(part)}
        case Equals(field, value):
            return {"equals": [field, value]}
        case AnyOf(field, values):
            return {"any": [field, list(values)]}
        case Contains(field, piece):
            return {"contains": [field, piece]}
        case Range():
            bounds = {name: getattr(where, name) for name in _BOUNDS if getattr(where, name) is not None}
            return {"range": [where.field, {name: _bound_to_json(bound) for name, bound in bounds.items()}]}


def map_leaves(where: Filter, change: Callable[[Leaf], Filter]) -> Filter:
    """The filter with each leaf replaced by the result of `change`."""
    match where:
        case And(parts):
            return And(tuple(map_leaves(part, change) for part in parts))
        case Or(parts):
            return Or(tuple(map_leaves(part, change) for part in parts))
        case Not(part):
            return Not(map_leaves(part, change))
        case _:
            return change(where)


def redact_filter(where: Filter, text: Callable[[str], str]) -> Filter:
    """The filter with its values redacted by `text`, for display only: it no longer matches the same records."""

    def redact_leaf(leaf: Leaf) -> Filter:
        match leaf:
            case Equals(field, value):
                return Equals(field, _redact_value(value, text))
            case AnyOf(field, values):
                return AnyOf(field, tuple(_redact_value(value, text) for value in values))
            case Contains(field, piece):
                return Contains(field, text(piece))
            case Range():
                return leaf

    return map_leaves(where, redact_leaf)


def filter_from_json(data: object, *, depth: int = 0) -> Filter:
    """Parse a JSON object into a filter; raises `InvalidRequest` listing the valid forms for anything else."""
    if depth > _MAX_DEPTH:
        raise InvalidRequest(f"a filter may be nested {_MAX_DEPTH} levels deep")
    if not isinstance(data, dict) or len(cast("dict[object, object]", data)) != 1:
        raise InvalidRequest(f"{data!r} is not a filter; use {_FILTER_FORMS}")
    ((form, body),) = cast("dict[str, Any]", data).items()
    match form, body:
        case (("and" | "or"), list()):
            parts = tuple(filter_from_json(part, depth=depth + 1) for part in cast("list[object]", body))
            return And(parts) if form == "and" else Or(parts)
        case "not", dict():
            return Not(filter_from_json(cast("object", body), depth=depth + 1))
        case _, [str(field), operand]:
            found = _leaf_from_json(form, field, cast("object", operand))
        case _:
            found = None
    if found is None:
        raise InvalidRequest(f"{data!r} is not a filter; use {_FILTER_FORMS}")
    return found


FilterField: TypeAlias = Annotated[
    Filter | None,
    Meta(description='Filter over the fields of records, such as {"equals": ["lang", "ru"]}.'),
    JsonForm(
        parse=lambda data, _: filter_from_json(data),
        schema={"$ref": "#/$defs/Filter"},
        definitions={"Filter": FILTER_SCHEMA},
    ),
]
"""The filter of a request."""


def _checked_parts(where: object) -> tuple[object, ...]:
    """The direct parts of a filter, once its operand is checked.

    Raises `InvalidRequest`, without the filter itself in the message: it may be nested too deeply to be printed.
    """
    if not isinstance(where, Filter):
        names = ", ".join(each.__name__ for each in get_args(Filter))
        raise InvalidRequest(f"a filter is one of {names}, not a value of type {type(where).__name__}")
    if held := _OPERAND_TYPES.get(type(where)):
        name, kinds, words = held
        if not isinstance(value := getattr(where, name), kinds):
            raise InvalidRequest(f"{name!r} of {type(where).__name__} must be {words}, not a {type(value).__name__}")
    return where.parts if isinstance(where, (And, Or)) else (where.part,) if isinstance(where, Not) else ()


def _leaf_from_json(form: str, field: str, operand: object) -> Filter | None:
    """The filter on one field, or None when the form is unknown or the operand has the wrong type."""
    if form == "equals" and isinstance(operand, (str, int, float)):
        return Equals(field, operand)
    if form == "contains" and isinstance(operand, str):
        return Contains(field, operand)
    if form == "any" and isinstance(operand, list):
        return AnyOf(field, _check_scalars(cast("list[object]", operand)))
    if form == "range" and isinstance(operand, dict):
        return _range_from_json(field, cast("dict[str, object]", operand))
    return None


def _redact_value(value: str | float, text: Callable[[str], str]) -> str | float:
    """A value redacted by `text`; a number stays a number unless it is redacted, such as a card number."""
    cleaned = text(str(value))
    return value if cleaned == str(value) else cleaned


def _check_scalars(values: list[object]) -> tuple[str | int | float | bool, ...]:
    found = tuple(value for value in values if isinstance(value, (str, int, float)))
    if len(found) != len(values):
        raise InvalidRequest(f"{values!r} may contain only strings, numbers and booleans")
    return found


def _range_from_json(field: str, bounds: Mapping[str, object]) -> Range:
    if unknown := bounds.keys() - set(_BOUNDS):
        raise InvalidRequest(f"a range has no bound {min(unknown)!r}; use {', '.join(_BOUNDS)}")
    found = {name: _bound_from_json(bound) for name, bound in bounds.items()}
    return Range(field=field, gte=found.get("gte"), gt=found.get("gt"), lte=found.get("lte"), lt=found.get("lt"))


def _bound_from_json(value: object) -> float | datetime:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        raise InvalidRequest(f"{value!r} is neither a number nor an ISO time") from None


def _bound_to_json(bound: float | datetime) -> float | str:
    return bound.isoformat() if isinstance(bound, datetime) else bound
