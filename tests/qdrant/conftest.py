"""A Qdrant of one's own, and stores over it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.testing.index_records import COLLECTION, VECTORS
from contexture.types import Scope

if TYPE_CHECKING:
    from contexture.adapters.index.qdrant.collection_indexes import QdrantOverSqlite
    from support.qdrant import QdrantDouble

TENANTS = ("local", "acme", "globex")
"""Who has the collection of these checks."""


@pytest.fixture
def qdrant() -> Iterator[QdrantDouble]:
    """A Qdrant behind HTTP that nobody else uses."""
    pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")
    from support.qdrant import QdrantDouble

    with QdrantDouble() as double:
        yield double


@pytest.fixture
async def reopen(qdrant: QdrantDouble, new_folder: Callable[[], Path]) -> AsyncIterator[Callable[..., object]]:
    """Opens the one store over that Qdrant, closed first where it is open; arguments are those of its options."""
    from contexture.adapters.index.qdrant.client import QdrantOptions, QdrantServer
    from contexture.adapters.index.qdrant.collection_indexes import QdrantOverSqlite

    folder = new_folder()
    async with AsyncExitStack() as stack:

        async def give(exact_limit: int = 200_000, **chosen: object) -> QdrantOverSqlite:
            await stack.aclose()
            server = QdrantServer(QdrantOptions(place=qdrant.place, timeout=60, **chosen))
            options = EmbeddedOptions(vectors=VECTORS, threads=1, exact_limit=exact_limit)
            index = await QdrantOverSqlite.open_with_server(folder, options, server)
            stack.push_async_callback(index.close)
            for tenant in TENANTS:
                await index.create(Scope(tenant=tenant, user="anna"), COLLECTION)
            return index

        yield give
