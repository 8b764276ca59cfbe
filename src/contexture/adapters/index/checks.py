"""Checks of records, queries and collections, made before an index reads or writes anything."""

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from contexture.adapters.index.filters import BUILT_IN, check_filter
from contexture.errors import InvalidRequest, Outdated, UnknownCollection
from contexture.types import Collection, FieldType, PreparedRecord, Query, Record, Scope, Vector

_NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_MAX_HALF_FLOAT = 65_504.0  # vectors are stored in half precision


def merge_collection(old: Collection | None, new: Collection) -> Collection:
    """The collection with its new fields; raises `InvalidRequest` for an invalid name or a changed field type."""
    if not _NAME_PATTERN.fullmatch(new.name):
        raise InvalidRequest(f"{new.name!r} is not a collection name: use letters, digits, '_', '-' and '.'")
    known: Mapping[str, FieldType] = old.fields if old else {}
    for name, kind in new.fields.items():
        if not _NAME_PATTERN.fullmatch(name):
            raise InvalidRequest(f"{name!r} is not a field name: use letters, digits, '_', '-' and '.'")
        if name in BUILT_IN:
            raise InvalidRequest(f"field {name!r} is built in; choose another name")
        if known.get(name, kind) is not kind:
            raise InvalidRequest(f"field {name!r} of {new.name!r} holds a {known[name]}: it cannot become a {kind}")
    return Collection(name=new.name, fields={**known, **new.fields})


def check_tenant(scope: Scope) -> None:
    """Raise `InvalidRequest` for a tenant that cannot be stored, because it is not valid Unicode."""
    if not is_valid_id(scope.tenant):
        raise InvalidRequest(f"tenant {scope.tenant!r} is not valid Unicode")


def unknown_collection_error(name: str, mine: Iterable[Collection]) -> UnknownCollection:
    """An `UnknownCollection` error that names only the tenant's own collections."""
    known = ", ".join(each.name for each in mine) or "none yet"
    return UnknownCollection(f"unknown collection {name!r}; there are: {known}")


def check_records(records: Sequence[PreparedRecord], vectors: Mapping[str, int]) -> None:
    """Raise `InvalidRequest` for a record without a valid id, or with an invalid vector or matrix."""
    for item in records:
        if not item.record.id:
            raise InvalidRequest("a record needs an id")
        if not is_valid_id(item.record.id):
            raise InvalidRequest(f"record id {item.record.id!r} is not valid Unicode")
        for name, matrix in item.matrices.items():
            if matrix.ndim != 2 or not np.isfinite(matrix).all():  # noqa: PLR2004 - rows and columns
                raise InvalidRequest(f"matrix {name!r} of record {item.record.id!r} must hold rows of finite numbers")
        for passage in item.passages:
            for name, vector in passage.vectors.items():
                if name in vectors:
                    _check_vector(name, vector, vectors)


def check_unchanged(expected: Iterable[Record], stored: Iterable[Record]) -> None:
    """Raise `Outdated` if a record differs from what is stored: it was changed since the writer read it."""
    now = {record.id: record for record in stored}
    for record in expected:
        if now.get(record.id) != record:
            raise Outdated(f"record {record.id!r} was changed by another process")


def check_query(query: Query, fields: Mapping[str, FieldType], vectors: Mapping[str, int]) -> None:
    """Raise for a `k` below 1, an invalid filter, and a vector that the index does not have."""
    if query.k < 1:
        raise InvalidRequest(f"k must be at least 1, not {query.k}")
    if query.where is not None:
        check_filter(query.where, fields)
    for name, vector in query.vectors.items():
        _check_vector(name, vector, vectors)


def is_valid_id(record_id: str) -> bool:
    """Whether an id is valid Unicode; others cannot have been stored."""
    return record_id.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in record_id)


def _check_vector(name: str, vector: Vector, vectors: Mapping[str, int]) -> None:
    size = vectors.get(name)
    if size is None:
        known = ", ".join(sorted(vectors)) or "none"
        raise InvalidRequest(f"unknown vector {name!r}; this index has: {known}")
    if vector.shape != (size,):
        raise InvalidRequest(f"vector {name!r} has shape {vector.shape}, not ({size},)")
    if not (np.abs(vector) <= _MAX_HALF_FLOAT).all():  # NaN fails too
        raise InvalidRequest(f"vector {name!r} holds a value that is not a number up to {_MAX_HALF_FLOAT:.0f}")
