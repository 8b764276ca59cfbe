"""The shipped contracts of an index and of visual search, run over a Qdrant server where there is one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contexture.adapters.index.collection_indexes import EmbeddedOptions
from contexture.testing.index import VECTORS, IndexConformance
from support.visual_conformance import PAGE_VECTORS, VisualConformance

pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")

from contexture.adapters.index.qdrant.client import QdrantServer
from contexture.adapters.index.qdrant.options import QdrantOptions
from contexture.adapters.index.qdrant.over_sqlite import QdrantOverSqlite

URL = os.environ.get("QDRANT_URL", "")  # noqa: TID251 - names a server that only the tests use
if not URL:
    pytest.skip(
        "set QDRANT_URL to a Qdrant server, such as qdrant://localhost:6333",
        allow_module_level=True,
    )

OPTIONS = EmbeddedOptions(vectors={**VECTORS, **PAGE_VECTORS}, threads=1)


@pytest.fixture(scope="module")
def remote(lasting_folder: Callable[[], Path]) -> Iterator[QdrantOverSqlite]:
    """A store whose Qdrant is that server; each check has a tenant of its own."""
    index = asyncio.run(
        QdrantOverSqlite.open_with_server(lasting_folder(), OPTIONS, QdrantServer(QdrantOptions(place=URL)))
    )
    yield index
    asyncio.run(index.close())


class TestQdrantServer(IndexConformance):
    """A Qdrant server keeps the contract of an index."""

    @pytest.fixture
    def index(self, remote: QdrantOverSqlite) -> QdrantOverSqlite:
        """The store."""
        return remote


class TestVisualPagesInQdrantServer(VisualConformance):
    """Visual search keeps its contract over a Qdrant server."""

    @pytest.fixture
    def index(self, remote: QdrantOverSqlite) -> QdrantOverSqlite:
        """The store."""
        return remote
