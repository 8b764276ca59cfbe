"""Web pages of other origins: kept away by default, let in by name."""

from __future__ import annotations

import pytest

from contexture.errors import InvalidRequest, Overloaded
from contexture.service._admission import Slots
from support.service import service_client

PREFLIGHT = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
APP, OTHER = "https://app.example", "https://other.example"


async def asked(engine, origins, origin):
    """What a browser is told before and with a request of a page of this origin."""
    engine.settings = engine.settings.model_copy(update={"cors_origins": origins})
    async with service_client(engine) as client:
        before = await client.options("/v1/search", headers={"Origin": origin, **PREFLIGHT})
        answer = await client.post("/v1/search", json={"query": "pump"}, headers={"Origin": origin})
    name = "access-control-allow-origin"
    return before.headers.get(name), answer.headers.get(name)


async def test_by_default_no_page_may_call(engine):
    """No header says that one may, so browsers do not let them."""
    assert (None, None) == await asked(engine, (), APP)


async def test_a_page_of_a_named_origin_may_call(engine):
    """And nobody else's."""
    assert (APP, APP) == await asked(engine, (APP,), APP)
    assert (None, None) == await asked(engine, (APP,), OTHER)


async def test_a_page_of_a_named_origin_may_use_every_method_of_the_api(engine):
    """A browser asks before it sends any of them."""
    engine.settings = engine.settings.model_copy(update={"cors_origins": (APP,)})
    async with service_client(engine) as client:
        paths = (await client.get("/openapi.json")).json()["paths"].values()
        methods = {method.upper() for operations in paths for method in operations}
        answers = [
            await client.options(
                "/v1/blocks/b", headers={"Origin": APP, **PREFLIGHT, "Access-Control-Request-Method": name}
            )
            for name in sorted(methods)
        ]

    assert {200} == {each.status_code for each in answers}


async def test_a_page_can_read_that_it_was_sent_away(engine, monkeypatch):
    """In a full house too its browser is told that it may call, and the page when to try again."""
    monkeypatch.setattr(Slots, "refusal", lambda *_: Overloaded("that is all we take"))
    engine.settings = engine.settings.model_copy(update={"cors_origins": (APP,)})
    async with service_client(engine) as client:
        before = await client.options("/v1/search", headers={"Origin": APP, **PREFLIGHT})
        answer = await client.post("/v1/search", json={"query": "pump"}, headers={"Origin": APP})

    assert (200, 503, "1") == (before.status_code, answer.status_code, answer.headers["retry-after"])
    assert [APP, APP] == [each.headers.get("access-control-allow-origin") for each in (before, answer)]


@pytest.mark.parametrize(
    ("origin", "status"),
    [(APP, 200), ("http://127.0.0.1:8420", 200), ("http://localhost:3000", 200), ("", 200)]
    + [(each, 403) for each in (OTHER, "null", "http://[", "https://localhost.example", "file://")],
)
async def test_without_keys_other_pages_cannot_even_send(engine, origin, status):
    """A browser sends simple requests without asking, and here nothing but the sender's place is known."""
    engine.settings = engine.settings.model_copy(update={"cors_origins": (APP,)})
    async with service_client(engine) as client:
        answer = await client.post("/v1/search", json={"query": "pump"}, headers={"Origin": origin})

    assert status == answer.status_code


async def test_no_cookie_ever_counts(engine):
    """Keys are presented, never sent along by a browser on its own."""
    engine.settings = engine.settings.model_copy(update={"cors_origins": (APP,)})
    async with service_client(engine) as client:
        answer = await client.options("/v1/search", headers={"Origin": APP, **PREFLIGHT})

    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origin", ["*", "https://*.example", "app.example", "https://app.example/", "null", ""])
async def test_what_is_not_one_origin_is_refused_at_the_start(engine, origin):
    """A star would let every page of the web in."""
    with pytest.raises(InvalidRequest, match="CONTEXTURE_CORS_ORIGINS"):
        await asked(engine, (origin,), APP)
