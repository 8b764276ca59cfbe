"""The shipped contracts of an index, visual search and documents, run over Chroma in process and over HTTP."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from contexture.testing.index import VECTORS, IndexConformance
from support.page_conformance import DOCUMENT_VECTORS, PageConformance
from support.visual_conformance import PAGE_VECTORS, VisualConformance

pytest.importorskip("chromadb", reason="chromadb is not installed")

from contexture.adapters.index.chroma.index import ChromaIndex, ChromaOptions

ALL = {**VECTORS, **PAGE_VECTORS, **DOCUMENT_VECTORS}


@pytest.fixture(scope="module")
def in_process(lasting_folder: Callable[[], Path]) -> Iterator[ChromaIndex]:
    """Chroma in a folder, whose graph is walked for every answer."""
    index = asyncio.run(ChromaIndex.open(f"chroma:{lasting_folder()}", ChromaOptions(vectors=ALL, exact_limit=0)))
    yield index
    asyncio.run(index.close())


@pytest.fixture(scope="module")
def over_http(lasting_folder: Callable[[], Path]) -> Iterator[ChromaIndex]:
    """Chroma behind a real server on a free port; few vectors are compared here."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).with_name("chroma")), "run", "--host", "127.0.0.1", "--port", str(port)]
    with (
        subprocess.Popen(
            [*command, "--path", str(lasting_folder())], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as server,
        ExitStack() as last,
    ):
        last.callback(server.terminate)
        with httpx.Client(transport=httpx.HTTPTransport(retries=60)) as client:
            client.get(f"http://127.0.0.1:{port}/api/v2/heartbeat", timeout=30)
        index = asyncio.run(ChromaIndex.open(f"chroma+http://127.0.0.1:{port}", ChromaOptions(vectors=ALL)))
        yield index
        asyncio.run(index.close())


class TestChromaInProcess(IndexConformance):
    """Chroma in a folder keeps the contract of an index."""

    @pytest.fixture
    def index(self, in_process: ChromaIndex) -> ChromaIndex:
        """One store for all checks; each has a tenant of its own."""
        return in_process


class TestVisualPagesInProcess(VisualConformance):
    """Visual search keeps its contract over Chroma in a folder."""

    @pytest.fixture
    def index(self, in_process: ChromaIndex) -> ChromaIndex:
        """One store for all checks; each has a tenant of its own."""
        return in_process


class TestDocumentsInProcess(PageConformance):
    """Documents keep their contract over Chroma in a folder."""

    @pytest.fixture
    def index(self, in_process: ChromaIndex) -> ChromaIndex:
        """One store for all checks; each has a tenant of its own."""
        return in_process


@pytest.mark.integration
@pytest.mark.slow
class TestChromaOverHttp(IndexConformance):
    """Chroma behind a server keeps the contract of an index."""

    @pytest.fixture
    def index(self, over_http: ChromaIndex) -> ChromaIndex:
        """One store for all checks; each has a tenant of its own."""
        return over_http


@pytest.mark.integration
@pytest.mark.slow
class TestVisualPagesOverHttp(VisualConformance):
    """Visual search keeps its contract over Chroma behind a server."""

    @pytest.fixture
    def index(self, over_http: ChromaIndex) -> ChromaIndex:
        """One store for all checks; each has a tenant of its own."""
        return over_http


@pytest.mark.integration
@pytest.mark.slow
class TestDocumentsOverHttp(PageConformance):
    """Documents keep their contract over Chroma behind a server."""

    @pytest.fixture
    def index(self, over_http: ChromaIndex) -> ChromaIndex:
        """One store for all checks; each has a tenant of its own."""
        return over_http
