"""Rendering of a workspace context as one text: sections, items, and the variants of each block."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType

from msgspec.structs import replace

from contexture.builders.workspace._tree import PATH_SEPARATOR, split_path
from contexture.builders.workspace.request import ContextPlan, PlannedFact, RequestType
from contexture.builders.workspace.result import COLLECTED_SECTIONS, ContextItem, ItemMetadata, SectionType
from contexture.pipeline.fence import DATA_NOTICE, PromptFence, drop_repeated_title
from contexture.pipeline.packing import VariantsById
from contexture.pipeline.truncation import TruncationStrategy, truncate
from contexture.ports import TokenCounter
from contexture.text.skeleton import disarm_control_tokens
from contexture.types import Candidate, Form, Variant
from contexture.workspace import BlockType

FACTS_HEADER = "[Workspace] [facts]"
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

    `sections` are the enabled sections. `documents` are texts shown first in a section; they contain its first
    `documented` items.
    """

    system: str
    sections: tuple[SectionType, ...]
    items: Mapping[str, Sequence[ContextItem]]
    query: str
    fence: PromptFence
    documents: Mapping[str, Sequence[str]] = field(default_factory=dict[str, list[str]])
    documented: Mapping[str, int] = field(default_factory=dict[str, int])
    facts: Sequence[PlannedFact] = ()
    short_paths: bool = False
    path_share: float = 0.0


def render_instructions(kind: RequestType, language: str | None) -> str:
    """The instructions for the model."""
    return " ".join(
        [DATA_NOTICE, TASK_INSTRUCTIONS[kind], *([f"Answer in the language {language!r}."] if language else [])]
    )


def render_context(parts: ContextParts) -> str:
    """The whole context as one text; the query is fenced from its second line on, where it could pass for a section."""
    history = parts.items.get(SectionType.HISTORY, ())
    before = [_render_section(SectionType.SYSTEM, parts.system) if parts.system != DATA_NOTICE else DATA_NOTICE]
    if history:
        before.append(_render_section(SectionType.HISTORY, render_items(history)))
    inside = [
        _render_section(section, _render_body(parts, section))
        for section in COLLECTED_SECTIONS
        if section in parts.sections
    ]
    return "\n\n".join(
        [*before, "## Current Context", *inside, "---", f"User Query: {parts.fence.block_after_label(parts.query)}"]
    )


def _render_body(parts: ContextParts, section: SectionType) -> str:
    """The documents of a section, then its other items."""
    items = parts.items.get(section, ())[parts.documented.get(section, 0) :]
    rendered = [render_item(item, short_path=parts.short_paths, path_share=parts.path_share) for item in items]
    texts = [*parts.documents.get(section, ()), *rendered]
    if parts.facts and section == _fact_section(parts.sections):
        texts = [render_facts(parts), *texts]
    return "\n\n".join(texts) or NOTHING_FOUND


def _fact_section(sections: Sequence[SectionType]) -> SectionType:
    """The section that shows facts: that of the search, else the first one."""
    return SectionType.SEMANTIC if SectionType.SEMANTIC in sections else sections[0]


def render_facts(parts: ContextParts) -> str:
    """What the planner computed, each fact with how many of its blocks this context shows."""
    shown = {item.block_id for items in parts.items.values() for item in items}
    lines = [FACTS_HEADER]
    for fact in parts.facts:
        visible = sum(key in shown for key in fact.keys)
        label = parts.fence.block(fact.label[:1].upper() + fact.label[1:])
        if not fact.total:
            lines.append(f"{label}: none.")
            continue
        note = "all shown below" if visible == fact.total else f"{visible} of them shown below"
        lines.append(f"{label}: {fact.total}, {note if visible else 'none of them shown below'}.")
        lines += [f"- {parts.fence.block(detail)}" for detail in fact.details]
    return "\n".join(lines)


def render_items(items: Sequence[ContextItem]) -> str:
    """The items of a section as text; `NOTHING_FOUND` when there are none."""
    return "\n\n".join(map(render_item, items)) or NOTHING_FOUND


def render_item(item: ContextItem, *, short_path: bool = False, path_share: float = 0.0) -> str:
    """One item: `[page title] [type]`, its path, and its content."""
    crumbs = PATH_SEPARATOR.join(item.metadata.path)
    longest = int(path_share * len(item.content)) if path_share else None
    heading = render_heading(
        item.metadata.page_title or "", item.block_type, crumbs, short_path=short_path, longest=longest
    )
    return f"{heading}{item.content}"


def render_heading(title: str, kind: str, crumbs: str, *, short_path: bool = False, longest: int | None = None) -> str:
    """The header of an item: page title, type and, where it differs, the path; of a short one its end on that page.

    A path of more than `longest` characters is left out.
    """
    header = disarm_control_tokens(f"[{title}] [{kind}]" if title else f"[{kind}]")
    path = shorten_path(title, crumbs) if short_path else crumbs
    is_shown = path and path != title and (longest is None or len(path) <= longest)
    return f"{header}\n({path})\n" if is_shown else f"{header}\n"


