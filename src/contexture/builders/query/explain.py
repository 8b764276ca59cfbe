"""Builds of plain queries done again, for replay and explanations."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from msgspec.structs import replace as changed

from contexture.builders.explain import Change, Explanation, Rebuilt, explained, with_lost
from contexture.builders.query.compose import Composed, compose
from contexture.builders.query.request import QueryRecipe, request_from_json
from contexture.capsule import Capsule
from contexture.errors import InvalidRequest
from contexture.ledger import Ledger, Trace
from contexture.ports import TokenCounter


def recompose(capsule: Capsule, counter: TokenCounter, change: Change | None = None) -> tuple[Composed, Ledger]:
    """The build in a capsule, done again from its candidates."""
    made = change or Change()
    request = request_from_json(capsule.request)
    candidates = [changed(each, score=made.scores.get(each.id, each.score)) for each in capsule.candidates]
    trace = Trace()
    composed = compose(
        replace(request, max_tokens=request.max_tokens + made.more_tokens),
        candidates,
        counter=counter,
        recipe=recipe_of(capsule),
        trace=trace,
    )
    return composed, with_lost(capsule, trace.finish(candidates))


def rebuild(capsule: Capsule, counter: TokenCounter, change: Change | None = None) -> Rebuilt:
    """The build in a capsule, done again, the same or with a change."""
    composed, ledger = recompose(capsule, counter, change)
    plenty = 2 * sum(item.options[0].tokens for item in composed.items)
    return Rebuilt(messages=composed.messages, ledger=ledger, plenty=plenty)


def explain(capsule: Capsule, candidate_id: str, counter: TokenCounter) -> Explanation:
    """What became of one candidate and the least that would have put it into the prompt."""
    return explained(capsule, candidate_id, counter, rebuild)


def recipe_of(capsule: Capsule) -> QueryRecipe:
    """The recipe a capsule was built with."""
    try:
        return msgspec.convert(capsule.settings.get("recipe"), QueryRecipe)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"this capsule has no recipe for a query: {failure}") from failure
