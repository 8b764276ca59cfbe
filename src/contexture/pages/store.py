"""The page store: documents are indexed page by page and found by text search, visual search, or both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace as struct_replace

from contexture.documents import BoundingBox, Page
from contexture.errors import InvalidRequest, NotPermitted, SourceError
from contexture.ledger import Trace
from contexture.pages._questions import QuestionFields, match_label, match_rows, read_question, weigh_page
from contexture.pages._support import MIN_SIMILARITY, ReportFilter, is_supported, make_report_filter
from contexture.pages.images import PageImages
from contexture.pages.records import (
    DOCUMENT_KIND,
    PAGES,
    cut_page,
    cut_stored_page,
    decompress_text,
    document_record,
    page_record,
    page_record_id,
    read_document_fields,
    record_to_page,
    record_to_summary,
)
from contexture.pages.values import AddedDocument, Document, DocumentSummary, FoundPage, StoredPage, check_document
from contexture.pipeline.fence import fence
from contexture.ports import Index, PrivateIds, RemovalListener, TokenCounter, keep_copies
from contexture.retrieval.candidates import candidate_from_passage
from contexture.retrieval.prepare import EnsuredCollection, Preparer, prepared_characters
from contexture.retrieval.search import FoundPassage, HybridSearch
from contexture.retrieval.text_facts import attach_text_facts
from contexture.text.unicode import repair_text
from contexture.types import Candidate, Equals, Filter, PreparedRecord, Receipt, Record, Scope

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
    "match_label",
    "merge_hits",
]


MAX_RESULTS = 100
"""Highest `k` of one search, in pages."""

_COLLECTION = PAGES.name
_PASSAGES_PER_PAGE = 4  # passages fetched for each page wanted, because one page may have several matches
_MIN_PAGES = 50  # a smaller `k` does not make the search smaller
_SUPPORT_SHARE = 0.3  # of the score of a page's second and third passage that counts for the page
_SUPPORTING_PASSAGES = 2
_VISUAL_SUPPORT_SHARE = 0.15  # of the visual score of a page that text search finds too
_VISUAL_ONLY_SHARE = 0.8  # of the best text score: the best page that only visual search finds
_MAX_FRONT_PAGES = 64  # documents whose first pages are read for a name
_LAST_PAGES = 16  # pages among which the last picture of a document is looked for
_PREPARE_BATCH = 16  # pages prepared at a time, so that progress is steady


class VisualSearch(Protocol):
    """Finds pages by what they show, as `contexture.pages.visual.VisualPages` does."""

    async def add(self, scope: Scope, document: Document, *, later: bool = False) -> object:
        """Index the pages of a document; with `later`, their vectors are computed by `embed`."""
        ...

    async def embed(self, scope: Scope, records: Sequence[Record], pages: Mapping[str, Page]) -> None:
        """Compute the vectors of stored records of the visual collection; a record without its page is removed."""
        ...

    async def remove(self, scope: Scope, doc_ids: Sequence[str]) -> int:
        """Remove the pages of these documents that the scope may see."""
        ...

    async def forget_vectors(self, pages: Sequence[Page]) -> None:
        """Remove the vectors of these pages from all caches."""
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
        on_removed: RemovalListener = keep_copies,
    ) -> None:
        self._index = index
        self._on_removed = on_removed
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
        self._preparer.check_readers(f"document {document.doc_id!r}", document.readers)
        await self._made.ensure(scope)
        stored = await self._index.get(scope, _COLLECTION, [document.doc_id])
        if stored and not again:
            await asyncio.to_thread(self._restore_pictures, scope.tenant, document)
            return AddedDocument(doc_id=document.doc_id, pages=0, unchanged=True)
        await self._check_id(scope, document, is_readable=bool(stored))
        document = document if now is None else replace(document, timestamp=now)
        prepared = await self._prepare_pages(document, progress)
        summary = await self._preparer.thread.run(
            lambda: document_record(document), document.pages, lambda page: len(page.text)
        )
        # First: a visual hit without a stored page is ignored by `find`.
        await self._visual.add(scope, document, later=any(item.unembedded for item in prepared))
        await self._index.upsert(scope, _COLLECTION, [*prepared, summary])
        # After the records: a refused write must not replace the pictures of a document that the scope may not read.
        await asyncio.to_thread(self._images.write, scope.tenant, document.doc_id, document.pages)
        await self._drop_stale_pages(scope, document, stored)
        return AddedDocument(doc_id=document.doc_id, pages=len(document.pages))

    async def embed_visually(self, scope: Scope, visual: Sequence[Record]) -> None:
        """Compute the vectors of records of the visual collection, again if they have some."""
        stored = await self._index.get(scope, _COLLECTION, [record.id for record in visual])
        pages: dict[str, Page] = {}
        for record in stored:
            page = record_to_page(record)
            image = await asyncio.to_thread(self._images.read, scope.tenant, page.doc_id, page.page)
            pages[record.id] = Page(number=page.page, text=page.text, regions=page.regions, image=image or b"")
        await self._visual.embed(scope, visual, pages)

    async def remove(self, scope: Scope, doc_ids: Sequence[str]) -> Receipt:
        """Remove documents the scope may read, with their pictures; the receipt lists them and removed copies.

        The document record is deleted last, so that repeating an interrupted removal completes it.
        """
        receipt = await self._on_removed(scope, ())
        if not await self._made.exists(scope):
            return receipt
        found = await self._index.get(scope, _COLLECTION, list(dict.fromkeys(doc_ids)))
        documents = [record for record in found if record.kind == DOCUMENT_KIND]
        for record in documents:
            numbers = [int(number) for number in record.payload["pages"]]
            await self._visual.remove(scope, [record.id])
            await asyncio.to_thread(self._images.remove, scope.tenant, record.id, numbers)
            ids = [record.id, *(page_record_id(record.id, each) for each in numbers)]
            await self._index.delete(scope, _COLLECTION, ids)
            receipt = receipt.merge(await self._on_removed(scope, [record]))
        return receipt.add(_COLLECTION, [record.id for record in documents])

    async def forget_vectors(self, scope: Scope, doc_ids: Sequence[str]) -> None:
        """Remove the cached vectors of the pages of these documents, where the scope may read them."""
        if not await self._made.exists(scope):
            return
        found = await self._index.get(scope, _COLLECTION, doc_ids)
        pages = [(record.id, int(number)) for record in found for number in record.payload.get("pages", ())]
        records = await self._get_records(scope, pages)
        await self._preparer.forget(records, cut=cut_stored_page)
        stored = [record_to_page(record) for record in records]
        await self._visual.forget_vectors(
            [Page(number=each.page, text=each.text, regions=each.regions) for each in stored]
        )

    async def find_stored(self, scope: Scope, doc_ids: Sequence[str]) -> frozenset[str]:
        """Which of these documents are stored with all their pictures and may be read by the scope.

        A load that was interrupted between the pages and their pictures is completed by adding the document again.
        """
        if not await self._made.exists(scope):
            return frozenset()
        records = await self._index.get(scope, _COLLECTION, doc_ids)
        return frozenset([record.id for record in records if await self._has_pictures(scope, record)])

    async def _has_pictures(self, scope: Scope, document: Record) -> bool:
        """Whether the last picture of a stored document is there; pictures are written in the order of the pages."""
        numbers = [int(number) for number in document.payload.get("pages", ())][-_LAST_PAGES:]
        pages = await self._get_records(scope, [(document.id, number) for number in numbers])
        drawn = [int(page.payload["page"]) for page in pages if page.payload["image_path"]]
        if not drawn:
            return True
        return await asyncio.to_thread(self._images.read, scope.tenant, document.id, max(drawn)) is not None

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
        return tuple(record_to_page(record) for record in await self._get_records(scope, wanted))

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

        A page that both searches find carries both scores and ranks by that of its text, with support from the other;
        see `merge_hits`. A search that fails is recorded in `trace` as a degradation, and the result comes from the
        other one. Raises `InvalidRequest` when neither search is selected or `k` is out of range.
        """
        if not (text or visual):
            raise InvalidRequest("select text search, visual search or both: neither is selected")
        if not 1 <= k <= MAX_RESULTS:
            raise InvalidRequest(f"`k` must lie between 1 and {MAX_RESULTS}, not {k}")
        if not repair_text(question).strip():
            return ()
        if not await self._made.exists(scope):
            return ()
        asked = read_question(question)
        read, seen = await asyncio.gather(
            self._search_text(scope, question, asked, k, where, trace) if text else _no_text_hits(),
            self._search_visual(scope, question, k, where, trace) if visual else _no_visual_hits(),
        )
        if read is None:
            return merge_hits({}, seen, await self._file_names(scope, {}, seen), k)
        reports = await self._filter_reports(scope, asked, read)
        kept = [each for each in read if reports.allows(each.hit.record.payload, each.hit.text)]
        found = group_by_page(kept, _COLLECTION, self._rules, asked) if is_supported(kept, question) else {}
        names = await self._file_names(scope, found, seen, reports, supported=bool(found))
        return merge_hits(found, seen, names, k)

    # --- internals ---

    async def _check_id(self, scope: Scope, document: Document, *, is_readable: bool) -> None:
        """Raise `NotPermitted` for the id of a document that only others may read: pictures are stored by it.

        Ids of loaded documents depend on their readers, so that this concerns ids that callers choose.
        """
        if isinstance(self._index, PrivateIds):
            owners = await self._index.list_owners(scope.tenant, _COLLECTION, [document.doc_id])
            if owners.get(document.doc_id, frozenset()) - {scope.user, *([""] if is_readable else [])}:
                raise NotPermitted(f"record {document.doc_id!r} cannot be written by user {scope.user!r}")

    async def _search_text(
        self, scope: Scope, question: str, asked: QuestionFields, k: int, where: Filter | None, trace: Trace
    ) -> Sequence[FoundPassage] | None:
        """The passages found by their text; None if the search failed."""
        pool = _PASSAGES_PER_PAGE * max(k, _MIN_PAGES)
        try:
            return await self._search.search(
                scope, _COLLECTION, question, where=where, pool=pool, trace=trace, related=asked.related
            )
        except SourceError as failure:
            trace.add_degradation("pages", failure)
            return None

    async def _filter_reports(self, scope: Scope, asked: QuestionFields, found: Sequence[FoundPassage]) -> ReportFilter:
        """Which pages of reports may answer; the first pages of reports are read only if a name is in no other."""
        reports = make_report_filter(asked, found)
        if not reports.strangers:
            return reports
        documents = dict.fromkeys(each.hit.record.payload["doc_id"] for each in found)
        first = [(doc_id, page) for doc_id in [*documents][:_MAX_FRONT_PAGES] for page in (1, 2)]
        return reports.close(await self._get_records(scope, first))

    async def _search_visual(
        self, scope: Scope, question: str, k: int, where: Filter | None, trace: Trace
    ) -> Sequence[VisualHit]:
        try:
            return await self._visual.search(scope, question, k=k, where=where, trace=trace)
        except SourceError as failure:
            trace.add_degradation("pages_visual", failure)
            return ()

    async def _file_names(
        self,
        scope: Scope,
        read: Mapping[PageKey, FoundPage],
        seen: Sequence[VisualHit],
        reports: ReportFilter | None = None,
        *,
        supported: bool = True,
    ) -> Mapping[PageKey, str]:
        """The file name of each visual hit whose page is stored; a page in only one collection is half-written.

        Unless text search supports the question, a weak hit is left out if its page has text: it would have been found.
        So is a hit that `reports` does not allow.
        """
        scores = {(each.doc_id, each.page): each.score for each in seen}
        known = {place: read[place].filename for place in scores if place in read}
        missing = [place for place in scores if place not in known]
        records = await self._get_records(scope, missing) if missing else ()
        others = {(each.payload["doc_id"], each.payload["page"]): each for each in records}
        return known | {
            place: record.source for place, record in others.items()
            if (supported or scores[place] >= MIN_SIMILARITY or not record.text.strip())
            and (reports is None or reports.allows(record.payload, record.text))
        }  # fmt: skip

    async def _get_records(self, scope: Scope, wanted: Sequence[PageKey]) -> Sequence[Record]:
        return await self._index.get(scope, _COLLECTION, [page_record_id(doc_id, page) for doc_id, page in wanted])

    async def _prepare_pages(
        self, document: Document, progress: Callable[[int, int], None] | None
    ) -> list[PreparedRecord]:
        prepared: list[PreparedRecord] = []
        fields = await self._preparer.thread.run(
            lambda: read_document_fields(document), document.pages[:2], lambda page: len(page.text)
        )
        for start in range(0, len(document.pages), _PREPARE_BATCH):
            some = document.pages[start : start + _PREPARE_BATCH]
            thread = self._preparer.thread
            records = await thread.map(
                lambda page: page_record(document, page, fields), some, lambda page: len(page.text)
            )
            cuts = {page_record_id(document.doc_id, page.number): cut_page(document, page, fields) for page in some}
            ready = await self._preparer.prepare(records, cut=lambda record, cuts=cuts: cuts[record.id](record))
            prepared += await thread.map(
                lambda item: attach_text_facts(item, self._counters, shown=fence), ready, prepared_characters
            )
            if progress is not None:
                progress(len(prepared), len(document.pages))
        return prepared

    def _restore_pictures(self, tenant: str, document: Document) -> None:
        """Write the pictures of a stored document if writing them was interrupted, so that the last one is missing."""
        last = next((page for page in reversed(document.pages) if page.image), None)
        if last is not None and self._images.read(tenant, document.doc_id, last.number) is None:
            self._images.write(tenant, document.doc_id, document.pages)

    async def _drop_stale_pages(self, scope: Scope, document: Document, stored: Sequence[Record]) -> None:
        """Remove the pages of an earlier version that this one does not have."""
        kept = {page.number for page in document.pages}
        gone = [number for record in stored for number in record.payload.get("pages", ()) if number not in kept]
        if gone:
            await self._index.delete(scope, _COLLECTION, [page_record_id(document.doc_id, number) for number in gone])
            await asyncio.to_thread(self._images.remove, scope.tenant, document.doc_id, gone)