@lru_cache(maxsize=4_096)
def shorten_path(title: str, crumbs: str) -> str:
    """The last crumbs below the page; cached, because neighbouring blocks share their path."""
    names = list(split_path(crumbs))
    if title in names:
        names = names[len(names) - names[::-1].index(title) :]
    return PATH_SEPARATOR.join(name for name in names[-_SHOWN_CRUMBS:] if name != title)


def _render_section(section: SectionType, body: str) -> str:
    return f"### {SECTION_TITLES[section]}\n{body}"


_SHOWN_CRUMBS = 2  # crumbs of a path in the header of an item
_MAX_SCORE = 1.0
_SEPARATOR_TOKENS = 1  # tokens of the separator between two items
_SHORT_SHARE = 0.5
_FENCE_TOKENS = 8


def make_variants(
    candidates: Sequence[Candidate], plan: ContextPlan, counter: TokenCounter, fence: PromptFence
) -> VariantsById:
    """Variants per candidate id: full, plus one shortened to half for long candidates."""
    return {candidate.id: _candidate_variants(candidate, plan, counter, fence) for candidate in candidates}


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
    """Whether near duplicates of this candidate are dropped: not for rows and planned tasks, nor in the focus section.

    Two similar rows or tasks are still two records. Blocks of the focus are shown as they are.
    """
    is_record = candidate.kind == BlockType.DB_ROW or candidate.id.startswith("planner:")
    return not is_record and candidate.section != SectionType.FOCUS


def add_token_counts(candidates: Sequence[Candidate], counter: TokenCounter, fence: PromptFence) -> list[Candidate]:
    """The candidates with the token count of their fenced text; known counts are not counted again."""
    encoding = counter.encoding
    return [replace(each, tokens={encoding: count_body(each, counter, fence)}) for each in candidates]


def count_body(candidate: Candidate, counter: TokenCounter, fence: PromptFence) -> int:
    """Tokens of the fenced text of a candidate, without its header."""
    known = candidate.tokens.get(counter.encoding)
    return counter.count(fence.block(candidate.text)) if known is None else known


def shorten_candidate(
    candidate: Candidate, whole: Variant, room: int, plan: ContextPlan, counter: TokenCounter, fence: PromptFence
) -> Variant | None:
    """The candidate in at most `room` tokens; None when too little would remain.

    It is cut only when `room` is at least `min_tokens` (100 by default) and at least `min_content_length` characters
    (50 by default) of it remain.
    """
    header = whole.tokens - count_body(candidate, counter, fence)
    limit = room - header
    if room < plan.truncation.min_tokens or limit < 1:
        return None
    written = plan.shorter.get(candidate.id, "")
    text = (
        written
        if written and counter.count(fence.block(written)) <= limit
        else _truncate_text(candidate.text, limit, plan, counter, fence)
    )
    if not text or text == candidate.text:
        return None
    form, fenced = Form.TRUNCATED if text != written else Form.EXTRACT, _show_text(text, candidate, fence)
    tokens = header + counter.count(fenced)
    # A shorter form has more than its proportional value, because it keeps the best part.
    value = whole.value * math.sqrt(min(1.0, tokens / whole.tokens))
    return Variant(form=form, text=fenced, tokens=tokens, value=value)


def _show_text(text: str, candidate: Candidate, fence: PromptFence) -> str:
    """A text of a candidate as its item shows it, without a first line that repeats the title above it."""
    return fence.block(text if fence.is_legacy else drop_repeated_title(text, candidate.title))


def _candidate_variants(
    candidate: Candidate, plan: ContextPlan, counter: TokenCounter, fence: PromptFence
) -> list[Variant]:
    whole = _full_variant(candidate, plan, counter, fence)
    if whole.tokens < 2 * plan.truncation.min_tokens:
        return [whole]
    half = shorten_candidate(candidate, whole, math.ceil(whole.tokens * _SHORT_SHARE), plan, counter, fence)
    return [whole] if half is None else [whole, half]


def _full_variant(candidate: Candidate, plan: ContextPlan, counter: TokenCounter, fence: PromptFence) -> Variant:
    # Heading and content are counted separately: many items share a heading, and content counts are often stored.
    text = _show_text(candidate.text, candidate, fence)
    longest = int(plan.path_share * len(text)) if plan.path_share else None
    header = counter.count(
        render_heading(candidate.title, candidate.kind, candidate.label, short_path=plan.short_paths, longest=longest)
    )
    tokens = header + count_body(candidate, counter, fence) + _SEPARATOR_TOKENS
    value = min(max(candidate.score, 0.0), _MAX_SCORE) ** plan.sharpness * tokens
    return Variant(form=Form.FULL, text=text, tokens=tokens, value=value)


def _truncate_text(text: str, limit: int, plan: ContextPlan, counter: TokenCounter, fence: PromptFence) -> str:
    rules = plan.truncation
    strategy = rules.default_strategy
    if strategy is TruncationStrategy.SUMMARIZE:  # without a model summary, use the best sentences
        strategy = TruncationStrategy.EXTRACTIVE
    for room in (limit, limit - _FENCE_TOKENS):  # fenced, a text may count more
        found = truncate(
            text, counter, room, strategy=strategy, query=plan.query, min_tokens=0, min_chars=rules.min_content_length
        )
        if found is not None and counter.count(fence.block(found.text)) <= limit:
            return found.text
    return ""
