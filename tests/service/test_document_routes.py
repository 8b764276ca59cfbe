"""Documents over HTTP: files in, pages found, documents gone; records are written there as before."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from contexture.conversation import Memory
from contexture.ledger import Trace
from contexture.types import Scope

URL = "/v1/ingest/documents"
PLAN = Path(__file__).parents[2] / "examples" / "documents" / "maintenance-plan.docx"
BORIS = Scope(tenant="acme", user="boris")


def upload(name: str, data: bytes) -> dict[str, str]:
    """A file as the route takes it."""
    return {"filename": name, "content": base64.b64encode(data).decode()}


async def found(engine, scope, question):
    """The files that a search of pages finds."""
    return [each.filename for each in await engine.pages.find(scope, question, k=5, trace=Trace())]


async def test_files_are_read_into_pages_and_found(client, engine):
    """One request has a verdict per file; the good one is found by what it says, at the time of the request."""
    body = {"files": [upload("plan.docx", PLAN.read_bytes()), upload("lying.pdf", b"no PDF")]}
    headers = {"X-Contexture-Now": "2026-05-01T00:00:00Z"}
    report = (await client.post(URL, json=body, headers=headers)).json()
    [document] = await engine.pages.documents(engine.scope, limit=5)

    assert (2, 1, 2) == (report["read"], report["added"], report["pages"])
    assert ["added", "failed"] == [each["status"] for each in report["files"]]
    assert ["lying.pdf"] == [each["path"] for each in report["failed"]]
    assert ["plan.docx"] == list(dict.fromkeys(await found(engine, engine.scope, "bearings are greased")))
    assert "2026-05-01T00:00:00+00:00" == document.timestamp.isoformat()


async def test_a_file_for_some_is_not_there_for_others(client, engine):
    """`acl` says who reads the pages of a file."""
    body = {"files": [upload("note.md", b"# Vault\n\nThe vault code is blue.")], "acl": ["user:anna"]}
    await client.post(URL, json=body)

    assert ["note.md"] == await found(engine, engine.scope, "vault code")
    assert [] == await found(engine, BORIS, "vault code")


async def test_documents_are_removed_with_their_pages(client, engine):
    """`doc_ids` removes documents; one that is unknown counts nothing."""
    report = (await client.post(URL, json={"files": [upload("note.md", b"# Vault\n\nThe code.")]})).json()
    doc_id = report["files"][0]["doc_id"]
    gone = (await client.request("DELETE", URL, json={"doc_ids": [doc_id, "unknown"]})).json()

    assert (0, 1) == (gone["deleted"], gone["documents"])
    assert [] == await found(engine, engine.scope, "vault")


async def test_names_and_contents_that_are_none_are_refused(client, engine, tmp_path):
    """A name that climbs is a failed file, bytes that are no base64 a bad request."""
    climbing = (await client.post(URL, json={"files": [upload("../../evil.md", b"# Evil")]})).json()
    garbled = await client.post(URL, json={"files": [{"filename": "a.md", "content": "%%%"}]})

    assert 1 == len(climbing["failed"])
    assert 422 == garbled.status_code
    assert () == await engine.pages.documents(engine.scope, limit=5)


async def test_records_and_files_go_together(client, engine):
    """One request may hold both, and one report counts both."""
    row = {"id": "r1", "text": "A record about cranes."}
    body = {"records": [row], "files": [upload("note.md", b"# Vault\n\nThe code.")]}
    report = (await client.post(URL, json=body)).json()

    assert (2, 2, 1) == (report["read"], report["added"], report["pages"])
    assert 1 == (await client.request("DELETE", URL, json={"ids": ["r1"]})).json()["deleted"]


@pytest.mark.parametrize("owned", ["memories", "articles", "blocks", "pages", "pages_visual"])
async def test_collections_with_a_route_of_their_own_are_not_written_here(client, engine, owned):
    """What such a record says of itself is believed, so nobody writes one by hand; the answer names the right route."""
    refused = await client.post(URL, json={"collection": owned, "records": [{"id": "x", "text": "Cranes."}]})
    widened = await client.post(URL, json={"collection": owned, "fields": {"mine": "keyword"}})

    assert {422} == {refused.status_code, widened.status_code}
    assert "/v1/ingest/" in refused.json()["error"]["user_message"]
    assert owned not in {each.name for each in await engine.index.collections(engine.scope)}


async def test_memories_are_not_removed_past_their_service(client, engine):
    """Removing by collection takes the same route as writing, also beside documents."""
    await engine.memory.remember(engine.scope, [Memory(id="m", text="The safe code is in the blue binder")])
    for more in ({}, {"doc_ids": ["unknown"]}):
        gone = await client.request("DELETE", URL, json={"collection": "memories", "ids": ["m"], **more})
        assert 422 == gone.status_code

    assert ["m"] == [each.id for each in await engine.index.get(engine.scope, "memories", ["m"])]


async def test_a_file_written_for_others_tells_nothing_of_theirs(client, engine):
    """Whether Anna has a file for herself makes no difference to Boris, who names her as its reader."""
    body = {"files": [upload("note.md", b"# Vault\n\nThe vault code is blue.")], "acl": ["user:anna"]}
    mine = (await client.post(URL, json=body)).json()
    again = (await client.post(URL, json=body)).json()
    probing = (await client.post(URL, json=body, headers={"X-Contexture-User": "boris"})).json()

    assert ("added", "unchanged", "added") == tuple(each["files"][0]["status"] for each in (mine, again, probing))
    assert [] == await found(engine, BORIS, "vault code")
