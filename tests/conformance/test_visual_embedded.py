"""The shipped contracts of visual search and of documents, run over the embedded index."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from support.page_conformance import DOCUMENT_VECTORS, PageConformance
from support.visual_conformance import PAGE_VECTORS, VisualConformance


@pytest.fixture(scope="module")
def index(lasting_folder: Callable[[], Path]) -> Iterator[EmbeddedIndex]:
    """One store for all checks; each has a tenant of its own."""
    options = EmbeddedOptions(vectors={**PAGE_VECTORS, **DOCUMENT_VECTORS}, threads=1)
    opened = asyncio.run(EmbeddedIndex.open(lasting_folder(), options))
    yield opened
    asyncio.run(opened.close())


class TestVisualPagesEmbedded(VisualConformance):
    """Visual search keeps its contract over the embedded index."""


class TestDocumentsEmbedded(PageConformance):
    """Documents keep their contract over the embedded index."""
