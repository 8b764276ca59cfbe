"""Reading what is stored: records, documents and their pages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from contexture.documents import Page
from contexture.errors import RedactionFailed
from contexture.pages.values import Document
from contexture.types import PUBLIC, Record

BORIS = {"X-Contexture-User": "boris"}


def document(name, *, readers=(PUBLIC,)):
    """A document of one page."""
    return Document(
        doc_id=name,
        filename=f"{name}.pdf",
        extension="pdf",
        source_path="",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        pages=(Page(number=1, text=f"A page of {name}."),),
        readers=readers,
        title="Mail to anna@example.org",
    )


async def test_a_record_is_read_whole_and_redacted(client):
    """Text and title are as they may be shown, and the citation says which text it was."""
    answer = (await client.get("/v1/records/documents/pump")).json()

    assert answer["text"] == "The pump leaks. Mail <EMAIL_1> about it."
    assert (answer["citation"]["start"], answer["citation"]["end"]) == (0, 47)


@pytest.mark.parametrize("name", ["valve", "none", "%2e%2e%2fkeys"])
async def test_hidden_and_missing_records_are_answered_alike(client, name):
    """What boris may not read does not exist for him."""
    answer = await client.get(f"/v1/records/documents/{name}", headers=BORIS)

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "NO_DATA")


async def test_a_record_of_an_unknown_collection_is_not_there(client):
    """A collection that does not exist holds nothing."""
    assert (await client.get("/v1/records/nothing/pump")).status_code == 404


async def test_ids_may_hold_slashes(client, engine):
    """An id that looks like a path is an id."""
    await engine.add([Record(id="a/b", text="A slash.", acl=(PUBLIC,))])

    assert (await client.get("/v1/records/documents/a%2Fb")).json()["id"] == "a/b"


async def test_documents_are_listed_for_those_who_may_read_them(client, engine):
    """A list goes on behind the last one, names are redacted, and hidden documents are not in it."""
    for each in (document("a"), document("b"), document("c", readers=("user:anna",))):
        await engine.pages.add(engine.scope, each)
    whole = (await client.post("/v1/documents", json={}, headers=BORIS)).json()["documents"]
    rest = (await client.post("/v1/documents", json={"after": "a", "limit": 1})).json()["documents"]

    assert [("a", "Mail to <EMAIL_1>", 1), ("b", "Mail to <EMAIL_1>", 1)] == [
        (each["doc_id"], each["title"], each["pages"]) for each in whole
    ]
    assert ["b"] == [each["doc_id"] for each in rest]


async def test_a_document_leads_to_its_pages(client, engine):
    """A page is a record of the collection `pages`; a page is no document."""
    await engine.pages.add(engine.scope, document("a"))

    assert (await client.get("/v1/documents/a")).json()["filename"] == "a.pdf"
    assert (await client.get("/v1/records/pages/a:1")).json()["text"] == "A page of a."
    assert (await client.get("/v1/documents/a:1")).status_code == 404
    assert (await client.get("/v1/documents/b")).status_code == 404


async def test_a_record_that_cannot_be_redacted_is_not_shown(engine, monkeypatch):
    """Redaction fails closed."""

    def broken(*_):
        raise ValueError

    monkeypatch.setattr(engine._redactor, "scan", broken)
    with pytest.raises(RedactionFailed, match="could not be redacted, and is not shown"):
        await engine.read("pump")
