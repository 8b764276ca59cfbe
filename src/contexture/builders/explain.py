"""Why a candidate is where it is, and the smallest change that would have admitted it, for any kind of build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from contexture.capsule import Capsule
from contexture.errors import InvalidRequest, NotFound
from contexture.ledger import Entry, Ledger, Reason, State
from contexture.ports import TokenCounter
from contexture.types import Message

_HALVINGS = 20  # scores to six digits
_BEYOND = 64.0  # a score no search gives: what it does not admit, no score does


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """One entry of the ledger with what would have changed it; both are None where nothing would.

    With `more_tokens` added to the budget, or with `score_needed` as its score, the same candidates
    give a prompt that has this one in it; one token less would not do. Both were tried, not estimated.
    """

    entry: Entry
    more_tokens: int | None = None
    score_needed: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """How a build is done differently: with more tokens, and with other scores for some candidates."""

    more_tokens: int = 0
    scores: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """A build done again; with `plenty` more tokens everything would fit."""

    messages: tuple[Message, ...]
    ledger: Ledger
    plenty: int


class Rebuild(Protocol):
    """Does the build in a capsule again from its candidates, the same or with a change."""

    def __call__(self, capsule: Capsule, counter: TokenCounter, change: Change | None = None) -> Rebuilt:
        """The same capsule and change give the same bytes."""
        ...


def explained(capsule: Capsule, candidate_id: str, counter: TokenCounter, rebuild: Rebuild) -> Explanation:
    """What became of one candidate and the least that would have put it into the prompt."""
    built = rebuild(capsule, counter)
    entry = built.ledger.find(candidate_id)
    if entry is None:
        raise NotFound(f"this build had no candidate {candidate_id!r}")
    if entry.state is not State.DROPPED or entry in capsule.lost:
        return Explanation(entry=entry)

    def admits(change: Change) -> bool:
        found = rebuild(capsule, counter, change).ledger.find(candidate_id)
        return found is not None and found.state is not State.DROPPED

    return Explanation(
        entry=entry,
        more_tokens=_least_tokens(built.plenty, lambda more: admits(Change(more_tokens=more)))
        if entry.reason is Reason.OVER_BUDGET
        else None,
        score_needed=_least_score(entry.score, lambda score: admits(Change(scores={candidate_id: score}))),
    )


def with_lost(capsule: Capsule, ledger: Ledger) -> Ledger:
    """The ledger of a rebuilt prompt with what its capsule knows to have been lost before."""
    return Ledger(entries=(*capsule.lost, *ledger.entries), degradations=capsule.degradations)


def model_of(capsule: Capsule) -> str:
    """The model whose tokens a capsule was built for."""
    model = capsule.settings.get("model")
    if not isinstance(model, str):
        raise InvalidRequest("this capsule does not say for which model it was built")
    return model


def _least_tokens(high: int, admits: Callable[[int], bool]) -> int | None:
    """How many more tokens admit, while one less does not; None when `high` do not."""
    if not admits(high):
        return None
    low = 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if admits(middle) else (middle, high)
    return high


def _least_score(low: float, admits: Callable[[float], bool]) -> float | None:
    """A score above `low` that admits, the least to six digits; None when no score does."""
    high = next((score for score in (1.0, _BEYOND) if score > low and admits(score)), None)
    if high is None:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if admits(middle) else (middle, high)
    return high
