"""Whole builds of 2,000 tokens, as a caller waits for them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.corpus import SCOPE, questions, warm_up
from benchmarks.store import NAME, Models, Pay, builder, opened, searcher
from benchmarks.timing import Numbers, Progress, Times, each, summary

from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.builders.query.build import QueryContext, QueryContextBuilder
from contexture.builders.query.request import QueryRequest

TOKENS = 2_000

_SEEDS = {Pay.NOTHING: 22, Pay.MINILM: 23, Pay.SHIPPED: 24}
_NAMES = {
    Pay.NOTHING: "build",
    Pay.MINILM: "build_embedding_minilm",
    Pay.SHIPPED: "build_embedding_shipped",
}


async def building(folder: Path, models: Models, asked: int, progress: Progress) -> Numbers:
    """Builds over an exact store: unseen questions, known questions, and with the store gone."""
    index = await opened(folder, models)
    numbers: Numbers = {}
    for done, pay in enumerate(Pay):
        progress("build", done, len(Pay) + 2)
        numbers |= await _unseen(index, models, pay, asked)
    progress("build", len(Pay), len(Pay) + 2)
    numbers |= await _known(index, models, asked)
    await index.close()
    progress("build", len(Pay) + 1, len(Pay) + 2)
    numbers |= await _store_down(index, models, asked)
    progress("build", len(Pay) + 2, len(Pay) + 2)
    return numbers


async def _unseen(index: EmbeddedIndex, models: Models, pay: Pay, asked: int) -> Numbers:
    make = builder(searcher(index, models.encoders(pay)))
    built, times = await _built(make, questions(asked, seed=_SEEDS[pay]))
    numbers = summary(_NAMES[pay], times)
    if pay is Pay.NOTHING:
        numbers["build_tokens_mean"] = statistics.mean(one.context.tokens for one in built)
        numbers["build_within_budget_share"] = statistics.mean(one.context.tokens <= TOKENS for one in built)
        for phase in built[0].context.timings:
            spent = [one.context.timings[phase] * 1_000 for one in built]
            numbers[f"build_phase_{phase}_p50_ms"] = statistics.median(spent)
    return numbers


async def _known(index: EmbeddedIndex, models: Models, asked: int) -> Numbers:
    """The same questions again: the search answers from memory, everything else is done anew."""
    make = builder(searcher(index, models.encoders(), remembered=2 * asked))
    texts = questions(asked, seed=_SEEDS[Pay.NOTHING])
    await _built(make, texts)
    _, times = await _built(make, texts)
    return summary("build_known_question", times)


async def _store_down(index: EmbeddedIndex, models: Models, asked: int) -> Numbers:
    """A store that refuses: the build is answered without material, and says so."""
    built, times = await _built(builder(searcher(index, models.encoders())), questions(asked, seed=_SEEDS[Pay.NOTHING]))
    degraded = statistics.mean(bool(one.ledger.degradations) for one in built)
    return {**summary("build_store_down", times), "build_store_down_degraded_share": degraded}


async def _built(make: QueryContextBuilder, texts: Sequence[str]) -> tuple[list[QueryContext], Times]:
    """Contexts and their milliseconds, after a warm-up with other questions."""
    built: list[QueryContext] = []

    async def ask(text: str) -> None:
        built.append(await make.build(QueryRequest(query=text, collection=NAME, max_tokens=TOKENS), scope=SCOPE))

    await each(warm_up(len(texts)), ask)
    built.clear()
    times = await each(texts, ask)
    return built, times
