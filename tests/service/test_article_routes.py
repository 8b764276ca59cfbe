"""`/v1/ingest/articles`: articles over HTTP."""

from __future__ import annotations

import pytest

from contexture.ledger import Trace
from contexture.news.articles import NewsQuestion
from contexture.testing.doubles import NOON
from contexture.types import Scope
from support.news import STRIKE

URL = "/v1/ingest/articles"
BORIS = {"X-Contexture-User": "boris"}
ROW = {"id": "a", "title": "Strike", "text": STRIKE, "url": "https://www.a.example/1", "published": "2026-06-01T10:00Z"}


async def found(engine, *, user="anna"):
    """The ids that a user finds."""
    scope = Scope(tenant="acme", user=user)
    question = NewsQuestion(text="strike dockers")
    return [
        each.article.article_id for each in await engine.news.find(scope, question, k=5, rerank=True, trace=Trace())
    ]


async def test_articles_are_written_and_found(client, engine):
    """The report says what was added and how many are copies; loading again changes nothing."""
    rows = [ROW, {**ROW, "id": "b", "url": "https://b.example/1", "published": "2026-06-01T11:00Z"}]
    first = (await client.post(URL, json={"articles": rows})).json()
    second = (await client.post(URL, json={"articles": rows})).json()

    assert (first["read"], first["added"], first["collapsed"], first["failed"]) == (2, 2, 1, [])
    assert (second["added"], second["unchanged"], second["collapsed"]) == (0, 2, 0)
    assert ["a"] == await found(engine)


async def test_an_article_without_a_date_has_the_clock_of_the_request(client, engine):
    """The time of loading is an argument here too."""
    row = {"id": "a", "text": STRIKE}
    await client.post(URL, json={"articles": [row]}, headers={"X-Contexture-Now": "2026-05-01T00:00:00Z"})
    (stored,) = await engine.news.get(engine.scope, ["a"])

    assert stored.published.isoformat() == "2026-05-01T00:00:00+00:00"
    assert stored.published < NOON


async def test_bad_rows_are_named_by_their_place_and_the_rest_is_written(client):
    """An unknown field, readers that cannot be read and an empty article are refused; a bad date is a warning."""
    rows = [
        {**ROW, "colour": "red"},
        {**ROW, "id": "b", "readers": ["anna"]},
        {"id": "c"},
        {**ROW, "id": "d", "published": "soon"},
    ]
    report = (await client.post(URL, json={"articles": rows})).json()

    assert report["added"] == 1
    assert [1, 2, 3] == sorted(each["line"] for each in report["failed"])
    assert any("'colour'" in each["message"] for each in report["failed"])
    assert [4] == [each["line"] for each in report["warnings"]]


async def test_readers_are_those_of_the_row_or_of_the_request(client, engine):
    """An article for anna is hidden from boris, as if it were not there."""
    await client.post(URL, json={"articles": [ROW], "readers": ["user:anna"]})

    assert (["a"], []) == (await found(engine), await found(engine, user="boris"))


@pytest.mark.parametrize(
    "body",
    [{"articles": [ROW], "colour": "red"}, {"articles": "a"}, {}, {"articles": [ROW], "readers": [""]}, {"ids": ["a"]}],
)
async def test_bodies_that_are_not_understood_are_refused(client, body):
    """Unknown fields and wrong types are named, and nothing is written."""
    response = await client.post(URL, json=body)

    assert (response.status_code, response.json()["error"]["code"]) == (422, "VALIDATION_FAILED")


async def test_articles_are_removed_by_those_who_may_read_them(client, engine):
    """The answer counts what was there; others are answered as if it were not."""
    await client.post(URL, json={"articles": [{**ROW, "readers": ["user:anna"]}]})
    foreign = await client.request("DELETE", URL, json={"ids": ["a"]}, headers=BORIS)
    own = await client.request("DELETE", URL, json={"ids": ["a", "a", "never"]})

    assert (0, 1) == (foreign.json()["deleted"], own.json()["deleted"])
    assert [] == await found(engine)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"articles": [null]}',
        b'{"articles": [{}]}',
        b'{"articles": [{"id": "\\ud800", "text": "x"}]}',
        b'{"articles": [{"id": "a", "text": "\\ud800", "title": "\\udfff", "source": "\\ud800", "url": "\\ud800"}]}',
        b'{"articles": [{"id": "a", "text": "x", "lang": "\\ud800", "readers": ["user:\\ud800"]}]}',
        b'{"articles": [{"id": "a\\u0000", "text": "\\u0000\\u001b[31m", "url": "http://[x", "source": "//["}]}',
        b'{"articles": [{"id": "a", "text": "x", "age_hours": 1e308}]}',
        b'{"articles": [{"id": "a", "text": "x", "published": "0001-01-01T00:00:00+14:00"}]}',
        b'{"articles": [{"id": "a", "text": "x", "published": "9999-12-31T23:59:59-14:00"}]}',
        b'{"articles": [{"id": "a", "text": "one two three four five six seven eight", "published": "0001-01-01"}]}',
        b'{"articles": [{"id": "a", "text": "one two three four five six seven eight", "published": "9999-12-31"}]}',
        b'{"articles": [{"id": "a", "text": "x", "published": ' + b"[" * 500 + b"]" * 500 + b"}]}",
        b'{"articles": [{"id": "a", "text": "' + b"a " * 20_000 + b'"}]}',
        b'{"ids": ["\\ud800", "\\u0000"]}',
        b'{"ids": "a"}',
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_hostile_bodies_never_break_it(client, method, body):
    """Whatever is sent is refused, reported or stored."""
    response = await client.request(method, URL, content=body, headers={"Content-Type": "application/json"})

    assert response.status_code < 500, response.text


async def test_a_private_copy_says_nothing_of_others(client, engine):
    """Each has a copy; loaded again it is left alone, and one that is written for others tells nothing of theirs."""
    row = {name: value for name, value in ROW.items() if name != "id"}
    bodies = [
        ({"articles": [row], "readers": ["user:anna"]}, {}),
        ({"articles": [row], "readers": ["user:boris"]}, BORIS),
    ]
    first = [(await client.post(URL, json=body, headers=who)).json() for body, who in bodies]
    again = [(await client.post(URL, json=body, headers=who)).json() for body, who in bodies]
    probing = (await client.post(URL, json=bodies[0][0], headers=BORIS)).json()

    assert [(1, []), (1, [])] == [(each["added"], each["failed"]) for each in first]
    assert [(0, 1), (0, 1)] == [(each["added"], each["unchanged"]) for each in again]
    assert (1, []) == (probing["added"], probing["failed"])
    assert 1 == len(await found(engine, user="boris"))
