"""`/v1/ingest/blocks` and `/v1/blocks/{id}`: a workspace over HTTP."""

from __future__ import annotations

import pytest

from contexture.service.wire.ingest import BlockBody, block_object
from contexture.testing.blocks_tree import PRIVATE, make_block
from contexture.testing.doubles import NOON
from contexture.types import Scope
from contexture.workspace import BlockType

URL = "/v1/ingest/blocks"
BORIS = {"X-Contexture-User": "boris"}
ANNA = Scope(tenant="acme", user="anna")
PAGE = {"id": "p", "type": "page", "text": "Plant"}
TODO = {"id": "a/t", "type": "todo", "text": "mend the pump", "parent": "p", "properties": {"due": "2026-06-02"}}
NOTE = {"id": "n", "text": "stolen pump", "parent": "p", "readers": ["user:anna"]}


async def put(client, *rows, headers=None):
    """Write these rows."""
    return await client.post(URL, json={"blocks": list(rows)}, headers=headers)


async def test_blocks_are_written_shown_and_found(client, engine):
    """The answer counts what is new, altered and known; a block is shown with its path."""
    first, again = (await put(client, TODO, NOTE, PAGE)).json(), (await put(client, TODO, PAGE)).json()
    shown = (await client.get("/v1/blocks/a/t")).json()

    no_import = {"kept_readers": [], "narrowed": []}
    assert {"added": 3, "changed": 0, "unchanged": 0, **no_import} == first
    assert {"added": 0, "changed": 0, "unchanged": 2, **no_import} == again
    times = {"created": NOON.isoformat(), "modified": NOON.isoformat()}
    assert TODO | {"order": 0.0, "author": "anna", "version": 1, **times} == shown["block"]
    assert "anna" == shown["creator"]
    assert [{"id": "p", "type": "page", "text": "Plant"}] == shown["path"]
    result = await engine.search("pump", collection="blocks", scope=Scope(tenant="acme", user="boris"))
    assert ["a/t"] == [each.record_id for each in result.found]


async def test_the_names_of_the_specification_are_understood(client, engine):
    """`blockId`, `blockType`, `content`, `parentId`, `lastModified` and `createdAt` mean what they say."""
    row = {"blockId": "x", "blockType": "quote", "content": "so it is", "parentId": "p"}
    await put(client, PAGE, row | {"lastModified": "2026-05-01T00:00:00Z", "createdAt": "2026-04-01T00:00:00Z"})
    (found,) = await engine.blocks.get(ANNA, ["x"])

    assert (BlockType.QUOTE, "so it is", "p") == (found.type, found.text, found.parent)
    assert ("2026-04-01", "2026-05-01") == (found.created.date().isoformat(), found.modified.date().isoformat())


async def test_a_block_goes_over_the_wire_and_back():
    """What one side sends the other reads as the same block."""
    given = make_block(
        "a", "p", text="x", kind=BlockType.TODO, order=1.5, readers=PRIVATE, properties={"due": "2026-01-01"}
    )

    assert given == BlockBody.model_validate(block_object(given)).to_block()


async def test_a_hidden_block_is_answered_as_an_unknown_one(client):
    """Every route answers 404 with the same words."""
    await put(client, PAGE, NOTE)
    for asked in (("GET", ""), ("POST", "/move"), ("POST", "/restore"), ("POST", "/view")):
        body = {"parent": None} if asked[1] == "/move" else None
        hidden, unknown = [
            await client.request(asked[0], f"/v1/blocks/{name}{asked[1]}", json=body, headers=BORIS)
            for name in ("n", "never")
        ]
        assert (404, 404) == (hidden.status_code, unknown.status_code)
        said = [answer.json()["error"] for answer in (hidden, unknown)]
        assert str(said[0]).replace("'n'", "'never'") == str(said[1])
    below = await put(client, {"id": "x", "parent": "n"}, headers=BORIS)
    assert (404, "NO_DATA") == (below.status_code, below.json()["error"]["code"])


async def test_blocks_are_moved(client, engine):
    """Below another block, or to the top."""
    await put(client, PAGE, TODO, NOTE)
    moved = await client.post("/v1/blocks/a/t/move", json={"parentId": "n", "order": 2})
    (hidden,) = [await engine.blocks.get(Scope(tenant="acme", user="boris"), ["a/t"])]
    await client.post("/v1/blocks/a/t/move", json={})
    (top,) = await engine.blocks.get(ANNA, ["a/t"])

    assert ({"moved": True}, []) == (moved.json(), list(hidden))
    assert None is top.parent
    circle = await client.post("/v1/blocks/p/move", json={"parent": "n"})
    assert (422, "VALIDATION_FAILED") == (circle.status_code, circle.json()["error"]["code"])


async def test_blocks_are_removed_and_restored(client):
    """A block that the caller may not see stays, and what is restored does not count it."""
    await put(client, PAGE, TODO, NOTE)
    gone = await client.request("DELETE", URL, json={"ids": ["p", "never"]}, headers=BORIS)
    missing = await client.get("/v1/blocks/p")
    back = await client.post("/v1/blocks/p/restore")

    assert (2, 404, {"restored": 2}) == (gone.json()["deleted"], missing.status_code, back.json())
    assert 404 == (await client.post("/v1/blocks/p/restore")).status_code


