"""The shipped contract of block stores, run over the one in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contexture.adapters.blocks.sqlite import SqliteBlocks
from contexture.blocks.links import extract_links
from contexture.testing.blocks import BlockStoreConformance


class TestSqliteBlocks(BlockStoreConformance):
    """Blocks in SQLite keep the contract."""

    @pytest.fixture(scope="class")
    @classmethod
    def store(cls, lasting_folder: Callable[[], Path]) -> Iterator[SqliteBlocks]:
        """One store for all checks; each has a tenant of its own."""
        opened = SqliteBlocks(lasting_folder() / "blocks.db", extract_links)
        yield opened
        opened.close()
