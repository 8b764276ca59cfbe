"""The pages: documents go into the index page by page, and come out of it as pages, in order or best first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from contexture.errors import InvalidRequest, SourceError
from contexture.ledger import Trace
from contexture.pages.checks import check
from contexture.pages.found import Place, Seen, joined, read_pages
from contexture.pages.images import PageImages
from contexture.pages.records import (
    DOCUMENT,
    PAGES,
    decompressed,
    document_record,
    page_id,
    page_record,
    stored_page,
    summary_of,
)
from contexture.pages.values import Added, Document, FoundPage, StoredPage, Summary
from contexture.pipeline.fence import fence
from contexture.ports import Index, TokenCounter
from contexture.retrieval.facts import with_facts
from contexture.retrieval.made import Made
from contexture.retrieval.prepare import Preparer, mended
from contexture.retrieval.search import HybridSearch
from contexture.types import Equals, Filter, Prepared, Record, Scope

__all__ = ["Added", "Document", "FoundPage", "PageStore", "StoredPage", "Summary", "Visual"]

MOST = 100
"""Pages that one search may ask for."""

_NAME = PAGES.name
_PASSAGES = 4  # looked at for each page wanted: one page has several that match
_LEAST = 8  # fewer are not worth a smaller search
_TOGETHER = 16  # pages prepared at a time, so that progress is steady


class Visual(Protocol):
    """Finds pages by their looks; see `VisualPages`."""

    async def add(self, scope: Scope, document: Document) -> object:
        """Write the pages of a document."""
        ...

    async def remove(self, scope: Scope, doc_ids: Sequence[str]) -> int:
        """Remove the pages of these documents that the scope may see."""
        ...

    async def search(
        self, scope: Scope, question: str, *, k: int, where: Filter | None, trace: Trace
    ) -> Sequence[Seen]:
        """The best `k` pages that match, best first."""
        ...


class PageStore:
    """Documents over one index, a record per page; tenant, permissions and filters are part of each query to it.

    A document's pages are written at once, so that it is wholly there or not at all.
    """

    def __init__(
        self,
        *,
        index: Index,
        preparer: Preparer,
        search: HybridSearch,
        rules: str,
        images: PageImages,
        visual: Visual,
        counters: Sequence[TokenCounter] = (),
    ) -> None:
        self._index = index
        self._preparer = preparer
        self._search = search
        self._rules = rules
        self._images = images
        self._visual = visual
        self._counters = tuple(counters)
        self._made = Made(index, PAGES)

    async def add(
        self,
        scope: Scope,
        document: Document,
        *,
        now: datetime | None = None,
        again: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Added:
        """Write a document, all of it or nothing; one that is stored is left alone unless `again` is set.

        `now` is the time of loading that its pages carry, the document's own `timestamp` where it is None.
        """
        check(document)
        await self._made.by(scope)
        stored = await self._index.get(scope, _NAME, [document.doc_id])
        if stored and not again:
            return Added(doc_id=document.doc_id, pages=0, unchanged=True)
        document = document if now is None else replace(document, timestamp=now)
        prepared = await self._prepared(document, progress)
        await asyncio.to_thread(self._images.write, scope.tenant, document.doc_id, document.pages)
        await self._visual.add(scope, document)  # a page seen and not yet stored is not found
        await self._index.upsert(scope, _NAME, [*prepared, document_record(document)])
        await self._drop_others(scope, document, stored)
        return Added(doc_id=document.doc_id, pages=len(document.pages))

    async def remove(self, scope: Scope, doc_ids: Sequence[str]) -> int:
        """Remove documents the scope may read, with their pictures; returns how many there were.

        What says that a document is there goes last, so that a removal which broke off is finished by repeating it.
        """
        if not await self._made.has(scope):
            return 0
        found = await self._index.get(scope, _NAME, list(dict.fromkeys(doc_ids)))
        documents = [record for record in found if record.kind == DOCUMENT]
        for record in documents:
            numbers = [int(number) for number in record.payload["pages"]]
            await self._visual.remove(scope, [record.id])
            await asyncio.to_thread(self._images.remove, scope.tenant, record.id, numbers)
            await self._index.delete(scope, _NAME, [record.id, *(page_id(record.id, each) for each in numbers)])
        return len(documents)

    async def known(self, scope: Scope, doc_ids: Sequence[str]) -> frozenset[str]:
        """Which of these documents are stored and may be read by the scope."""
        if not await self._made.has(scope):
            return frozenset()
        return frozenset(record.id for record in await self._index.get(scope, _NAME, doc_ids))

    async def documents(self, scope: Scope, *, after: str = "", limit: int = 100) -> Sequence[Summary]:
        """The documents the scope may read by id, starting behind `after`."""
        if not await self._made.has(scope):
            return ()
        where = Equals("kind", DOCUMENT)
        return tuple(
            summary_of(record)
            for record in await self._index.scroll(scope, _NAME, where=where, after=after, limit=limit)
        )

    async def document(self, scope: Scope, doc_id: str) -> Summary | None:
        """One document; None for one that is unknown or may not be read."""
        if not await self._made.has(scope):
            return None
        found = await self._index.get(scope, _NAME, [doc_id])
        return summary_of(found[0]) if found and found[0].kind == DOCUMENT else None

    async def pages(self, scope: Scope, wanted: Sequence[Place]) -> Sequence[StoredPage]:
        """These pages in the order asked for, in one read; unknown and forbidden ones are left out alike."""
        if not await self._made.has(scope):
            return ()
        folder = str(self._images.folder(scope.tenant))
        return tuple(stored_page(record, folder) for record in await self._records(scope, wanted))

    async def markdown(self, scope: Scope, doc_id: str) -> str | None:
        """A whole document as Markdown; None for one that is unknown or may not be read."""
        if not await self._made.has(scope):
            return None
        found = await self._index.get(scope, _NAME, [doc_id])
        if not found or found[0].kind != DOCUMENT:
            return None
        return decompressed(found[0].payload["full_markdown_compressed"])

    async def picture(self, scope: Scope, doc_id: str, page: int, *, thumb: bool = False) -> bytes | None:
        """The JPEG of a page; None for a page that is unknown, may not be read, or was not drawn."""
        if not await self._made.has(scope):
            return None
        if not await self._records(scope, [(doc_id, page)]):
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
        """The best `k` pages by their words, their looks or both, ties by document and page.

        A page that both find has both scores and the better one as its own. A search that fails is named in
        `trace`, and the other answers alone.
        """
        if not (text or visual):
            raise InvalidRequest("search the text, the looks of pages or both: neither was asked for")
        if not 1 <= k <= MOST:
            raise InvalidRequest(f"`k` must lie between 1 and {MOST}, not {k}")
        if not mended(question).strip():
            return ()
        if not await self._made.has(scope):
            return ()
        read, seen = await asyncio.gather(
            self._read(scope, question, k, where, trace) if text else _nothing_read(),
            self._seen(scope, question, k, where, trace) if visual else _nothing_seen(),
        )
        return joined(read, seen, await self._names(scope, read, seen), k)

    # --- inside ---

    async def _read(
        self, scope: Scope, question: str, k: int, where: Filter | None, trace: Trace
    ) -> Mapping[Place, FoundPage]:
        pool = _PASSAGES * max(k, _LEAST)
        try:
            found = await self._search.search(scope, _NAME, question, where=where, pool=pool, trace=trace)
        except SourceError as failure:
            trace.degraded("pages", failure)
            return {}
        return read_pages(found, _NAME, self._rules)

    async def _seen(self, scope: Scope, question: str, k: int, where: Filter | None, trace: Trace) -> Sequence[Seen]:
        try:
            return await self._visual.search(scope, question, k=k, where=where, trace=trace)
        except SourceError as failure:
            trace.degraded("pages_visual", failure)
            return ()

    async def _names(self, scope: Scope, read: Mapping[Place, FoundPage], seen: Sequence[Seen]) -> Mapping[Place, str]:
        """The file of every page that was seen and is stored: what is in one collection alone is half-written."""
        places = [(each.doc_id, each.page) for each in seen]
        known = {place: read[place].filename for place in places if place in read}
        missing = [place for place in places if place not in known]
        records = await self._records(scope, missing) if missing else ()
        return {**known, **{(each.payload["doc_id"], each.payload["page"]): each.source for each in records}}

    async def _records(self, scope: Scope, wanted: Sequence[Place]) -> Sequence[Record]:
        return await self._index.get(scope, _NAME, [page_id(doc_id, page) for doc_id, page in wanted])

    async def _prepared(self, document: Document, progress: Callable[[int, int], None] | None) -> list[Prepared]:
        prepared: list[Prepared] = []
        for start in range(0, len(document.pages), _TOGETHER):
            some = document.pages[start : start + _TOGETHER]
            ready = await self._preparer.prepare([page_record(document, page) for page in some])
            prepared += [with_facts(item, self._counters, shown=fence) for item in ready]
            if progress is not None:
                progress(len(prepared), len(document.pages))
        return prepared

    async def _drop_others(self, scope: Scope, document: Document, stored: Sequence[Record]) -> None:
        """Remove the pages of an earlier version that this one does not have."""
        kept = {page.number for page in document.pages}
        gone = [number for record in stored for number in record.payload.get("pages", ()) if number not in kept]
        if gone:
            await self._index.delete(scope, _NAME, [page_id(document.doc_id, number) for number in gone])
            await asyncio.to_thread(self._images.remove, scope.tenant, document.doc_id, gone)


async def _nothing_read() -> Mapping[Place, FoundPage]:
    return {}


async def _nothing_seen() -> Sequence[Seen]:
    return ()
