"""Sources are asked at once, and none of them can spoil the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from contexture.errors import InvalidRequest, SourceUnavailable
from contexture.ledger import Trace
from contexture.pipeline.candidates import CandidateSource, collect_candidates
from contexture.types import Candidate


def named(name: str) -> Candidate:
    """A candidate."""
    return Candidate(id=name, key=name, text=name)


def source(answer: Sequence[Candidate] | Exception | None, patience: float = 60.0) -> CandidateSource:
    """A source that answers, fails, or never answers."""

    async def ask() -> Sequence[Candidate]:
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return answer or ()

    return CandidateSource(ask=ask, timeout_seconds=patience)


async def test_candidates_come_in_the_order_of_the_sources() -> None:
    """Whoever answers first, the order is that of the names."""
    trace = Trace()
    found = await collect_candidates({"b": source([named("b")]), "a": source([named("a")])}, deadline=60, trace=trace)

    assert ["b", "a"] == [candidate.id for candidate in found]
    assert () == trace.finish([]).degradations


@pytest.mark.parametrize("failure", [SourceUnavailable("down"), ValueError("bug"), OSError("refused")])
async def test_a_failing_source_is_a_degradation(failure: Exception) -> None:
    """Whatever a source raises, the others still count and the loss is named."""
    trace = Trace()
    found = await collect_candidates({"bad": source(failure), "good": source([named("a")])}, deadline=60, trace=trace)

    assert ["a"] == [candidate.id for candidate in found]
    assert [("bad", f"{type(failure).__name__}: {failure}")] == degradations(trace)


@pytest.mark.parametrize(("patience", "deadline"), [(0.001, 60.0), (60.0, 0.001)])
async def test_a_source_that_dawdles_is_a_degradation(patience: float, deadline: float) -> None:
    """A source that never answers is given up after its own patience or at the common deadline."""
    trace = Trace()
    sources = {"slow": source(None, patience), "good": source([named("a")])}
    found = await collect_candidates(sources, deadline=deadline, trace=trace)

    assert ["a"] == [candidate.id for candidate in found]
    assert [("slow", "SourceTimeout: no answer within 0.001 s")] == degradations(trace)


async def test_what_the_caller_can_mend_is_raised() -> None:
    """A bad request is not a degradation."""
    with pytest.raises(InvalidRequest):
        await collect_candidates({"search": source(InvalidRequest("bad"))}, deadline=60, trace=Trace())


async def test_no_sources_give_no_candidates() -> None:
    """Nothing asked, nothing found."""
    assert [] == await collect_candidates({}, deadline=1, trace=Trace())


def degradations(trace: Trace) -> list[tuple[str, str]]:
    """Sources and reasons."""
    return [(each.source, each.reason) for each in trace.finish([]).degradations]
