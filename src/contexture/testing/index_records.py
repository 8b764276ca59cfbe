"""Prepared records and queries made by hand, for tests that need no embedder."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np

from contexture.pipeline.scoring import fuse_channels
from contexture.text.segmentation import split_sentences
from contexture.text.simhash import simhash
from contexture.text.terms import bm25_weights, index_terms
from contexture.types import PUBLIC, Collection, FieldType, Filter, Hit, Passage, PreparedRecord, Query, Record, Vector

NAME = "things"
VECTOR = "dense"
VECTORS = {VECTOR: 4}
COLLECTION = Collection(
    name=NAME,
    fields={
        "tags": FieldType.KEYWORD,
        "rating": FieldType.NUMBER,
        "pinned": FieldType.FLAG,
        "seen": FieldType.TIME,
    },
)
EAST: Vector = np.array([1, 0, 0, 0], np.float32)
NORTH: Vector = np.array([0, 1, 0, 0], np.float32)

AWKWARD_IDS = (
    "a",
    "with space",
    "quote\"'`",
    "slash/../\\back",
    "line\nbreak\r\n",
    "nul\x00inside",
    "🙂‍🙂",
    "жёлтый",
    "%_;--",
    "x" * 10_000,
    "\u202eright to left",
    " ",
)
"""Ids that are awkward to store and to compare."""

NOT_UNICODE = "half \ud800 pair"

_PARAGRAPH = re.compile(r"[^\n]*\S[^\n]*")


def make_record(
    record_id: str,
    text: str = "zebra",
    *,
    acl: tuple[str, ...] = (PUBLIC,),
    title: str = "",
    source: str = "",
    time: datetime | None = None,
    payload: Mapping[str, Any] | None = None,
) -> Record:
    """A record that everyone in its tenant may read, unless `acl` says otherwise."""
    return Record(id=record_id, text=text, acl=acl, title=title, source=source, time=time, payload=payload or {})


def prepare_record(record: Record, vector: Vector | None = EAST) -> PreparedRecord:
    """The record with one passage per line, each with this vector."""
    pieces = [match.span() for match in _PARAGRAPH.finditer(record.text)]
    return PreparedRecord(
        record=record,
        passages=tuple(_passage(record.text, start, end, vector) for start, end in pieces),
        redactions=(),
        title_redactions=(),
        rules="none",
    )


def make_query(
    words: str = "",
    *,
    vector: Vector | None = None,
    vectors: Mapping[str, Vector] | None = None,
    where: Filter | None = None,
    k: int = 100,
    pool: int | None = None,
    collection: str = NAME,
) -> Query:
    """A query by words, by vector, or both."""
    dense = dict(vectors or {}) if vector is None else {VECTOR: vector}
    return Query(
        collection=collection,
        terms=tuple(index_terms(words)),
        vectors=dense,
        where=where,
        k=k,
        fuse=partial(fuse_channels, pool=pool),
    )


def record_ids(found: Sequence[Record | Hit]) -> list[str]:
    """The ids of records, or of the records that hits belong to, in the order given and without repeats."""
    return list(dict.fromkeys(each.record.id if isinstance(each, Hit) else each.id for each in found))


def _passage(text: str, start: int, end: int, vector: Vector | None) -> Passage:
    piece = text[start:end]
    return Passage(
        start=start,
        end=end,
        sentences=split_sentences(piece),
        redactions=(),
        tokens={"words": len(piece.split())},
        simhash=simhash(piece),
        terms=bm25_weights(piece),
        vectors={} if vector is None else {VECTOR: vector},
    )
