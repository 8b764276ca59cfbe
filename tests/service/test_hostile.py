"""Whatever is sent, the answer has our shape and is never a failure of ours."""

from __future__ import annotations

import json

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from contexture import Settings
from contexture.errors import BudgetTooSmall, ContextError, SourceUnavailable, TooManyRequests
from contexture.service._error_responses import STATUS_BY_CODE, error_response
from support.service import service_client, small_engine

JSON = {"Content-Type": "application/json"}
ROUTES = [
    ("POST", "/v1/search"),
    ("POST", "/v1/context/query"),
    ("POST", "/v1/ingest/documents"),
    ("DELETE", "/v1/ingest/documents"),
    ("POST", "/v1/context/turn"),
    ("POST", "/v1/context/command"),
    ("POST", "/v1/commands"),
    ("POST", "/v1/chat"),
    ("POST", "/memory/remember"),
    ("POST", "/memory/remember/batch"),
    ("POST", "/memory/recall"),
    ("POST", "/context/feedback"),
]
BODIES = {
    "nothing": b"",
    "half": b'{"query": "pu',
    "text": b'"pump"',
    "list": b"[]",
    "null": b"null",
    "number": b"1e999",
    "invalid UTF-8": b'{"query": "\xff\xfe"}',
    "surrogate": b'{"query": "\\ud800", "records": [{"id": "\\udfff", "text": "\\ud800"}], "ids": ["\\ud800"]}',
    "deep": b'{"query": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep filter": b'{"query": "x", "where": ' + b'{"not":' * 500 + b"1" + b"}" * 500 + b"}",
    "deep record": b'{"records": [{"id": "x", "text": "y", "z": ' + b"[" * 800 + b"]" * 800 + b"}]}",
    "wrong types": b'{"query": 5, "limit": "ten", "max_tokens": true, "records": {}, "ids": "a", "where": 3}',
    "numbers beyond": b'{"query": "x", "max_tokens": 1e400, "limit": -1, "records": [{"id": "a", "text": "b"}]}',
    "control characters": b'{"query": "\\u0000\\u001b[31m", "collection": "../../etc", "ids": ["\\u0000"]}',
    "command": b'{"raw_command": "/ask \\u0000 \\ud800=", "args": "k=1e9 window=\\ufeff", "env": {"version": "\\ud8"}}',
    "wrong command": b'{"raw_command": [], "args": {}, "env": {"defaults": 5}, "ab_test": "a", "user_lang": 7}',
    "unknown": b'{"query": "x", "qeury": 1, "records": [], "ids": []}',
}


ALONE = ((b"query", "/v1/search"), (b"query", "/v1/context/query"), (b"message", "/v1/chat"), (b"query", "/recall"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "query limit where collection max_tokens system model records ids acl fields again optimize tenant_id user_id "
    "session_id user_message history system_prompt max_prompt_tokens message stream value text content payload items "
    "memories metadata tags ttl_seconds importance timestamp readers top_k threshold namespace memory_id score utility "
    "raw_command args user_lang env ab_test"
).split()
LINES = st.sampled_from(["/ask pump", "/events", "/graph a b", "/memory store x", "/memory suggest", "/synthesize 1y"])


def check(answer: httpx.Response) -> None:
    """Fail unless the answer is no failure of ours, and in our shape when it is an error."""
    assert answer.status_code < 500, answer.text
    if answer.is_error:
        body = answer.json()
        assert {"error", "meta"} == body.keys()
        assert {"code", "user_message", "tech_message", "retryable", "message", "type"} == body["error"].keys()
        assert body["meta"]["correlation_id"] == answer.headers["x-correlation-id"]
        assert body["error"]["user_message"]
        assert "Traceback" not in answer.text


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_bodies_of_every_kind(client, method, path):
    """A body that makes no sense is refused in our shape on every route."""
    for body in BODIES.values():
        check(await client.request(method, path, content=body, headers=JSON))


async def test_unknown_fields_are_named(client):
    """A slip of the pen is found at once."""
    answer = await client.post("/v1/search", json={"query": "x", "limt": 3})

    assert 422 == answer.status_code
    assert "unknown field 'limt'" in answer.json()["error"]["user_message"]


async def test_every_wrong_field_is_named_and_no_value_is_repeated(client):
    """The message names fields and what they should be."""
    answer = await client.post("/v1/search", json={"query": 12345, "limit": 0})
    said = answer.json()["error"]["user_message"]

    assert "field 'query' must be a string" in said
    assert "field 'limit'" in said
    assert "12345" not in answer.text


async def test_a_body_that_is_not_called_json_is_refused(client):
    """A form of some web page must not be able to send a request."""
    answer = await client.post("/v1/search", content=b'{"query": "x"}', headers={"Content-Type": "text/plain"})

    assert 422 == answer.status_code
    assert "application/json" in answer.json()["error"]["user_message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/search", 405),
        ("PATCH", "/health", 405),
        ("GET", "/v1/builds/", 404),
        ("GET", "/v1/builds/..%2f..%2fetc", 404),
        ("GET", "/%ff", 404),
        ("BREW", "/health", 405),
    ],
)
async def test_wrong_paths_and_methods(client, method, path, status):
    """They are answered in our shape too."""
    answer = await client.request(method, path)

    check(answer)
    assert status == answer.status_code


@pytest.mark.parametrize("promised", [True, False])
async def test_a_body_that_is_too_large_is_refused(settings, promised):
    """Whether its length is announced or not, reading stops at the limit."""
    small = settings.model_copy(update={"max_body_bytes": 100})
    content = b'{"query": "' + b"x" * 200 + b'"}'

    async def pieces():
        yield content[:50]
        yield content[50:]

    async with small_engine(small) as engine, service_client(engine) as client:
        answer = await client.post("/v1/search", content=content if promised else pieces(), headers=JSON)

    check(answer)
    assert (413, "VALIDATION_FAILED") == (answer.status_code, answer.json()["error"]["code"])
    assert "CONTEXTURE_MAX_BODY_BYTES" in answer.json()["error"]["user_message"]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("abc-1.2:3", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("a b", False),
        ("", False),
        ("../x", False),
        ("ä", False),
    ],
)
async def test_a_sane_correlation_id_is_kept_and_any_other_replaced(client, sent, kept):
    """What comes back can be searched for in a log without harm."""
    answer = await client.get("/nowhere", headers=[(b"X-Correlation-Id", sent.encode())])

    assert kept is (sent == answer.headers["x-correlation-id"])
    assert answer.headers["x-correlation-id"] == answer.json()["meta"]["correlation_id"]


