"""The shipped contracts of an index, visual search and documents, run over a real Qdrant cluster."""

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

from contexture.adapters.index.qdrant.client import QdrantOptions, QdrantServer
from contexture.adapters.index.qdrant.collection_indexes import QdrantOverSqlite

OPTIONS = EmbeddedOptions(vectors={**VECTORS, **PAGE_VECTORS, **DOCUMENT_VECTORS}, threads=1)


pytestmark = pytest.mark.needs("qdrant")


@pytest.fixture(scope="module")
def clustered(qdrant_place: str, lasting_folder: Callable[[], Path]) -> Iterator[QdrantOverSqlite]:
    """A store whose Qdrant is a cluster; each check has a tenant of its own."""
    server = QdrantServer(QdrantOptions(place=qdrant_place, timeout=60))
    index = asyncio.run(QdrantOverSqlite.open_with_server(lasting_folder(), OPTIONS, server))
    yield index
    asyncio.run(index.close())


class TestQdrantCluster(IndexConformance, IndexPrivateIdTests):
    """Qdrant keeps the contract of an index."""

    @pytest.fixture
    def index(self, clustered: QdrantOverSqlite) -> QdrantOverSqlite:
        """The store."""
        return clustered


class TestVisualPagesInQdrant(VisualConformance):
    """Visual search keeps its contract over Qdrant."""

    @pytest.fixture
    def index(self, clustered: QdrantOverSqlite) -> QdrantOverSqlite:
        """The store."""
        return clustered


class TestDocumentsInQdrant(PageConformance):
    """Documents keep their contract over Qdrant."""

    @pytest.fixture
    def index(self, clustered: QdrantOverSqlite) -> QdrantOverSqlite:
        """The store."""
        return clustered
