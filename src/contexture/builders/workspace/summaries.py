"""Summaries that a model writes of long blocks, where the configuration asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contexture.builders.workspace.plan import Plan
from contexture.ledger import Trace
from contexture.pipeline.rank import ranked
from contexture.pipeline.summarize import summarize
from contexture.pipeline.truncate import TruncationStrategy
from contexture.ports import ChatModel, TokenCounter
from contexture.types import Candidate

_MOST = 3  # calls of a model that one build waits for


async def summaries(
    candidates: Sequence[Candidate], plan: Plan, *, counter: TokenCounter, model: ChatModel | None, trace: Trace
) -> Mapping[str, str]:
    """By candidate, a model's summary of it in half of its tokens; without a model the best sentences stand for it."""
    if plan.truncation.default_strategy is not TruncationStrategy.SUMMARIZE:
        return {}
    if model is None:
        trace.degraded("summarize", "no model is configured; the best sentences are shown instead")
        return {}
    written: dict[str, str] = {}
    for candidate in _long(candidates, plan, counter)[:_MOST]:
        limit = counter.count(candidate.text) // 2
        found = await summarize(candidate.text, counter, limit, model=model, trace=trace, query=plan.query)
        if found is not None and not found.spans:
            written[candidate.id] = found.text
    return written


def _long(candidates: Sequence[Candidate], plan: Plan, counter: TokenCounter) -> list[Candidate]:
    least = 2 * plan.truncation.min_tokens
    return [candidate for candidate in ranked(candidates) if counter.count(candidate.text) >= least]
