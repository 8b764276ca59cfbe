"""Results serialise: `to_dict` is what the service sends, and any FastAPI route may return one."""

from __future__ import annotations

import json

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from contexture import ChatRequest, ResearchQuestion
from contexture.results import JsonResult
from contexture.testing.doubles import NOON
from support.service import service_client

ARTICLE = {
    "id": "a1", "title": "Pump strike", "text": "The pump strike goes on. Pump workers want more pay.",
    "date": "2026-05-30T10:00:00Z", "source": "x.example",
}  # fmt: skip
LOADED = {
    "articles": {"articles": [ARTICLE]},
    "documents": {"files": [{"filename": "a.md", "content": "IyBIZWxsbwpQdW1wcyBhcmUgbmljZSBhbmQgbGVhay4="}]},
    "blocks": {"blocks": [{"id": "p", "type": "page", "text": "Pumps"}]},
}


@pytest.fixture
async def results(engine):
    """One result of each kind, by name."""
    scope = engine.scope
    async with service_client(engine) as client:
        for path, body in LOADED.items():
            assert (await client.post(f"/v1/ingest/{path}", json=body)).is_success
    query = await engine.build("who mends the pump?", now=NOON)
    build_id = query.context.build_id
    return {
        "query": query,
        "turn": await engine.build_turn({"user_message": "pump", "history": [{"role": "user", "content": "hi"}]}),
        "command": await engine.build_command({"raw_command": "/ask pump strike window=1y"}, now=NOON),
        "research": await engine.build_research("pump"),
        "workspace": await engine.build_workspace({"query": "pumps", "focus": {"pageId": "p"}}),
        "executed": await engine.execute.run({"raw_command": "/ask pump strike window=1y"}, scope=scope, now=NOON),
        "answered": await engine.ask_research.run(ResearchQuestion(query="pump"), scope=scope),
        "chat": await engine.chat.run(ChatRequest(message="pump", session_id="s"), scope=scope),
        "search": await engine.search("pump"),
        "explanation": await engine.explain(build_id, query.ledger.entries[0].id),
        "capsule": await engine.capsule(build_id),
        "verified": await engine.verify(json.dumps(query.to_dict()).encode()),
    }


async def test_every_result_can_be_dumped_as_json(results):
    """`json.dumps` of `to_dict` loses nothing and changes nothing."""
    for name, result in results.items():
        assert isinstance(result, JsonResult), name
        assert result.to_dict() == json.loads(json.dumps(result.to_dict(), allow_nan=False)), name


def returning(result):
    """An endpoint that returns this."""

    async def endpoint():
        return result

    return endpoint


async def test_a_fastapi_route_returns_a_result_as_it_is(results):
    """The return type of the route describes it, and the answer is what `to_dict` gives."""
    app = FastAPI()
    for name, result in results.items():
        app.add_api_route(f"/{name}", returning(result), response_model=type(result), name=name)
    client = TestClient(app)
    described = client.get("/openapi.json").json()

    for name, result in results.items():
        told = client.get(f"/{name}").json()
        shape = described["paths"][f"/{name}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        if "$ref" in shape:
            shape = described["components"]["schemas"][shape["$ref"].rpartition("/")[2]]

        assert told == result.to_dict(), name
        assert set(told) == set(shape["properties"]) == set(shape["required"]), name


async def test_the_service_sends_what_to_dict_gives(engine):
    """For the same clock, every byte."""
    built = await engine.build("who mends the pump?", now=NOON)
    found = await engine.search("pump")
    async with service_client(engine) as client:
        build = await client.get(f"/v1/builds/{built.context.build_id}/capsule")
        search = await client.post("/v1/search", json={"query": "pump"})

    assert built.capsule.to_dict() == build.json()
    assert found.first(10).to_dict() == search.json()
