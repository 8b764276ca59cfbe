"""Which characters of a long text reach the context, against those that answer the question."""

from __future__ import annotations

from pathlib import Path

from contexture.builders.query.request import QueryRequest
from contexture.config import Settings
from contexture.evaluation.bench import COLLECTION, Progress, loaded, silent
from contexture.evaluation.datasets import SpanQuestion, span_questions, texts
from contexture.evaluation.metrics import length, mean, merged, overlap
from contexture.types import PUBLIC, BuiltContext, Equals, Record


async def evaluate(
    folder: Path, *, tokens: int, settings: Settings, progress: Progress | None = None
) -> dict[str, float]:
    """Character recall, precision and intersection over union, averaged over the questions."""
    show = progress or silent
    records = [
        Record(id=name, text=text, acl=(PUBLIC,), payload={"group": name}) for name, text in texts(folder).items()
    ]
    asked = span_questions(folder)
    rows: list[tuple[float, float, float]] = []
    used: list[float] = []
    async with loaded(records, settings, show) as engine:
        for number, question in enumerate(asked, start=1):
            request = QueryRequest(
                query=question.text,
                collection=COLLECTION,
                max_tokens=tokens,
                system="",
                where=Equals("group", question.corpus),
            )
            built = await engine.build(request)
            rows.append(_row(question, built.context))
            used.append(built.context.tokens)
            show("build", number, len(asked))
    return {
        "recall": mean([row[0] for row in rows]),
        "precision": mean([row[1] for row in rows]),
        "iou": mean([row[2] for row in rows]),
        "tokens": mean(used),
        "queries": len(rows),
    }


def _row(question: SpanQuestion, context: BuiltContext) -> tuple[float, float, float]:
    shown = merged([(citation.start, citation.end) for citation in context.citations])
    gold = merged(question.spans)
    both = overlap(shown, gold)
    either = length(shown) + length(gold) - both
    return both / max(1, length(gold)), both / max(1, length(shown)), both / max(1, either)
