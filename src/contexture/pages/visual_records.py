"""A page as a record of the visual collection: its metadata, the vectors that find it, and no words."""

from __future__ import annotations

from typing import Any

import numpy as np

from contexture.documents import Encoded, Page
from contexture.pages.records import PAGES, page_record
from contexture.pages.values import Document
from contexture.types import Collection, Matrix, Passage, Prepared, Record

VISUAL = Collection(name="pages_visual", fields=PAGES.fields)
"""Where pages are found by what they show; filters name what they name for `pages`."""

BOXES = "boxes"
"""The matrix that says where each row of a page looks."""

_BULKY = ("regions", "notes")


def visual_record(document: Document, page: Page, encoded: Encoded) -> Prepared:
    """The page, ready to be written; one that shows nothing has metadata and is never found."""
    stored = page_record(document, page)
    payload: dict[str, Any] = {name: value for name, value in stored.payload.items() if name not in _BULKY}
    record = Record(
        id=stored.id,
        text="",
        acl=stored.acl,
        kind=stored.kind,
        lang=stored.lang,
        source=stored.source,
        time=stored.time,
        payload=payload,
    )
    shows = {name: rows for name, rows in encoded.rows.items() if len(rows)}
    return Prepared(
        record=record,
        passages=(_passage(encoded),) if shows else (),
        redactions=(),
        title_redactions=(),
        rules="",
        matrices={**shows, BOXES: _boxes(encoded)} if shows else {},
    )


def place_of(record: Record) -> tuple[str, int]:
    """Document and page of a record."""
    return record.payload["doc_id"], record.payload["page"]


def _passage(encoded: Encoded) -> Passage:
    return Passage(
        start=0, end=0, sentences=(), redactions=(), tokens={}, simhash=0, terms={}, vectors=dict(encoded.whole)
    )


def _boxes(encoded: Encoded) -> Matrix:
    return np.array(encoded.boxes, np.float32).reshape(-1, 4)
