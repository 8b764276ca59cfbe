"""What OpenAPI says is what is answered: requests are generated from it, and answers are held against it."""

from __future__ import annotations

import asyncio
import json
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import BaseModel
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from contexture import Settings
from contexture.builders.plugin import BuilderPlugin
from contexture.builders.query.compose import recompose_query
from contexture.service._openapi import REFUSALS
from contexture.service.app import create_app
from contexture.service.wire.schemas import EXAMPLES_FILE
from contexture.testing.doubles import FixedClock
from contexture.types import PUBLIC, Record
from support.service import small_engine

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
WAITING = {"/ready"}  # 503 is what it says while nothing warms it up
IMAGES = {("GET", f"/v1/pages/{{doc_id}}/{{page}}/{name}") for name in ("image", "thumb")}  # not JSON
BASE = "http://127.0.0.1"
EXAMPLES = EXAMPLES_FILE.read_text("utf-8")
ARTICLE = {
    "id": "a1",
    "title": "Pump strike",
    "text": "The pump strike goes on. Pump workers want more pay.",
    "date": "2026-01-01T10:00:00Z",
    "source": "x.example",
}
FILE = {"filename": "a.md", "content": "IyBIZWxsbwpQdW1wcyBhcmUgbmljZSBhbmQgbGVhay4="}
BLOCKS = [{"id": "p", "type": "page", "text": "Pumps"}, {"id": "b", "text": "The pump leaks", "parent": "p"}]
TABLE = [
    {"id": "t", "type": "db", "text": "Orders", "properties": {"schema": {"cost": "number"}}},
    {"id": "r", "type": "db_row", "text": "Valve", "parent": "t", "properties": {"cost": 5, "status": "Ordered"}},
]
ASKED = [
    ("POST", "/v1/ingest/articles", {"articles": [ARTICLE, {"id": 5}]}),
    ("POST", "/v1/ingest/documents", {"records": [{"id": "x", "text": "y"}, {"id": 5}], "files": [FILE]}),
    ("POST", "/v1/documents", {}),
    ("POST", "/v1/ingest/blocks", {"blocks": BLOCKS}),
    ("POST", "/memory/remember", {"text": "The pump leaks on Mondays.", "id": "m1", "mood": "wet"}),
    ("POST", "/memory/remember/batch", {"memories": [{"text": "The pump is red.", "id": "m2"}]}),
    ("POST", "/v1/ingest/memories", {"memories": [{"text": "The pump is loud.", "id": "m3"}]}),
    ("POST", "/recall", {"query": "pump leaks", "threshold": 0}),
    ("POST", "/memory/recall", {"query": "pump leaks", "threshold": 0}),
    ("POST", "/context/evaluate", {"query": "pump leaks", "threshold": 0}),
    ("POST", "/context/feedback", {"memory_id": "m1", "score": 1}),
    ("POST", "/v1/search", {"query": "pump"}),
    ("GET", "/v1/records/documents/pump", None),
    ("POST", "/v1/context/ask", {"query": "pump"}),
    ("POST", "/v1/ask", {"query": "which pump leaks?"}),
    ("POST", "/v1/ask", {"query": "which pump leaks?", "stream": True}),
    ("POST", "/v1/context/query", {"query": "pump", "max_tokens": 200}),
    ("POST", "/v1/context/turn", {"user_message": "pump leaks", "history": [{"role": "user", "content": "hi"}]}),
    ("POST", "/v1/context/command", {"raw_command": "/ask pump strike window=1y"}),
    ("POST", "/v1/context/research", {"query": "pumps"}),
    ("POST", "/v1/context/workspace", {"query": "pump", "focus": {"pageId": "p"}, "type": "chat"}),
    ("POST", "/v1/commands", {"raw_command": "/memory recall pump"}),
    ("POST", "/v1/commands", {"raw_command": "/graph query pump window=1y"}),
    ("POST", "/v1/commands", {"raw_command": "/events link pump window=1y"}),
    ("POST", "/v1/commands", {"raw_command": "/synthesize pump window=1y"}),
    ("POST", "/v1/commands", {"raw_command": "/memory store pump window=1y"}),
    ("POST", "/v1/commands", {"raw_command": "/ask pump strike window=1y"}),
    ("POST", "/v1/chat", {"message": "pump leaks", "session_id": "s"}),
    ("POST", "/v1/chat", {"message": "pump leaks", "stream": True}),
    ("POST", "/v1/chat", {"message": "pump leaks", "message_id": "m-1"}),
    ("GET", "/v1/chat/replies/m-1", None),
    ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "pump leaks"}]}),
    ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "pump leaks"}], "stream": True}),
    ("GET", "/v1/models/contexture", None),
    ("POST", "/v1/embeddings", {"input": "pump leaks"}),
    ("GET", "/v1/models", None),
    ("POST", "/api/research/ask", {"query": "pumps"}),
    ("GET", "/v1/sessions", None),
    ("GET", "/v1/sessions/s/events", None),
    ("POST", "/v1/forget", {"matching": "pump leaks", "preview": True}),
    ("DELETE", "/v1/sessions/s", None),
    ("GET", "/v1/blocks/b", None),
    ("POST", "/v1/ingest/jobs", {"records": [{"id": "j", "text": "The pump is old."}]}),
    ("POST", "/v1/ingest/jobs", {"blocks": BLOCKS}),
    ("POST", "/v1/ingest/reindex", {"limit": 2}),
    ("POST", "/v1/blocks/b/view", None),
    ("POST", "/v1/ingest/blocks", {"blocks": TABLE}),
    ("GET", "/v1/blocks", None),
    ("GET", "/v1/blocks/p/children", None),
    ("GET", "/v1/blocks/p/subtree", None),
    ("PATCH", "/v1/blocks/b", {"text": "The pump leaks into [[Pumps]]"}),
    ("GET", "/v1/blocks/b/history", None),
    ("POST", "/v1/blocks/b/revert", {"version": 2}),
    ("GET", "/v1/blocks/p/backlinks", None),
    ("POST", "/v1/blocks/b/copy", {"parent": "p"}),
    ("POST", "/v1/blocks/t/query", {"group_by": ["status"], "aggregate": [{"column": "cost", "function": "sum"}]}),
    ("GET", "/v1/workspace/find?title=pumps", None),
    ("POST", "/v1/workspace/tasks", {"filter": [{"column": "done", "equals": False}]}),
    ("GET", "/v1/workspace/changes", None),
    ("POST", "/v1/workspace/ask", {"query": "Which pump leaks?"}),
    ("DELETE", "/v1/blocks/t", None),
    ("GET", "/v1/workspace/trash", None),
    ("DELETE", "/v1/workspace/trash", {"before": "2020-01-01T00:00:00Z"}),
    ("POST", "/v1/blocks/b/move", {}),
    ("DELETE", "/v1/ingest/blocks", {"ids": ["b"]}),
    ("POST", "/v1/blocks/b/restore", None),
    ("DELETE", "/memory/m2", None),
    ("DELETE", "/v1/ingest/memories", {"ids": ["m1", "none"]}),
    ("DELETE", "/v1/ingest/articles", {"ids": ["a1"]}),
    ("DELETE", "/v1/ingest/documents", {"ids": ["x"], "doc_ids": ["none"]}),
    ("GET", "/v1/demo/memory", None),
    ("POST", "/v1/demo/memory", {"broken": False}),
    ("GET", "/health", None),
    ("GET", "/ready", None),
    ("GET", "/metrics", None),
]


