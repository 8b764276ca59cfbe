"""Hybrid search over the embedded index: how fast it is, how it grows, and what it weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from benchmarks.corpus import SCOPE, Owned, questions, records, warm_up
from benchmarks.footprint import disk_megabytes, reader_megabytes
from benchmarks.parts import shares
from benchmarks.store import EXACT, GRAPH, NAME, Models, Pay, Writer, opened, searcher
from benchmarks.timing import Numbers, Progress, Times, clocked, each, summary

from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.ledger import Trace
from contexture.retrieval.search import Found, HybridSearch

BEST = 10

_SEEDS = {"asked": 12, "minilm": 13, "shipped": 14, "parts": 15}


async def searching(folder: Path, models: Models, asked: int, progress: Progress) -> Numbers:
    """Every figure of one store: exact first, then over a graph, then what a reader process weighs."""
    numbers: Numbers = {"disk_mb": disk_megabytes(folder), "reader_rss_mb": reader_megabytes(folder)}
    index, opening = await clocked(lambda: opened(folder, models, exact_limit=EXACT))
    numbers["open_s"] = opening
    progress("search, exact", 0, 3)
    exact, best = await _pass(index, models, "search_exact", asked)
    numbers |= exact
    progress("search, exact", 1, 3)
    for pay, name in ((Pay.MINILM, "minilm"), (Pay.SHIPPED, "shipped")):
        numbers |= await _paying(index, models, name, pay, asked)
    progress("search, exact", 2, 3)
    numbers |= await shares(index, models, questions(asked, seed=_SEEDS["parts"]))
    numbers |= await _adding(index, models, asked // 6)
    await index.close()
    progress("search, exact", 3, 3)
    numbers |= await _over_graph(folder, models, asked, best, progress)
    numbers["hnsw_speedup_ratio"] = numbers["search_exact_p95_ms"] / numbers["search_hnsw_p95_ms"]
    return numbers


async def _pass(index: EmbeddedIndex, models: Models, name: str, asked: int) -> tuple[Numbers, list[set[str]]]:
    """Questions that this opening of the store has not seen, and the best records of each."""
    search = searcher(index, models.encoders())
    await each(warm_up(asked), lambda text: find(search, text))
    best: list[set[str]] = []

    async def ask(text: str) -> None:
        found = await find(search, text)
        best.append({one.hit.record.id for one in found[:BEST]})

    times = await each(questions(asked, seed=_SEEDS["asked"]), ask)
    return summary(name, times), best


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


async def _over_graph(
    folder: Path, models: Models, asked: int, exact: Sequence[set[str]], progress: Progress
) -> Numbers:
    progress("search, HNSW", 0, 2)
    index = await opened(folder, models, exact_limit=GRAPH)
    _, optimize = await clocked(index.optimize)
    progress("search, HNSW", 1, 2)
    numbers, best = await _pass(index, models, "search_hnsw", asked)
    await index.close()
    progress("search, HNSW", 2, 2)
    same = sum(len(left & right) for left, right in zip(exact, best, strict=True))
    agreement = same / max(1, sum(len(one) for one in exact))
    return {"hnsw_optimize_s": optimize, **numbers, "hnsw_agreement_share": agreement}


async def find(search: HybridSearch, text: str) -> tuple[Found, ...]:
    """One search on behalf of the benchmark's reader."""
    return await search.search(SCOPE, NAME, text, trace=Trace())
