"""The shipped contracts of sessions and blocks, run over PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from contexture.blocks.links import extract_links
from contexture.testing.blocks import BlockStoreConformance
from contexture.testing.sessions import SessionStoreConformance

pytest.importorskip("psycopg", reason="psycopg is not installed")

from contexture.adapters.blocks.postgres import PostgresBlocks
from contexture.adapters.conversation.postgres import PostgresSessions
from contexture.adapters.postgres.pool import PostgresPool


@pytest.fixture(scope="module")
def pool(new_url: Callable[[], str]) -> Iterator[PostgresPool]:
    """Connections to a schema that all of them share; each check has a tenant of its own."""
    made = PostgresPool(new_url())
    yield made
    made.close()


class TestPostgresSessions(SessionStoreConformance):
    """Sessions in PostgreSQL keep the contract."""

    @pytest.fixture
    def store(self, pool: PostgresPool) -> PostgresSessions:
        """The sessions."""
        return PostgresSessions(pool)


class TestPostgresBlocks(BlockStoreConformance):
    """Blocks in PostgreSQL keep the contract."""

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, pool: PostgresPool) -> PostgresBlocks:
        """The blocks."""
        return PostgresBlocks(pool, extract_links)
