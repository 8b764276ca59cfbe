"""Collections as tenants have declared them: whose they are, and which fields filters may name."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache

from contexture.adapters.index.filters import column_of
from contexture.types import Collection, FieldType

Declaration = tuple[str, Collection]
"""A tenant, and a collection of its own."""


class Declared:
    """The collections of every tenant, in memory.

    Writes come one at a time. Tenants are looked up meanwhile: what is known of one is replaced, never changed.
    """

    def __init__(self, known: Iterable[Declaration] = ()) -> None:
        self._of: dict[str, dict[str, Collection]] = {}
        for tenant, collection in known:
            self._of.setdefault(tenant, {})[collection.name] = collection

    def add(self, tenant: str, collection: Collection) -> None:
        """Take a collection, or one that has further fields now."""
        self._of[tenant] = {**self._of.get(tenant, {}), collection.name: collection}

    def find(self, tenant: str, name: str) -> Collection | None:
        """A tenant's collection; None for one that it has not, whoever else may have it."""
        return self._of.get(tenant, {}).get(name)

    def of(self, tenant: str) -> list[Collection]:
        """Every collection of a tenant, by name."""
        found = self._of.get(tenant, {})
        return [found[name] for name in sorted(found)]


def columns_of(collection: Collection) -> dict[str, FieldType]:
    """A collection's declared fields as they are called where the records of all tenants are."""
    return {column_of(name, kind): kind for name, kind in collection.fields.items()}


def pack_fields(fields: Mapping[str, FieldType]) -> str:
    """Declared fields as a database keeps them."""
    return json.dumps({name: str(kind) for name, kind in fields.items()})


@lru_cache(maxsize=1_024)
def collection_of(name: str, fields: str) -> Collection:
    """A collection as a database keeps it; thousands of tenants that declare the same share one."""
    return Collection(name=name, fields={each: FieldType(kind) for each, kind in json.loads(fields).items()})


def all_columns(kept: Iterable[tuple[str, str]]) -> dict[str, dict[str, FieldType]]:
    """By collection, every field that some tenant has declared; `kept` are rows of names and packed fields."""
    found: dict[str, dict[str, FieldType]] = {}
    for name, fields in kept:
        found.setdefault(name, {}).update(columns_of(collection_of(name, fields)))
    return found
