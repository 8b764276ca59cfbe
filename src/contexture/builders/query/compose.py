"""Composition of a query prompt: deduplicate, rank and pack candidates within the token budget.

Pure, so that a capsule rebuilds the same bytes. Every candidate gets a verdict in the ledger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from contexture.builders import record_blocks
from contexture.builders.query.request import QueryRecipe, QueryRequest, query_from_json
from contexture.builders.replay import ComposedPrompt, read_recipe
from contexture.capsule import Capsule
from contexture.ledger import Trace
from contexture.pipeline.candidates import (
    drop_duplicate_keys,
    drop_near_duplicates,
    keep_above_floor,
    keep_top_k,
    rank_candidates,
)
from contexture.pipeline.fence import make_fence, validate_prompt
from contexture.pipeline.knapsack import PACKERS
from contexture.pipeline.packing import fit_prompt, make_pack_items, record_verdicts
from contexture.ports import TokenCounter
from contexture.types import Candidate, Message

CAPSULE_KIND = "query"


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedQuery:
    """A composed prompt: messages, token counts and the blocks shown; `unlimited` is the cost of all in full."""

    messages: tuple[Message, ...]
    tokens: int
    token_counts: Mapping[str, int]
    found: tuple[record_blocks.RecordBlock, ...]
    unlimited: int


def compose_query(
    request: QueryRequest,
    candidates: Sequence[Candidate],
    *,
    counter: TokenCounter,
    recipe: QueryRecipe,
    trace: Trace,
) -> ComposedQuery:
    """The prompt for `request` from redacted candidates, within its token budget.

    Every candidate gets a verdict in the trace.
    """
    kept = _filter_candidates(candidates, recipe, trace)
    fence = make_fence(counter, version=recipe.fence_version)
    empty = record_blocks.render_messages(request.system, request.query, "", recipe.material_role)
    room = request.max_tokens - counter.count_messages(empty)
    forms = record_blocks.make_variants(
        kept,
        query=request.query,
        counter=counter,
        fence=fence,
        room=room,
        sharpness=recipe.sharpness,
        extracts=recipe.extracts,
    )
    items = make_pack_items(kept, forms)

    def render(chosen: Mapping[str, int]) -> tuple[list[record_blocks.RecordBlock], tuple[Message, ...]]:
        shown = [(each, forms[each.id][chosen[each.id]]) for each in kept if each.id in chosen]
        found = record_blocks.group_by_record(shown)
        material = record_blocks.render_blocks(found)
        return found, record_blocks.render_messages(request.system, request.query, material, recipe.material_role)

    fitted = fit_prompt(
        items, request.max_tokens, PACKERS[recipe.packer], lambda chosen: counter.count_messages(render(chosen)[1])
    )
    found, prompt = render(fitted.packing.chosen)
    record_verdicts(kept, forms, {id_: forms[id_][at] for id_, at in fitted.packing.chosen.items()}, trace)
    validate_prompt(
        tokens=fitted.tokens,
        limit=request.max_tokens,
        shown=[each for each in kept if each.id in fitted.packing.chosen],
        texts=[text for block in found for text in block.texts],
        messages=prompt,
        fence=fence,
    )
    return ComposedQuery(
        messages=prompt,
        tokens=fitted.tokens,
        token_counts=_count_by_part(empty, fitted.tokens, counter),
        found=tuple(found),
        unlimited=sum(item.options[0].tokens for item in items),
    )


def recompose_query(capsule: Capsule, more_tokens: int, counter: TokenCounter, trace: Trace) -> ComposedPrompt:
    """The prompt of a query capsule, composed again; see `RecomposeFunction`."""
    request = query_from_json(capsule.request)
    composed = compose_query(
        replace(request, max_tokens=request.max_tokens + more_tokens),
        capsule.candidates,
        counter=counter,
        recipe=read_recipe(capsule, QueryRecipe, "a recipe for a query"),
        trace=trace,
    )
    return ComposedPrompt(composed.messages, composed.unlimited)


def _filter_candidates(candidates: Sequence[Candidate], recipe: QueryRecipe, trace: Trace) -> list[Candidate]:
    """Candidates to pack, best first: duplicates, low scores and everything beyond `top_k` dropped with a reason."""
    single = drop_duplicate_keys(candidates, trace)
    different = drop_near_duplicates(rank_candidates(single), trace, threshold=recipe.near_duplicate)
    return keep_top_k(keep_above_floor(different, recipe.floor, trace), recipe.top_k, trace)


def _count_by_part(empty: Sequence[Message], total: int, counter: TokenCounter) -> Mapping[str, int]:
    """Tokens by part; the context is the total minus the other parts, which are counted on the empty prompt."""
    system, nothing, user = (counter.count(str(message["content"])) for message in empty)
    framing = counter.count_messages(empty) - system - nothing - user
    return {"system": system, "context": total - system - user - framing, "user": user, "framing": framing}