async def _no_text_hits() -> None:
    return None


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


def group_by_page(
    found: Iterable[FoundPassage], collection: str, rules: str, asked: QuestionFields | None = None
) -> dict[PageKey, FoundPage]:
    """Pages by key, each with its passages, best first.

    A page is ranked by its best passage, with support from its next two, and by what the question names. The best page
    has the highest score of a passage, and the others have scores in proportion, so that all lie between 0 and 1.
    """
    pages: dict[PageKey, list[FoundPassage]] = {}
    for each in found:
        payload = each.hit.record.payload
        pages.setdefault((payload["doc_id"], payload["page"]), []).append(each)
    named = asked or QuestionFields()
    worth = {place: _pool_scores(inside) * _weigh_found(named, inside) for place, inside in pages.items()}
    highest = _clamp(max((each.score for inside in pages.values() for each in inside), default=0.0))
    best = max(worth.values(), default=0.0) or 1.0
    return {
        place: _page_from_passages(place, inside, highest * worth[place] / best, collection, rules)
        for place, inside in pages.items()
    }


def _weigh_found(asked: QuestionFields, found: Sequence[FoundPassage]) -> float:
    """Factor of a page's score by what the question names: fields of the document, its statement, a row of a table."""
    payload = found[0].hit.record.payload
    row = max(match_rows(asked, each.hit.text) for each in found)
    return weigh_page(asked, payload, row=row)


