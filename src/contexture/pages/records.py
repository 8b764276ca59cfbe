"""A document and its pages as records of the index, and back."""

from __future__ import annotations

import base64
import gzip
from datetime import UTC, datetime
from typing import Any

from contexture.documents import Page
from contexture.pages.images import image_name, thumb_name
from contexture.pages.regions import packed
from contexture.pages.values import Document, StoredPage, Summary
from contexture.retrieval.facts import facts_of
from contexture.retrieval.prepare import mended
from contexture.text.language import detect
from contexture.types import Collection, FieldType, Prepared, Record

PAGES = Collection(
    name="pages",
    fields={
        "doc_id": FieldType.KEYWORD,
        "filename": FieldType.KEYWORD,
        "extension": FieldType.KEYWORD,
        "page": FieldType.NUMBER,
    },
)
"""Where pages live, and beside them a record per document; filters also name `time`, `lang`, `kind` and `source`."""

PAGE = "page"
DOCUMENT = "document"
PAGE_BREAK = "\n\n"


def page_id(doc_id: str, page: int) -> str:
    """The id of a page's record."""
    return f"{doc_id}:{page}"


def page_record(document: Document, page: Page) -> Record:
    """The record of one page; what it is found by besides its text is where it stands."""
    text = mended(page.text)
    place = [mended(each) for each in (document.title or document.filename, page.section_path) if each]
    return Record(
        id=page_id(document.doc_id, page.number),
        text=text,
        acl=tuple(sorted(set(document.readers))),
        title=" > ".join(place) if text.strip() else "",  # a blank page must not take its title for its text
        kind=PAGE,
        lang=detect(text),
        source=mended(document.filename),
        time=aware(document.timestamp),
        payload=page_payload(document, page),
    )


def page_payload(document: Document, page: Page) -> dict[str, Any]:
    """The metadata of a page, by the names under which filters and readers know it."""
    return {
        "doc_id": document.doc_id,
        "filename": mended(document.filename),
        "page": page.number,
        "extension": document.extension,
        "timestamp": aware(document.timestamp).isoformat(),
        "source_path": mended(document.source_path),
        "image_path": image_name(document.doc_id, page.number) if page.image else None,
        "thumb_path": thumb_name(document.doc_id, page.number) if page.thumb else None,
        "section_path": _maybe(page.section_path),
        "parent_heading": _maybe(page.parent_heading),
        "num_headings": page.num_headings,
        "num_tables": page.num_tables,
        "num_pictures": page.num_pictures,
        "title": mended(document.title),
        "notes": [mended(note) for note in page.notes],
        "regions": packed(page.regions),
    }


def document_record(document: Document) -> Prepared:
    """The record of the document itself, which no search finds: it has no passages."""
    whole = PAGE_BREAK.join(mended(page.text) for page in document.pages)
    record = Record(
        id=document.doc_id,
        text="",
        acl=tuple(sorted(set(document.readers))),
        kind=DOCUMENT,
        source=mended(document.filename),
        time=aware(document.timestamp),
        payload={
            "doc_id": document.doc_id,
            "filename": mended(document.filename),
            "extension": document.extension,
            "timestamp": aware(document.timestamp).isoformat(),
            "source_path": mended(document.source_path),
            "title": mended(document.title),
            "pages": [page.number for page in document.pages],
            "full_markdown_compressed": compressed(whole),
        },
    )
    return Prepared(record=record, passages=(), redactions=(), title_redactions=(), rules="")


def compressed(text: str) -> str:
    """A text as base64 of its gzip; equal texts give equal ones."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def decompressed(told: str) -> str:
    """The text that `compressed` was given."""
    return gzip.decompress(base64.b64decode(told)).decode()


def summary_of(record: Record) -> Summary:
    """What a document's record says about it."""
    told = record.payload
    return Summary(
        doc_id=told["doc_id"],
        filename=told["filename"],
        extension=told["extension"],
        source_path=told["source_path"],
        timestamp=datetime.fromisoformat(told["timestamp"]),
        pages=len(told["pages"]),
        readers=record.acl,
        title=told["title"],
    )


def stored_page(record: Record, folder: str) -> StoredPage:
    """The page that a record holds; paths of its pictures start with `folder`."""
    told, facts = record.payload, facts_of(record)
    return StoredPage(
        doc_id=told["doc_id"],
        filename=told["filename"],
        page=told["page"],
        extension=told["extension"],
        timestamp=datetime.fromisoformat(told["timestamp"]),
        source_path=told["source_path"],
        image_path=_below(folder, told["image_path"]),
        thumb_path=_below(folder, told["thumb_path"]),
        section_path=told["section_path"],
        parent_heading=told["parent_heading"],
        num_headings=told["num_headings"],
        num_tables=told["num_tables"],
        num_pictures=told["num_pictures"],
        text=record.text,
        hash=record.hash,
        lang=record.lang,
        packed_regions=told["regions"],
        readers=record.acl,
        title=told["title"],
        notes=tuple(told["notes"]),
        sentences=facts.sentences,
        redactions=facts.redactions,
        rules=facts.rules,
        tokens=facts.tokens,
        simhash=facts.simhash,
    )


def aware(time: datetime) -> datetime:
    """The time in its zone, or in UTC when it has none."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _maybe(text: str | None) -> str | None:
    return mended(text) if text else None


def _below(folder: str, name: str | None) -> str | None:
    return f"{folder}/{name}" if name else None
