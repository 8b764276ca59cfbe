"""Search, builds and documents over HTTP."""

from __future__ import annotations

import json

from contexture import QueryRequest
from contexture.capsule import pack_capsule, unpack_capsule
from contexture.engine import replay
from contexture.service.envelope import encode_json
from contexture.testing.doubles import NOON

ANNA = {"X-Contexture-User": "anna"}
BORIS = {"X-Contexture-User": "boris", "X-Contexture-Groups": "finance"}


def ids(answer):
    """The records in an answer of search."""
    return {row["citation"]["record_id"] for row in answer.json()["results"]}


async def test_search_answers_what_the_caller_may_read(client):
    """Each user finds the public record and their own."""
    mine = await client.post("/v1/search", json={"query": "pump"}, headers=ANNA)
    theirs = await client.post("/v1/search", json={"query": "pump"}, headers=BORIS)

    assert ({"pump", "valve"}, {"pump", "bill"}) == (ids(mine), ids(theirs))
    assert "<EMAIL_1>" in mine.text
    assert "anna@example.org" not in mine.text


async def test_search_takes_a_filter_and_a_limit(client):
    """What the filter excludes is not found, and no more than the limit is shown."""
    none = await client.post("/v1/search", json={"query": "pump", "where": {"equals": ["lang", "ru"]}})
    one = await client.post("/v1/search", json={"query": "pump", "limit": 1})

    assert [] == none.json()["results"]
    assert 1 == len(one.json()["results"])


async def test_a_build_has_the_bytes_that_the_library_gives(client, engine):
    """Route and library agree on every byte for the same clock; timings are in a header only."""
    answer = await client.post(
        "/v1/context/query",
        json={"query": "who mends the pump?", "max_tokens": 300},
        headers={"X-Contexture-Now": "2020-01-01"},
    )
    request = QueryRequest(query="who mends the pump?", max_tokens=300)
    built = await engine.build(request, now=NOON.replace(year=2020, month=1, day=1, hour=0))

    assert encode_json(built.to_dict()) == answer.content
    assert "collect;dur=" in answer.headers["server-timing"]
    assert "timings" not in answer.json()


async def test_a_build_counts_the_tokens_of_the_model_that_is_named(client):
    """Without a model it is the one in the settings."""
    asked = {"query": "pump", "max_tokens": 300}
    own = await client.post("/v1/context/query", json=asked)
    other = await client.post("/v1/context/query", json={**asked, "model": "cl100k_base"})

    assert ("o200k_base", "cl100k_base") == (own.json()["encoding"], other.json()["encoding"])


async def test_a_kept_build_explains_and_replays(client):
    """The ledger equals the build's, and the capsule rebuilds the same messages."""
    built = (await client.post("/v1/context/query", json={"query": "pump", "max_tokens": 300})).json()
    kept = (await client.get(f"/v1/builds/{built['build_id']}")).json()
    packed = json.dumps(kept["capsule"]).encode()
    capsule, ledger = replay(pack_capsule(unpack_capsule(packed)))
    one = await client.get(f"/v1/builds/{built['build_id']}/explain/pump%2300000")

    assert built["ledger"] == kept["ledger"] == json.loads(encode_json(ledger.entries))
    assert built["messages"] == json.loads(encode_json(capsule.messages))
    assert "kept" == one.json()["candidate"]["state"]


async def test_foreign_and_unknown_builds_are_answered_alike(client):
    """Nobody learns that somebody else has made a build, or of which candidates."""
    built = (await client.post("/v1/context/query", json={"query": "pump"}, headers=ANNA)).json()["build_id"]
    foreign = await client.get(f"/v1/builds/{built}", headers=BORIS)
    unknown = await client.get("/v1/builds/ctx-000000000000", headers=BORIS)
    about = await client.get(f"/v1/builds/{built}/explain/pump%2300000", headers=BORIS)

    assert {404} == {foreign.status_code, unknown.status_code, about.status_code}
    assert (
        foreign.json()["error"]
        == json.loads(unknown.text.replace("ctx-000000000000", built))["error"]
        == about.json()["error"]
    )


async def test_documents_are_written_once_and_each_failure_has_its_place(client):
    """New records are added, known ones left alone, bad rows named by their number."""
    rows = [{"id": "a", "text": "A sieve."}, {"id": 7, "text": "?"}, {"id": "b", "text": "A bolt.", "stars": 3}]
    first = (await client.post("/v1/ingest/documents", json={"records": rows})).json()
    second = (await client.post("/v1/ingest/documents", json={"records": rows})).json()

    assert (2, 0, [2]) == (first["added"], first["unchanged"], [each["line"] for each in first["failed"]])
    assert (0, 2) == (second["added"], second["unchanged"])
    assert "a" in ids(await client.post("/v1/search", json={"query": "sieve"}))


async def test_declared_fields_can_be_filtered(client):
    """`fields` makes a payload field usable in `where`."""
    rows = [{"id": str(stars), "text": "a sieve", "title": str(stars), "stars": stars} for stars in (1, 5)]
    body = {"records": rows, "collection": "parts", "fields": {"stars": "number"}, "optimize": True}
    await client.post("/v1/ingest/documents", json=body)
    where = {"range": ["stars", {"gte": 3}]}
    found = await client.post("/v1/search", json={"query": "sieve", "collection": "parts", "where": where})

    assert {"5"} == ids(found)


async def test_nobody_deletes_what_they_may_not_read(client):
    """A foreign record is answered like one that never was, and stays."""
    refused = await client.request("DELETE", "/v1/ingest/documents", json={"ids": ["valve", "none"]}, headers=BORIS)
    done = await client.request("DELETE", "/v1/ingest/documents", json={"ids": ["valve"]}, headers=ANNA)

    assert (0, 1) == (refused.json()["deleted"], done.json()["deleted"])


async def test_tenants_do_not_meet(client):
    """The collections and fields of this one are unknown to another, in the words that a name nobody has gets."""
    other = {"X-Contexture-Tenant": "other"}
    await client.post("/v1/ingest/documents", json={"records": [{"id": "p", "text": "A pump."}], "collection": "parts"})
    there, nowhere = [
        await client.post("/v1/search", json={"query": "pump", "collection": name}, headers=other)
        for name in ("parts", "nowhere_x")
    ]
    loaded = {"records": [{"id": "1", "text": "A pump."}], "fields": {"stars": "keyword"}}
    await client.post("/v1/ingest/documents", json=loaded, headers=other)
    body = {"records": [{"id": "5", "text": "A sieve.", "stars": 5}], "fields": {"stars": "number"}}
    before = await client.get("/health")
    mine = await client.post("/v1/ingest/documents", json=body, headers=ANNA)
    await client.post("/v1/ingest/documents", json={**body, "collection": "plans"}, headers=ANNA)
    after = await client.get("/health")
    found = await client.post("/v1/search", json={"query": "pump"}, headers=other)

    assert {404} == {there.status_code, nowhere.status_code}
    assert (
        there.json()["error"]["user_message"].replace("parts", "nowhere_x") == nowhere.json()["error"]["user_message"]
    )
    assert "none yet" in there.text
    assert 200 == mine.status_code
    assert before.json() == after.json()
    assert {"1"} == ids(found)
