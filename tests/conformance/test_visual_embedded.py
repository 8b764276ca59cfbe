"""The shipped contract of visual search, run over the embedded index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.testing.visual import PAGE_VECTORS, VisualConformance


class TestVisualPagesEmbedded(VisualConformance):
    """Visual search keeps its contract over the embedded index."""

    @pytest.fixture(scope="class")
    @classmethod
    def index(cls, lasting_folder: Callable[[], Path]) -> Iterator[EmbeddedIndex]:
        """One store for all checks; each has a tenant of its own."""
        opened = asyncio.run(EmbeddedIndex.open(lasting_folder(), EmbeddedOptions(vectors=PAGE_VECTORS, threads=1)))
        yield opened
        asyncio.run(opened.close())
