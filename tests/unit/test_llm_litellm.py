"""Hosted models against a real server on loopback that speaks the OpenAI chat API."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from threading import Event, Thread

import pytest
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

from contexture.adapters.llm.extractive import ExtractiveModel
from contexture.answer import route
from contexture.errors import SourceError, SourceTimeout, SourceUnavailable
from contexture.ledger import Trace
from contexture.testing.models import PROMPT, ChatModelConformance

WORDS = ["The ", "boat ", "lies ", "in ", "Bergen."]


class Vendor:
    """A server that answers with five words; `mode` makes it fail in one way."""

    def __init__(self) -> None:
        self.mode = ""
        self.asked: list[dict] = []
        self.left = Event()
        self.app = FastAPI()
        self.app.post("/v1/chat/completions")(self.answer)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/v1"
        self.server = uvicorn.Server(uvicorn.Config(self.app, log_level="critical", lifespan="off"))

    async def answer(self, request: Request):
        """One request."""
        body = await request.json()
        self.asked.append(body)
        if self.mode.isdecimal():
            error = {"message": "told to fail", "type": "x", "code": "y"}
            return JSONResponse({"error": error}, int(self.mode))
        if self.mode == "hang":
            await asyncio.sleep(30)
        if self.mode == "garbage":
            return JSONResponse(["what?"])
        if body.get("stream"):
            return StreamingResponse(self.pieces(), media_type="text/event-stream")
        choice = {"index": 0, "message": {"role": "assistant", "content": "".join(WORDS)}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 5, "total_tokens": 6}
        return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}

    async def pieces(self) -> AsyncIterator[str]:
        """The words, or as many as the mode allows."""
        try:
            for number, word in enumerate(WORDS):
                if number == 2 and self.mode == "break":
                    raise ConnectionError("the vendor's line went dead")
                if number == 2 and self.mode == "error event":
                    yield 'data: {"error": {"message": "overloaded", "type": "server_error", "code": 529}}\n\n'
                    return
                if number == 2 and self.mode == "stall":
                    await asyncio.sleep(30)
                yield self.chunk({"content": word}, None)
            yield self.chunk({}, "stop")
            yield "data: [DONE]\n\n"
        finally:
            self.left.set()

    def chunk(self, delta: dict, finish: str | None) -> str:
        """One event of the stream."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return f"data: {json.dumps(body)}\n\n"


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    """A running server, stopped afterwards."""
    running = Vendor()
    thread = Thread(target=running.server.run, kwargs={"sockets": [running.socket]}, daemon=True)
    thread.start()
    yield running
    running.server.should_exit = running.server.force_exit = True
    thread.join()
    running.socket.close()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch):
    """The adapter's class, imported with LiteLLM told to use its own copy of the price list."""
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    from contexture.adapters.llm.litellm import LiteLLMChat

    return LiteLLMChat


@pytest.fixture
def model(vendor: Vendor, client):
    """A model behind the server."""
    return client("openai/m", api_base=vendor.url, api_key="k", timeout=60)


async def hear(stream: AsyncIterator, heard: list) -> None:
    """Listen to the end, or to the failure."""
    async for piece in stream:
        heard.append(piece)  # noqa: PERF401 - what came before a failure is wanted


class TestLiteLLM(ChatModelConformance):
    """A hosted model keeps the contract when its vendor does."""

    @pytest.fixture
    def model(self, model):
        """The model behind the server."""
        return model


def test_a_model_has_its_listed_price(client) -> None:
    """Cents for a million tokens from LiteLLM's own list, with or without the vendor before the name."""
    names = ["gpt-5", "openai/gpt-5", "anthropic/claude-sonnet-4-5", "ollama/llama3", "nobody/knows-it"]
    found = [client(name).price for name in names]

    assert [None if each is None else tuple(map(round, each)) for each in found] == [
        (125, 1_000),
        (125, 1_000),
        (300, 1_500),
        (0, 0),
        None,
    ]


async def test_the_vendor_is_asked_for_what_the_caller_wants(vendor: Vendor, model) -> None:
    """Messages arrive as they were given, with the length of the answer."""
    assert "The boat lies in Bergen." == await model.complete(PROMPT, max_tokens=24)

    (asked,) = vendor.asked
    assert list(PROMPT) == asked["messages"]
    assert (24, "m") == (asked.get("max_tokens") or asked.get("max_completion_tokens"), asked["model"])


