"""Open routes, `Allow`, the length of queries, and paths that are no memory's id."""

from __future__ import annotations

import pytest

from contexture.adapters.keys import ApiKeys
from contexture.service.app import create_app
from contexture.testing.doubles import NOON
from contexture.types import Scope
from support.service import service_client

OPEN = ("/health", "/ready", "/metrics")


async def test_open_routes_are_described_as_open_and_others_as_keyed(engine):
    """A client that reads the description knows where it must present a key."""
    paths = create_app(engine, keys=None, settings=engine.settings).openapi()["paths"]
    open_paths = {path for path, each in paths.items() if all(not one["security"] for one in each.values())}

    assert set(OPEN) == open_paths


async def test_an_open_route_can_need_a_key(engine, settings):
    """Then it is answered with a key alone, and described so; the others stay open."""
    engine.settings = settings.model_copy(update={"keyed_routes": ("/metrics", "/openapi.json")})
    keys = ApiKeys(settings.home / "keys.sqlite")
    token = keys.add("prometheus", Scope(tenant="acme", user="prometheus"), now=NOON)[1]
    async with service_client(engine, keys=keys) as client:
        bare = [(await client.get(path)).status_code for path in ("/metrics", "/openapi.json", "/health")]
        mine = {"Authorization": f"Bearer {token}"}
        keyed = await client.get("/metrics", headers=mine)
        document = (await client.get("/openapi.json", headers=mine)).json()
    keys.close()

    assert ([401, 401, 200], 200) == (bare, keyed.status_code)
    assert [{"HTTPBearer": []}] == document["paths"]["/metrics"]["get"]["security"]
    assert [] == document["paths"]["/health"]["get"]["security"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/ingest/documents", "DELETE, POST"),
        ("PUT", "/v1/ingest/memories", "DELETE, POST"),
        ("POST", "/v1/records/documents/pump", "GET"),
        ("DELETE", "/memory/remember/batch", "POST"),
        ("DELETE", "/memory/remember", "POST"),
        ("DELETE", "/memory/recall", "POST"),
        ("GET", "/memory/m1", "DELETE"),
        ("POST", "/health", "GET"),
        ("GET", "/v1/blocks/b/move", "POST"),
        ("OPTIONS", "/v1/blocks/b/restore", "POST"),
        ("PATCH", "/v1/blocks/b/children", "GET"),
        ("DELETE", "/v1/blocks/b/revert", "POST"),
        ("DELETE", "/v1/sessions/s/events", "GET"),
        ("POST", "/v1/sessions/s/events/e", "DELETE"),
    ],
)
async def test_a_wrong_method_is_answered_with_all_that_the_path_has(client, method, path, allowed):
    """Also where several routes share a path."""
    answer = await client.request(method, path)

    assert (405, allowed) == (answer.status_code, answer.headers["allow"])


async def test_an_id_that_begins_like_a_route_is_still_an_id(client):
    """Only the paths of other routes are left out."""
    for name in ("remember/batch/1", "recalled"):
        await client.post("/memory/remember", json={"text": f"The pump {name}.", "id": name})

        assert 200 == (await client.delete(f"/memory/{name}")).status_code


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/search", {"query": "{}"}),
        ("/v1/context/query", {"query": "{}"}),
        ("/v1/context/research", {"query": "{}"}),
        ("/v1/context/workspace", {"query": "{}"}),
        ("/v1/context/command", {"raw_command": "/ask", "args": "{}"}),
        ("/memory/recall", {"query": "{}"}),
        ("/context/feedback", {"query": "{}", "score": 1}),
        ("/v1/forget", {"matching": "{}", "preview": True}),
    ],
)
async def test_a_query_has_a_length_limit(client, engine, path, body):
    """422 names the setting; a query of that length is answered."""
    most = engine.settings.max_query_characters
    codes = []
    for length in (most, most + 1):
        text = ("pump " * length)[:length]
        answer = await client.post(path, json={name: text if value == "{}" else value for name, value in body.items()})
        codes.append("CONTEXTURE_MAX_QUERY_CHARACTERS" in answer.text)

    assert [False, True] == codes
    assert 422 == answer.status_code


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", "/v1/workspace/trash", {"before": 0}),
        ("DELETE", "/v1/workspace/trash", {"before": "1700000000"}),
        ("GET", "/v1/workspace/changes?until=0.5", None),
        ("GET", "/v1/workspace/changes?since=1e9", None),
        ("POST", "/v1/workspace/tasks", {"sort": [{"column": "due", "descending": 0}]}),
        ("POST", "/v1/workspace/tasks", {"filter": [{"column": "due", "empty": 1}]}),
        ("POST", "/v1/ingest/blocks", {"blocks": [{"id": "b", "type": "page", "text": "b", "created": 5}]}),
    ],
)
async def test_a_number_is_neither_a_time_nor_a_yes(client, method, path, body):
    """What violates the schema of an operation is refused, not guessed."""
    answer = await client.request(method, path, json=body)

    assert 422 == answer.status_code, answer.text
