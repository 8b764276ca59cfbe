"""Evaluates a corpus with known answers: ranking, contexts within a token budget, spans, memories, pages of PDFs."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from contexture import wiring
from contexture.builders.query.request import QueryRequest
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.errors import InvalidRequest
from contexture.evaluation import _harness as harness
from contexture.ingestion.documents import LoadOptions, document_files, load_documents
from contexture.ingestion.memories import record_to_memory
from contexture.ledger import Trace
from contexture.pages.store import MAX_RESULTS
from contexture.types import PUBLIC, BuiltContext, Citation, Equals, Record, Scope

SEARCH_POOL = 300
"""Passages to retrieve: enough to contain a hundred records."""


async def evaluate_retrieval(
    folder: Path, *, settings: Settings, progress: harness.ProgressCallback | None = None
) -> dict[str, float]:
    """nDCG, recall, MRR and search times over the questions that have an answer."""
    show = progress or harness.ignore_progress
    questions = [question for question in harness.load_questions(folder) if question.gold]
    rankings: list[list[str]] = []
    seconds: list[float] = []
    async with harness.open_temporary_engine(harness.load_corpus(folder), settings, show) as engine:
        for number, question in enumerate(questions, start=1):
            start = time.perf_counter()
            rankings.append(await rank_records(engine, question))
            seconds.append(time.perf_counter() - start)
            show("search", number, len(questions))
    return {
        **average_scores(questions, rankings),
        "p50_ms": harness.percentile(seconds, 0.5) * 1e3,
        "p95_ms": harness.percentile(seconds, 0.95) * 1e3,
    }


async def rank_records(engine: Contexture, question: harness.Question) -> list[str]:
    """Return record ids, best first, each ranked by its best passage."""
    where = Equals("group", question.group) if question.group else None
    result = await engine.search(question.text, where=where, pool=SEARCH_POOL, now=question.asked)
    return list(dict.fromkeys(found.record_id for found in result.found))


def average_scores(questions: list[harness.Question], rankings: list[list[str]]) -> dict[str, float]:
    """Return every metric, averaged over the questions."""
    pairs = list(zip(questions, rankings, strict=True))
    return {
        "ndcg@10": harness.mean([harness.ndcg(found, question.gold, 10) for question, found in pairs]),
        "recall@5": harness.mean([harness.recall(found, question.gold, 5) for question, found in pairs]),
        "recall@10": harness.mean([harness.recall(found, question.gold, 10) for question, found in pairs]),
        "recall@100": harness.mean([harness.recall(found, question.gold, 100) for question, found in pairs]),
        "mrr@10": harness.mean([harness.reciprocal_rank(found, question.gold, 10) for question, found in pairs]),
        "queries": len(pairs),
    }


async def evaluate_budget(
    folder: Path, *, tokens: Sequence[int], settings: Settings, progress: harness.ProgressCallback | None = None
) -> dict[str, dict[str, float]]:
    """Return for each budget: questions fully covered, gold text shown, relevant share, tokens used."""
    show = progress or harness.ignore_progress
    records = harness.load_corpus(folder)
    sizes = {record.id: len(record.text) for record in records}
    questions = [question for question in harness.load_questions(folder) if question.gold]
    rows: dict[int, list[dict[str, float]]] = {budget: [] for budget in tokens}
    async with harness.open_temporary_engine(records, settings, show) as engine:
        for number, question in enumerate(questions, start=1):
            where = Equals("group", question.group) if question.group else None
            for budget in tokens:
                request = QueryRequest(
                    query=question.text, collection=harness.COLLECTION, max_tokens=budget, system="", where=where
                )
                built = await engine.build(request)
                rows[budget].append(measure_context(question, built.context.citations, built.context.tokens, sizes))
            show("build", number, len(questions))
    return {str(budget): average_measures(found) for budget, found in rows.items()}


def measure_context(
    question: harness.Question, citations: Sequence[Citation], tokens: int, sizes: Mapping[str, int]
) -> dict[str, float]:
    """Return the metrics of one context."""
    shown: dict[str, list[harness.Offsets]] = {}
    for citation in citations:
        shown.setdefault(citation.record_id, []).append((citation.start, citation.end))
    gold_text = sum(
        harness.count_characters(harness.merge_spans(spans))
        for record, spans in shown.items()
        if record in question.gold
    )
    relevant = [citation.record_id in question.gold for citation in citations]
    return {
        "gold_hit": float(question.gold <= shown.keys()),
        "gold_any": float(bool(question.gold & shown.keys())),
        "gold_text": gold_text / max(1, sum(sizes.get(record, 0) for record in question.gold)),
        "precision": harness.mean([float(hit) for hit in relevant]),
        "tokens": tokens,
    }


def average_measures(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the metrics averaged over many contexts."""
    names = ("gold_hit", "gold_any", "gold_text", "precision", "tokens")
    return {**{name: harness.mean([row[name] for row in rows]) for name in names}, "queries": len(rows)}


