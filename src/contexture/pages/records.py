"""Maps documents and pages to index records and back."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from contexture.documents import Page
from contexture.pages.fields import DocumentFields, find_statements, lists_contents, read_document_fields
from contexture.pages.images import image_name, thumb_name
from contexture.pages.values import Document, DocumentSummary, StoredPage, pack_regions
from contexture.retrieval.text_facts import read_text_facts
from contexture.text.language import detect_language
from contexture.text.unicode import repair_text
from contexture.types import Collection, FieldType, PreparedRecord, Record

PAGES = Collection(
    name="pages",
    fields={
        "doc_id": FieldType.KEYWORD,
        "filename": FieldType.KEYWORD,
        "extension": FieldType.KEYWORD,
        "page": FieldType.NUMBER,
        "company": FieldType.KEYWORD,
        "form": FieldType.KEYWORD,
    },
)
"""The collection of pages, with one record per document; filters may also use `time`, `lang`, `kind` and `source`."""

PAGE_KIND = "page"
DOCUMENT_KIND = "document"
PAGE_BREAK = "\n\n"


def page_record_id(doc_id: str, page: int) -> str:
    """The id of a page's record."""
    return f"{doc_id}:{page}"


def page_record(document: Document, page: Page, fields: DocumentFields | None = None) -> Record:
    """The record of one page; document title and section path are its title, so that a search finds it by them."""
    text = repair_text(page.text)
    place = [repair_text(each) for each in (document.title or document.filename, page.section_path) if each]
    return Record(
        id=page_record_id(document.doc_id, page.number),
        text=text,
        acl=tuple(sorted(set(document.readers))),
        title=" > ".join(place) if text.strip() else "",  # otherwise a blank page would be indexed by its title
        kind=PAGE_KIND,
        lang=detect_language(text),
        source=repair_text(document.filename),
        time=assume_utc(document.timestamp),
        payload=page_payload(document, page, fields or read_document_fields(document)),
    )


def page_payload(document: Document, page: Page, fields: DocumentFields) -> dict[str, Any]:
    """The metadata of a page, under the names used by filters and readers."""
    return {
        "doc_id": document.doc_id,
        "filename": repair_text(document.filename),
        "page": page.number,
        "extension": document.extension,
        "timestamp": assume_utc(document.timestamp).isoformat(),
        "source_path": repair_text(document.source_path),
        "image_path": image_name(document.doc_id, page.number) if page.image else None,
        "thumb_path": thumb_name(document.doc_id, page.number) if page.thumb else None,
        "section_path": _repair_or_none(page.section_path),
        "parent_heading": _repair_or_none(page.parent_heading),
        "num_headings": page.num_headings,
        "num_tables": page.num_tables,
        "num_pictures": page.num_pictures,
        "title": repair_text(document.title),
        "notes": [repair_text(note) for note in page.notes],
        "regions": pack_regions(page.regions),
        "company": fields.company,
        "form": fields.form,
        "years": list(fields.years),
        "quarter": fields.quarter,
        "statements": list(find_statements(page)),
        "contents": lists_contents(page),
    }


def document_record(document: Document) -> PreparedRecord:
    """The record of the document itself; it has no passages, so that no search finds it."""
    whole = PAGE_BREAK.join(repair_text(page.text) for page in document.pages)
    record = Record(
        id=document.doc_id,
        text="",
        acl=tuple(sorted(set(document.readers))),
        kind=DOCUMENT_KIND,
        source=repair_text(document.filename),
        time=assume_utc(document.timestamp),
        payload={
            "doc_id": document.doc_id,
            "filename": repair_text(document.filename),
            "extension": document.extension,
            "timestamp": assume_utc(document.timestamp).isoformat(),
            "source_path": repair_text(document.source_path),
            "title": repair_text(document.title),
            "pages": [page.number for page in document.pages],
            "full_markdown_compressed": compress_text(whole),
        },
    )
    return PreparedRecord(record=record, passages=(), redactions=(), title_redactions=(), rules="")


def compress_text(text: str) -> str:
    """A text as base64 of its gzip; equal texts give equal results."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def decompress_text(packed: str) -> str:
    """The inverse of `compress_text`."""
    return gzip.decompress(base64.b64decode(packed)).decode()


def record_to_summary(record: Record) -> DocumentSummary:
    """The summary of a document from its record."""
    payload = record.payload
    return DocumentSummary(
        doc_id=payload["doc_id"],
        filename=payload["filename"],
        extension=payload["extension"],
        source_path=payload["source_path"],
        timestamp=datetime.fromisoformat(payload["timestamp"]),
        pages=len(payload["pages"]),
        readers=record.acl,
        title=payload["title"],
    )


def record_to_page(record: Record) -> StoredPage:
    """The page stored in a record; the paths of its pictures are those of the service's routes."""
    payload, facts = record.payload, read_text_facts(record)
    return StoredPage(
        doc_id=payload["doc_id"],
        filename=payload["filename"],
        page=payload["page"],
        extension=payload["extension"],
        timestamp=datetime.fromisoformat(payload["timestamp"]),
        source_path=payload["source_path"],
        image_path=_picture_route(payload, "image") if payload["image_path"] else None,
        thumb_path=_picture_route(payload, "thumb") if payload["thumb_path"] else None,
        section_path=payload["section_path"],
        parent_heading=payload["parent_heading"],
        num_headings=payload["num_headings"],
        num_tables=payload["num_tables"],
        num_pictures=payload["num_pictures"],
        text=record.text,
        hash=record.hash,
        lang=record.lang,
        packed_regions=payload["regions"],
        readers=record.acl,
        title=payload["title"],
        notes=tuple(payload["notes"]),
        sentences=facts.sentences,
        redactions=facts.redactions,
        rules=facts.rules,
        tokens=facts.tokens,
        simhash=facts.simhash,
    )


def assume_utc(time: datetime) -> datetime:
    """The time, in UTC when it has no zone."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _repair_or_none(text: str | None) -> str | None:
    return repair_text(text) if text else None


def _picture_route(payload: Mapping[str, Any], kind: str) -> str:
    return f"/v1/pages/{quote(payload['doc_id'], safe='')}/{payload['page']}/{kind}"
