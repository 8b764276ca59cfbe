"""The order candidates compete in, and the two cuts made along it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from contexture.ledger import Reason, Trace
from contexture.types import Candidate


def ranked(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Best score first; equal scores by id, so that the order never depends on the input's."""
    return sorted(candidates, key=lambda candidate: (-candidate.score, candidate.id))


def top_k(candidates: Sequence[Candidate], k: int, trace: Trace) -> list[Candidate]:
    """The best `k`, ranked; the others are dropped as beyond them. A negative `k` keeps none."""
    order = ranked(candidates)
    kept = max(0, k)
    for rank, candidate in enumerate(order[kept:], start=kept + 1):
        trace.drop(candidate, Reason.BEYOND_TOP_K, note=f"rank {rank}, limit {kept}")
    return order[:kept]


def above(candidates: Iterable[Candidate], floor: float, trace: Trace) -> list[Candidate]:
    """Those that score at least `floor`, ranked; the others are dropped as below it."""
    order = ranked(candidates)
    for candidate in order:
        if candidate.score < floor:
            trace.drop(candidate, Reason.BELOW_FLOOR, note=f"score {candidate.score:.3f}, floor {floor:.3f}")
    return [candidate for candidate in order if candidate.score >= floor]
