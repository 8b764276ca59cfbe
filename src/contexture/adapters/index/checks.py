"""What an index refuses before it touches anything, so that a write is whole and a question makes sense."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from contexture.adapters.index.filters import BUILT_IN, check
from contexture.errors import InvalidRequest, Outdated, UnknownCollection
from contexture.types import Collection, FieldType, Prepared, Query, Record, Scope, Vector

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_LARGEST = 65_504.0  # in half precision, in which vectors are stored


def merged(old: Collection | None, new: Collection) -> Collection:
    """The collection with its new fields; a bad name, or a field that would change its type, is refused."""
    if not _NAME.fullmatch(new.name):
        raise InvalidRequest(f"{new.name!r} is not a collection name: use letters, digits, '_', '-' and '.'")
    known: Mapping[str, FieldType] = old.fields if old else {}
    for name, kind in new.fields.items():
        if not _NAME.fullmatch(name):
            raise InvalidRequest(f"{name!r} is not a field name: use letters, digits, '_', '-' and '.'")
        if name in BUILT_IN:
            raise InvalidRequest(f"field {name!r} is built in; choose another name")
        if known.get(name, kind) is not kind:
            raise InvalidRequest(f"field {name!r} of {new.name!r} holds a {known[name]}: it cannot become a {kind}")
    return Collection(name=new.name, fields={**known, **new.fields})


def check_tenant(scope: Scope) -> None:
    """Refuse a tenant whose name no store could keep."""
    if not valid_id(scope.tenant):
        raise InvalidRequest(f"tenant {scope.tenant!r} is not valid Unicode")


def unknown(name: str, mine: Iterable[Collection]) -> UnknownCollection:
    """The refusal of a collection that a tenant has not; it names those that it has, and no others."""
    known = ", ".join(each.name for each in mine) or "none yet"
    return UnknownCollection(f"unknown collection {name!r}; there are: {known}")


def check_records(records: Sequence[Prepared], vectors: Mapping[str, int]) -> None:
    """Refuse records without an id, and vectors that the index could not compare."""
    for item in records:
        if not item.record.id:
            raise InvalidRequest("a record needs an id")
        if not valid_id(item.record.id):
            raise InvalidRequest(f"record id {item.record.id!r} is not valid Unicode")
        for name, matrix in item.matrices.items():
            if matrix.ndim != 2 or not np.isfinite(matrix).all():  # noqa: PLR2004 - rows and columns
                raise InvalidRequest(f"matrix {name!r} of record {item.record.id!r} must hold rows of finite numbers")
        for passage in item.passages:
            for name, vector in passage.vectors.items():
                if name in vectors:
                    _check_vector(name, vector, vectors)


def check_unchanged(expected: Iterable[Record], stored: Iterable[Record]) -> None:
    """Refuse a write whose writer has read something else than what is stored now."""
    now = {record.id: record for record in stored}
    for record in expected:
        if now.get(record.id) != record:
            raise Outdated(f"record {record.id!r} was changed by somebody else meanwhile")


def check_query(query: Query, fields: Mapping[str, FieldType], vectors: Mapping[str, int]) -> None:
    """Refuse a `k` or a pool below 1, filters that make no sense, and vectors that the index does not have."""
    if query.k < 1 or (query.pool is not None and query.pool < 1):
        raise InvalidRequest(f"k and pool must be at least 1, not {query.k} and {query.pool}")
    if query.where is not None:
        check(query.where, fields)
    for name, vector in query.vectors.items():
        _check_vector(name, vector, vectors)


def valid_id(record_id: str) -> bool:
    """Whether an id can exist: what is not valid Unicode was never stored."""
    return record_id.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in record_id)


def _check_vector(name: str, vector: Vector, vectors: Mapping[str, int]) -> None:
    size = vectors.get(name)
    if size is None:
        known = ", ".join(sorted(vectors)) or "none"
        raise InvalidRequest(f"unknown vector {name!r}; this index has: {known}")
    if vector.shape != (size,):
        raise InvalidRequest(f"vector {name!r} has shape {vector.shape}, not ({size},)")
    if not (np.abs(vector) <= _LARGEST).all():  # nor does what is no number pass
        raise InvalidRequest(f"vector {name!r} holds a value that is not a number up to {_LARGEST:.0f}")
