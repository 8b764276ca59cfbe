"""How much of what answers a question a chat turn holds when the corpus is what was said before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from contexture.config import Settings
from contexture.engine import Contexture
from contexture.evaluation.bench import Progress, loaded, silent
from contexture.evaluation.budget import means, row
from contexture.evaluation.datasets import Question, corpus, questions
from contexture.ingestion.memories import memory_of
from contexture.types import Record, Scope

_BATCH = 32


async def evaluate(
    folder: Path, *, tokens: Sequence[int], settings: Settings, progress: Progress | None = None
) -> dict[str, dict[str, float]]:
    """At each limit of a turn's prompt: the measures of `budget.evaluate`, over memories recalled for it.

    A group of the corpus is a tenant of its own, so that a question reaches its own group only.
    """
    show = progress or silent
    records = corpus(folder)
    sizes = {record.id: len(record.text) for record in records}
    asked = [question for question in questions(folder) if question.gold]
    rows: dict[int, list[dict[str, float]]] = {limit: [] for limit in tokens}
    async with loaded((), settings, show) as engine:
        await _remember(engine, records, show)
        for number, question in enumerate(asked, start=1):
            for limit in tokens:
                turn = {"user_message": question.text}
                built = await engine.turns.build_for_turn(turn, max_prompt_tokens=limit, scope=_scope(engine, question))
                rows[limit].append(row(question, built.citations, built.tokens, sizes))
            show("build", number, len(asked))
    return {str(limit): means(found) for limit, found in rows.items()}


async def _remember(engine: Contexture, records: Sequence[Record], show: Progress) -> None:
    groups: dict[Scope, list[Record]] = {}
    for record in records:
        groups.setdefault(_scope(engine, record), []).append(record)
    done = 0
    for scope, group in groups.items():
        for at in range(0, len(group), _BATCH):
            batch = group[at : at + _BATCH]
            home = {"namespace": engine.settings.memory_namespace, "universe": engine.settings.memory_universe}
            await engine.memory.remember(scope, [memory_of(record, **home) for record in batch])
            done += len(batch)
            show("load", done, len(records))
    await engine.index.optimize()


def _scope(engine: Contexture, of: Record | Question) -> Scope:
    group = of.group if isinstance(of, Question) else of.payload.get("group")
    return Scope(tenant=f"group-{group}", user="local") if group else engine.scope
