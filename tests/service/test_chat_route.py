"""Chat over HTTP: whole answers, streams, sessions, refusals, and clients that leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from contexture import Contexture
from contexture.adapters.keys import ApiKeys
from contexture.answer.route import ModelRoute
from contexture.conversation import Decision
from contexture.errors import SourceUnavailable
from contexture.testing.doubles import NOON, ScriptedChatModel
from contexture.types import Scope
from support.service import service_client


def use(engine: Contexture, **parts) -> None:
    """Let the engine's chat work with other parts."""
    engine.__dict__["chat"] = replace(engine.chat, **parts)


def scripted(*answers: str | Exception) -> ModelRoute:
    """A model that gives these answers."""
    return ModelRoute({"scripted": ScriptedChatModel(answers)})


def parsed(text: str) -> list[tuple[str, dict]]:
    """The events of a stream by name."""
    blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.split("\n\n") if block.strip()]
    return [(block["event"], json.loads(block["data"])) for block in blocks]


async def test_an_answer_comes_whole(engine: Contexture, client: httpx.AsyncClient) -> None:
    """The reply, its build, usage and events are in one object."""
    use(engine, route=scripted("Good day."))
    sent = await client.post("/v1/chat", json={"message": "Hello there", "session_id": "s-1"})
    told = sent.json()

    assert 200 == sent.status_code
    assert ("s-1", "Good day.", "scripted", []) == (
        told["session_id"], told["reply"], told["model"], told["degradations"],
    )  # fmt: skip
    assert told["build_id"].startswith("ctx-")
    assert told["usage"]["total_tokens"] == told["usage"]["prompt_tokens"] + told["usage"]["completion_tokens"]
    assert [("user", 1), ("assistant", 2)] == [(each["message"]["role"], each["position"]) for each in told["events"]]
    assert 200 == (await client.get(f"/v1/builds/{told['build_id']}")).status_code


@pytest.mark.parametrize("way", ["field", "header"])
async def test_an_answer_comes_in_pieces(engine: Contexture, client: httpx.AsyncClient, way: str) -> None:
    """A stream has the context first, then the pieces, then the whole result."""
    use(engine, route=scripted("One two three."))
    body = {"message": "Count", "stream": True} if way == "field" else {"message": "Count"}
    headers = {} if way == "field" else {"Accept": "text/event-stream"}
    sent = await client.post("/v1/chat", json=body, headers=headers)
    events = parsed(sent.text)

    assert "text/event-stream" == sent.headers["content-type"].partition(";")[0]
    assert ["context", "delta", "delta", "delta", "done"] == [name for name, _ in events]
    assert {"session_id", "build_id", "degradations"} == set(events[0][1])
    assert (
        "One two three." == "".join(data["text"] for name, data in events if name == "delta") == events[-1][1]["reply"]
    )
    assert events[0][1]["build_id"] == events[-1][1]["build_id"]


async def test_sessions_and_events_can_be_read_again(engine: Contexture, client: httpx.AsyncClient) -> None:
    """A caller finds their sessions and what was said in them, and nobody else does."""
    use(engine, route=scripted("a", "b", "c"))
    for session in ("first/of two", "second", "first/of two"):
        await client.post("/v1/chat", json={"message": f"to {session}", "session_id": session})
    path = "/v1/sessions/first%2Fof%20two/events"

    assert {"sessions": ["first/of two", "second"]} == (await client.get("/v1/sessions")).json()
    assert ["to first/of two", "a", "to first/of two", "c"] == [
        each["message"]["content"] for each in (await client.get(path)).json()["events"]
    ]
    assert 1 == len((await client.get(path, params={"limit": 1})).json()["events"])
    boris = {"X-Contexture-User": "boris"}
    assert [] == (await client.get(path, headers=boris)).json()["events"]
    assert {"sessions": []} == (await client.get("/v1/sessions", headers=boris)).json()


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "message"),
        ({"message": ""}, "empty"),
        ({"message": " \n "}, "empty"),
        ({"message": 5}, "message"),
        ({"message": "x", "max_tokens": 0}, "max_tokens"),
        ({"message": "x", "max_prompt_tokens": -1}, "max_prompt_tokens"),
        ({"message": "x", "max_prompt_tokens": 1}, "budget"),
        ({"message": "x", "max_tokens": "many"}, "max_tokens"),
        ({"message": "x", "model": "litellm:gpt-9"}, "litellm:gpt-9"),
        ({"message": "x", "mood": "good"}, "mood"),
        ({"message": "x", "session_id": "s" * 300}, "session_id"),
        ({"message": "x", "stream": "yes"}, "stream"),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.parametrize("stream", ["", "text/event-stream"])
