"""How much of what answers a question is inside a context of a given size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from contexture.builders.query.request import QueryRequest
from contexture.config import Settings
from contexture.evaluation.bench import COLLECTION, Progress, loaded, silent
from contexture.evaluation.datasets import Question, corpus, questions
from contexture.evaluation.metrics import Offsets, length, mean, merged
from contexture.types import Citation, Equals


async def evaluate(
    folder: Path, *, tokens: Sequence[int], settings: Settings, progress: Progress | None = None
) -> dict[str, dict[str, float]]:
    """At each budget: questions fully covered, gold text shown, relevant share, tokens used."""
    show = progress or silent
    records = corpus(folder)
    sizes = {record.id: len(record.text) for record in records}
    asked = [question for question in questions(folder) if question.gold]
    rows: dict[int, list[dict[str, float]]] = {budget: [] for budget in tokens}
    async with loaded(records, settings, show) as engine:
        for number, question in enumerate(asked, start=1):
            where = Equals("group", question.group) if question.group else None
            for budget in tokens:
                request = QueryRequest(
                    query=question.text, collection=COLLECTION, max_tokens=budget, system="", where=where
                )
                built = await engine.build(request)
                rows[budget].append(row(question, built.context.citations, built.context.tokens, sizes))
            show("build", number, len(asked))
    return {str(budget): means(found) for budget, found in rows.items()}


def row(question: Question, citations: Sequence[Citation], tokens: int, sizes: Mapping[str, int]) -> dict[str, float]:
    """The measures of one context."""
    shown: dict[str, list[Offsets]] = {}
    for citation in citations:
        shown.setdefault(citation.record_id, []).append((citation.start, citation.end))
    gold_text = sum(length(merged(spans)) for record, spans in shown.items() if record in question.gold)
    relevant = [citation.record_id in question.gold for citation in citations]
    return {
        "gold_hit": float(question.gold <= shown.keys()),
        "gold_text": gold_text / max(1, sum(sizes.get(record, 0) for record in question.gold)),
        "precision": mean([float(hit) for hit in relevant]),
        "tokens": tokens,
    }


def means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The measures of many contexts, averaged."""
    names = ("gold_hit", "gold_text", "precision", "tokens")
    return {**{name: mean([row[name] for row in rows]) for name in names}, "queries": len(rows)}
