"""The forms in which a memory may be shown, fenced, and what each costs and is worth."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from contexture.builders.turn.render import block
from contexture.pipeline.extract import extract
from contexture.pipeline.fence import fence
from contexture.pipeline.pack import Item, Option
from contexture.ports import TokenCounter
from contexture.text.sentences import sentences
from contexture.types import Candidate, Form, Variant

Forms = Mapping[str, Sequence[Variant]]

_SHARES = (0.6, 0.35, 0.2)
_EXTRACT_WORTH = 0.3  # of a memory of n tokens, n/2 in its best sentences are worth four fifths
_LEAST = 16  # tokens below which an extract says too little
_HIGHEST = 1e6  # no salience is so high; a capsule from elsewhere might say so
_HEAD = 99  # no prompt has more blocks


def forms_of(
    candidates: Sequence[Candidate], *, query: str, counter: TokenCounter, sharpness: float, room: int
) -> Forms:
    """Every memory whole and, when they do not all fit in `room`, also as extracts of its best sentences."""
    whole = {candidate.id: _whole(candidate, counter, sharpness) for candidate in candidates}
    if sum(form.tokens for form in whole.values()) <= room:
        return {name: [form] for name, form in whole.items()}
    return {
        candidate.id: [whole[candidate.id], *_extracts(candidate, whole[candidate.id], query, counter)]
        for candidate in candidates
    }


def items_of(candidates: Sequence[Candidate], forms: Forms) -> list[Item]:
    """The memories as a packer sees them."""
    return [
        Item(candidate.id, tuple(Option(form.tokens, form.value) for form in forms[candidate.id]), candidate.section)
        for candidate in candidates
    ]


def _whole(candidate: Candidate, counter: TokenCounter, sharpness: float) -> Variant:
    text = fence(candidate.text)
    value = min(max(candidate.score, 0.0), _HIGHEST) ** sharpness
    stored = candidate.tokens.get(counter.encoding) if text == candidate.text else None
    tokens = counter.count(_shown(candidate, text)) if stored is None else stored + counter.count(_shown(candidate, ""))
    return Variant(form=Form.FULL, text=text, tokens=tokens, value=value)


def _extracts(candidate: Candidate, whole: Variant, query: str, counter: TokenCounter) -> list[Variant]:
    offsets = candidate.sentences or sentences(candidate.text)
    weights = candidate.weights if candidate.sentences else ()
    found: dict[str, Variant] = {}
    for share in _SHARES:
        limit = math.floor(whole.tokens * share)
        if limit < _LEAST or len(offsets) < 2:  # noqa: PLR2004 - one sentence is the whole
            break
        cut = extract(candidate.text, offsets, query, counter, limit, weights=weights)
        text = fence(cut.text)
        tokens = counter.count(_shown(candidate, text))
        if cut.text and tokens < whole.tokens and text not in found:
            # The best sentences carry more than their share of what the memory is worth.
            value = whole.value * (tokens / whole.tokens) ** _EXTRACT_WORTH
            found[text] = Variant(form=Form.EXTRACT, text=text, tokens=tokens, value=value, spans=cut.spans)
    return list(found.values())


def _shown(candidate: Candidate, text: str) -> str:
    return f"{block(_HEAD, candidate, text)}\n"
