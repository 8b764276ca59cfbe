"""Tests of a store in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contexture.testing.index_records import VECTORS

if TYPE_CHECKING:
    from contexture.adapters.index.postgres.index import PostgresIndex


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them are slow: each worker starts a PostgreSQL server."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def url(new_url: Callable[[], str]) -> str:
    """An empty schema."""
    return new_url()


@pytest.fixture
async def pair(url: str) -> AsyncIterator[tuple[PostgresIndex, PostgresIndex]]:
    """Two processes' indexes over one store, which is empty."""
    from contexture.adapters.index.postgres.index import PostgresIndex, PostgresOptions

    one, other = [await PostgresIndex.open(url, PostgresOptions(vectors=VECTORS)) for _ in range(2)]
    yield one, other
    await one.close()
    await other.close()