async def test_what_a_reader_may_not_do_is_refused(client):
    """A reader who may edit a page cannot take it over, and a version that was replaced is a conflict."""
    await put(client, PAGE)
    taken = await put(client, PAGE | {"readers": ["user:boris"]}, headers=BORIS)
    first = (await client.get("/v1/blocks/p")).json()["block"]
    edited = await put(client, first | {"text": "Works"}, headers=BORIS)
    late = await put(client, first | {"text": "Mill"})

    assert (403, "FORBIDDEN") == (taken.status_code, taken.json()["error"]["code"])
    assert {"changed": 1} == {name: count for name, count in edited.json().items() if count}
    assert (409, "CONFLICT") == (late.status_code, late.json()["error"]["code"])
    assert "version 2, not version 1" in late.json()["error"]["user_message"]


async def test_views_are_noted(client, engine):
    """With the clock of the request."""
    await put(client, PAGE)
    answer = await client.post("/v1/blocks/p/view", headers={"X-Contexture-Now": "2026-05-01T00:00:00Z", **BORIS})
    touched = (await engine.blocks.touches(Scope(tenant="acme", user="boris"), ["p"]))["p"]

    assert ({"viewed": True}, 1, "2026-05-01") == (answer.json(), touched.views, touched.last.date().isoformat())


@pytest.mark.parametrize(
    "body",
    [
        {"blocks": [{"id": "x", "colour": "red"}]},
        {"blocks": [{"id": ""}]},
        {"blocks": [{"id": "x", "type": "sculpture"}]},
        {"blocks": [{"id": "x", "readers": []}]},
        {"blocks": [{"id": "x", "readers": ["anna"]}]},
        {"blocks": [{"id": "x"}, {"id": "x"}]},
        {"blocks": [{"id": "x", "parent": "y"}, {"id": "y", "parent": "x"}]},
        {"blocks": [{"id": "x", "modified": "soon"}]},
        {"blocks": "x"},
        {"blocks": [], "more": 1},
        {},
    ],
    ids=str,
)
async def test_bodies_that_are_not_understood_are_refused(client, engine, body):
    """The answer says why, and nothing is written."""
    answer = await client.post(URL, json=body)

    assert (422, "VALIDATION_FAILED") == (answer.status_code, answer.json()["error"]["code"])
    assert [] == list(await engine.blocks.get(ANNA, ["x", "y"]))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"blocks": [null]}',
        b'{"blocks": [{"id": "\\ud800"}]}',
        b'{"blocks": [{"id": "a\\u0000b"}]}',
        b'{"blocks": [{"id": "a", "text": "\\ud800 \\u0000", "author": "\\udfff"}]}',
        b'{"blocks": [{"id": "a", "properties": {"\\ud800": ["\\ud800"]}}]}',
        b'{"blocks": [{"id": "a", "order": 1e999}]}',
        b'{"blocks": [{"id": "a", "order": NaN}]}',
        b'{"blocks": [{"id": "a", "properties": {"n": NaN, "m": 1e999}}]}',
        b'{"blocks": [{"id": "a", "properties": {"due": "9999-12-31T23:59-14:00", "n": 1234567890123456789012}}]}',
        b'{"blocks": [{"id": "a", "type": "todo", "properties": {"due": "9999-12-31"}}]}',
        b'{"blocks": [{"id": "a", "type": "db", "properties": {"schema": {"x": {"type": ["relation"]}}}}]}',
        b'{"blocks": [{"id": "a", "created": "0001-01-01T00:00:00+14:00", "modified": "9999-12-31T23:59:59-14:00"}]}',
        b'{"blocks": [{"id": "a", "properties": {"x": ' + b"[" * 800 + b"]" * 800 + b"}}]}",
        b'{"blocks": [{"id": "a", "readers": ["user:\\ud800"]}]}',
        b'{"blocks": [{"id": "a", "text": "' + b"[[" * 20_000 + b'"}]}',
        b'{"blocks": [{"id": "a", "text": "' + b"((((" * 20_000 + b'"}]}',
        b'{"ids": ["\\ud800", "\\u0000"]}',
    ],
    ids=lambda body: body[:60].decode(),
)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
async def test_whatever_is_sent_is_answered(client, method, body):
    """Nothing that a body says is a failure of ours."""
    answer = await client.request(method, URL, content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code < 500


@pytest.mark.parametrize("name", ["%00", "%ED%A0%80", "a%2Fb", "x" * 2_000, "%F0%9F%98%80"])
async def test_whatever_is_asked_for_is_answered(client, name):
    """An id that no block can have is an unknown or a refused one."""
    for method, tail in (("GET", ""), ("POST", "/view"), ("POST", "/restore")):
        assert (await client.request(method, f"/v1/blocks/{name}{tail}")).status_code in (404, 422)


@pytest.mark.parametrize("path", ["/v1/ingest/blocks", "/v1/ingest/jobs"])
async def test_a_version_is_a_whole_number(client, path):
    """However it is spelled; neither a text nor a truth value is one."""
    codes = [
        (await client.post(path, json={"blocks": [{"id": "v", "text": "x", "version": version}]})).status_code
        for version in (False, "0", 0.5, 0.0, 0)
    ]

    assert [422, 422, 422] == codes[:3]
    assert {200, 202} >= set(codes[3:])
