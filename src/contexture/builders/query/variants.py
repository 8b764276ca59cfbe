"""The forms in which a candidate may be shown, fenced, and what each costs and is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence

from contexture.builders.query.render import heading
from contexture.builders.query.request import QueryRecipe
from contexture.pipeline.extract import extract
from contexture.pipeline.fence import fence
from contexture.pipeline.pack import Item, Option
from contexture.ports import TokenCounter
from contexture.types import Candidate, Form, Variant

_HIGHEST = 1e6  # no search gives such a score; a capsule from elsewhere might
_SEAM = 2  # tokens that join a passage to its neighbours
_MIN_SENTENCES = 2
_EXTRACT_SHARE = 0.6


def variants_of(
    candidates: Sequence[Candidate], *, query: str, counter: TokenCounter, recipe: QueryRecipe, room: int
) -> dict[str, list[Variant]]:
    """Every candidate whole, and those around the edge of the budget also as an extract.

    Candidates far inside the budget are shown whole and those far outside not at all, so only the
    ones between are worth shortening.
    """
    forms: dict[str, list[Variant]] = {}
    seen: set[str] = set()
    spent, edge = 0, recipe.extracts
    for candidate in candidates:
        whole = _whole(candidate, counter, recipe, first=candidate.record_id not in seen)
        seen.add(candidate.record_id)
        forms[candidate.id] = [whole]
        spent += whole.tokens
        if spent > room * 0.8 and edge > 0 and len(candidate.sentences) >= _MIN_SENTENCES:
            edge -= 1
            forms[candidate.id].extend(_extract(candidate, whole, query, counter))
    return forms


def items_of(candidates: Sequence[Candidate], forms: dict[str, list[Variant]]) -> list[Item]:
    """The candidates as a packer sees them."""
    return [
        Item(candidate.id, tuple(Option(form.tokens, form.value) for form in forms[candidate.id]), candidate.section)
        for candidate in candidates
    ]


def _whole(candidate: Candidate, counter: TokenCounter, recipe: QueryRecipe, *, first: bool) -> Variant:
    text = fence(candidate.text)
    stored = candidate.tokens.get(counter.encoding) if text == candidate.text else None
    tokens = (counter.count(text) if stored is None else stored) + _SEAM
    if first:
        tokens += counter.count(f"[00] ({heading(candidate)})\n")
    value = min(max(candidate.score, 0.0), _HIGHEST) ** recipe.sharpness * tokens
    return Variant(form=Form.FULL, text=text, tokens=tokens, value=value)


def _extract(candidate: Candidate, whole: Variant, query: str, counter: TokenCounter) -> list[Variant]:
    limit = math.floor(whole.tokens * _EXTRACT_SHARE)
    found = extract(candidate.text, candidate.sentences, query, counter, limit)
    if not found.text or found.text == candidate.text:
        return []
    text = fence(found.text)
    shown = candidate.tokens.get(counter.encoding) if whole.text == candidate.text else None
    tokens = whole.tokens - (counter.count(whole.text) if shown is None else shown) + counter.count(text)
    if tokens >= whole.tokens:
        return []
    # The best sentences carry more than their share of what the passage is worth.
    value = whole.value * math.sqrt(tokens / whole.tokens)
    return [Variant(form=Form.EXTRACT, text=text, tokens=tokens, value=value, spans=found.spans)]
