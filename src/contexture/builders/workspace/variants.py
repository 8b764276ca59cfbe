"""The forms in which a block may be shown, fenced, and what each costs and is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from contexture.builders.workspace.plan import Plan
from contexture.builders.workspace.render import heading
from contexture.builders.workspace.tree import parted
from contexture.builders.workspace.values import ContextItem, ItemMetadata, SectionType
from contexture.pipeline.fence import fence
from contexture.pipeline.pack import Item, Option
from contexture.pipeline.truncate import TruncationStrategy, truncate
from contexture.ports import TokenCounter
from contexture.types import Candidate, Form, Variant
from contexture.workspace import BlockType

_HIGHEST = 1.0
_SEAM = 1  # tokens that join an item to the one before
_HALF = 0.5

Forms = dict[str, list[Variant]]


def forms_of(candidates: Sequence[Candidate], plan: Plan, counter: TokenCounter) -> Forms:
    """Every candidate whole, and those long enough also shortened to half."""
    return {candidate.id: _forms(candidate, plan, counter) for candidate in candidates}


def items_of(candidates: Sequence[Candidate], forms: Forms) -> list[Item]:
    """The candidates as a packer sees them."""
    return [
        Item(each.id, tuple(Option(form.tokens, form.value) for form in forms[each.id]), each.section)
        for each in candidates
    ]


def item_of(candidate: Candidate, form: Variant) -> ContextItem:
    """A candidate as it is shown in this form."""
    return ContextItem(
        block_id=candidate.key,
        block_type=candidate.kind,
        content=form.text,
        relevance=round(candidate.score, 6),
        metadata=ItemMetadata(
            page_title=candidate.title or None,
            path=parted(candidate.label),
            last_modified=None if candidate.time is None else candidate.time.isoformat(),
            form=form.form,
        ),
    )


def repeatable(candidate: Candidate) -> bool:
    """Whether a candidate that reads like a better one is left out.

    Rows of databases are records: two that read alike are still two. What stands at the focus is shown as it stands.
    """
    return candidate.kind != BlockType.DB_ROW and candidate.section != SectionType.FOCUS


def counted(candidates: Sequence[Candidate], counter: TokenCounter) -> list[Candidate]:
    """The candidates, each with what it costs when it is shown whole; what is known already is not counted again."""
    encoding = counter.encoding
    return [replace(each, tokens={encoding: body_tokens(each, counter)}) for each in candidates]


def body_tokens(candidate: Candidate, counter: TokenCounter) -> int:
    """What a candidate costs when it is shown whole, without what stands above it."""
    known = candidate.tokens.get(counter.encoding)
    return counter.count(fence(candidate.text)) if known is None else known


def shortened(candidate: Candidate, whole: Variant, room: int, plan: Plan, counter: TokenCounter) -> Variant | None:
    """The candidate in at most `room` tokens; None when that is not worth having.

    It is cut only where at least 100 tokens are left and at least 50 characters of it remain.
    """
    header = whole.tokens - body_tokens(candidate, counter)
    limit = room - header
    if room < plan.truncation.min_tokens or limit < 1:
        return None
    written = plan.shorter.get(candidate.id, "")
    text = written if written and counter.count(fence(written)) <= limit else _cut(candidate.text, limit, plan, counter)
    if not text or text == candidate.text:
        return None
    form, said = Form.TRUNCATED if text != written else Form.EXTRACT, fence(text)
    tokens = header + counter.count(said)
    # A shorter form carries more than its share of the worth: what is kept is the best of it.
    value = whole.value * math.sqrt(min(1.0, tokens / whole.tokens))
    return Variant(form=form, text=said, tokens=tokens, value=value)


def _forms(candidate: Candidate, plan: Plan, counter: TokenCounter) -> list[Variant]:
    whole = _whole(candidate, plan, counter)
    if whole.tokens < 2 * plan.truncation.min_tokens:
        return [whole]
    half = shortened(candidate, whole, math.ceil(whole.tokens * _HALF), plan, counter)
    return [whole] if half is None else [whole, half]


def _whole(candidate: Candidate, plan: Plan, counter: TokenCounter) -> Variant:
    # What stands above and the content are counted apart: the first is the same for many, the second is often known.
    header = counter.count(heading(candidate.title, candidate.kind, candidate.label))
    tokens = header + body_tokens(candidate, counter) + _SEAM
    value = min(max(candidate.score, 0.0), _HIGHEST) ** plan.sharpness * tokens
    return Variant(form=Form.FULL, text=fence(candidate.text), tokens=tokens, value=value)


def _cut(text: str, limit: int, plan: Plan, counter: TokenCounter) -> str:
    rules = plan.truncation
    strategy = rules.default_strategy
    if strategy is TruncationStrategy.SUMMARIZE:  # where no model has written one, the best sentences stand for it
        strategy = TruncationStrategy.EXTRACTIVE
    found = truncate(
        text, counter, limit, strategy=strategy, query=plan.query, min_tokens=0, min_chars=rules.min_content_length
    )
    return "" if found is None or counter.count(fence(found.text)) > limit else found.text
