"""Hybrid search over the embedded index: how fast it is, how it grows, and what it weighs."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from benchmarks.corpus import SCOPE, Owned, questions, records, warm_up
from benchmarks.footprint import disk_megabytes, reader_megabytes
from benchmarks.parts import shares
from benchmarks.store import NAME, Models, Pay, Writer, opened, searcher
from benchmarks.timing import Numbers, Progress, Times, clocked, each, summary
from msgspec.structs import replace

from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.ledger import Trace
from contexture.retrieval.search import FoundPassage, HybridSearch

_SEEDS = {"asked": 12, "minilm": 13, "shipped": 14, "parts": 15}


async def searches(folder: Path, models: Models, asked: int, progress: Progress) -> Numbers:
    """What the store weighs, how fast it opens, and how fast it answers when every vector is compared."""
    numbers: Numbers = {"disk_mb": disk_megabytes(folder), "reader_rss_mb": reader_megabytes(folder)}
    index, numbers["open_s"] = await clocked(lambda: opened(folder, models))
    progress("search, exact", 0, 4)
    numbers |= await _pass(index, models, "search_exact", asked)
    for done, (pay, name) in enumerate(((Pay.MINILM, "minilm"), (Pay.SHIPPED, "shipped")), start=1):
        progress("search, exact", done, 4)
        numbers |= await _paying(index, models, name, pay, asked)
    progress("search, exact", 3, 4)
    numbers |= await shares(index, models, questions(asked, seed=_SEEDS["parts"]))
    numbers |= await _adding(index, models, asked // 6)
    await index.close()
    progress("search, exact", 4, 4)
    return numbers


async def _pass(index: EmbeddedIndex, models: Models, name: str, asked: int) -> Numbers:
    """Questions that this opening of the store has not seen."""
    search = searcher(index, models.encoders())
    await each(warm_up(asked), lambda text: find(search, text))
    return summary(name, await each(questions(asked, seed=_SEEDS["asked"]), lambda text: find(search, text)))


async def _paying(index: EmbeddedIndex, models: Models, name: str, pay: Pay, asked: int) -> Numbers:
    search = searcher(index, models.encoders(pay))
    await each(warm_up(asked), lambda text: find(search, text))
    times = await each(questions(asked, seed=_SEEDS[name]), lambda text: find(search, text))
    return summary(f"search_exact_embedding_{name}", times)


async def _adding(index: EmbeddedIndex, models: Models, wanted: int) -> Numbers:
    """Write one record, then ask for the one word that only it has; ids are those of no other record."""
    search, writer = searcher(index, models.encoders()), Writer(index, models)
    adding: list[float] = []
    visible: list[float] = []
    found = 0
    for number, owned in zip(count(), _mine(wanted), strict=False):
        word = f"novelty{number:04d}"
        record = replace(owned.record, id=f"added-{number}", text=f"{owned.record.text} It says {word}.", lang="en")
        _, write = await clocked(lambda record=record: writer.write([Owned(SCOPE, record)]))
        answer, ask = await clocked(lambda word=word: find(search, f"what says {word}?"))
        adding.append(write * 1_000)
        visible.append((write + ask) * 1_000)
        found += any(one.hit.record.id == record.id for one in answer)
    await index.delete(SCOPE, NAME, [f"added-{number}" for number in range(wanted)])
    return {
        **summary("add_one", Times(adding)),
        **summary("add_and_find", Times(visible)),
        "added_found_share": found / wanted,
    }


def _mine(wanted: int) -> list[Owned]:
    """Records of another seed, written so that the asking scope may read them."""
    block = next(records(wanted, seed=1))
    return [Owned(SCOPE, replace(owned.record, acl=("public",))) for owned in block]


async def find(search: HybridSearch, text: str) -> tuple[FoundPassage, ...]:
    """One search on behalf of the benchmark's reader."""
    return await search.search(SCOPE, NAME, text, trace=Trace())
