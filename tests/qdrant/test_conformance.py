"""The shipped contracts of an index, visual search and documents, run over Qdrant in the client's local mode."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.testing.index import VECTORS, IndexConformance
from contexture.testing.index_private_ids import IndexPrivateIdTests
from support.page_conformance import DOCUMENT_VECTORS, PageConformance
from support.visual_conformance import PAGE_VECTORS, VisualConformance

pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")

from qdrant_client import QdrantClient

from contexture.adapters.index.qdrant.client import QdrantServer
from contexture.adapters.index.qdrant.options import QdrantOptions
from contexture.adapters.index.qdrant.over_sqlite import QdrantOverSqlite

OPTIONS = EmbeddedOptions(vectors={**VECTORS, **PAGE_VECTORS, **DOCUMENT_VECTORS}, threads=1)


@pytest.fixture(scope="module")
def local(lasting_folder: Callable[[], Path]) -> Iterator[QdrantOverSqlite]:
    """A store whose Qdrant is the client's local mode; each check has a tenant of its own."""
    server = QdrantServer(QdrantOptions(place="qdrant://local"), QdrantClient(":memory:"))
    index = asyncio.run(QdrantOverSqlite.open_with_server(lasting_folder(), OPTIONS, server))
    yield index
    asyncio.run(index.close())


class TestLocalQdrant(IndexConformance, IndexPrivateIdTests):
    """Qdrant keeps the contract of an index."""

    @pytest.fixture
    def index(self, local: QdrantOverSqlite) -> QdrantOverSqlite:
        """The store."""
        return local


class TestVisualPagesInLocalQdrant(VisualConformance):
    """Visual search keeps its contract over Qdrant."""

    @pytest.fixture
    def index(self, local: QdrantOverSqlite) -> QdrantOverSqlite:
        """The store."""
        return local


class TestDocumentsInLocalQdrant(PageConformance):
    """Documents keep their contract over Qdrant."""

    @pytest.fixture
    def index(self, local: QdrantOverSqlite) -> QdrantOverSqlite:
        """The store."""
        return local