@pytest.mark.parametrize(
    "headers",
    [
        [(b"X-Contexture-Tenant", b"a"), (b"X-Contexture-Tenant", b"b")],
        [(b"X-Contexture-Tenant", b"\xff\xfe")],
        [(b"X-Contexture-User", b"%ff%00")],
        [(b"X-Contexture-Groups", b",,,")],
        [(b"X-Contexture-Now", b"yesterday")],
        [(b"Host", b"[::1")],
        [(b"Host", b"")],
        [(b"Authorization", b"Bearer \xff")],
        [(b"Content-Length", b"999999999999999999999999")],
        [(b"Content-Length", b"-5")],
        [(b"Content-Type", b"application/json; charset=\xff")],
    ],
)
async def test_bad_headers(client, headers):
    """A header that makes no sense is refused or ignored."""
    check(await client.post("/v1/context/query", content=b'{"query": "pump"}', headers=[*JSON.items(), *headers]))


@given(
    line=LINES,
    rest=st.dictionaries(st.sampled_from(["args", "user_lang", "env", "ab_test"]), VALUES, max_size=3),
    path=st.sampled_from(["/v1/context/command", "/v1/commands"]),
)
@hypothesis_settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_surroundings_of_a_command_are_answered(client, line, rest, path):
    """A command that exists, with anything around it, never ends in a failure of ours."""
    check(await client.post(path, content=json.dumps({"raw_command": line, **rest}).encode(), headers=JSON))


@pytest.mark.parametrize("path", ["/v1/context/command", "/v1/commands"])
async def test_what_nobody_foresaw_of_a_command_may_be_tried_again(engine, monkeypatch, path):
    """An unexpected failure is INTERNAL, and another try may help, as the specification has it."""

    async def broken(*_, **__):
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(engine.news, "find", broken)
    async with service_client(engine) as client:
        with capture_logs() as logs:  # a traceback takes seconds to draw
            answer = await client.post(path, json={"raw_command": "/ask pump", "env": {"version": "mine-7"}})

    told, meta = answer.json()["error"], answer.json()["meta"]
    assert (500, "INTERNAL", True) == (answer.status_code, told["code"], told["retryable"])
    assert ["mine-7", True] == [meta["version"], meta["correlation_id"].startswith("ctx-error-")]
    assert ["RuntimeError"] == [each["error"] for each in logs if each["log_level"] == "error"]
    assert "hunter2" not in answer.text


