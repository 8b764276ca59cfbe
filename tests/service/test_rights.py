"""What a key may be used for: each route takes one right, and a key without it is refused."""

from __future__ import annotations

import re

import pytest

from contexture.adapters.keys import ApiKeys, Right
from contexture.service.app import create_app
from contexture.service.auth import MODEL_ROUTES, READ_ROUTES, required_right
from contexture.testing.doubles import NOON
from contexture.types import Scope
from support.service import service_client

ANNA = Scope(tenant="acme", user="anna")
CALLS = [
    (Right.READ, "POST", "/v1/search", {"query": "pump"}),
    (Right.READ, "POST", "/v1/context/turn", {"user_message": "pump"}),
    (Right.READ, "POST", "/recall", {"query": "pump"}),
    (Right.READ, "GET", "/v1/sessions", None),
    (Right.ASK, "POST", "/v1/chat", {"message": "pump"}),
    (Right.ASK, "POST", "/v1/commands", {"raw_command": "/ask pump"}),
    (Right.WRITE, "POST", "/v1/ingest/documents", {"records": [{"id": "x", "text": "y"}]}),
    (Right.WRITE, "DELETE", "/v1/ingest/documents", {"ids": ["x"]}),
    (Right.WRITE, "POST", "/memory/remember", {"text": "pumps leak"}),
    (Right.WRITE, "DELETE", "/memory/x", None),
    (Right.ADMIN, "POST", "/v1/demo/memory", {"broken": False}),
]


@pytest.fixture
def keys(settings):
    """The keys of the store."""
    found = ApiKeys(settings.home / "keys.sqlite")
    yield found
    found.close()


@pytest.mark.parametrize("right", Right)
async def test_a_key_is_good_for_what_it_says_and_nothing_else(engine, keys, right):
    """`admin` is good for everything; the others for their own routes."""
    _, token = keys.add("x", ANNA, now=NOON, rights=[right])
    headers = {"Authorization": f"Bearer {token}"}
    async with service_client(engine, keys=keys, members={}) as client:
        for takes, method, path, body in CALLS:
            answer = await client.request(method, path, json=body, headers=headers)
            refused = 403 == answer.status_code and f"the scope {takes.value!r}" in answer.text

            assert refused is (right not in {takes, Right.ADMIN}), (path, answer.text)


async def test_a_refusal_comes_before_what_is_wrong_with_the_body(engine, keys):
    """Who may not write learns nothing about how to."""
    _, token = keys.add("x", ANNA, now=NOON, rights=[Right.READ])
    async with service_client(engine, keys=keys) as client:
        answer = await client.post(
            "/v1/ingest/documents", json={"recrods": []}, headers={"Authorization": f"Bearer {token}"}
        )

    assert (403, "yours has read") == (answer.status_code, answer.json()["error"]["user_message"].split("; ")[1])


def test_the_lists_name_routes_that_exist(engine, settings):
    """A slip in a path would make a route take more than it should."""
    app = create_app(engine, keys=None, settings=settings)
    posts = {path for path, method in _routes(app) if method == "POST"}

    assert posts >= {re.sub(r":\w+}", "}", path) for path in MODEL_ROUTES | READ_ROUTES}


def test_whatever_is_not_listed_takes_more_than_reading(engine, settings):
    """A route that is added and forgotten here is closed to keys that only read."""
    app = create_app(engine, keys=None, settings=settings, members={})
    changing = {(path, method) for path, method in _routes(app) if method not in {"GET", "HEAD"}}

    assert not {path for path, method in changing if required_right(method, path) is Right.READ} - READ_ROUTES


def _routes(app):
    described = app.openapi()["paths"]
    return {(path, method.upper()) for path, operations in described.items() for method in operations}
