"""The shipped contracts of an index, visual search and documents, run over PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from contexture.testing.index import VECTORS, IndexConformance
from contexture.testing.index_private_ids import IndexPrivateIdTests
from support.page_conformance import DOCUMENT_VECTORS, PageConformance
from support.visual_conformance import PAGE_VECTORS, VisualConformance

pytest.importorskip("psycopg", reason="psycopg is not installed")

from contexture.adapters.index.postgres.index import PostgresIndex, PostgresOptions

OPTIONS = PostgresOptions(vectors={**VECTORS, **PAGE_VECTORS, **DOCUMENT_VECTORS})


@pytest.fixture(scope="module")
def shared(new_url: Callable[[], str]) -> Iterator[PostgresIndex]:
    """One store for all checks; each has a tenant of its own."""
    index = asyncio.run(PostgresIndex.open(new_url(), OPTIONS))
    yield index
    asyncio.run(index.close())


class TestPostgresIndex(IndexConformance, IndexPrivateIdTests):
    """PostgreSQL keeps the contract of an index."""

    @pytest.fixture
    def index(self, shared: PostgresIndex) -> PostgresIndex:
        """The store."""
        return shared


class TestVisualPages(VisualConformance):
    """Visual search keeps its contract over PostgreSQL."""

    @pytest.fixture
    def index(self, shared: PostgresIndex) -> PostgresIndex:
        """The store."""
        return shared


class TestDocuments(PageConformance):
    """Documents keep their contract over PostgreSQL."""

    @pytest.fixture
    def index(self, shared: PostgresIndex) -> PostgresIndex:
        """The store."""
        return shared
