"""One index whose collections live in different places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contexture.ports import Index
from contexture.types import Collection, Filter, Hit, Matrix, Prepared, Query, Record, Scope


class RoutedIndex:
    """Sends each call to where its collection lives: one of `elsewhere`, by name, or else `home`."""

    def __init__(self, home: Index, elsewhere: Mapping[str, Index]) -> None:
        self._home = home
        self._elsewhere = dict(elsewhere)

    async def create(self, scope: Scope, collection: Collection) -> None:
        """Make the collection where it lives."""
        await self._of(collection.name).create(scope, collection)

    async def collections(self, scope: Scope) -> Sequence[Collection]:
        """Every collection of the tenant in every place, by name; what a place holds for others is left out."""
        found = [
            collection
            for place in self._places()
            for collection in await place.collections(scope)
            if self._of(collection.name) is place
        ]
        return sorted(found, key=lambda collection: collection.name)

    async def upsert(
        self, scope: Scope, collection: str, records: Sequence[Prepared], *, unchanged: Sequence[Record] = ()
    ) -> int:
        """Write all of them or none."""
        return await self._of(collection).upsert(scope, collection, records, unchanged=unchanged)

    async def delete(self, scope: Scope, collection: str, ids: Sequence[str]) -> int:
        """Remove those the scope may see."""
        return await self._of(collection).delete(scope, collection, ids)

    async def get(self, scope: Scope, collection: str, ids: Sequence[str]) -> Sequence[Record]:
        """Those that exist and that the scope may see, in the order asked for."""
        return await self._of(collection).get(scope, collection, ids)

    async def scroll(
        self, scope: Scope, collection: str, *, where: Filter | None = None, after: str = "", limit: int = 100
    ) -> Sequence[Record]:
        """Records in id order, starting behind `after`."""
        return await self._of(collection).scroll(scope, collection, where=where, after=after, limit=limit)

    async def search(self, scope: Scope, query: Query) -> Sequence[Hit]:
        """The union of every channel's best passages."""
        return await self._of(query.collection).search(scope, query)

    async def matrices(self, scope: Scope, collection: str, name: str, ids: Sequence[str]) -> Mapping[str, Matrix]:
        """By id, the rows written under `name`."""
        return await self._of(collection).matrices(scope, collection, name, ids)

    async def version(self, scope: Scope, collection: str) -> int:
        """A number that changes with every write to the tenant's part of the collection."""
        return await self._of(collection).version(scope, collection)

    async def close(self) -> None:
        """Close every place."""
        for place in self._places():
            await place.close()

    def _of(self, collection: str) -> Index:
        return self._elsewhere.get(collection, self._home)

    def _places(self) -> Sequence[Index]:
        return list({id(place): place for place in (self._home, *self._elsewhere.values())}.values())
