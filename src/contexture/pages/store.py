"""The page store: documents are indexed page by page and found by text search, visual search, or both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace as struct_replace

from contexture.documents import BoundingBox
from contexture.errors import InvalidRequest, SourceError
from contexture.ledger import Trace
from contexture.pages.images import PageImages
from contexture.pages.records import (
    DOCUMENT_KIND,
    PAGES,
    decompress_text,
    document_record,
    page_record,
    page_record_id,
    record_to_page,
    record_to_summary,
)
from contexture.pages.values import AddedDocument, Document, DocumentSummary, FoundPage, StoredPage, check_document
from contexture.pipeline.fence import fence
from contexture.ports import Index, TokenCounter
from contexture.retrieval.candidates import candidate_from_passage
from contexture.retrieval.prepare import EnsuredCollection, Preparer, prepared_characters
from contexture.retrieval.search import FoundPassage, HybridSearch
from contexture.retrieval.text_facts import attach_text_facts
from contexture.text.unicode import repair_text
from contexture.types import Candidate, Equals, Filter, PreparedRecord, Record, Scope

__all__ = [
    "AddedDocument",
    "Document",
    "DocumentSummary",
    "FoundPage",
    "PageKey",
    "PageStore",
    "StoredPage",
    "VisualHit",
    "VisualSearch",
    "group_by_page",
    "merge_hits",
]


MAX_RESULTS = 100
"""Highest `k` of one search, in pages."""

_COLLECTION = PAGES.name
_PASSAGES_PER_PAGE = 4  # passages fetched for each page wanted, because one page may have several matches
_MIN_PAGES = 8  # a smaller `k` does not make the search smaller
_PREPARE_BATCH = 16  # pages prepared at a time, so that progress is steady


class VisualSearch(Protocol):
    """Finds pages by what they show, as `contexture.pages.visual.VisualPages` does."""

    async def add(self, scope: Scope, document: Document) -> object:
        """Index the pages of a document."""
        ...

    async def remove(self, scope: Scope, doc_ids: Sequence[str]) -> int:
        """Remove the pages of these documents that the scope may see."""
        ...

    async def search(
        self, scope: Scope, question: str, *, k: int, where: Filter | None, trace: Trace
    ) -> Sequence[VisualHit]:
        """The best `k` pages that match, best first."""
        ...


class PageStore:
    """Stores documents in one index, a record per page; tenant, permissions and filters are part of each query.

    All pages of a document are written in one upsert, so that it is stored whole or not at all.
    """

    def __init__(
        self,
        *,
        index: Index,
        preparer: Preparer,
        search: HybridSearch,
        rules: str,
        images: PageImages,
        visual: VisualSearch,
        counters: Sequence[TokenCounter] = (),
    ) -> None:
        self._index = index
        self._preparer = preparer
        self._search = search
        self._rules = rules
        self._images = images
        self._visual = visual
        self._counters = tuple(counters)
        self._made = EnsuredCollection(index, PAGES)

    async def add(
        self,
        scope: Scope,
        document: Document,
        *,
        now: datetime | None = None,
        again: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> AddedDocument:
        """Store a document, whole or not at all; one that is already stored is unchanged unless `again` is set.

        `now` is the loading time stored with its pages; None keeps the document's own `timestamp`. `progress` is
        called with the number of pages prepared and the total. Raises `InvalidRequest` for a document that cannot be
        stored.
        """
        check_document(document)
        await self._made.ensure(scope)
        stored = await self._index.get(scope, _COLLECTION, [document.doc_id])
        if stored and not again:
            return AddedDocument(doc_id=document.doc_id, pages=0, unchanged=True)
        document = document if now is None else replace(document, timestamp=now)
        prepared = await self._prepare_pages(document, progress)
        summary = await self._preparer.thread.run(
            lambda: document_record(document), document.pages, lambda page: len(page.text)
        )
        await asyncio.to_thread(self._images.write, scope.tenant, document.doc_id, document.pages)
        await self._visual.add(scope, document)  # first: a visual hit without a stored page is ignored by `find`
        await self._index.upsert(scope, _COLLECTION, [*prepared, summary])
        await self._drop_stale_pages(scope, document, stored)
        return AddedDocument(doc_id=document.doc_id, pages=len(document.pages))

    async def remove(self, scope: Scope, doc_ids: Sequence[str]) -> int:
        """Remove documents the scope may read, with their pictures; returns how many were removed.

        The document record is deleted last, so that repeating an interrupted removal completes it.
        """
        if not await self._made.exists(scope):
            return 0
        found = await self._index.get(scope, _COLLECTION, list(dict.fromkeys(doc_ids)))
        documents = [record for record in found if record.kind == DOCUMENT_KIND]
        for record in documents:
            numbers = [int(number) for number in record.payload["pages"]]
            await self._visual.remove(scope, [record.id])
            await asyncio.to_thread(self._images.remove, scope.tenant, record.id, numbers)
            await self._index.delete(
                scope, _COLLECTION, [record.id, *(page_record_id(record.id, each) for each in numbers)]
            )
        return len(documents)

    async def known(self, scope: Scope, doc_ids: Sequence[str]) -> frozenset[str]:
        """Which of these documents are stored and may be read by the scope."""
        if not await self._made.exists(scope):
            return frozenset()
        return frozenset(record.id for record in await self._index.get(scope, _COLLECTION, doc_ids))

    async def documents(self, scope: Scope, *, after: str = "", limit: int = 100) -> Sequence[DocumentSummary]:
        """Up to `limit` documents the scope may read, ordered by id, starting after the id `after`."""
        if not await self._made.exists(scope):
            return ()
        where = Equals("kind", DOCUMENT_KIND)
        return tuple(
            record_to_summary(record)
            for record in await self._index.scroll(scope, _COLLECTION, where=where, after=after, limit=limit)
        )

    async def document(self, scope: Scope, doc_id: str) -> DocumentSummary | None:
        """One document; None when it is unknown or the scope may not read it."""
        if not await self._made.exists(scope):
            return None
        found = await self._index.get(scope, _COLLECTION, [doc_id])
        return record_to_summary(found[0]) if found and found[0].kind == DOCUMENT_KIND else None

    async def pages(self, scope: Scope, wanted: Sequence[PageKey]) -> Sequence[StoredPage]:
        """These pages in the order asked for, in one read; unknown and forbidden pages are both left out."""
        if not await self._made.exists(scope):
            return ()
        folder = str(self._images.folder(scope.tenant))
        return tuple(record_to_page(record, folder) for record in await self._get_records(scope, wanted))

    async def markdown(self, scope: Scope, doc_id: str) -> str | None:
        """A whole document as Markdown; None when it is unknown or the scope may not read it."""
        if not await self._made.exists(scope):
            return None
        found = await self._index.get(scope, _COLLECTION, [doc_id])
        if not found or found[0].kind != DOCUMENT_KIND:
            return None
        return decompress_text(found[0].payload["full_markdown_compressed"])

    async def picture(self, scope: Scope, doc_id: str, page: int, *, thumb: bool = False) -> bytes | None:
        """The JPEG of a page; None when the page is unknown, may not be read, or was not rendered."""
        if not await self._made.exists(scope):
            return None
        if not await self._get_records(scope, [(doc_id, page)]):
            return None
        return await asyncio.to_thread(self._images.read, scope.tenant, doc_id, page, thumb=thumb)

    async def find(
        self,
        scope: Scope,
        question: str,
        *,
        k: int,
        text: bool = True,
        visual: bool = True,
        where: Filter | None = None,
        trace: Trace,
    ) -> Sequence[FoundPage]:
        """The best `k` pages by text search, visual search or both, best first, ties by document and page.

        A page that both searches find carries both scores and ranks by the higher one. A search that fails is recorded
        in `trace` as a degradation, and the result comes from the other one. Raises `InvalidRequest` when neither
        search is selected or `k` is out of range.
        """
        if not (text or visual):
            raise InvalidRequest("select text search, visual search or both: neither is selected")
        if not 1 <= k <= MAX_RESULTS:
            raise InvalidRequest(f"`k` must lie between 1 and {MAX_RESULTS}, not {k}")
        if not repair_text(question).strip():
            return ()
        if not await self._made.exists(scope):
            return ()
        read, seen = await asyncio.gather(
            self._search_text(scope, question, k, where, trace) if text else _no_text_hits(),
            self._search_visual(scope, question, k, where, trace) if visual else _no_visual_hits(),
        )
        return merge_hits(read, seen, await self._file_names(scope, read, seen), k)

    # --- internals ---

    async def _search_text(
        self, scope: Scope, question: str, k: int, where: Filter | None, trace: Trace
    ) -> Mapping[PageKey, FoundPage]:
        pool = _PASSAGES_PER_PAGE * max(k, _MIN_PAGES)
        try:
            found = await self._search.search(scope, _COLLECTION, question, where=where, pool=pool, trace=trace)
        except SourceError as failure:
            trace.add_degradation("pages", failure)
            return {}
        return group_by_page(found, _COLLECTION, self._rules)

    async def _search_visual(
        self, scope: Scope, question: str, k: int, where: Filter | None, trace: Trace
    ) -> Sequence[VisualHit]:
        try:
            return await self._visual.search(scope, question, k=k, where=where, trace=trace)
        except SourceError as failure:
            trace.add_degradation("pages_visual", failure)
            return ()

    async def _file_names(
        self, scope: Scope, read: Mapping[PageKey, FoundPage], seen: Sequence[VisualHit]
    ) -> Mapping[PageKey, str]:
        """The file name of each visual hit whose page is stored; a page in only one collection is half-written."""
        places = [(each.doc_id, each.page) for each in seen]
        known = {place: read[place].filename for place in places if place in read}
        missing = [place for place in places if place not in known]
        records = await self._get_records(scope, missing) if missing else ()
        return {**known, **{(each.payload["doc_id"], each.payload["page"]): each.source for each in records}}

    async def _get_records(self, scope: Scope, wanted: Sequence[PageKey]) -> Sequence[Record]:
        return await self._index.get(scope, _COLLECTION, [page_record_id(doc_id, page) for doc_id, page in wanted])

    async def _prepare_pages(
        self, document: Document, progress: Callable[[int, int], None] | None
    ) -> list[PreparedRecord]:
        prepared: list[PreparedRecord] = []
        for start in range(0, len(document.pages), _PREPARE_BATCH):
            some = document.pages[start : start + _PREPARE_BATCH]
            thread = self._preparer.thread
            records = await thread.map(lambda page: page_record(document, page), some, lambda page: len(page.text))
            ready = await self._preparer.prepare(records)
            prepared += await thread.map(
                lambda item: attach_text_facts(item, self._counters, shown=fence), ready, prepared_characters
            )
            if progress is not None:
                progress(len(prepared), len(document.pages))
        return prepared

    async def _drop_stale_pages(self, scope: Scope, document: Document, stored: Sequence[Record]) -> None:
        """Remove the pages of an earlier version that this one does not have."""
        kept = {page.number for page in document.pages}
        gone = [number for record in stored for number in record.payload.get("pages", ()) if number not in kept]
        if gone:
            await self._index.delete(scope, _COLLECTION, [page_record_id(document.doc_id, number) for number in gone])
            await asyncio.to_thread(self._images.remove, scope.tenant, document.doc_id, gone)


async def _no_text_hits() -> Mapping[PageKey, FoundPage]:
    return {}


async def _no_visual_hits() -> Sequence[VisualHit]:
    return ()


PageKey = tuple[str, int]
"""Document id and page number."""


class VisualHit(Protocol):
    """A page that visual search found: its score from 0 to 1, and the region that matches best."""

    @property
    def doc_id(self) -> str:
        """The document."""
        ...

    @property
    def page(self) -> int:
        """The page's number."""
        ...

    @property
    def score(self) -> float:
        """How well it matches, from 0 to 1."""
        ...

    @property
    def box(self) -> BoundingBox | None:
        """The region that matches best."""
        ...


