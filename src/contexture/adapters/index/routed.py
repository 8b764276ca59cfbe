"""Index that routes each collection to one of several indexes."""

from collections.abc import Mapping, Sequence

from contexture.ports import Index, PrivateIds
from contexture.types import Collection, Filter, Hit, Matrix, PreparedRecord, Query, Record, Scope


class RoutedIndex:
    """Routes each call by collection name to an index of `elsewhere`, or else to `home`."""

    def __init__(self, home: Index, elsewhere: Mapping[str, Index]) -> None:
        self._default = home
        self._by_collection = dict(elsewhere)

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Create the collection in its index, or add fields to it."""
        await self._index_for(collection.name).create(scope, collection)

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant, by name; each is listed only from the index it is routed to."""
        found = [
            collection
            for place in self._all_indexes()
            for collection in await place.collections(scope)
            if self._index_for(collection.name) is place
        ]
        return sorted(found, key=lambda collection: collection.name)

    async def upsert(
        self, scope: Scope, collection: str, records: Sequence[PreparedRecord], *, unchanged: Sequence[Record] = ()
    ) -> int:
        """Write all records or none; returns the sequence number of the write."""
        return await self._index_for(collection).upsert(scope, collection, records, unchanged=unchanged)

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove the records that the scope may read; returns how many were removed."""
        return await self._index_for(collection).delete(scope, collection, ids)

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Records that exist and that the scope may read, in the order of `ids`."""
        return await self._index_for(collection).get(scope, collection, ids)

    async def scroll(
        self, scope: Scope, collection: str, *, where: Filter | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """Up to `limit` records that pass the filter, in id order, with ids greater than `after`."""
        return await self._index_for(collection).scroll(scope, collection, where=where, after=after, limit=limit)

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The passages that `query.fuse` chooses from the best of every channel."""
        return await self._index_for(query.collection).search(scope, query)

    async def matrices(self, scope: Scope, collection: str, name: str, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """By record id, the matrix stored under `name`, for records that the scope may read."""
        return await self._index_for(collection).matrices(scope, collection, name, ids)

    async def list_owners(self, tenant: str, collection: str, ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
        """By id, the users who have a private record of it, and "" for a shared one; none where an id is unique."""
        place = self._index_for(collection)
        return await place.list_owners(tenant, collection, ids) if isinstance(place, PrivateIds) else {}

    async def version(self, scope: Scope, collection: str) -> int:
        """A number that changes with every write of the tenant to the collection."""
        return await self._index_for(collection).version(scope, collection)

    async def optimize(self) -> None:
        """Optimize all indexes."""
        for place in self._all_indexes():
            await place.optimize()

    async def warm(self) -> None:
        """Warm up all indexes."""
        for place in self._all_indexes():
            await place.warm()

    async def check_health(self) -> str:
        """Error of the first index whose last search failed; raises `SourceError` if one cannot be read."""
        errors = [await place.check_health() for place in self._all_indexes()]
        return next(filter(None, errors), "")

    async def close(self) -> None:
        """Close all indexes."""
        for place in self._all_indexes():
            await place.close()

    def _index_for(self, collection: str) -> Index:
        return self._by_collection.get(collection, self._default)

    def _all_indexes(self) -> Sequence[Index]:
        return list({id(place): place for place in (self._default, *self._by_collection.values())}.values())
