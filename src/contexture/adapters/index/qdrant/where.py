"""Permissions and filters as Qdrant takes them."""

from __future__ import annotations

from collections.abc import Sequence

from qdrant_client import models

from contexture.adapters.index.classes import Access
from contexture.adapters.index.filters import bound_of, key_of
from contexture.adapters.index.qdrant.client import ACCESS
from contexture.types import And, AnyOf, Contains, Equals, Filter, Not, Or, Range, Scalar

_FEW = 16


def server_filter(access: Access, where: Filter | None) -> models.Filter:
    """Readable access classes, each of which belongs to one tenant, and the caller's filter: both must hold."""
    must: list[models.Condition] = [models.Filter(should=_one_of(sorted(access.readable)))]
    if where is not None:
        must.append(_compiled(where))
    return models.Filter(must=must)


def _one_of(classes: Sequence[int]) -> list[models.Condition]:
    """One of these classes; said one by one, few are tested twice as fast on every passage."""
    if len(classes) > _FEW:
        return [models.FieldCondition(key=ACCESS, match=models.MatchAny(any=list(classes)))]
    return [models.FieldCondition(key=ACCESS, match=models.MatchValue(value=access)) for access in classes]


def _compiled(where: Filter) -> models.Filter:
    match where:
        case And(parts):
            return models.Filter(must=[_compiled(part) for part in parts])
        case Or(parts):
            return models.Filter(should=[_compiled(part) for part in parts]) if parts else _never()
        case Not(part):
            return models.Filter(must_not=[_compiled(part)])
        case Equals(name, value):
            return models.Filter(must=[_equals(name, value)])
        case AnyOf(name, values):
            return models.Filter(should=_equal_to_any(name, values)) if values else _never()
        case Contains(name, piece):
            substring = models.MatchSubstring(substring=piece)
            return models.Filter(must=[models.FieldCondition(key=key_of(name), match=substring)])
        case Range():
            return models.Filter(must=[_range(where)])


def _equal_to_any(name: str, values: Sequence[Scalar]) -> list[models.Condition]:
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) > _FEW and len(texts) == len(values):
        return [models.FieldCondition(key=key_of(name), match=models.MatchAny(any=texts))]
    return [_equals(name, value) for value in values]


def _equals(name: str, value: Scalar) -> models.FieldCondition:
    if isinstance(value, str):
        return models.FieldCondition(key=key_of(name), match=models.MatchValue(value=value))
    number = float(value)  # flags are kept as numbers, as in the engine in process
    return models.FieldCondition(key=key_of(name), range=models.Range(gte=number, lte=number))


def _range(where: Range) -> models.FieldCondition:
    bounds = models.Range(
        gte=bound_of(where.gte), gt=bound_of(where.gt), lte=bound_of(where.lte), lt=bound_of(where.lt)
    )
    return models.FieldCondition(key=key_of(where.field), range=bounds)


def _never() -> models.Filter:
    return models.Filter(must=[models.HasIdCondition(has_id=[])])
