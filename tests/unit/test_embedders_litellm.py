"""The LiteLLM embedder against a real server on loopback that speaks the OpenAI embeddings API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import numpy as np
import pytest

from contexture.errors import ContractError, InvalidRequest, SourceTimeout, SourceUnavailable
from contexture.testing.embedders import EmbedderConformance


class Embeddings(ThreadingHTTPServer):
    """Answers with letter frequencies, out of order; `mode` makes it fail in one way."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.mode = ""
        self.inputs: list[list[str]] = []
        self.release = Event()

    @property
    def url(self) -> str:
        """The base address that a client is given."""
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    """One request to the embeddings route."""

    server: Embeddings

    def do_POST(self) -> None:
        """Embed the inputs, or fail as told."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        self.server.inputs.append(asked)
        if self.server.mode == "hang":
            self.server.release.wait(30)
        elif self.server.mode:
            self._answer(int(self.server.mode), {"error": {"message": "told to fail", "type": "x", "code": "y"}})
        else:
            rows = [[float(sum(ord(c) % 8 == n for c in text) + 1) for n in range(8)] for text in asked]
            data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
            usage = {"prompt_tokens": 1, "total_tokens": 1}
            self._answer(200, {"object": "list", "model": "m", "data": data[::-1], "usage": usage})

    def log_message(self, *_: object) -> None:
        """Stay silent."""

    def _answer(self, status: int, body: object) -> None:
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


@pytest.fixture
def server() -> Iterator[Embeddings]:
    """A running server, stopped afterwards."""
    running = Embeddings()
    thread = Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running
    running.release.set()
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch):
    """The adapter's class, imported with LiteLLM told to use its own copy of the price list."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    from contexture.adapters.embedders.litellm import LiteLLMEmbedder

    return LiteLLMEmbedder


@pytest.fixture
def embedder(server: Embeddings, client):
    """An embedder of eight numbers behind the server."""
    return client("openai/m", dimensions=8, api_base=server.url, api_key="k", timeout=60, batch=3)


class TestLiteLLM(EmbedderConformance):
    """A hosted embedder keeps the contract when its vendor does."""

    @pytest.fixture
    def embedder(self, embedder):
        """The embedder behind the server."""
        return embedder


async def test_requests_are_split_and_put_in_order(server: Embeddings, embedder) -> None:
    """More texts than a batch go in several requests, and rows follow their index, not their arrival."""
    rows = await embedder.embed(["a", "b", "c", "d", ""])

    assert [["a", "b", "c"], ["d", "."]] == server.inputs
    assert [1, 2, 3, 4] == np.argmax(rows, axis=1).tolist()[:4]


@pytest.mark.parametrize("status", ["400", "401", "429", "500"])
async def test_a_refusal_is_an_unavailable_source(
    server: Embeddings, embedder, status: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever the vendor's error, the caller sees one kind, and nothing is printed."""
    server.mode = status

    with pytest.raises(SourceUnavailable, match="openai/m"):
        await embedder.embed(["a"])
    assert ("", "") == capfd.readouterr()


async def test_silence_is_a_timeout(server: Embeddings, client) -> None:
    """A vendor that does not answer in time is a timeout, not an outage."""
    server.mode = "hang"

    with pytest.raises(SourceTimeout, match=r"within 0\.2 s"):
        await client("openai/m", dimensions=8, api_base=server.url, api_key="k", timeout=0.2).embed(["a"])


async def test_nobody_listening_is_an_unavailable_source(server: Embeddings, client) -> None:
    """A refused connection is an unavailable source."""
    with pytest.raises(SourceUnavailable):
        await client("openai/m", dimensions=8, api_base="http://127.0.0.1:9/v1", api_key="k").embed(["a"])


async def test_vectors_of_another_size_are_refused(server: Embeddings, client) -> None:
    """A vendor that changes its vectors' size breaks its contract, and both sizes are named."""
    with pytest.raises(ContractError, match="1 vectors of 9 numbers and sent 1 of 8"):
        await client("openai/m", dimensions=9, api_base=server.url, api_key="k").embed(["a"])


def test_a_name_may_carry_the_size(client) -> None:
    """The size is read from the name, or from LiteLLM's own list, or asked for."""
    assert (512, "litellm-openai/m-512") == (
        client.from_name("openai/m@512").dimensions,
        client.from_name("openai/m@512").name,
    )
    assert 1536 == client.from_name("text-embedding-3-small").dimensions
    for bad in ("openai/m", "openai/m@many"):
        with pytest.raises(InvalidRequest):
            client.from_name(bad)
