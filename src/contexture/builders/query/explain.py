"""Why a candidate is where it is, and the smallest change that would have admitted it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from contexture.builders.query.compose import PACKERS, Composed, compose
from contexture.builders.query.request import QueryRecipe, request_from_json
from contexture.capsule import Capsule
from contexture.errors import NotFound
from contexture.ledger import Entry, Ledger, Reason, Trace
from contexture.pipeline.admit import tokens_needed, value_needed
from contexture.ports import TokenCounter


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """One entry of the ledger with what would have changed it; both are None where nothing would."""

    entry: Entry
    more_tokens: int | None = None
    score_needed: float | None = None


def recompose(capsule: Capsule, counter: TokenCounter) -> tuple[Composed, Ledger]:
    """The build in a capsule, done again from its candidates."""
    trace = Trace()
    request = request_from_json(capsule.request)
    composed = compose(request, capsule.candidates, counter=counter, recipe=recipe_of(capsule), trace=trace)
    return composed, trace.finish(capsule.candidates)


def recipe_of(capsule: Capsule) -> QueryRecipe:
    """The recipe a capsule was built with."""
    settings: dict[str, Any] = capsule.settings
    return msgspec.convert(settings["recipe"], QueryRecipe)


def explain(capsule: Capsule, candidate_id: str, counter: TokenCounter) -> Explanation:
    """What became of one candidate and the least that would have put it into the prompt."""
    composed, ledger = recompose(capsule, counter)
    entry = ledger.find(candidate_id)
    if entry is None:
        raise NotFound(f"this build had no candidate {candidate_id!r}")
    if entry.reason is not Reason.OVER_BUDGET:
        return Explanation(entry=entry)
    recipe = recipe_of(capsule)
    pack = PACKERS[recipe.packer]
    capacity = tokens_needed(composed.items, composed.capacity, candidate_id, pack)
    value = value_needed(composed.items, composed.capacity, candidate_id, pack)
    return Explanation(
        entry=entry,
        more_tokens=None if capacity is None else capacity - composed.capacity,
        score_needed=None if value is None else _score(value, entry.tokens, recipe),
    )


def _score(value: float, tokens: int, recipe: QueryRecipe) -> float:
    """The score at which a candidate of that many tokens is worth `value`."""
    return (value / max(tokens, 1)) ** (1 / recipe.sharpness)
