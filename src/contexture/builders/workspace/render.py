"""Rendering of a workspace context as one text: sections, items, and the variants of each block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from msgspec.structs import replace

from contexture.builders.workspace.request import ContextPlan, RequestType
from contexture.builders.workspace.result import COLLECTED_SECTIONS, ContextItem, ItemMetadata, SectionType
from contexture.builders.workspace.tree import PATH_SEPARATOR, split_path
from contexture.pipeline.fence import DATA_NOTICE, fence
from contexture.pipeline.packing import VariantsById
from contexture.pipeline.truncation import TruncationStrategy, truncate
from contexture.ports import TokenCounter
from contexture.types import Candidate, Form, Variant
from contexture.workspace import BlockType

NOTHING_FOUND = "_No relevant content found._"
SECTION_TITLES: Mapping[str, str] = MappingProxyType(
    {
        SectionType.SYSTEM: "Instructions",
        SectionType.HISTORY: "Conversation History",
        SectionType.FOCUS: "Focused Content",
        SectionType.SEMANTIC: "Related Content",
        SectionType.RELATIONS: "Connected Items",
        SectionType.ACTIVITY: "Recent Activity",
    }
)
TASK_INSTRUCTIONS: Mapping[RequestType, str] = MappingProxyType(
    {
        RequestType.ASSIST: "Help the user with the focused content.",
        RequestType.CHAT: "Answer the user's question from the workspace content below.",
        RequestType.SEARCH: "Find what the user is looking for in the workspace content below.",
        RequestType.AUTOMATE: "Carry the task out with the workspace content below.",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextParts:
    """The parts of a context: items by section in display order.

    `sections` are the enabled sections.
    """

    system: str
    sections: tuple[SectionType, ...]
    items: Mapping[str, Sequence[ContextItem]]
    query: str


def render_instructions(kind: RequestType, language: str | None) -> str:
    """The instructions for the model."""
    return " ".join(
        [DATA_NOTICE, TASK_INSTRUCTIONS[kind], *([f"Answer in the language {language!r}."] if language else [])]
    )


def render_context(parts: ContextParts) -> str:
    """The whole context as one text."""
    history = parts.items.get(SectionType.HISTORY, ())
    before = [_render_section(SectionType.SYSTEM, parts.system) if parts.system != DATA_NOTICE else DATA_NOTICE]
    if history:
        before.append(_render_section(SectionType.HISTORY, render_items(history)))
    inside = [
        _render_section(section, render_items(parts.items.get(section, ())))
        for section in COLLECTED_SECTIONS
        if section in parts.sections
    ]
    return "\n\n".join([*before, "## Current Context", *inside, "---", f"User Query: {parts.query}"])


def render_items(items: Sequence[ContextItem]) -> str:
    """The items of a section as text; `NOTHING_FOUND` when there are none."""
    return "\n\n".join(map(render_item, items)) or NOTHING_FOUND


def render_item(item: ContextItem) -> str:
    """One item: `[page title] [type]`, its path, and its content."""
    crumbs = PATH_SEPARATOR.join(item.metadata.path)
    return f"{render_heading(item.metadata.page_title or '', item.block_type, crumbs)}{item.content}"


def render_heading(title: str, kind: str, crumbs: str) -> str:
    """The header of an item: page title, type and, where it differs, the path."""
    header = f"[{title}] [{kind}]" if title else f"[{kind}]"
    return f"{header}\n({crumbs})\n" if crumbs and crumbs != title else f"{header}\n"


def _render_section(section: SectionType, body: str) -> str:
    return f"### {SECTION_TITLES[section]}\n{body}"


_MAX_SCORE = 1.0
_SEPARATOR_TOKENS = 1  # tokens of the separator between two items
_SHORT_SHARE = 0.5


def make_variants(candidates: Sequence[Candidate], plan: ContextPlan, counter: TokenCounter) -> VariantsById:
    """Variants per candidate id: full, plus one shortened to half for long candidates."""
    return {candidate.id: _candidate_variants(candidate, plan, counter) for candidate in candidates}


def make_item(candidate: Candidate, form: Variant) -> ContextItem:
    """A candidate as a `ContextItem` in this variant."""
    return ContextItem(
        block_id=candidate.key,
        block_type=candidate.kind,
        content=form.text,
        relevance=round(candidate.score, 6),
        metadata=ItemMetadata(
            page_title=candidate.title or None,
            path=split_path(candidate.label),
            last_modified=None if candidate.time is None else candidate.time.isoformat(),
            form=form.form,
        ),
    )


def is_deduplicated(candidate: Candidate) -> bool:
    """Whether near duplicates of this candidate are dropped: not for database rows, nor in the focus section.

    Database rows are records, and two similar rows are still two. Blocks of the focus are shown as they are.
    """
    return candidate.kind != BlockType.DB_ROW and candidate.section != SectionType.FOCUS


def add_token_counts(candidates: Sequence[Candidate], counter: TokenCounter) -> list[Candidate]:
    """The candidates with the token count of their fenced text; known counts are not counted again."""
    encoding = counter.encoding
    return [replace(each, tokens={encoding: count_body(each, counter)}) for each in candidates]


def count_body(candidate: Candidate, counter: TokenCounter) -> int:
    """Tokens of the fenced text of a candidate, without its header."""
    known = candidate.tokens.get(counter.encoding)
    return counter.count(fence(candidate.text)) if known is None else known


def shorten_candidate(
    candidate: Candidate, whole: Variant, room: int, plan: ContextPlan, counter: TokenCounter
) -> Variant | None:
    """The candidate in at most `room` tokens; None when too little would remain.

    It is cut only when `room` is at least `min_tokens` (100 by default) and at least `min_content_length` characters
    (50 by default) of it remain.
    """
    header = whole.tokens - count_body(candidate, counter)
    limit = room - header
    if room < plan.truncation.min_tokens or limit < 1:
        return None
    written = plan.shorter.get(candidate.id, "")
    text = (
        written
        if written and counter.count(fence(written)) <= limit
        else _truncate_text(candidate.text, limit, plan, counter)
    )
    if not text or text == candidate.text:
        return None
    form, said = Form.TRUNCATED if text != written else Form.EXTRACT, fence(text)
    tokens = header + counter.count(said)
    # A shorter form has more than its proportional value, because it keeps the best part.
    value = whole.value * math.sqrt(min(1.0, tokens / whole.tokens))
    return Variant(form=form, text=said, tokens=tokens, value=value)


def _candidate_variants(candidate: Candidate, plan: ContextPlan, counter: TokenCounter) -> list[Variant]:
    whole = _full_variant(candidate, plan, counter)
    if whole.tokens < 2 * plan.truncation.min_tokens:
        return [whole]
    half = shorten_candidate(candidate, whole, math.ceil(whole.tokens * _SHORT_SHARE), plan, counter)
    return [whole] if half is None else [whole, half]


def _full_variant(candidate: Candidate, plan: ContextPlan, counter: TokenCounter) -> Variant:
    # Heading and content are counted separately: many items share a heading, and content counts are often stored.
    header = counter.count(render_heading(candidate.title, candidate.kind, candidate.label))
    tokens = header + count_body(candidate, counter) + _SEPARATOR_TOKENS
    value = min(max(candidate.score, 0.0), _MAX_SCORE) ** plan.sharpness * tokens
    return Variant(form=Form.FULL, text=fence(candidate.text), tokens=tokens, value=value)


def _truncate_text(text: str, limit: int, plan: ContextPlan, counter: TokenCounter) -> str:
    rules = plan.truncation
    strategy = rules.default_strategy
    if strategy is TruncationStrategy.SUMMARIZE:  # without a model summary, use the best sentences
        strategy = TruncationStrategy.EXTRACTIVE
    found = truncate(
        text, counter, limit, strategy=strategy, query=plan.query, min_tokens=0, min_chars=rules.min_content_length
    )
    return "" if found is None or counter.count(fence(found.text)) > limit else found.text