async def test_what_nobody_foresaw_is_answered_without_its_message(engine, monkeypatch):
    """The caller gets a correlation id and the type of the failure, and nothing that was in it."""

    async def broken(*_, **__):
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(engine, "search", broken)
    async with service_client(engine) as client:
        with capture_logs():  # a traceback takes seconds to draw
            answer = await client.post("/v1/search", json={"query": "x"}, headers={"X-Correlation-Id": "mine"})

    assert (500, "INTERNAL", "RuntimeError") == (
        answer.status_code,
        answer.json()["error"]["code"],
        answer.json()["error"]["tech_message"],
    )
    assert "mine" == answer.json()["meta"]["correlation_id"] == answer.headers["x-correlation-id"]
    assert "hunter2" not in answer.text


@pytest.mark.parametrize("code", STATUS_BY_CODE)
def test_every_code_has_its_status(code):
    """The table of codes is the one that callers were promised."""
    error = type("Made", (ContextError,), {"code": code})("x")
    promised = {
        "VALIDATION_FAILED": 422,
        "NO_DATA": 404,
        "FORBIDDEN": 403,
        "UNAUTHORIZED": 401,
        "CONFLICT": 409,
        "PRECONDITION_FAILED": 412,
        "LIMITED": 429,
        "UNAVAILABLE": 503,
    }

    assert promised.get(code, 500) == error_response(error, {"type": "http", "path": "/"}).status_code


def test_limits_say_when_to_try_again():
    """`Retry-After` is whole seconds, at least one."""
    answers = [error_response(TooManyRequests("x", after=after), {"type": "http", "path": "/"}) for after in (0.2, 2.6)]

    assert ["1", "3"] == [answer.headers["retry-after"] for answer in answers]


def test_retryable_is_what_the_error_says():
    """A source that is down may be asked again; a budget that is too small may not."""
    bodies = [
        json.loads(error_response(error, {"type": "http", "path": "/"}).body)
        for error in (SourceUnavailable("x"), BudgetTooSmall(2, 1))
    ]

    assert [True, False] == [body["error"]["retryable"] for body in bodies]


@given(body=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=7), route=st.sampled_from(ROUTES))
@hypothesis_settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_json_is_answered(client, body, route):
    """Fields that exist with values of any kind never end in a failure of ours."""
    check(await client.request(*route, content=json.dumps(body).encode(), headers=JSON))


async def test_no_setting_can_be_sent(client):
    """A request cannot change a setting by naming it, unless the route says so."""
    for name in Settings.model_fields.keys() - {"collection", "model", "max_tokens"}:
        check(answer := await client.post("/v1/context/query", json={"query": "x", name: "y"}))
        assert 422 == answer.status_code, name


@pytest.mark.parametrize(("name", "path"), ALONE)
async def test_half_a_character_in_a_question_is_mended(client: httpx.AsyncClient, name: bytes, path: str) -> None:
    """JSON can say what UTF-8 cannot; what is given back can be read."""
    answer = await client.post(path, content=b'{"%s": "\\ud800 pump"}' % name, headers=JSON)

    assert 200 == answer.status_code
    assert "\ud800" not in answer.json().get("query", "")


@pytest.mark.parametrize("query", ["", "  ", "\n"])
@pytest.mark.parametrize("path", ["/v1/search", "/v1/context/query"])
async def test_an_empty_question_is_refused(client: httpx.AsyncClient, path: str, query: str) -> None:
    """Whoever sends it has made a mistake, and is told."""
    answer = await client.post(path, json={"query": query})

    assert (422, "the query is empty") == (answer.status_code, answer.json()["error"]["user_message"])


@pytest.mark.parametrize("body", [b"null", b"[]", b"5", b'"pump"'])
async def test_a_body_that_is_no_object_is_told_so(client: httpx.AsyncClient, body: bytes) -> None:
    """In our words."""
    answer = await client.post("/v1/search", content=body, headers=JSON)

    assert (422, "the body is not a JSON object") == (answer.status_code, answer.json()["error"]["user_message"])
