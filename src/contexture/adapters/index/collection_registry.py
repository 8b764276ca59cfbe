"""Collections by tenant, with the fields that filters may name."""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache

from contexture.adapters.index.filters import column_name
from contexture.types import Collection, FieldType

Declaration = tuple[str, Collection]
"""A tenant, and one of its collections."""


class CollectionRegistry:
    """Collections by tenant, in memory.

    Updates must be serialised; lookups may run concurrently, because a tenant's entry is replaced, never changed.
    """

    def __init__(self, known: Iterable[Declaration] = ()) -> None:
        self._by_tenant: dict[str, dict[str, Collection]] = {}
        for tenant, collection in known:
            self._by_tenant.setdefault(tenant, {})[collection.name] = collection

    def add(self, tenant: str, collection: Collection) -> None:
        """Add a collection, or replace it with one that has more fields."""
        self._by_tenant[tenant] = {**self._by_tenant.get(tenant, {}), collection.name: collection}

    def find(self, tenant: str, name: str) -> Collection | None:
        """A tenant's collection; None if this tenant has none of this name, even if another tenant does."""
        return self._by_tenant.get(tenant, {}).get(name)

    def names(self) -> set[str]:
        """Names of the collections of all tenants."""
        return {name for known in list(self._by_tenant.values()) for name in known}

    def list_for(self, tenant: str) -> list[Collection]:
        """Every collection of a tenant, by name."""
        found = self._by_tenant.get(tenant, {})
        return [found[name] for name in sorted(found)]


def collection_columns(collection: Collection) -> dict[str, FieldType]:
    """A collection's declared fields by column name, as in the index that all tenants share."""
    return {column_name(name, kind): kind for name, kind in collection.fields.items()}


def pack_fields(fields: Mapping[str, FieldType]) -> str:
    """Declared fields as JSON, their stored form."""
    return json.dumps({name: str(kind) for name, kind in fields.items()})


@lru_cache(maxsize=1_024)
def unpack_collection(name: str, fields: str) -> Collection:
    """A collection from its stored form; cached, so that tenants with the same declaration share one object."""
    return Collection(name=name, fields={each: FieldType(kind) for each, kind in json.loads(fields).items()})


def merge_columns(kept: Iterable[tuple[str, str]]) -> dict[str, dict[str, FieldType]]:
    """By collection, the columns of every declared field; `kept` are rows of names and packed fields."""
    found: dict[str, dict[str, FieldType]] = {}
    for name, fields in kept:
        found.setdefault(name, {}).update(collection_columns(unpack_collection(name, fields)))
    return found
