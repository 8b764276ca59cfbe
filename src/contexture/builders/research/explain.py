"""Research builds done again, for replay and explanations."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as changed

from contexture.builders.explain import Change, Rebuilt, with_lost
from contexture.builders.research.capsule import recipe_of
from contexture.builders.research.compose import compose
from contexture.builders.research.request import request_from_json
from contexture.capsule import Capsule
from contexture.ledger import Trace
from contexture.ports import TokenCounter


def rebuild(capsule: Capsule, counter: TokenCounter, change: Change | None = None) -> Rebuilt:
    """The build in a capsule, done again, the same or with a change."""
    made, request = change or Change(), request_from_json(capsule.request)
    candidates = [changed(each, score=made.scores.get(each.id, each.score)) for each in capsule.candidates]
    trace = Trace()
    composed = compose(
        replace(request, max_tokens=request.max_tokens + made.more_tokens),
        candidates,
        counter=counter,
        recipe=recipe_of(capsule),
        trace=trace,
    )
    ledger = with_lost(capsule, trace.finish(candidates))
    return Rebuilt(messages=composed.messages, ledger=ledger, plenty=2 * composed.unlimited)
