"""A collection that a service has for every tenant: made when a tenant first comes."""

from __future__ import annotations

import math
from time import monotonic

from contexture.errors import StoreUnwritable
from contexture.ports import Index
from contexture.types import Collection, Scope

_SURE = 60.0  # seconds: meanwhile the store may have been put back to a time at which a tenant had nothing


class Made:
    """Makes a collection once for each tenant; who comes again costs a look into a dictionary.

    Two calls of one tenant may both make it, which does no harm.
    """

    def __init__(self, index: Index, collection: Collection) -> None:
        self._index = index
        self._collection = collection
        self._seen: dict[str, float] = {}

    async def by(self, scope: Scope) -> None:
        """Make sure that the tenant has the collection, with all its fields."""
        if not self._sure(scope):
            await self._index.create(scope, self._collection)
            self._seen[scope.tenant] = monotonic()

    async def has(self, scope: Scope) -> bool:
        """The same for who only reads, which must work where nothing can be written: whether there can be anything."""
        try:
            await self.by(scope)
        except StoreUnwritable:
            return any(each.name == self._collection.name for each in await self._index.collections(scope))
        return True

    def _sure(self, scope: Scope) -> bool:
        return monotonic() < self._seen.get(scope.tenant, -math.inf) + _SURE
