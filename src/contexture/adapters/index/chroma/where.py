"""Filters in Chroma's words, never narrower than they are: what Chroma cannot say is tested afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contexture.adapters.index.chroma.items import ACCESS
from contexture.adapters.index.filters import bound_of
from contexture.types import And, AnyOf, Contains, Equals, FieldType, Filter, Not, Or, Range, Scalar

Where = dict[str, Any]

_NEVER: Where = {ACCESS: {"$eq": ""}}


def chroma_where(classes: Sequence[str] | None, where: Filter | None, fields: Mapping[str, FieldType]) -> Where | None:
    """The access classes that may be read, None for all, and the filter; None where both let everything pass.

    `fields` are those that every stored vector was written with.
    """
    parts: list[Where] = []
    if classes is not None:
        parts.append({ACCESS: {"$in": list(classes)}} if classes else _NEVER)
    wider = None if where is None else _wider(where, fields)
    return _all([*parts, *([wider] if wider else [])])


def _wider(where: Filter, fields: Mapping[str, FieldType]) -> Where | None:
    """What Chroma can say of a filter; None when that is nothing."""
    match where:
        case And(parts):
            return _all([found for part in parts if (found := _wider(part, fields))])
        case Or(parts):
            found = [_wider(part, fields) for part in parts]
            return None if None in found else _any([each for each in found if each])
        case Equals(name, value):
            return _equals(name, value, fields)
        case AnyOf(name, values):
            return _wider(Or(tuple(Equals(name, value) for value in values)), fields)
        case Range():
            return _range(where) if where.field in fields else None
        case Not() | Contains():
            return None


def _equals(name: str, value: Scalar, fields: Mapping[str, FieldType]) -> Where | None:
    if name not in fields or (isinstance(value, str) and "\x00" in value):
        return None
    if isinstance(value, str):
        return {f"cx.f.{name}": {"$contains": value}}
    return {f"cx.f.{name}": {"$eq": value if isinstance(value, bool) else float(value)}}


def _range(where: Range) -> Where | None:
    bounds = {"$gte": where.gte, "$gt": where.gt, "$lte": where.lte, "$lt": where.lt}
    known = ((sign, bound_of(bound)) for sign, bound in bounds.items())
    return _all([{f"cx.f.{where.field}": {sign: bound}} for sign, bound in known if bound is not None])


def _all(parts: list[Where]) -> Where | None:
    return {"$and": parts} if len(parts) > 1 else parts[0] if parts else None


def _any(parts: list[Where]) -> Where:
    return {"$or": parts} if len(parts) > 1 else parts[0] if parts else _NEVER
