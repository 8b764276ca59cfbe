"""Filters compiled to Chroma's `where`: never narrower than the filter, which is evaluated on the results again."""

from collections.abc import Mapping, Sequence
from typing import Any

from contexture.adapters.index.chroma.items import ACCESS
from contexture.adapters.index.filters import bound_value
from contexture.types import And, AnyOf, Contains, Equals, FieldType, Filter, Not, Or, Range, Scalar

ChromaWhere = dict[str, Any]

_MATCH_NOTHING: ChromaWhere = {ACCESS: {"$eq": ""}}


def compile_where(
    classes: Sequence[str] | None, where: Filter | None, fields: Mapping[str, FieldType]
) -> ChromaWhere | None:
    """Chroma filter of the readable access classes (None for all) and of `where`; None when everything passes.

    `fields` are those that every stored vector was written with.
    """
    parts: list[ChromaWhere] = []
    if classes is not None:
        parts.append({ACCESS: {"$in": list(classes)}} if classes else _MATCH_NOTHING)
    wider = None if where is None else _relax_filter(where, fields)
    return _and_parts([*parts, *([wider] if wider else [])])


def _relax_filter(where: Filter, fields: Mapping[str, FieldType]) -> ChromaWhere | None:
    """The part of a filter that Chroma can express, never narrower; None when that is nothing."""
    match where:
        case And(parts):
            return _and_parts([found for part in parts if (found := _relax_filter(part, fields))])
        case Or(parts):
            found = [_relax_filter(part, fields) for part in parts]
            return None if None in found else _or_parts([each for each in found if each])
        case Equals(name, value):
            return _compile_equals(name, value, fields)
        case AnyOf(name, values):
            return _relax_filter(Or(tuple(Equals(name, value) for value in values)), fields)
        case Range():
            return _compile_range(where) if where.field in fields else None
        case Not() | Contains():
            return None


def _compile_equals(name: str, value: Scalar, fields: Mapping[str, FieldType]) -> ChromaWhere | None:
    if name not in fields or (isinstance(value, str) and "\x00" in value):
        return None
    if isinstance(value, str):
        return {f"cx.f.{name}": {"$contains": value}}
    return {f"cx.f.{name}": {"$eq": value if isinstance(value, bool) else float(value)}}


def _compile_range(where: Range) -> ChromaWhere | None:
    bounds = {"$gte": where.gte, "$gt": where.gt, "$lte": where.lte, "$lt": where.lt}
    known = ((sign, bound_value(bound)) for sign, bound in bounds.items())
    return _and_parts([{f"cx.f.{where.field}": {sign: bound}} for sign, bound in known if bound is not None])


def _and_parts(parts: list[ChromaWhere]) -> ChromaWhere | None:
    return {"$and": parts} if len(parts) > 1 else parts[0] if parts else None


def _or_parts(parts: list[ChromaWhere]) -> ChromaWhere:
    return {"$or": parts} if len(parts) > 1 else parts[0] if parts else _MATCH_NOTHING