def group_by_page(found: Iterable[FoundPassage], collection: str, rules: str) -> dict[PageKey, FoundPage]:
    """Pages by key, each with its passages, best first; a page has the score of its best passage."""
    pages: dict[PageKey, list[FoundPassage]] = {}
    for each in found:
        told = each.hit.record.payload
        pages.setdefault((told["doc_id"], told["page"]), []).append(each)
    return {place: _page_from_passages(place, inside, collection, rules) for place, inside in pages.items()}


def merge_hits(
    read: Mapping[PageKey, FoundPage], seen: Sequence[VisualHit], names: Mapping[PageKey, str], k: int
) -> tuple[FoundPage, ...]:
    """The best `k` pages of both searches, ties by document and page; visual hits missing in `names` are dropped."""
    looks = {(each.doc_id, each.page): each for each in seen if (each.doc_id, each.page) in names}
    pages = [_merge_hit(read.get(place), looks.get(place), place, names) for place in {**read, **looks}]
    return tuple(sorted(pages, key=lambda page: (-page.score, page.doc_id, page.page))[:k])


def _page_from_passages(place: PageKey, found: Sequence[FoundPassage], collection: str, rules: str) -> FoundPage:
    score = _clamp(max(each.score for each in found))
    return FoundPage(
        doc_id=place[0],
        page=place[1],
        filename=found[0].hit.record.payload["filename"],
        score=score,
        text_score=score,
        candidates=tuple(_cite_page(candidate_from_passage(each, collection, rules), place[1]) for each in found),
    )


def _merge_hit(
    read: FoundPage | None, seen: VisualHit | None, place: PageKey, names: Mapping[PageKey, str]
) -> FoundPage:
    text = None if read is None else read.text_score
    visual = None if seen is None else _clamp(seen.score)
    return FoundPage(
        doc_id=place[0],
        page=place[1],
        filename=read.filename if read else names[place],
        score=max(score for score in (text, visual) if score is not None),
        text_score=text,
        visual_score=visual,
        candidates=read.candidates if read else (),
        box=None if seen is None else seen.box,
    )


def _cite_page(candidate: Candidate, page: int) -> Candidate:
    cited = candidate.citation
    return candidate if cited is None else struct_replace(candidate, citation=struct_replace(cited, page=page))


def _clamp(score: float) -> float:
    return min(max(float(score), 0.0), 1.0)
