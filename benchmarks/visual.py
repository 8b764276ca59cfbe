"""Pages by what they show: a store of made-up pages, eight regions each, and two-stage searches over it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path

from benchmarks.corpus import SCOPE, questions, records, warm_up
from benchmarks.store import Models, Pay, opened
from benchmarks.timing import Numbers, Progress, clocked, each, summary

from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.adapters.pages.regions import RegionEncoder
from contexture.documents import Page, Region, RegionKind
from contexture.ledger import Trace
from contexture.pages.values import Document
from contexture.pages.visual import VisualPages
from contexture.text.language import detect_language

_K = 10
_REGIONS = 8
_PAGES = 100
_LOADED = datetime(2026, 6, 1, tzinfo=UTC)
_KINDS = (RegionKind.HEADING, RegionKind.TABLE, RegionKind.PICTURE)


def documents(pages: int) -> Iterator[Document]:
    """Documents of a hundred pages, each page with eight regions that are made-up texts."""
    numbers = count(1)
    texts = (f"{owned.record.title}. {owned.record.text}" for block in records(pages) for owned in block)
    for number in range(0, pages, _PAGES):
        made = tuple(_page(next(numbers), text) for text in islice(texts, _PAGES))
        yield Document(
            doc_id=f"d{number:06}",
            filename=f"{number:06}.pdf",
            extension="pdf",
            source_path=f"/files/{number:06}.pdf",
            timestamp=_LOADED,
            pages=made,
        )


async def visual(folder: Path, models: Models, size: int, asked: int, progress: Progress) -> Numbers:
    """The best ten pages of `size`, by unseen questions, without and with what embedding a question costs."""
    index = await opened(folder, models)
    writer = _visual(index, models)
    seconds, done = 0.0, 0
    for document in documents(size):
        seconds += (await clocked(lambda document=document: writer.add(SCOPE, document)))[1]
        done += len(document.pages)
        progress(f"write {size:,} pages", done, size)
    numbers = {"visual_pages_per_s": size / seconds}
    for name, pay in (("visual", Pay.NOTHING), ("visual_embedding_shipped", Pay.SHIPPED)):
        numbers |= await _searched(name, _visual(index, models, pay), asked)
    await index.close()
    return numbers


async def _searched(name: str, pages: VisualPages, asked: int) -> Numbers:
    async def ask(text: str) -> None:
        await pages.search(SCOPE, text, k=_K, where=None, trace=Trace())

    await each(warm_up(asked), ask)
    return summary(name, await each(questions(asked, seed=71), ask))


def _visual(index: EmbeddedIndex, models: Models, pay: Pay = Pay.NOTHING) -> VisualPages:
    return VisualPages(index=index, encoder=RegionEncoder(models.encoders(pay), detect_language))


def _page(number: int, text: str) -> Page:
    width = len(text) // _REGIONS + 1
    parts = [text[at : at + width] for at in range(0, len(text), width)]
    return Page(number=number, text=text, regions=tuple(map(_region, range(_REGIONS), parts)))


def _region(at: int, text: str) -> Region:
    box = (0.1, at / _REGIONS, 0.9, (at + 1) / _REGIONS)
    return Region(kind=_KINDS[at % len(_KINDS)], box=box, text=text)
