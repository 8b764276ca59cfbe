"""Research contexts over a store of made-up pages, and the builder's small steps on their own."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from time import perf_counter

from benchmarks.corpus import SCOPE, questions, records, warm_up
from benchmarks.store import MODEL, Clean, Models, Pay, opened, searcher
from benchmarks.timing import Numbers, Progress, clocked, each, percentile, summary

from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.adapters.pages.regions import RegionEncoder
from contexture.adapters.redaction.default import default_redactor
from contexture.adapters.token_counters import counter_for
from contexture.builders._tokens import estimate_tokens
from contexture.builders.research.build import ResearchContextBuilder
from contexture.builders.research.result import ResearchContext, deduplicate_results
from contexture.documents import Page, Region, RegionKind
from contexture.pages.images import PageImages
from contexture.pages.store import PageStore
from contexture.pages.values import Document
from contexture.pages.visual import VisualPages
from contexture.retrieval.prepare import Preparer
from contexture.text.language import detect_language
from contexture.wiring._core import SystemClock

PAGES = 50_000
"""Pages of the largest store."""

_TEXTS = 3  # made-up texts on a page
_DOCUMENT = 200
_TIGHT = 1_500
_ROUNDS = 200
_LOADED = datetime(2026, 6, 1, tzinfo=UTC)


def documents(pages: int) -> Iterator[Document]:
    """Documents of two hundred pages, each page with a heading and three paragraphs, each paragraph a region."""
    texts = ((owned.record.title, owned.record.text) for block in records(pages * _TEXTS) for owned in block)
    for first in range(0, pages, _DOCUMENT):
        made = [_page(number, list(islice(texts, _TEXTS))) for number in range(1, min(_DOCUMENT, pages - first) + 1)]
        yield Document(
            doc_id=f"d{first:06}",
            filename=f"report-{first:06}.pdf",
            extension="pdf",
            source_path=f"/files/report-{first:06}.pdf",
            timestamp=_LOADED,
            pages=tuple(made),
        )


async def research(folder: Path, models: Models, pages: int, asked: int, progress: Progress) -> Numbers:
    """Contexts of ten sources by unseen questions: whole, in a small budget, by words alone, and with embedding."""
    index = await opened(folder, models)
    seconds, done = 0.0, 0
    writer = _store(index, models, Pay.NOTHING, folder)
    for document in documents(pages):
        seconds += (await clocked(lambda document=document: writer.add(SCOPE, document)))[1]
        done += len(document.pages)
        progress(f"write {pages:,} pages", done, pages)
    await index.optimize()
    numbers = {"research_pages_per_s": pages / seconds}
    kinds = {
        "research": (Pay.NOTHING, {}),
        "research_tight": (Pay.NOTHING, {"max_tokens": _TIGHT}),
        "research_text_only": (Pay.NOTHING, {"include_visual": False}),
        "research_embedding_shipped": (Pay.SHIPPED, {}),
    }
    for at, (name, (pay, told)) in enumerate(kinds.items()):
        progress("build research", at, len(kinds))
        builder = _builder(_store(index, models, pay, folder))
        numbers |= await _built(name, builder, told, asked, seed=91 + at)
    numbers |= await _metadata(_builder(writer), asked)
    await index.close()
    return numbers


def small_steps() -> Numbers:
    """Deduplication of 100 results, and the estimate of 10,000 characters."""
    draw = random.Random(5)
    results = [
        {"doc_id": f"d{draw.randrange(30)}", "page": draw.randrange(3), "score": draw.random()} for _ in range(100)
    ]
    text = next(iter(records(1_000)))[0].record.text
    long = (f"{text} " * (10_000 // len(text) + 1))[:10_000]
    return {
        "research_dedupe_100_p95_ms": _p95(lambda: deduplicate_results(results)),
        "research_estimate_10k_p95_ms": _p95(lambda: estimate_tokens(long)),
    }


async def _built(
    name: str, builder: ResearchContextBuilder, told: dict[str, int | bool], asked: int, *, seed: int
) -> Numbers:
    found: list[ResearchContext] = []

    async def ask(text: str) -> None:
        found.append(
            await builder.build_context(
                text,
                include_visual=bool(told.get("include_visual", True)),
                max_tokens=int(told["max_tokens"]) if "max_tokens" in told else None,
                scope=SCOPE,
            )
        )

    await each(warm_up(asked), ask)
    found.clear()
    numbers = summary(name, await each(questions(asked, seed=seed), ask))
    limit = told.get("max_tokens", builder.max_tokens)
    numbers[f"{name}_within_budget_share"] = statistics.mean(built.total_tokens <= limit for built in found)
    numbers[f"{name}_sources"] = statistics.mean(len(built.sources) for built in found)
    return numbers


async def _metadata(builder: ResearchContextBuilder, asked: int) -> Numbers:
    pages = [f"{100 * (at % 3)}:{1 + at % 90}" for at in range(asked)]

    async def read(place: str) -> None:
        await builder.get_source_metadata("d000000", int(place.partition(":")[2]), scope=SCOPE)

    return summary("research_metadata", await each(pages, read))


def _store(index: EmbeddedIndex, models: Models, pay: Pay, folder: Path) -> PageStore:
    encoders, rules = models.encoders(pay), default_redactor().rules
    counters = [counter_for(MODEL)]
    return PageStore(
        index=index,
        preparer=Preparer(encoders=encoders, counters=counters, redactor=Clean(rules)),
        search=searcher(index, encoders),
        rules=rules,
        images=PageImages(folder / "pictures"),
        counters=counters,
        visual=VisualPages(index=index, encoder=RegionEncoder(encoders, detect_language)),
    )


def _builder(pages: PageStore) -> ResearchContextBuilder:
    return ResearchContextBuilder(
        pages, counter=counter_for(MODEL), redactor=default_redactor(), clock=SystemClock(), model=MODEL
    )


def _page(number: int, made: list[tuple[str, str]]) -> Page:
    heading = f"# {made[0][0]}"
    text = "\n\n".join((heading, *(body for _, body in made)))
    regions: list[Region] = []
    for at, part in enumerate((heading, *(body for _, body in made))):
        start = text.index(part)
        kind = RegionKind.TEXT if at else RegionKind.HEADING
        regions.append(
            Region(kind=kind, box=(0.1, at / 4, 0.9, (at + 1) / 4), text=part, start=start, end=start + len(part))
        )
    return Page(number=number, text=text, section_path=made[0][0], num_headings=1, regions=tuple(regions))


def _p95(work: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(_ROUNDS):
        start = perf_counter()
        work()
        times.append((perf_counter() - start) * 1_000)
    return percentile(times, 0.95)