async def evaluate_spans(
    folder: Path, *, tokens: int, settings: Settings, progress: harness.ProgressCallback | None = None
) -> dict[str, float]:
    """Character recall, precision and intersection over union, averaged over the questions."""
    show = progress or harness.ignore_progress
    records = [
        Record(id=name, text=text, acl=(PUBLIC,), payload={"group": name})
        for name, text in harness.load_texts(folder).items()
    ]
    questions = harness.load_span_questions(folder)
    rows: list[tuple[float, float, float]] = []
    used: list[float] = []
    async with harness.open_temporary_engine(records, settings, show) as engine:
        for number, question in enumerate(questions, start=1):
            request = QueryRequest(
                query=question.text,
                collection=harness.COLLECTION,
                max_tokens=tokens,
                system="",
                where=Equals("group", question.corpus),
            )
            built = await engine.build(request)
            rows.append(_measure_spans(question, built.context))
            used.append(built.context.tokens)
            show("build", number, len(questions))
    return {
        "recall": harness.mean([row[0] for row in rows]),
        "precision": harness.mean([row[1] for row in rows]),
        "iou": harness.mean([row[2] for row in rows]),
        "tokens": harness.mean(used),
        "queries": len(rows),
    }


def _measure_spans(question: harness.SpanQuestion, context: BuiltContext) -> tuple[float, float, float]:
    shown = harness.merge_spans([(citation.start, citation.end) for citation in context.citations])
    gold = harness.merge_spans(question.spans)
    both = harness.count_overlap(shown, gold)
    either = harness.count_characters(shown) + harness.count_characters(gold) - both
    return (
        both / max(1, harness.count_characters(gold)),
        both / max(1, harness.count_characters(shown)),
        both / max(1, either),
    )


_MEMORY_BATCH_SIZE = 32


async def evaluate_memories(
    folder: Path, *, tokens: Sequence[int], settings: Settings, progress: harness.ProgressCallback | None = None
) -> dict[str, dict[str, float]]:
    """Return for each prompt limit the metrics of `evaluate_budget`, over memories recalled for a chat turn.

    Each group of the corpus is a tenant of its own, so that a question can reach only its own group. The name that
    begins a line of a dialogue is its speaker. Adversarial questions are left out. `gold_any` is the share of questions
    with at least one gold record in the prompt.
    """
    show = progress or harness.ignore_progress
    records = harness.load_corpus(folder)
    sizes = {record.id: len(record.text) for record in records}
    questions = [question for question in harness.load_questions(folder) if question.gold and not question.adversarial]
    rows: dict[int, list[dict[str, float]]] = {limit: [] for limit in tokens}
    async with harness.open_temporary_engine((), settings, show) as engine:
        await _store_memories(engine, records, show)
        for number, question in enumerate(questions, start=1):
            for limit in tokens:
                turn = {"user_message": question.text}
                built = await engine.turns.build_for_turn(
                    turn, max_prompt_tokens=limit, scope=_group_scope(engine, question)
                )
                rows[limit].append(measure_context(question, built.citations, built.tokens, sizes))
            show("build", number, len(questions))
    return {str(limit): average_measures(found) for limit, found in rows.items()}


async def _store_memories(engine: Contexture, records: Sequence[Record], show: harness.ProgressCallback) -> None:
    groups: dict[Scope, list[Record]] = {}
    for record in records:
        groups.setdefault(_group_scope(engine, record), []).append(record)
    done = 0
    for scope, group in groups.items():
        for at in range(0, len(group), _MEMORY_BATCH_SIZE):
            batch = group[at : at + _MEMORY_BATCH_SIZE]
            home = {"namespace": engine.settings.memory_namespace, "universe": engine.settings.memory_universe}
            await engine.memory.remember(scope, [record_to_memory(_name_speaker(record), **home) for record in batch])
            done += len(batch)
            show("load", done, len(records))
    await engine.index.optimize()


_SPEAKER = re.compile(r"([^\W\d_][\w' -]{0,39}): ")


def _name_speaker(record: Record) -> Record:
    """The record with the name that begins a line of a dialogue as its speaker, as clients store it."""
    found = _SPEAKER.match(record.text) if record.session and record.position is not None else None
    named = {"role": "user", "speaker": found[1]} if found else {}
    return msgspec.structs.replace(record, payload={**named, **record.payload})


def _group_scope(engine: Contexture, of: Record | harness.Question) -> Scope:
    group = of.group if isinstance(of, harness.Question) else of.payload.get("group")
    return Scope(tenant=f"group-{group}", user="local") if group else engine.scope


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
