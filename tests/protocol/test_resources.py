"""The resources: documents, their pages, and records."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from contexture.documents import Page
from contexture.errors import NotFound
from contexture.mcp import server
from contexture.mcp.server import document_uri, page_uri, resource_call
from contexture.pages.values import Document

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def stored(engine, name, *, readers=("public",)):
    """A document of two pages."""
    pages = tuple(Page(number=number, text=f"Page {number} of {name}. Call anna@example.org.") for number in (1, 2))
    document = Document(
        doc_id=name,
        filename=f"{name}.pdf",
        extension="pdf",
        source_path="",
        timestamp=NOW,
        pages=pages,
        readers=readers,
        title="By boris@example.org",
    )
    await engine.pages.add(engine.scope, document)


async def text(client, uri):
    """What a resource says."""
    (found,) = (await client.read_resource(uri)).contents
    return found.text


async def test_documents_are_listed_with_their_pages(client, engine):
    """A document leads to its pages, and a page to its text, redacted everywhere."""
    await stored(engine, "manual")
    (listed,) = (await client.list_resources()).resources
    whole = await text(client, listed.uri)

    assert (listed.uri, listed.name, listed.title) == ("contexture://documents/manual", "manual.pdf", "By <EMAIL_1>")
    assert "- [page 2](contexture://documents/manual/pages/2)" in whole
    assert "boris@" not in whole
    assert "Page 2 of manual. Call <EMAIL_1>." in await text(client, page_uri("manual", 2))


async def test_documents_of_others_are_neither_listed_nor_read(client, engine):
    """What the caller may not see and what is not there are answered alike."""
    await stored(engine, "manual")
    await engine.pages.add(engine.scope, (await _hidden(engine)))
    listed = (await client.list_resources()).resources

    assert ["contexture://documents/manual"] == [each.uri for each in listed]
    for uri in (document_uri("secret"), document_uri("none")):
        with pytest.raises(MCPError, match=r"no document '(secret|none)' can be read here"):
            await client.read_resource(uri)


async def _hidden(engine):
    return Document(
        doc_id="secret",
        filename="secret.pdf",
        extension="pdf",
        source_path="",
        timestamp=NOW,
        pages=(Page(number=1, text="Only for finance."),),
        readers=("group:finance",),
        title="",
    )


async def test_long_lists_come_in_pieces(client, engine, monkeypatch):
    """A cursor leads to the documents behind the last one."""
    monkeypatch.setattr(server, "PAGE_SIZE", 2)
    for name in ("a", "b", "c"):
        await stored(engine, name)
    first = await client.list_resources()
    rest = await client.list_resources(cursor=first.next_cursor)

    assert ["a", "b"] == [each.name[0] for each in first.resources]
    assert ["c"] == [each.name[0] for each in rest.resources]
    assert rest.next_cursor is None


async def test_records_are_read_by_their_ids(client):
    """A record is read whole, whatever characters its id has, under its title."""
    assert await text(client, "contexture://records/documents/pump") == (
        "# Pump\n\nThe pump leaks. Mail <EMAIL_1> about it."
    )
    assert "anna mends" in await text(client, "contexture://records/documents/a%2Fvalve%3F")


@pytest.mark.parametrize(
    "uri",
    [
        "contexture://records/documents/bill",
        "contexture://records/documents/none",
        "contexture://records/nothing/pump",
        "contexture://pumps/1",
        "file:///etc/passwd",
        "contexture://documents/x/pages/0x1",
        "contexture://records/../keys",
    ],
)
async def test_other_addresses_lead_nowhere(client, uri):
    """Hidden, missing and made-up resources are refused."""
    with pytest.raises(MCPError, match=r"no (resource|record|route)|unknown collection"):
        await client.read_resource(uri)


async def test_the_forms_of_addresses_are_told(client):
    """A client can make addresses by itself."""
    found = (await client.list_resource_templates()).resource_templates

    assert "contexture://documents/{doc_id}/pages/{page}" in [each.uri_template for each in found]


def test_a_page_is_a_record_of_its_document():
    """The address of a page names the record under which it is stored."""
    assert resource_call("contexture://documents/a%2Fb/pages/07").path == "/v1/records/pages/a%2Fb%3A7"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.integers(0, 10**9 - 1))
def test_every_id_has_an_address_that_leads_back_to_it(doc_id, page):
    """Whatever characters an id has, its address asks for it and nothing else."""
    whole, single = resource_call(document_uri(doc_id)).path, resource_call(page_uri(doc_id, page)).path

    assert [doc_id, f"{doc_id}:{page}"] == [unquote(path.rpartition("/")[2]) for path in (whole, single)]


def test_an_address_of_no_known_form_names_those_that_are():
    """The refusal says how addresses look."""
    with pytest.raises(NotFound, match="addresses look like contexture://documents/"):
        resource_call("https://example.org")
