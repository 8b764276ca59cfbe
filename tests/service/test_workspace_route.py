"""Workspace contexts over HTTP and on the command line, over the real store: shapes, permissions, replay."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from contexture import Contexture, Settings, replay
from contexture.capsule import pack_capsule
from contexture.service.envelope import encode_json
from contexture.testing.doubles import NOON
from contexture.types import Scope
from contexture.workspace import Block, BlockType
from support.service import service_client, small_engine

ROUTE = "/v1/context/workspace"
BLOCKS = [
    Block(id="plan", type=BlockType.PAGE, text="Plan"),
    Block(id="task", type=BlockType.TODO, text="Mend the pump", parent="plan", properties={"due": "2026-05-20"}),
    Block(id="secret", type=BlockType.PAGE, text="Salaries", readers=("user:boris", "user:anna")),
]


@pytest.fixture
async def engine(new_folder: Callable[[], Path]) -> AsyncIterator[Contexture]:
    """An engine with three blocks, one of them hidden from Clara."""
    async with small_engine(Settings(home=new_folder(), tenant="acme", user="anna")) as found:
        await found.workspace.put(found.scope, BLOCKS, now=NOON)
        yield found


@pytest.fixture
async def client(engine: Contexture) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service without keys."""
    async with service_client(engine) as found:
        yield found


async def test_the_route_answers_what_the_library_gives(client: httpx.AsyncClient, engine: Contexture) -> None:
    """In camelCase, without timings in the body, byte for byte."""
    asked = {"query": "What tasks are overdue?", "type": "chat", "focus": {"pageId": "plan"}}
    answer = await client.post(ROUTE, json=asked)
    built = await engine.build_workspace(asked, scope=engine.scope)
    told = answer.json()

    assert 200 == answer.status_code
    assert encode_json(built.to_dict()) == answer.content
    assert "collect;dur=" in answer.headers["Server-Timing"]
    assert {"totalTokens", "focusPageId", "collectorsUsed", "blocksIncluded", "blocksConsidered", "timestamp"} <= set(
        told["metadata"]
    )
    assert {"blockId", "blockType", "content", "relevance", "metadata"} == set(told["sections"][2]["items"][0])
    assert told["validation"]["valid"]


async def test_a_build_is_kept_and_can_be_replayed(client: httpx.AsyncClient, engine: Contexture) -> None:
    """Its ledger is served, its capsule gives the same bytes."""
    told = (await client.post(ROUTE, json={"query": "pump"})).json()
    kept = await client.get(f"/v1/builds/{told['buildId']}")

    assert 200 == kept.status_code
    capsule, _ = replay(pack_capsule(await engine.capsule(told["buildId"])))
    assert told["digest"] == capsule.digest


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({}, 422, "query"),
        ({"query": "x", "surprise": 1}, 422, "surprise"),
        ({"query": "x", "tokenBudget": {"total": 5}}, 422, "token"),
        ({"query": "x", "focus": {"pageId": "nowhere"}}, 404, "nowhere"),
        ({"query": "x", "user": {"id": "boris"}}, 403, "boris"),
    ],
)
async def test_what_is_wrong_is_answered(client: httpx.AsyncClient, body: object, status: int, named: str) -> None:
    """With the code of every route, and what is wrong named."""
    answer = await client.post(ROUTE, json=body)

    assert status == answer.status_code
    assert named in answer.text


async def test_a_hidden_focus_is_answered_like_an_unknown_one(client: httpx.AsyncClient) -> None:
    """Byte for byte, but for the id and the number of the request."""
    told: list[object] = []
    for name in ("secret", "nothin"):
        headers = {"X-Contexture-Tenant": "acme", "X-Contexture-User": "clara"}
        answer = await client.post(ROUTE, json={"query": "x", "focus": {"pageId": name}}, headers=headers)
        error = answer.json()["error"]
        told.append((answer.status_code, json.dumps(error).replace(name, "it")))

    assert told[0] == told[1]


async def test_a_failing_disk_does_not_cost_the_context(engine: Contexture) -> None:
    """A build that cannot be kept says so, and is a build."""
    (engine.settings.home / "builds").write_text("in the way")
    built = await engine.build_workspace({"query": "pump"}, scope=Scope(tenant="acme", user="anna"))

    assert ["builds"] == [lost.source for lost in built.degradations]
