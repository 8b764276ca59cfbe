"""Visual search: finds pages by what they show.

One vector per page selects candidates, and MaxSim over their rows ranks them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from contexture.documents import BoundingBox, EncodedPage, Page, PageEmbeddingCache, PageEncoder
from contexture.errors import Outdated, SourceError
from contexture.ledger import Trace
from contexture.pages.records import PAGES, page_record, page_record_id
from contexture.pages.values import Document
from contexture.pipeline.scoring import fuse_channels
from contexture.ports import Index
from contexture.retrieval.prepare import EnsuredCollection
from contexture.types import Collection, Filter, Hit, Matrix, Passage, PreparedRecord, Query, Record, Scope, Vector

__all__ = [
    "BOXES_MATRIX",
    "VISUAL_PAGES",
    "MaxSimScores",
    "VisualOptions",
    "VisualPageHit",
    "VisualPages",
    "maxsim",
    "page_key",
    "page_to_visual_record",
]


VISUAL_PAGES = Collection(name="pages_visual", fields=PAGES.fields)
"""The collection of visual search; it has the same filter fields as `pages`."""

BOXES_MATRIX = "boxes"
"""The matrix with the bounding box of each row of a page."""

_OMITTED_FIELDS = ("regions", "notes")
_NOTHING_SHOWN = EncodedPage(rows={}, boxes=(), whole={})


def page_to_visual_record(document: Document, page: Page, encoded: EncodedPage) -> PreparedRecord:
    """The visual record of a page, ready to be written; a page without rows has only metadata and is never found."""
    stored = page_record(document, page)
    payload: dict[str, Any] = {name: value for name, value in stored.payload.items() if name not in _OMITTED_FIELDS}
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
    return _with_vectors(record, encoded)


def _with_vectors(record: Record, encoded: EncodedPage) -> PreparedRecord:
    shows = {name: rows for name, rows in encoded.rows.items() if len(rows)}
    return PreparedRecord(
        record=record,
        passages=(_vector_passage(encoded),) if shows else (),
        redactions=(),
        title_redactions=(),
        rules="",
        matrices={**shows, BOXES_MATRIX: _box_matrix(encoded)} if shows else {},
    )


def _without_vectors(document: Document, page: Page) -> PreparedRecord:
    """The visual record of a page whose vectors are computed later."""
    prepared = page_to_visual_record(document, page, _NOTHING_SHOWN)
    return replace(prepared, passages=(_vector_passage(_NOTHING_SHOWN),), unembedded=True)


def _to_visual_records(
    document: Document, pages: Sequence[Page], encoded: Sequence[EncodedPage] | None
) -> list[PreparedRecord]:
    if encoded is None:
        return [_without_vectors(document, page) for page in pages]
    return [page_to_visual_record(document, page, each) for page, each in zip(pages, encoded, strict=True)]


def page_key(record: Record) -> tuple[str, int]:
    """The document id and page number of a record."""
    return record.payload["doc_id"], record.payload["page"]


def _vector_passage(encoded: EncodedPage) -> Passage:
    return Passage(
        start=0, end=0, sentences=(), redactions=(), tokens={}, simhash=0, terms={}, vectors=dict(encoded.whole)
    )


def _box_matrix(encoded: EncodedPage) -> Matrix:
    return np.array(encoded.boxes, np.float32).reshape(-1, 4)


_COLLECTION = VISUAL_PAGES.name
_ENCODE_BATCH = 32  # pages encoded and written at a time
_SCROLL_LIMIT = 500


@dataclass(frozen=True, slots=True)
class VisualPageHit:
    """A page found by visual search: its score from 0 to 1, and the region that matches best."""

    doc_id: str
    page: int
    score: float
    box: BoundingBox | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VisualOptions:
    """Limits of visual search.

    The first stage proposes `pool` pages by their representative vectors, or `width` times `k` if that is more; pages
    whose calibrated similarity is below `floor` do not match.
    """

    pool: int = 50
    width: int = 5
    floor: float = 0.3


class _ScoredPage(NamedTuple):
    """A proposed page, its similarity, and the row that matches best."""

    id: str
    score: float
    row: int | None = None


class VisualPages:
    """The collection `pages_visual` of an index: a record per page, with the page's metadata and its vectors.

    A search has two stages. The index proposes pages by one vector each, with tenant, permissions and filter as part
    of the query; then MaxSim compares the question with every row of the proposed pages.
    """

    def __init__(self, *, index: Index, encoder: PageEncoder, options: VisualOptions | None = None) -> None:
        self._index = index
        self._encoder = encoder
        self._options = options or VisualOptions()
        self._made = EnsuredCollection(index, VISUAL_PAGES)

    async def add(self, scope: Scope, document: Document, *, later: bool = False) -> int:
        """Write the pages of a document, replacing those it had before; returns how many were written.

        With `later`, they are written without vectors, to be embedded from the backlog of the index.
        """
        await self._made.ensure(scope)
        written: set[str] = set()
        for start in range(0, len(document.pages), _ENCODE_BATCH):
            some = document.pages[start : start + _ENCODE_BATCH]
            encoded = None if later else await self._encoder.pages(some)
            records = await asyncio.to_thread(_to_visual_records, document, some, encoded)
            await self._index.upsert(scope, _COLLECTION, records)
            written.update(each.record.id for each in records)
        stale = [record.id for record in await self._scroll_pages(scope, document.doc_id) if record.id not in written]
        if stale:
            await self._index.delete(scope, _COLLECTION, stale)
        return len(written)

    async def embed(self, scope: Scope, records: Sequence[Record], pages: Mapping[str, Page]) -> None:
        """Write these records of the collection again, with the vectors of their pages; without a page, remove one."""
        known = [record for record in records if record.id in pages]
        encoded = await self._encoder.pages([pages[record.id] for record in known])
        for record, shown in zip(known, encoded, strict=True):
            with suppress(Outdated):  # replaced meanwhile
                await self._index.upsert(scope, _COLLECTION, [_with_vectors(record, shown)], unchanged=[record])
        gone = [record.id for record in records if record.id not in pages]
        if gone:
            await self._index.delete(scope, _COLLECTION, gone)

    async def remove(self, scope: Scope, doc_ids: Sequence[str]) -> int:
        """Remove the pages of these documents that the scope may see; returns how many pages were removed."""
        if not await self._made.exists(scope):
            return 0
        removed = 0
        for doc_id in dict.fromkeys(doc_ids):
            ids = [record.id for record in await self._scroll_pages(scope, doc_id)]
            removed += await self._index.delete(scope, _COLLECTION, ids) if ids else 0
        return removed

    async def forget_vectors(self, pages: Sequence[Page]) -> None:
        """Remove the vectors of these pages from the caches of the encoder, if it has any."""
        if isinstance(self._encoder, PageEmbeddingCache):
            await self._encoder.forget(pages)

    async def search(
        self, scope: Scope, question: str, *, k: int, where: Filter | None, trace: Trace
    ) -> Sequence[VisualPageHit]:
        """The best `k` pages that match, best first, ties by document and page.

        When the rows cannot be read, pages are ranked by their representative vectors alone, and a degradation is
        recorded in `trace`.
        """
        if not await self._made.exists(scope):
            return ()
        asked = await self._encoder.question(question)
        pool = max(self._options.pool, self._options.width * k)
        hits = await self._propose(scope, asked, pool, where)
        likely = self._rank_proposed(asked, hits)[:pool]
        try:
            scored = await self._score_by_rows(scope, asked, {each.id: hits[each.id] for each in likely})
        except SourceError as failure:
            trace.add_degradation(_COLLECTION, failure)
            scored = likely
        best = sorted(
            (each for each in scored if each.score >= self._options.floor),
            key=lambda each: (-each.score, page_key(hits[each.id].record)),
        )[:k]
        boxes = await self._find_boxes(scope, best, trace)
        return [VisualPageHit(*page_key(hits[each.id].record), each.score, boxes.get(each.id)) for each in best]

    # --- internals ---

    async def _propose(
        self, scope: Scope, asked: Mapping[str, Matrix], pool: int, where: Filter | None
    ) -> Mapping[str, Hit]:
        """The pages whose representative vectors are nearest, in any of the spaces."""
        vectors = {name: _mean_direction(rows) for name, rows in asked.items()}
        query = Query(collection=_COLLECTION, vectors=vectors, where=where, k=pool, fuse=fuse_channels)
        hits = await self._index.search(scope, query)
        return {hit.record.id: hit for hit in hits}

    async def _score_by_rows(
        self, scope: Scope, asked: Mapping[str, Matrix], hits: Mapping[str, Hit]
    ) -> Sequence[_ScoredPage]:
        """Each page scored by MaxSim over its rows, in the space where it scores best."""
        best: dict[str, _ScoredPage] = {}
        for name, question in asked.items():
            having = [id_ for id_, hit in hits.items() if name in hit.scores]
            pages = await self._index.matrices(scope, _COLLECTION, name, having)
            seen = maxsim(question, list(pages.values()))
            scores = self._encoder.calibrate(name, seen.scores).tolist()
            for found in map(_ScoredPage, pages, scores, seen.rows.tolist()):
                if found.id not in best or found.score > best[found.id].score:
                    best[found.id] = found
        return list(best.values())

    def _rank_proposed(self, asked: Mapping[str, Matrix], hits: Mapping[str, Hit]) -> list[_ScoredPage]:
        """The proposed pages ranked by their representative vectors alone, best first."""
        best: dict[str, tuple[float, float]] = {}
        for name in asked:
            having = {id_: hit.scores[name] for id_, hit in hits.items() if name in hit.scores}
            scores = self._encoder.calibrate(name, np.array(list(having.values()), np.float32)).tolist()
            for (id_, cosine), score in zip(having.items(), scores, strict=True):
                best[id_] = max((score, cosine), best.get(id_, (score, cosine)))
        ranked = sorted(best.items(), key=lambda each: (-each[1][0], -each[1][1], each[0]))
        return [_ScoredPage(id_, score) for id_, (score, _) in ranked]

    async def _find_boxes(self, scope: Scope, best: Sequence[_ScoredPage], trace: Trace) -> Mapping[str, BoundingBox]:
        """By page id, the bounding box of the row that matches best."""
        rows = {each.id: each.row for each in best if each.row is not None}
        if not rows:
            return {}
        try:
            found = await self._index.matrices(scope, _COLLECTION, BOXES_MATRIX, list(rows))
        except SourceError as failure:
            trace.add_degradation(_COLLECTION, failure)
            return {}
        return {id_: _to_box(boxes[rows[id_]]) for id_, boxes in found.items() if rows[id_] < len(boxes)}

    async def _scroll_pages(self, scope: Scope, doc_id: str) -> Sequence[Record]:
        """The records of a document's pages; their ids share a prefix, so that no other document is scrolled."""
        first, found = page_record_id(doc_id, 0).removesuffix("0"), list[Record]()
        after = first
        while some := await self._index.scroll(scope, _COLLECTION, after=after, limit=_SCROLL_LIMIT):
            own = [record for record in some if record.id.startswith(first)]
            found += own
            if len(own) < _SCROLL_LIMIT:
                break
            after = own[-1].id
        return found


