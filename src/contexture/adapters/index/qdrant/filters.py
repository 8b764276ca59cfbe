"""Access classes and filters compiled to Qdrant filters."""

from __future__ import annotations

from collections.abc import Sequence

from qdrant_client import models

from contexture.adapters.index.access_classes import ScopeAccess
from contexture.adapters.index.filters import bound_value, payload_key
from contexture.adapters.index.qdrant.client import ACCESS
from contexture.types import And, AnyOf, Contains, Equals, Filter, Not, Or, Range, Scalar

_MAX_SINGLE_MATCHES = 16


def compile_server_filter(access: ScopeAccess, where: Filter | None) -> models.Filter:
    """Filter on the readable access classes, each of which belongs to one tenant, and the caller's filter."""
    must: list[models.Condition] = [models.Filter(should=_match_classes(sorted(access.readable)))]
    if where is not None:
        must.append(_compile_filter(where))
    return models.Filter(must=must)


def _match_classes(classes: Sequence[int]) -> list[models.Condition]:
    """Conditions for any of these access classes; for a few, single matches are evaluated twice as fast."""
    if len(classes) > _MAX_SINGLE_MATCHES:
        return [models.FieldCondition(key=ACCESS, match=models.MatchAny(any=list(classes)))]
    return [models.FieldCondition(key=ACCESS, match=models.MatchValue(value=access)) for access in classes]


def _compile_filter(where: Filter) -> models.Filter:
    match where:
        case And(parts):
            return models.Filter(must=[_compile_filter(part) for part in parts])
        case Or(parts):
            return models.Filter(should=[_compile_filter(part) for part in parts]) if parts else _match_nothing()
        case Not(part):
            return models.Filter(must_not=[_compile_filter(part)])
        case Equals(name, value):
            return models.Filter(must=[_compile_equals(name, value)])
        case AnyOf(name, values):
            return models.Filter(should=_compile_any_of(name, values)) if values else _match_nothing()
        case Contains(name, piece):
            substring = models.MatchSubstring(substring=piece)
            return models.Filter(must=[models.FieldCondition(key=payload_key(name), match=substring)])
        case Range():
            return models.Filter(must=[_compile_range(where)])


def _compile_any_of(name: str, values: Sequence[Scalar]) -> list[models.Condition]:
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) > _MAX_SINGLE_MATCHES and len(texts) == len(values):
        return [models.FieldCondition(key=payload_key(name), match=models.MatchAny(any=texts))]
    return [_compile_equals(name, value) for value in values]


def _compile_equals(name: str, value: Scalar) -> models.FieldCondition:
    if isinstance(value, str):
        return models.FieldCondition(key=payload_key(name), match=models.MatchValue(value=value))
    number = float(value)  # flags are stored as numbers, as in the embedded index
    return models.FieldCondition(key=payload_key(name), range=models.Range(gte=number, lte=number))


def _compile_range(where: Range) -> models.FieldCondition:
    bounds = models.Range(
        gte=bound_value(where.gte), gt=bound_value(where.gt), lte=bound_value(where.lte), lt=bound_value(where.lt)
    )
    return models.FieldCondition(key=payload_key(where.field), range=bounds)


def _match_nothing() -> models.Filter:
    return models.Filter(must=[models.HasIdCondition(has_id=[])])
