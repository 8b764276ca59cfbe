"""Why a candidate is where it is, and the smallest change that would have admitted it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from contexture.builders.query.compose import Composed, compose
from contexture.builders.query.request import QueryRecipe, QueryRequest, request_from_json
from contexture.capsule import Capsule
from contexture.errors import InvalidRequest, NotFound
from contexture.ledger import Entry, Ledger, Reason, State, Trace
from contexture.ports import TokenCounter
from contexture.types import Candidate

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


def recompose(capsule: Capsule, counter: TokenCounter) -> tuple[Composed, Ledger]:
    """The build in a capsule, done again from its candidates."""
    composed, ledger = _composed(capsule, request_from_json(capsule.request), capsule.candidates, counter)
    return composed, Ledger(entries=(*capsule.lost, *ledger.entries), degradations=capsule.degradations)


def recipe_of(capsule: Capsule) -> QueryRecipe:
    """The recipe a capsule was built with."""
    try:
        return msgspec.convert(capsule.settings.get("recipe"), QueryRecipe)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"this capsule has no recipe for a query: {failure}") from failure


def model_of(capsule: Capsule) -> str:
    """The model whose tokens a capsule was built for."""
    model = capsule.settings.get("model")
    if not isinstance(model, str):
        raise InvalidRequest("this capsule does not say for which model it was built")
    return model


def explain(capsule: Capsule, candidate_id: str, counter: TokenCounter) -> Explanation:
    """What became of one candidate and the least that would have put it into the prompt."""
    composed, ledger = recompose(capsule, counter)
    entry = ledger.find(candidate_id)
    if entry is None:
        raise NotFound(f"this build had no candidate {candidate_id!r}")
    if entry.state is not State.DROPPED or entry in capsule.lost:
        return Explanation(entry=entry)
    request = request_from_json(capsule.request)

    def with_budget(tokens: int) -> bool:
        return _admits(capsule, replace(request, max_tokens=tokens), capsule.candidates, candidate_id, counter)

    def with_score(score: float) -> bool:
        changed = [replace(each, score=score) if each.id == candidate_id else each for each in capsule.candidates]
        return _admits(capsule, request, changed, candidate_id, counter)

    room = request.max_tokens + 2 * sum(item.options[0].tokens for item in composed.items)
    enough = _least_tokens(request.max_tokens, room, with_budget) if entry.reason is Reason.OVER_BUDGET else None
    return Explanation(
        entry=entry,
        more_tokens=None if enough is None else enough - request.max_tokens,
        score_needed=_least_score(entry.score, with_score),
    )


def _composed(
    capsule: Capsule, request: QueryRequest, candidates: tuple[Candidate, ...], counter: TokenCounter
) -> tuple[Composed, Ledger]:
    trace = Trace()
    composed = compose(request, candidates, counter=counter, recipe=recipe_of(capsule), trace=trace)
    return composed, trace.finish(candidates)


def _admits(
    capsule: Capsule, request: QueryRequest, candidates: list[Candidate] | tuple[Candidate, ...], name: str,
    counter: TokenCounter,
) -> bool:  # fmt: skip
    _, ledger = _composed(capsule, request, tuple(candidates), counter)
    entry = ledger.find(name)
    return entry is not None and entry.state is not State.DROPPED


def _least_tokens(low: int, high: int, admits: Callable[[int], bool]) -> int | None:
    """A budget above `low` that admits, while one token less does not; None when `high` does not admit."""
    if not admits(high):
        return None
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
