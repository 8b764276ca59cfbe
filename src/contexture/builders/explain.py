"""Explains why a candidate was kept or dropped, and which extra tokens or score would have admitted it.

Works for every kind of build, by rebuilding its capsule with a `BuildChange`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from typing_extensions import TypedDict

from contexture.capsule import Capsule
from contexture.errors import InvalidRequest, NotFound
from contexture.ledger import Ledger, LedgerEntry, Reason, State
from contexture.ports import TokenCounter
from contexture.results import JsonResult
from contexture.types import Message

_BISECTION_STEPS = 20  # gives scores to six digits
_MAX_SCORE = 64.0  # above any search score: if it does not admit a candidate, no score does


class ExplanationJson(TypedDict):
    """What became of a candidate, and the least that would have admitted it."""

    build_id: str
    candidate: LedgerEntry
    more_tokens: int | None
    score_needed: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation(JsonResult):
    """A ledger entry and the changes that would have admitted its candidate; None where no change would.

    With `more_tokens` added to the budget, or with `score_needed` as its score, the same candidates
    give a prompt that contains this one; one token less does not. Both are found by rebuilding, not estimated.
    """

    entry: LedgerEntry
    more_tokens: int | None = None
    score_needed: float | None = None
    build_id: str = ""

    def json_form(self) -> ExplanationJson:
        """The candidate, and the smallest changes that would have admitted it."""
        return {
            "build_id": self.build_id,
            "candidate": self.entry,
            "more_tokens": self.more_tokens,
            "score_needed": self.score_needed,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildChange:
    """A change to try on a rebuild: more tokens, and other scores for some candidates."""

    more_tokens: int = 0
    scores: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, kw_only=True, slots=True)
class RebuiltPrompt:
    """The prompt and ledger of a rebuild; `plenty` is a number of extra tokens with which every candidate would fit."""

    messages: tuple[Message, ...]
    ledger: Ledger
    plenty: int


class RebuildFunction(Protocol):
    """Rebuilds the prompt of a capsule from its candidates, optionally with a change."""

    def __call__(self, capsule: Capsule, counter: TokenCounter, change: BuildChange | None = None) -> RebuiltPrompt:
        """The rebuilt prompt; the same capsule and change give the same bytes."""
        ...


def explain_candidate(
    capsule: Capsule, candidate_id: str, counter: TokenCounter, rebuild: RebuildFunction
) -> Explanation:
    """The ledger entry of one candidate, and the fewest extra tokens and lowest score that would have admitted it.

    Raises `NotFound` when the build had no such candidate.
    """
    built = rebuild(capsule, counter)
    entry = built.ledger.find(candidate_id)
    if entry is None:
        raise NotFound(f"this build had no candidate {candidate_id!r}")
    if entry.state is not State.DROPPED or entry in capsule.lost:
        return Explanation(entry=entry, build_id=capsule.build_id)

    def admits(change: BuildChange) -> bool:
        found = rebuild(capsule, counter, change).ledger.find(candidate_id)
        return found is not None and found.state is not State.DROPPED

    return Explanation(
        entry=entry,
        build_id=capsule.build_id,
        more_tokens=_find_least_tokens(built.plenty, lambda more: admits(BuildChange(more_tokens=more)))
        if entry.reason is Reason.OVER_BUDGET
        else None,
        score_needed=_find_least_score(entry.score, lambda score: admits(BuildChange(scores={candidate_id: score}))),
    )


def add_lost_entries(capsule: Capsule, ledger: Ledger) -> Ledger:
    """The ledger of a rebuild plus the entries and degradations that its capsule recorded before redaction."""
    return Ledger(entries=(*capsule.lost, *ledger.entries), degradations=capsule.degradations)


def read_capsule_model(capsule: Capsule) -> str:
    """The model whose tokenizer a capsule was built for; raises `InvalidRequest` when it names none."""
    model = capsule.settings.get("model")
    if not isinstance(model, str):
        raise InvalidRequest("this capsule does not say for which model it was built")
    return model


def _find_least_tokens(high: int, admits: Callable[[int], bool]) -> int | None:
    """The fewest extra tokens that admit the candidate, by bisection; None when even `high` do not."""
    if not admits(high):
        return None
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if admits(middle) else (middle, high)
    return high


def _find_least_score(low: float, admits: Callable[[float], bool]) -> float | None:
    """The lowest score above `low` that admits the candidate, to six digits, by bisection; None when none does."""
    high = next((score for score in (1.0, _MAX_SCORE) if score > low and admits(score)), None)
    if high is None:
        return None
    for _ in range(_BISECTION_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if admits(middle) else (middle, high)
    return high