async def test_pieces_come_as_the_vendor_sends_them(model) -> None:
    """A stream is not gathered before it is handed on."""
    assert WORDS == [piece async for piece in model.stream(PROMPT, max_tokens=24)]


@pytest.mark.parametrize("way", ["whole", "stream"])
@pytest.mark.parametrize("mode", ["400", "401", "404", "429", "500", "503", "garbage"])
async def test_every_refusal_is_a_source_error(
    vendor: Vendor, model, mode: str, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever the vendor's error, the caller sees one kind; it is asked once, and nothing is printed."""
    vendor.mode = mode

    asked = model.complete(PROMPT, max_tokens=24) if way == "whole" else hear(model.stream(PROMPT, max_tokens=24), [])
    with pytest.raises(SourceUnavailable, match="openai/m"):
        await asked
    assert 1 == len(vendor.asked)
    assert ("", "") == capfd.readouterr()


async def test_silence_is_a_timeout(vendor: Vendor, client) -> None:
    """A vendor that does not answer in time is a timeout, not an outage."""
    vendor.mode = "hang"

    with pytest.raises(SourceTimeout, match=r"within 0\.2 s"):
        await client("openai/m", api_base=vendor.url, api_key="k", timeout=0.2).complete(PROMPT, max_tokens=4)


async def test_silence_between_two_pieces_is_a_timeout_too(vendor: Vendor, client) -> None:
    """A stream that stops moving is given up, after what came of it."""
    vendor.mode = "stall"
    heard = []

    with pytest.raises(SourceTimeout):
        await hear(
            client("openai/m", api_base=vendor.url, api_key="k", timeout=0.5).stream(PROMPT, max_tokens=9), heard
        )
    assert WORDS[:2] == heard


@pytest.mark.parametrize("mode", ["break", "error event"])
async def test_a_line_that_goes_dead_is_a_source_error(vendor: Vendor, model, mode: str) -> None:
    """What came before is heard, and then the failure, not an end that looks like one."""
    vendor.mode = mode
    heard = []

    with pytest.raises(SourceError, match="openai/m"):
        await hear(model.stream(PROMPT, max_tokens=9), heard)
    assert WORDS[:2] == heard


async def test_nobody_listening_is_an_unavailable_source(client) -> None:
    """A refused connection is an unavailable source."""
    with pytest.raises(SourceUnavailable):
        await client("openai/m", api_base="http://127.0.0.1:9/v1", api_key="k").complete(PROMPT, max_tokens=4)


async def test_a_caller_that_leaves_hangs_up(vendor: Vendor, client) -> None:
    """The vendor notices that nobody listens any more and can stop."""
    vendor.mode = "stall"
    stream = client("openai/m", api_base=vendor.url, api_key="k").stream(PROMPT, max_tokens=9)
    async with aclosing(stream) as pieces:
        async for _ in pieces:
            break

    assert await asyncio.to_thread(vendor.left.wait, 20)


@pytest.mark.parametrize("way", ["whole", "stream"])
async def test_a_fallback_answers_and_the_failure_is_told(vendor: Vendor, model, way: str) -> None:
    """When the hosted model refuses, the next one answers, and the degradation names the one that did not."""
    vendor.mode = "503"
    trace, models = Trace(), [model, ExtractiveModel()]
    if way == "stream":
        pieces = [piece async for piece in route.stream(models, PROMPT, 24, trace)]
    else:
        pieces = [await route.complete(models, PROMPT, 24, trace)]

    assert {"extractive"} == {piece.model for piece in pieces}
    assert "Bergen" in "".join(piece.text for piece in pieces)
    (lost,) = trace.finish(()).degradations
    assert "model:litellm:openai/m" == lost.source
    assert "SourceUnavailable" in lost.reason


async def test_a_stream_that_breaks_is_not_begun_anew(vendor: Vendor, model) -> None:
    """Once something was heard, the failure is raised; only a whole answer can be replaced by another."""
    vendor.mode = "break"
    heard = []
    with pytest.raises(SourceError):
        await hear(route.stream([model, ExtractiveModel()], PROMPT, 24, Trace()), heard)

    assert WORDS[:2] == [piece.text for piece in heard]