async def test_what_is_wrong_is_named(client: httpx.AsyncClient, body: dict, named: str, stream: str) -> None:
    """A bad request is refused with the field, with its status, streamed or not, and nothing is kept."""
    sent = await client.post("/v1/chat", json=body, headers={"Accept": stream} if stream else {})

    assert 422 == sent.status_code
    assert named in sent.json()["error"]["user_message"]
    assert {"sessions": []} == (await client.get("/v1/sessions")).json()


@pytest.mark.parametrize("body", [{"tenant_id": "other"}, {"user_id": "boris"}])
async def test_a_key_speaks_for_its_owner_only(engine: Contexture, body: dict) -> None:
    """A body that names another tenant or user is forbidden, whatever the route would have done."""
    keys = ApiKeys(engine.settings.home / "keys.sqlite")
    _, secret = keys.add("k", Scope(tenant="acme", user="anna"), now=NOON)
    async with service_client(engine, keys=keys) as client:
        sent = await client.post(
            "/v1/chat", json={"message": "x", **body}, headers={"Authorization": f"Bearer {secret}"}
        )

    assert (403, "FORBIDDEN") == (sent.status_code, sent.json()["error"]["code"])


class Denying:
    """A policy that allows nothing."""

    async def decide(self, scope, action, resource) -> Decision:
        """Always no."""
        return Decision(allowed=False, reason=f"{action} is not for {scope.user}")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_denied_message_leaves_no_trace(engine: Contexture, client: httpx.AsyncClient, stream) -> None:
    """A policy that denies is told as such, and nothing is stored."""
    use(engine, policy=Denying())
    sent = await client.post("/v1/chat", json={"message": "Hello", "stream": stream})

    assert (403, "message.process is not for anna") == (sent.status_code, sent.json()["error"]["user_message"])
    assert [] == list(await engine.sessions.sessions(engine.scope))
    assert 0 == (await engine.outbox.drain()).waiting


async def test_a_model_that_fails_is_told_in_the_stream(engine: Contexture, client: httpx.AsyncClient) -> None:
    """After the context an `error` event in our shape ends the stream."""
    use(engine, route=scripted(SourceUnavailable("the vendor is down")))
    events = parsed((await client.post("/v1/chat", json={"message": "Hello", "stream": True})).text)

    assert ["context", "error"] == [name for name, _ in events]
    assert "UNAVAILABLE" == events[1][1]["error"]["code"]
    assert 503 == (await client.post("/v1/chat", json={"message": "Hello"})).status_code


class Endless:
    """A model that goes on until nobody listens."""

    name = "endless"

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self.begun = asyncio.Event()

    async def stream(self, messages, *, max_tokens) -> AsyncIterator[str]:
        """Words without end."""
        try:
            while True:
                yield "and "
                self.begun.set()
                await asyncio.sleep(0)
        finally:
            self.stopped.set()


async def test_a_client_that_leaves_stops_the_answer(engine: Contexture, client: httpx.AsyncClient) -> None:
    """The model is stopped and what was said is kept as aborted."""
    model = Endless()
    use(engine, route=ModelRoute({"endless": model}))
    asking = asyncio.create_task(
        client.post("/v1/chat", json={"message": "Tell me", "session_id": "s", "stream": True})
    )
    await model.begun.wait()
    asking.cancel()
    await asyncio.wait([asking])
    await model.stopped.wait()
    async with engine.chat.session_locks.hold(("acme", "anna", "s")):
        found = await engine.sessions.list_events(engine.scope, "s")

    assert ["user", "assistant"] == [each.message["role"] for each in found]
    assert "aborted" == found[1].metadata["status"]
    assert found[1].message["content"].startswith("and ")
