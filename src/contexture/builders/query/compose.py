"""From redacted candidates to a finished prompt: pure, so that a capsule rebuilds the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contexture.builders.query.render import Block, blocks, messages
from contexture.builders.query.request import QueryRecipe, QueryRequest
from contexture.builders.query.variants import items_of, variants_of
from contexture.ledger import Reason, Trace
from contexture.pipeline.dedupe import by_key, near_duplicates
from contexture.pipeline.fit import Fitted, fit
from contexture.pipeline.pack import Item
from contexture.pipeline.packers import PACKERS
from contexture.pipeline.rank import above, ranked, top_k
from contexture.pipeline.validate import validate
from contexture.ports import TokenCounter
from contexture.types import Candidate, Message, Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """A prompt with what was shown in it, and what the packer saw, for explanations."""

    messages: tuple[Message, ...]
    tokens: int
    token_counts: Mapping[str, int]
    found: tuple[Block, ...]
    items: tuple[Item, ...]


def compose(
    request: QueryRequest,
    candidates: Sequence[Candidate],
    *,
    counter: TokenCounter,
    recipe: QueryRecipe,
    trace: Trace,
) -> Composed:
    """The prompt for `request` out of `candidates`, within its budget; every candidate gets its verdict."""
    kept = _eligible(candidates, recipe, trace)
    empty = messages(request.system, request.query, ())
    room = request.max_tokens - counter.count_messages(empty)
    forms = variants_of(kept, query=request.query, counter=counter, recipe=recipe, room=room)
    items = items_of(kept, forms)

    def render(chosen: Mapping[str, int]) -> tuple[list[Block], tuple[Message, ...]]:
        found = blocks([(each, forms[each.id][chosen[each.id]]) for each in kept if each.id in chosen])
        return found, messages(request.system, request.query, found)

    fitted = fit(
        items, request.max_tokens, PACKERS[recipe.packer], lambda chosen: counter.count_messages(render(chosen)[1])
    )
    found, prompt = render(fitted.packing.chosen)
    _judge(kept, forms, fitted, trace)
    validate(
        tokens=fitted.tokens,
        limit=request.max_tokens,
        shown=[each for each in kept if each.id in fitted.packing.chosen],
        texts=[text for block in found for text in block.texts],
    )
    return Composed(
        messages=prompt,
        tokens=fitted.tokens,
        token_counts=_parts(empty, fitted.tokens, counter),
        found=tuple(found),
        items=tuple(items),
    )


def _eligible(candidates: Sequence[Candidate], recipe: QueryRecipe, trace: Trace) -> list[Candidate]:
    """Candidates worth packing, best first: no copies, nothing below the floor, no more than the top."""
    single = by_key(candidates, trace)
    different = near_duplicates(ranked(single), trace, threshold=recipe.near_duplicate)
    return top_k(above(different, recipe.floor, trace), recipe.top_k, trace)


def _judge(kept: Sequence[Candidate], forms: Mapping[str, Sequence[Variant]], fitted: Fitted, trace: Trace) -> None:
    for candidate in kept:
        option = fitted.packing.chosen.get(candidate.id)
        if option is None:
            trace.drop(candidate, Reason.OVER_BUDGET, tokens=forms[candidate.id][0].tokens)
        else:
            form = forms[candidate.id][option]
            trace.keep(candidate, tokens=form.tokens, form=form.form)


def _parts(empty: Sequence[Message], total: int, counter: TokenCounter) -> Mapping[str, int]:
    """Tokens by part; the material costs what everything else, known from the empty prompt, leaves of the total."""
    system, nothing, user = (counter.count(str(message["content"])) for message in empty)
    framing = counter.count_messages(empty) - system - nothing - user
    return {"system": system, "context": total - system - user - framing, "user": user, "framing": framing}