def _pool_scores(found: Sequence[FoundPassage]) -> float:
    """Score of a page before scaling: its best passage, and a share of the next two."""
    best, *others = sorted((each.score for each in found), reverse=True)
    return best + _SUPPORT_SHARE * sum(others[:_SUPPORTING_PASSAGES])


def merge_hits(
    read: Mapping[PageKey, FoundPage], seen: Sequence[VisualHit], names: Mapping[PageKey, str], k: int
) -> tuple[FoundPage, ...]:
    """The best `k` pages of both searches, ties by document and page; visual hits missing in `names` are dropped.

    The two kinds of scores are not on one scale: a page that both searches find is ranked by its text score and a share
    of the visual one, and a page that only visual search finds, such as a scan, ranks near the best of the text. The
    best page has the highest score of all, and the others have scores in proportion.
    """
    looks = {(each.doc_id, each.page): each for each in seen if (each.doc_id, each.page) in names}
    top_text = max((page.score for page in read.values()), default=0.0)
    top_visual = max((_clamp(each.score) for each in looks.values()), default=0.0)
    unread = _VISUAL_ONLY_SHARE * top_text / top_visual if top_text and top_visual else 1.0
    pages = [_merge_hit(read.get(place), looks.get(place), place, names, unread) for place in {**read, **looks}]
    best = max((page.score for page in pages), default=0.0) or 1.0
    scaled = [replace(page, score=page.score * max(top_text, top_visual) / best) for page in pages]
    return tuple(sorted(scaled, key=lambda page: (-page.score, page.doc_id, page.page))[:k])


def _page_from_passages(
    place: PageKey, found: Sequence[FoundPassage], score: float, collection: str, rules: str
) -> FoundPage:
    return FoundPage(
        doc_id=place[0],
        page=place[1],
        filename=found[0].hit.record.payload["filename"],
        score=score,
        text_score=score,
        candidates=tuple(_cite_page(candidate_from_passage(each, collection, rules), place[1]) for each in found),
    )


def _merge_hit(
    read: FoundPage | None, seen: VisualHit | None, place: PageKey, names: Mapping[PageKey, str], unread: float
) -> FoundPage:
    """A page with its scores; `unread` is the factor of the visual score of a page without a text score."""
    text = None if read is None else read.text_score
    visual = None if seen is None else _clamp(seen.score)
    score = unread * (visual or 0.0) if text is None else text + _VISUAL_SUPPORT_SHARE * (visual or 0.0)
    return FoundPage(
        doc_id=place[0],
        page=place[1],
        filename=read.filename if read else names[place],
        score=score,
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
