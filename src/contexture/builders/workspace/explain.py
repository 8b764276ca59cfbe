"""Workspace contexts built again, for replay and explanations."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import replace as changed

from contexture.builders.explain import Change, Rebuilt, with_lost
from contexture.builders.workspace.capsule import plan_of
from contexture.builders.workspace.compose import compose
from contexture.builders.workspace.values import messages_of
from contexture.capsule import Capsule
from contexture.ledger import Trace
from contexture.ports import TokenCounter


def rebuild(capsule: Capsule, counter: TokenCounter, change: Change | None = None) -> Rebuilt:
    """The build in a capsule, done again, the same or with a change."""
    made, plan = change or Change(), plan_of(capsule)
    candidates = [changed(each, score=made.scores.get(each.id, each.score)) for each in capsule.candidates]
    trace = Trace()
    composed = compose(replace(plan, total=plan.total + made.more_tokens), candidates, counter=counter, trace=trace)
    ledger = with_lost(capsule, trace.finish(candidates))
    return Rebuilt(messages=messages_of(composed.serialized), ledger=ledger, plenty=2 * composed.unlimited)
