"""Pages found by what they show: a vector per page proposes some, and the rows of those decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from contexture.documents import Box, PageEncoder
from contexture.errors import SourceError
from contexture.ledger import Trace
from contexture.pages.maxsim import maxsim
from contexture.pages.records import page_id
from contexture.pages.values import Document
from contexture.pages.visual_records import BOXES, VISUAL, place_of, visual_record
from contexture.ports import Index
from contexture.retrieval.made import Made
from contexture.types import Filter, Hit, Matrix, Query, Record, Scope, Vector

__all__ = ["VISUAL", "SeenPage", "VisualOptions", "VisualPages"]

_NAME = VISUAL.name
_TOGETHER = 32  # pages encoded and written at a time
_WALK = 500


@dataclass(frozen=True, slots=True)
class SeenPage:
    """A page that shows what was asked for: how well, from 0 to 1, and where on it."""

    doc_id: str
    page: int
    score: float
    box: Box | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class VisualOptions:
    """How pages are searched.

    `pool` pages are proposed by their representative vectors, or `width` times as many as are wanted where that is
    more; those whose rows are less similar than `floor` do not match.
    """

    pool: int = 50
    width: int = 5
    floor: float = 0.3


class _Scored(NamedTuple):
    """A proposed page, how similar it is, and its row that answers best."""

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
        self._made = Made(index, VISUAL)

    async def add(self, scope: Scope, document: Document) -> int:
        """Write the pages of a document that show something, in place of all it had; returns how many."""
        await self._made.by(scope)
        written: set[str] = set()
        for start in range(0, len(document.pages), _TOGETHER):
            some = document.pages[start : start + _TOGETHER]
            encoded = await self._encoder.pages(some)
            records = [visual_record(document, page, each) for page, each in zip(some, encoded, strict=True)]
            await self._index.upsert(scope, _NAME, records)
            written.update(each.record.id for each in records)
        stale = [record.id for record in await self._pages_of(scope, document.doc_id) if record.id not in written]
        if stale:
            await self._index.delete(scope, _NAME, stale)
        return len(written)

    async def remove(self, scope: Scope, doc_ids: Sequence[str]) -> int:
        """Remove the pages of these documents that the scope may see; returns how many pages there were."""
        if not await self._made.has(scope):
            return 0
        removed = 0
        for doc_id in dict.fromkeys(doc_ids):
            ids = [record.id for record in await self._pages_of(scope, doc_id)]
            removed += await self._index.delete(scope, _NAME, ids) if ids else 0
        return removed

    async def search(
        self, scope: Scope, question: str, *, k: int, where: Filter | None, trace: Trace
    ) -> Sequence[SeenPage]:
        """The best `k` pages that match, best first, ties by document and page.

        When the rows cannot be read the representative vectors decide alone, and `trace` says so.
        """
        if not await self._made.has(scope):
            return ()
        asked = await self._encoder.question(question)
        pool = max(self._options.pool, self._options.width * k)
        hits = await self._proposed(scope, asked, pool, where)
        likely = self._likely(asked, hits)[:pool]
        try:
            scored = await self._compared(scope, asked, {each.id: hits[each.id] for each in likely})
        except SourceError as failure:
            trace.degraded(_NAME, failure)
            scored = likely
        best = sorted(
            (each for each in scored if each.score >= self._options.floor),
            key=lambda each: (-each.score, place_of(hits[each.id].record)),
        )[:k]
        boxes = await self._boxes(scope, best, trace)
        return [SeenPage(*place_of(hits[each.id].record), each.score, boxes.get(each.id)) for each in best]

    # --- inside ---

    async def _proposed(
        self, scope: Scope, asked: Mapping[str, Matrix], pool: int, where: Filter | None
    ) -> Mapping[str, Hit]:
        """The pages whose representative vectors are nearest, in any of the spaces."""
        vectors = {name: _direction(rows) for name, rows in asked.items()}
        hits = await self._index.search(scope, Query(collection=_NAME, vectors=vectors, where=where, k=pool))
        return {hit.record.id: hit for hit in hits}

    async def _compared(self, scope: Scope, asked: Mapping[str, Matrix], hits: Mapping[str, Hit]) -> Sequence[_Scored]:
        """Each page by its rows, in the space where it answers best."""
        best: dict[str, _Scored] = {}
        for name, question in asked.items():
            having = [id_ for id_, hit in hits.items() if name in hit.scores]
            pages = await self._index.matrices(scope, _NAME, name, having)
            seen = maxsim(question, list(pages.values()))
            scores = self._encoder.calibrate(name, seen.scores).tolist()
            for found in map(_Scored, pages, scores, seen.rows.tolist()):
                if found.id not in best or found.score > best[found.id].score:
                    best[found.id] = found
        return list(best.values())

    def _likely(self, asked: Mapping[str, Matrix], hits: Mapping[str, Hit]) -> list[_Scored]:
        """The proposed pages by their representative vectors alone, best first."""
        best: dict[str, tuple[float, float]] = {}
        for name in asked:
            having = {id_: hit.scores[name] for id_, hit in hits.items() if name in hit.scores}
            scores = self._encoder.calibrate(name, np.array(list(having.values()), np.float32)).tolist()
            for (id_, cosine), score in zip(having.items(), scores, strict=True):
                best[id_] = max((score, cosine), best.get(id_, (score, cosine)))
        ranked = sorted(best.items(), key=lambda each: (-each[1][0], -each[1][1], each[0]))
        return [_Scored(id_, score) for id_, (score, _) in ranked]

    async def _boxes(self, scope: Scope, best: Sequence[_Scored], trace: Trace) -> Mapping[str, Box]:
        """Where on each page the row that answers best stands."""
        rows = {each.id: each.row for each in best if each.row is not None}
        if not rows:
            return {}
        try:
            found = await self._index.matrices(scope, _NAME, BOXES, list(rows))
        except SourceError as failure:
            trace.degraded(_NAME, failure)
            return {}
        return {id_: _box(boxes[rows[id_]]) for id_, boxes in found.items() if rows[id_] < len(boxes)}

    async def _pages_of(self, scope: Scope, doc_id: str) -> Sequence[Record]:
        """The document's pages: their ids stand together, so that no other page is looked at."""
        first, found = page_id(doc_id, 0).removesuffix("0"), list[Record]()
        after = first
        while some := await self._index.scroll(scope, _NAME, after=after, limit=_WALK):
            own = [record for record in some if record.id.startswith(first)]
            found += own
            if len(own) < _WALK:
                break
            after = own[-1].id
        return found


def _direction(rows: Matrix) -> Vector:
    """What stands for a question's rows in the first stage."""
    mean = rows.mean(axis=0)
    length = float((mean @ mean) ** 0.5)
    return mean / length if length else mean


def _box(edges: Vector) -> Box:
    left, top, right, bottom = (round(float(edge), 3) for edge in edges)
    return left, top, right, bottom
