"""Memories that the history already says: shown again they would cost room and change the prompt for nothing."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.builders.turn.messages import words_of
from contexture.builders.turn.request import Line
from contexture.ledger import Reason, Trace
from contexture.text.simhash import shingles
from contexture.types import Candidate


def unheard(candidates: Sequence[Candidate], lines: Sequence[Line], trace: Trace, *, share: float) -> list[Candidate]:
    """Those of which less than `share` stands in any one of `lines`, measured in runs of three words."""
    said = [(line, shingles(words_of(line.message.get("content") or ""))) for line in lines]
    kept: list[Candidate] = []
    for candidate in candidates:
        runs = shingles(candidate.text)
        of = next((line for line, known in reversed(said) if len(runs & known) >= max(share * len(runs), 1)), None)
        if of is None:
            kept.append(candidate)
        else:
            trace.drop(candidate, Reason.NEAR_DUPLICATE, of=f"history[{of.at}]")
    return kept
