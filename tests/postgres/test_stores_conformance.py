"""The shipped contracts of sessions and blocks, run over PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from contexture.blocks.links import names_in
from contexture.testing.blocks import BlockStoreConformance
from contexture.testing.sessions import SessionStoreConformance

pytest.importorskip("psycopg", reason="psycopg is not installed")

from contexture.adapters.blocks.postgres import PostgresBlocks
from contexture.adapters.postgres.pool import Pool
from contexture.adapters.sessions.postgres import PostgresSessions


@pytest.fixture(scope="module")
def pool(new_url: Callable[[], str]) -> Iterator[Pool]:
    """Connections to a schema that all of them share; each check has a tenant of its own."""
    made = Pool(new_url())
    yield made
    made.close()


class TestPostgresSessions(SessionStoreConformance):
    """Sessions in PostgreSQL keep the contract."""

    @pytest.fixture
    def store(self, pool: Pool) -> PostgresSessions:
        """The sessions."""
        return PostgresSessions(pool)


class TestPostgresBlocks(BlockStoreConformance):
    """Blocks in PostgreSQL keep the contract."""

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, pool: Pool) -> PostgresBlocks:
        """The blocks."""
        return PostgresBlocks(pool, names_in)
