"""The shipped index contract, run over the embedded index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.testing.index import VECTORS, IndexConformance
from contexture.testing.index_private_ids import IndexPrivateIdTests


class TestEmbeddedIndex(IndexConformance, IndexPrivateIdTests):
    """The embedded index keeps the contract."""

    @pytest.fixture(scope="class")
    @classmethod
    def index(cls, lasting_folder: Callable[[], Path]) -> Iterator[EmbeddedIndex]:
        """One store for all checks; each has a tenant of its own."""
        opened = asyncio.run(EmbeddedIndex.open(lasting_folder(), EmbeddedOptions(vectors=VECTORS, threads=1)))
        yield opened
        asyncio.run(opened.close())
