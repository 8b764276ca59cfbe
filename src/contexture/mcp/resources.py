"""The resources: documents, their pages and single records, each under a URI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from contexture.errors import NotFound
from contexture.mcp.tools import Call

SCHEME = "contexture://"
PER_PAGE = 100
"""Documents in one answer to a request for the list."""

TEMPLATES: Mapping[str, tuple[str, str]] = {
    f"{SCHEME}documents/{{doc_id}}": ("Document", "A loaded document and the addresses of its pages."),
    f"{SCHEME}documents/{{doc_id}}/pages/{{page}}": ("Page of a document", "The text of one page, redacted."),
    f"{SCHEME}records/{{collection}}/{{record_id}}": ("Record", "The text of one stored record, redacted."),
}
"""By URI template, what it is called and what it gives."""

_PAGE = re.compile(rf"{SCHEME}documents/([^/]+)/pages/([0-9]{{1,9}})")
_DOCUMENT = re.compile(rf"{SCHEME}documents/([^/]+)")
_RECORD = re.compile(rf"{SCHEME}records/([^/]+)/(.+)")


def document_uri(doc_id: str) -> str:
    """Where a document is."""
    return f"{SCHEME}documents/{quote(doc_id, safe='')}"


def page_uri(doc_id: str, page: int) -> str:
    """Where a page is."""
    return f"{document_uri(doc_id)}/pages/{page}"


def call_of(uri: str) -> Call:
    """The request that reads a resource; raises `NotFound` for a URI of no known form."""
    if found := _PAGE.fullmatch(uri):
        return _record("pages", f"{unquote(found[1])}:{int(found[2])}")
    if found := _DOCUMENT.fullmatch(uri):
        return Call(method="GET", path=f"/v1/documents/{_quoted(unquote(found[1]))}")
    if found := _RECORD.fullmatch(uri):
        return _record(unquote(found[1]), unquote(found[2]))
    raise NotFound(f"there is no resource {uri!r}; addresses look like {', '.join(TEMPLATES)}")


def text_of(answer: Mapping[str, Any]) -> str:
    """What a resource reads like: a record's text under its title, or the pages of a document."""
    if "text" in answer:
        title = answer.get("title")
        return f"# {title}\n\n{answer['text']}" if title else str(answer["text"])
    numbers = range(1, int(answer["pages"]) + 1)
    lines = [f"- [page {number}]({page_uri(answer['doc_id'], number)})" for number in numbers]
    return "\n".join([f"# {answer['title'] or answer['filename']}", "", *lines])


def _record(collection: str, record_id: str) -> Call:
    return Call(method="GET", path=f"/v1/records/{_quoted(collection)}/{_quoted(record_id)}")


def _quoted(text: str) -> str:
    return quote(text, safe="")