@pytest.fixture
async def app(settings: Settings):
    """The application over a small engine with a record and a file."""
    async with small_engine(settings) as engine:
        await engine.add([Record(id="pump", title="Pump", text="The pump leaks. It is red.", acl=(PUBLIC,))])
        yield create_app(engine, keys=None, settings=settings, clock=FixedClock(), members={})


def client_of(app: FastAPI) -> httpx.AsyncClient:
    """A client that is answered as by a server, whatever happens."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=BASE)


def operations(app: FastAPI) -> list:
    """Every operation that is described, ready to make requests of."""
    if not hasattr(app.state, "described"):
        schema = schemathesis.openapi.from_dict(app.openapi())
        app.state.described = [found.ok() for found in schema.get_all_operations()]
    return app.state.described


def sent(case) -> dict:
    """A generated request as `httpx` takes it."""
    made = case.as_transport_kwargs(base_url=BASE)
    body = {"json": made["json"]} if "json" in made else {"content": made.get("data") or b""}
    kept = {name: value for name, value in made["headers"].items() if name.lower() != "authorization"}
    return {
        "method": made["method"],
        "url": made["url"],
        "params": made.get("params"),
        "headers": {**kept, "Content-Type": "application/json"},
        **body,
    }


def validate(operation, answer: httpx.Response) -> None:
    """Fail unless the answer is as the operation describes it."""
    names = dict.fromkeys(re.findall(r"{(\w+)}", operation.path), "x")
    operation.Case(path_parameters=names).validate_response(answer, checks=CHECKS[1:])


@given(data=st.data())
@hypothesis_settings(
    max_examples=120,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
async def test_generated_requests_are_answered_as_described(app: FastAPI, data: st.DataObject) -> None:
    """Requests that fit the description, and some that do not: no failure of ours, and every answer fits."""
    described = [each for each in operations(app) if each.path not in WAITING]
    operation = data.draw(st.sampled_from(described))
    mode = data.draw(st.sampled_from([GenerationMode.POSITIVE] * 2 + [GenerationMode.NEGATIVE]))
    case = data.draw(operation.as_strategy(generation_mode=mode))
    app.state.engine.break_memory(broken=False)  # a request before may have broken it, and 503 would then be right
    async with client_of(app) as client:
        answer = await client.request(**sent(case))
    case.validate_response(answer, checks=CHECKS)


async def test_answers_to_real_requests_are_as_described(app: FastAPI) -> None:
    """What works has every field that was promised and no other, on every route; and examples were recorded from it."""
    known = {(each.method.upper(), each.path): each for each in operations(app)}
    found = [each async for each in answers(app)]
    for name, answer in found:
        assert answer.is_success or name[1] in WAITING, (name, answer.text)
        validate(known[name], answer)

    assert known.keys() - {name for name, _ in found} == IMAGES
    assert {" ".join(name) for name, answer in found if is_json(answer)} == json.loads(EXAMPLES).keys()


async def answers(app: FastAPI) -> AsyncIterator[tuple[tuple[str, str], httpx.Response]]:
    """The answers to `ASKED`, and to what can be asked once there are builds and documents; each with its operation."""
    known = [(each.method.upper(), each.path) for each in operations(app)]
    async with client_of(app) as client:

        async def ask(method: str, path: str, body: object = None) -> tuple[tuple[str, str], httpx.Response]:
            answer = await client.request(method, path, json=body)
            return next(name for name in known if _fits(name, method, path)), answer

        for method, path, body in ASKED:
            name, answer = await ask(method, path, body)
            yield name, answer
            if path == "/v1/ingest/jobs":
                for how in ("GET", "DELETE"):
                    yield await ask(how, answer.headers["Location"])
            if path == "/v1/context/query":
                place, first = f"/v1/builds/{answer.json()['build_id']}", answer.json()["ledger"][0]["id"]
                yield await ask("GET", place)
                yield await ask("GET", f"{place}/explain/{quote(first, safe='')}")
                yield await ask("GET", f"{place}/capsule")
                yield await ask("POST", "/v1/builds/answer", {"build_id": answer.json()["build_id"]})
                yield await ask("POST", "/v1/citations/verify", answer.json())
            if path == "/v1/sessions/s/events":
                yield await ask("DELETE", f"{path}/{answer.json()['events'][0]['id']}")
            if path == "/v1/documents":
                place = answer.json()["documents"][0]["doc_id"]
                yield await ask("GET", f"/v1/documents/{place}")
                yield await ask("GET", f"/v1/pages/{place}/1/regions")


def is_json(answer: httpx.Response) -> bool:
    """Whether the answer is one JSON document and a success."""
    return answer.is_success and answer.headers.get("content-type") == "application/json"


def _fits(name: tuple[str, str], method: str, path: str) -> bool:
    wanted, asked = name[1].split("/"), path.partition("?")[0].split("/")
    same = len(wanted) == len(asked) and all(a == b or a.startswith("{") for a, b in zip(wanted, asked, strict=True))
    return same and name[0] == method


async def test_refusals_are_those_of_operations(app: FastAPI) -> None:
    """Every operation for which reasons are listed exists, and shows them in words and for programs."""
    paths = app.openapi()["paths"]
    listed = {
        f"{method} {path}": operation["responses"]["4XX"]
        for path, operations_ in paths.items()
        for method, operation in operations_.items()
        if "x-refusals" in operation["responses"]["4XX"]
    }

    assert listed.keys() == REFUSALS.keys()
    assert all(f"\n- {reason}" in each["description"] for each in listed.values() for reason in each["x-refusals"])


@pytest.mark.slow
def test_a_real_service_passes_all_checks_of_generated_requests() -> None:
    """Examples and generated requests of a fixed seed: no 5XX, and refusals only as described."""
    script = Path(__file__).parents[2] / "scripts" / "check_openapi.py"
    words = [sys.executable, str(script), "--cases", "300", "--phases", "examples,fuzzing"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout[-5_000:] + done.stderr[-2_000:]


async def test_every_example_is_as_described(app: FastAPI) -> None:
    """The example of an answer has every field that is promised and no other."""
    described = app.openapi()
    for operation in operations(app):
        answers = described["paths"][operation.path][operation.method]["responses"]
        status = next(each for each in answers if each.startswith("2"))
        told = answers[status].get("content", {})
        shown = told.get("application/json", {})
        if shown and operation.path not in WAITING:
            answer = httpx.Response(int(status), json=shown["example"], request=httpx.Request(operation.method, BASE))
            answer.elapsed = timedelta()
            validate(operation, answer)


async def test_every_route_says_how_it_fails_and_how_a_key_is_presented(app: FastAPI) -> None:
    """Errors have one shape, and nothing but status is open."""
    described = app.openapi()
    operations_ = [(path, each) for path, found in described["paths"].items() for each in found.values()]

    assert all("4XX" in each["responses"] and "422" not in each["responses"] for _, each in operations_)
    assert {"/health", "/ready", "/metrics"} == {path for path, each in operations_ if not each["security"]}
    assert all(each["security"] in ([], [{"HTTPBearer": []}]) for _, each in operations_)


def bodies(app: FastAPI) -> dict[tuple[str, str], dict]:
    """The schema of the body of every request that has one."""
    described = app.openapi()
    schemas = described["components"]["schemas"]
    found = {}
    for path, operations_ in described["paths"].items():
        for method, operation in operations_.items():
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                name = schema.get("$ref", "").rpartition("/")[2]
                found[method.upper(), path] = schemas[name] if name else schema
    return found


class Source(BaseModel):
    """A model of another package with the name of a component."""

    colour: str


class QueryRequest(BaseModel):
    """A request of another package that has the name of a component, and contains itself."""

    source: Source
    inner: QueryRequest | None = None


async def test_builders_of_other_packages_replace_no_component(app: FastAPI, settings: Settings) -> None:
    """Their request models are described under their kind; ours are described as without them."""
    builder = BuilderPlugin(kind="poem", recompose=recompose_query, request=QueryRequest)
    extended = create_app(app.state.engine, keys=None, settings=settings, members={}, builders=[builder])
    schemas = extended.openapi()["components"]["schemas"]

    assert app.openapi()["components"]["schemas"].items() <= schemas.items()
    assert ["source", "inner"] == list(bodies(extended)["POST", "/v1/context/poem"]["properties"])
    assert {"$ref": "#/components/schemas/poem.Source"} == schemas["poem.QueryRequest"]["properties"]["source"]
    assert ["colour"] == list(schemas["poem.Source"]["properties"])


async def test_every_part_of_requests_and_answers_has_a_type(app: FastAPI) -> None:
    """A generated client knows what to send and what it gets; what may be any JSON says so."""
    untyped = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "metrics.py"))["untyped_properties"]

    assert [] == untyped(app.openapi(), answers=False)
    assert [] == untyped(app.openapi(), answers=True)
    assert ["POST /x.a", "POST /x.b[]", "POST /x.c{}"] == untyped(
        request_of({"a": {}, "b": {"type": "array"}, "c": {"type": "object"}, "d": {"type": ["string", "null"]}}),
        answers=False,
    )


def request_of(properties: dict) -> dict:
    """A document with one request that has these properties."""
    content = {"application/json": {"schema": {"type": "object", "properties": properties}}}
    return {"paths": {"/x": {"post": {"requestBody": {"content": content}, "responses": {}}}}}


async def test_operations_have_plain_names_and_path_parameters_a_description(app: FastAPI) -> None:
    """A generated client has functions such as `build_turn_context`, each once."""
    operations = [each for path in app.openapi()["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    given = [one for each in operations for one in each.get("parameters", ()) if one["in"] == "path"]

    assert "build_turn_context" in names
    assert len(set(names)) == len(names)
    assert not [name for name in names if name.endswith(("_get", "_post", "_delete"))]
    assert all(one.get("description") for one in given)


async def test_what_may_be_any_json_is_described(app: FastAPI) -> None:
    """A list of all types says little by itself."""
    free = [
        (place, name)
        for place, schema in bodies(app).items()
        for name, each in schema.get("properties", {}).items()
        if "object" in each.get("type", ()) and "array" in each["type"] and not each.get("description")
    ]

    assert [] == free


async def test_every_request_has_an_example_that_is_accepted(app: FastAPI) -> None:
    """What the description shows can be sent: it fits the schema, and if it is refused then not for its fields."""
    async with client_of(app) as client:
        for (method, path), schema in bodies(app).items():
            answer = await client.request(method, path.replace("{block_id}", "b"), json=schema["examples"][0])

            assert answer.is_success or "NO_DATA" == answer.json()["error"]["code"], (path, answer.text)


async def record_examples() -> None:
    """Write the examples of OpenAPI anew: what the service answers to the requests of this module."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder) / "store")
        async with small_engine(settings) as engine:
            await engine.add([Record(id="pump", title="Pump", text="The pump leaks. It is red.", acl=(PUBLIC,))])
            app = create_app(engine, keys=None, settings=settings, clock=FixedClock(), members={})
            told = {" ".join(name): answer.json() async for name, answer in answers(app) if is_json(answer)}
    text = json.dumps(dict(sorted(told.items())), indent=1, ensure_ascii=False)
    EXAMPLES_FILE.write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    asyncio.run(record_examples())