def _mean_direction(rows: Matrix) -> Vector:
    """The unit vector that represents a question's rows in the first stage: their normalised mean."""
    mean = rows.mean(axis=0)
    length = float((mean @ mean) ** 0.5)
    return mean / length if length else mean


def _to_box(edges: Vector) -> BoundingBox:
    left, top, right, bottom = (round(float(edge), 3) for edge in edges)
    return left, top, right, bottom


class MaxSimScores(NamedTuple):
    """The MaxSim of each page, and the index of its row that matches the question best."""

    scores: Vector
    rows: npt.NDArray[np.int64]


def maxsim(question: Matrix, pages: Sequence[Matrix]) -> MaxSimScores:
    """For each page the mean, over the question's rows, of the best dot product with any of the page's rows.

    Every page needs at least one row. The best row is the one with the highest mean over the question's rows.
    """
    if not pages:
        return MaxSimScores(np.zeros(0, np.float32), np.zeros(0, np.int64))
    sizes = np.array([len(rows) for rows in pages])
    starts = np.cumsum(sizes) - sizes
    products = np.concatenate(pages) @ question.T
    means = products.mean(axis=1)
    rows = np.array([means[at : at + size].argmax() for at, size in zip(starts, sizes, strict=True)])
    return MaxSimScores(np.maximum.reduceat(products, starts, axis=0).mean(axis=1), rows)
