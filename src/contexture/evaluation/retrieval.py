"""How well search ranks the records that answer a question."""

from __future__ import annotations

import time
from pathlib import Path

from contexture.config import Settings
from contexture.engine import Contexture
from contexture.evaluation.bench import Progress, loaded, silent
from contexture.evaluation.datasets import Question, corpus, questions
from contexture.evaluation.metrics import mean, ndcg, percentile, recall, reciprocal_rank
from contexture.types import Equals

POOL = 300
"""Passages asked for: enough that a hundred records are among them."""


async def evaluate(folder: Path, *, settings: Settings, progress: Progress | None = None) -> dict[str, float]:
    """nDCG, recall, MRR and search times over the questions that have an answer."""
    show = progress or silent
    asked = [question for question in questions(folder) if question.gold]
    rankings: list[list[str]] = []
    seconds: list[float] = []
    async with loaded(corpus(folder), settings, show) as engine:
        for number, question in enumerate(asked, start=1):
            start = time.perf_counter()
            rankings.append(await ranking(engine, question))
            seconds.append(time.perf_counter() - start)
            show("search", number, len(asked))
    return {
        **scores(asked, rankings),
        "p50_ms": percentile(seconds, 0.5) * 1e3,
        "p95_ms": percentile(seconds, 0.95) * 1e3,
    }


async def ranking(engine: Contexture, question: Question) -> list[str]:
    """Record ids, best first, each at the place of its best passage."""
    where = Equals("group", question.group) if question.group else None
    result = await engine.search(question.text, where=where, pool=POOL)
    return list(dict.fromkeys(found.record_id for found in result.found))


def scores(asked: list[Question], rankings: list[list[str]]) -> dict[str, float]:
    """Every measure, averaged over the questions."""
    pairs = list(zip(asked, rankings, strict=True))
    return {
        "ndcg@10": mean([ndcg(found, question.gold, 10) for question, found in pairs]),
        "recall@5": mean([recall(found, question.gold, 5) for question, found in pairs]),
        "recall@10": mean([recall(found, question.gold, 10) for question, found in pairs]),
        "recall@100": mean([recall(found, question.gold, 100) for question, found in pairs]),
        "mrr@10": mean([reciprocal_rank(found, question.gold, 10) for question, found in pairs]),
        "queries": len(pairs),
    }
