"""Evaluates page search: questions over PDF files whose answers are on known pages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contexture import wiring
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.errors import InvalidRequest
from contexture.evaluation import _harness as harness
from contexture.ingestion.documents import LoadOptions, document_files, load_documents
from contexture.ledger import Trace
from contexture.pages.store import MAX_RESULTS

_CUTOFFS = (1, 5, 10)
_MISS = 10  # a question misses if a gold page is ranked below this


async def evaluate_pages(
    folder: Path,
    *,
    settings: Settings,
    text: bool = True,
    visual: bool = True,
    progress: harness.ProgressCallback | None = None,
) -> dict[str, Any]:
    """Page recall at 1, 5 and 10 and MRR over `pdfs/` and `queries.jsonl`, all files in one store.

    Gold pages are `FILE#PAGE`, with pages from 1. `misses` has the rank of every gold page that is not among the first
    ten; None if it is not among the first hundred. Questions without gold are unanswerable: `found` counts their pages.
    """
    show = progress or harness.ignore_progress
    questions = harness.load_questions(folder)
    answerable = [question for question in questions if question.gold]
    rankings: list[list[str]] = []
    seconds: list[float] = []
    async with harness.open_temporary_engine((), settings, show) as engine:
        await _load_files(engine, folder, show)
        for number, question in enumerate(answerable, start=1):
            start = time.perf_counter()
            rankings.append(await _rank_pages(engine, question, text=text, visual=visual))
            seconds.append(time.perf_counter() - start)
            show("search", number, len(answerable))
        empty = [
            len(await _rank_pages(engine, question, text=text, visual=visual))
            for question in questions
            if not question.gold
        ]
    pairs = list(zip(answerable, rankings, strict=True))
    return {
        **{
            f"recall@{k}": harness.mean([harness.recall(found, question.gold, k) for question, found in pairs])
            for k in _CUTOFFS
        },
        "mrr@10": harness.mean([harness.reciprocal_rank(found, question.gold, 10) for question, found in pairs]),
        "queries": len(pairs),
        "p50_ms": harness.percentile(seconds, 0.5) * 1e3,
        "p95_ms": harness.percentile(seconds, 0.95) * 1e3,
        "misses": {question.id: ranks for question, found in pairs if (ranks := _list_missed_ranks(question, found))},
        **({"unanswerable": len(empty), "unanswerable_silent": sum(not count for count in empty)} if empty else {}),
    }


async def _load_files(engine: Contexture, folder: Path, show: harness.ProgressCallback) -> None:
    leaves = document_files([folder / "pdfs"], ["pdf"])
    if not leaves:
        raise InvalidRequest(f"{str(folder)!r} has no pdfs/*.pdf")
    loading = LoadOptions(scope=engine.scope, now=engine.clock.now())
    async with wiring.reading_workers(draw=False) as workers:
        report = await load_documents(engine.pages, workers, leaves, loading, progress=show)
    if report.failed:
        raise InvalidRequest(f"cannot load {report.failed[0]}")
    await engine.index.optimize()


async def _rank_pages(engine: Contexture, question: harness.Question, *, text: bool, visual: bool) -> list[str]:
    found = await engine.pages.find(engine.scope, question.text, k=MAX_RESULTS, text=text, visual=visual, trace=Trace())
    return [f"{page.filename}#{page.page}" for page in found]


def _list_missed_ranks(question: harness.Question, found: Sequence[str]) -> dict[str, int | None]:
    ranks = {gold: found.index(gold) + 1 if gold in found else None for gold in sorted(question.gold)}
    return {gold: rank for gold, rank in ranks.items() if rank is None or rank > _MISS}
