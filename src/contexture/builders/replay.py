"""Rebuilds the prompt of a capsule from its redacted candidates; one `rebuild_*` function per kind.

The same capsule and the same change give the same bytes. No builder imports this module; only the engine does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import msgspec
from msgspec.structs import replace as changed

from contexture.builders.command.compose import compose_command, read_command_plan
from contexture.builders.explain import (
    BuildChange,
    Explanation,
    RebuildFunction,
    RebuiltPrompt,
    add_lost_entries,
    explain_candidate,
)
from contexture.builders.query.compose import ComposedQuery, compose_query
from contexture.builders.query.request import QueryRecipe, query_from_json
from contexture.builders.research.compose import compose_research
from contexture.builders.research.request import read_research_recipe, research_from_json
from contexture.builders.turn.compose import compose_turn
from contexture.builders.turn.request import read_turn_recipe, redacted_turn_from_json
from contexture.builders.workspace.compose import compose_workspace
from contexture.builders.workspace.request import read_context_plan
from contexture.builders.workspace.result import to_messages
from contexture.capsule import Capsule
from contexture.errors import InvalidRequest
from contexture.ledger import Ledger, Trace
from contexture.ports import TokenCounter


def recompose_query(
    capsule: Capsule, counter: TokenCounter, change: BuildChange | None = None
) -> tuple[ComposedQuery, Ledger]:
    """The prompt and ledger of a query capsule, composed again from its candidates, with an optional change."""
    made = change or BuildChange()
    request = query_from_json(capsule.request)
    candidates = [changed(each, score=made.scores.get(each.id, each.score)) for each in capsule.candidates]
    trace = Trace()
    composed = compose_query(
        replace(request, max_tokens=request.max_tokens + made.more_tokens),
        candidates,
        counter=counter,
        recipe=read_query_recipe(capsule),
        trace=trace,
    )
    return composed, add_lost_entries(capsule, trace.finish(candidates))


def rebuild_query(capsule: Capsule, counter: TokenCounter, change: BuildChange | None = None) -> RebuiltPrompt:
    """Rebuild a query capsule, with an optional change."""
    composed, ledger = recompose_query(capsule, counter, change)
    plenty = 2 * sum(item.options[0].tokens for item in composed.items)
    return RebuiltPrompt(messages=composed.messages, ledger=ledger, plenty=plenty)


def explain_query(capsule: Capsule, candidate_id: str, counter: TokenCounter) -> Explanation:
    """Explain one candidate of a query capsule."""
    return explain_candidate(capsule, candidate_id, counter, rebuild_query)


def read_query_recipe(capsule: Capsule) -> QueryRecipe:
    """The recipe a query capsule was built with; raises `InvalidRequest` when it has none."""
    try:
        return msgspec.convert(capsule.settings.get("recipe"), QueryRecipe)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"this capsule has no recipe for a query: {failure}") from failure


def rebuild_turn(capsule: Capsule, counter: TokenCounter, change: BuildChange | None = None) -> RebuiltPrompt:
    """Rebuild a turn capsule, with an optional change."""
    made = change or BuildChange()
    asked = redacted_turn_from_json(capsule.request)
    candidates = [changed(each, score=made.scores.get(each.id, each.score)) for each in capsule.candidates]
    trace = Trace()
    composed = compose_turn(
        replace(asked, limit=asked.limit + made.more_tokens),
        candidates,
        counter=counter,
        recipe=read_turn_recipe(capsule),
        trace=trace,
    )
    ledger = add_lost_entries(capsule, trace.finish(candidates))
    return RebuiltPrompt(messages=composed.messages, ledger=ledger, plenty=2 * composed.unlimited)


def rebuild_command(capsule: Capsule, counter: TokenCounter, change: BuildChange | None = None) -> RebuiltPrompt:
    """Rebuild a command capsule, with an optional change."""
    made, plan = change or BuildChange(), read_command_plan(capsule)
    candidates = [changed(each, score=made.scores.get(each.id, each.score)) for each in capsule.candidates]
    trace = Trace()
    composed = compose_command(
        replace(plan, max_tokens=plan.max_tokens + made.more_tokens), candidates, counter=counter, trace=trace
    )
    ledger = add_lost_entries(capsule, trace.finish(candidates))
    return RebuiltPrompt(messages=composed.messages, ledger=ledger, plenty=2 * composed.unlimited)


def rebuild_research(capsule: Capsule, counter: TokenCounter, change: BuildChange | None = None) -> RebuiltPrompt:
    """Rebuild a research capsule, with an optional change."""
    made, request = change or BuildChange(), research_from_json(capsule.request)
    candidates = [changed(each, score=made.scores.get(each.id, each.score)) for each in capsule.candidates]
    trace = Trace()
    composed = compose_research(
        replace(request, max_tokens=request.max_tokens + made.more_tokens),
        candidates,
        counter=counter,
        recipe=read_research_recipe(capsule),
        trace=trace,
    )
    ledger = add_lost_entries(capsule, trace.finish(candidates))
    return RebuiltPrompt(messages=composed.messages, ledger=ledger, plenty=2 * composed.unlimited)


def rebuild_workspace(capsule: Capsule, counter: TokenCounter, change: BuildChange | None = None) -> RebuiltPrompt:
    """Rebuild a workspace capsule, with an optional change."""
    made, plan = change or BuildChange(), read_context_plan(capsule)
    candidates = [changed(each, score=made.scores.get(each.id, each.score)) for each in capsule.candidates]
    trace = Trace()
    composed = compose_workspace(
        replace(plan, total=plan.total + made.more_tokens), candidates, counter=counter, trace=trace
    )
    ledger = add_lost_entries(capsule, trace.finish(candidates))
    return RebuiltPrompt(messages=to_messages(composed.serialized), ledger=ledger, plenty=2 * composed.unlimited)


REBUILDS: Mapping[str, RebuildFunction] = MappingProxyType(
    {
        "query": rebuild_query,
        "turn": rebuild_turn,
        "command": rebuild_command,
        "research": rebuild_research,
        "workspace": rebuild_workspace,
    }
)


def find_rebuild(capsule: Capsule) -> RebuildFunction:
    """The rebuild function for a capsule's kind; raises `InvalidRequest` for an unknown kind."""
    found = REBUILDS.get(capsule.kind)
    if found is None:
        raise InvalidRequest(f"this capsule holds a build of kind {capsule.kind!r}; known are {', '.join(REBUILDS)}")
    return found
