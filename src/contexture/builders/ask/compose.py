"""Composition of the prompt of a question over everything: one section per kind of source, within the token budget.

Pure, so that a capsule rebuilds the same bytes. Every candidate and message gets a verdict in the ledger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from contexture.builders import record_blocks
from contexture.builders.ask.request import AskMessage, AskRecipe, CleanAsk, ask_from_json
from contexture.builders.replay import ComposedPrompt, read_recipe
from contexture.builders.sources import SourceKind
from contexture.capsule import Capsule
from contexture.ledger import Reason, Trace
from contexture.memory.candidates import drop_superseded, rank_below_statements
from contexture.pipeline.candidates import (
    drop_duplicate_keys,
    drop_near_duplicates,
    keep_above_floor,
    rank_candidates,
)
from contexture.pipeline.fence import PromptFence, PromptFormat, make_fence, validate_prompt
from contexture.pipeline.knapsack import PACKERS
from contexture.pipeline.packing import (
    PackFunction,
    PackingItem,
    PackingResult,
    fit_prompt,
    make_pack_items,
    record_verdicts,
)
from contexture.pipeline.sections import pack_sections
from contexture.ports import TokenCounter
from contexture.types import Budget, Candidate, Message, Section, Variant

SECTION_HEADINGS: Mapping[SourceKind, str] = {
    SourceKind.MEMORIES: "## Memories",
    SourceKind.RECORDS: "## Records",
    SourceKind.PAGES: "## Documents",
    SourceKind.NEWS: "## News",
    SourceKind.WORKSPACE: "## Workspace",
}
HISTORY = "history"


@dataclass(frozen=True, kw_only=True, slots=True)
class AskSource:
    """A numbered source of the prompt: the kind it is of, and what of it is shown."""

    number: int
    kind: SourceKind
    block: record_blocks.RecordBlock
    shown: tuple[tuple[Candidate, Variant], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedAsk:
    """A composed prompt: messages, token counts and sources; `unlimited` is the cost of everything in full."""

    messages: tuple[Message, ...]
    text: str
    tokens: int
    token_counts: Mapping[str, int]
    sources: tuple[AskSource, ...]
    unlimited: int


def compose_ask(
    asked: CleanAsk, candidates: Sequence[Candidate], *, counter: TokenCounter, recipe: AskRecipe, trace: Trace
) -> ComposedAsk:
    """The prompt for a question from redacted candidates, within its token budget.

    Every candidate and message gets a verdict in the trace.
    """
    fence = make_fence(counter, PromptFormat.SECTIONS, version=recipe.fence_version)
    history = _fit_history(asked, counter, recipe, trace)
    kept = _filter_candidates(asked, candidates, recipe, fence, trace)
    empty = record_blocks.render_messages(asked.system, asked.query, "", recipe.material_role, history)
    room = asked.max_tokens - counter.count_messages(empty)
    forms = record_blocks.make_variants(
        kept,
        query=asked.standalone,
        counter=counter,
        fence=fence,
        room=room,
        sharpness=recipe.sharpness,
        extracts=recipe.extracts,
    )
    items = make_pack_items(kept, forms)

    def render(chosen: Mapping[str, int]) -> tuple[tuple[AskSource, ...], str, tuple[Message, ...]]:
        sources = _number_sources([(each, forms[each.id][chosen[each.id]]) for each in kept if each.id in chosen])
        text = render_sections(sources)
        role = recipe.material_role
        return sources, text, record_blocks.render_messages(asked.system, asked.query, text, role, history)

    fitted = fit_prompt(
        items,
        asked.max_tokens,
        _share_by_kind(kept, recipe),
        lambda chosen: counter.count_messages(render(chosen)[2]),
    )
    sources, text, prompt = render(fitted.packing.chosen)
    record_verdicts(kept, forms, {id_: forms[id_][at] for id_, at in fitted.packing.chosen.items()}, trace)
    validate_prompt(
        tokens=fitted.tokens,
        limit=asked.max_tokens,
        shown=[each for each in kept if each.id in fitted.packing.chosen],
        texts=[shown for source in sources for shown in source.block.texts],
        messages=prompt,
        fence=fence,
    )
    return ComposedAsk(
        messages=prompt,
        text=text or record_blocks.NOTHING_FOUND,
        tokens=fitted.tokens,
        token_counts=_count_by_part(asked, history, sources, fitted.tokens, counter),
        sources=sources,
        unlimited=sum(item.options[0].tokens for item in items) + asked.max_tokens,
    )


def recompose_ask(capsule: Capsule, more_tokens: int, counter: TokenCounter, trace: Trace) -> ComposedPrompt:
    """The prompt of a capsule, composed again; see `RecomposeFunction`."""
    asked = ask_from_json(capsule.request)
    composed = compose_ask(
        replace(asked, max_tokens=asked.max_tokens + more_tokens),
        capsule.candidates,
        counter=counter,
        recipe=read_recipe(capsule, AskRecipe, "a recipe for a question over everything"),
        trace=trace,
    )
    return ComposedPrompt(composed.messages, composed.unlimited)


def render_sections(sources: Sequence[AskSource]) -> str:
    """The sources as text, under the heading of their kind; "" when there are none."""
    parts: list[str] = []
    for at, source in enumerate(sources):
        if not at or sources[at - 1].kind is not source.kind:
            parts.append(SECTION_HEADINGS[source.kind])
        parts.append(record_blocks.render_blocks([source.block], source.number))
    return "\n\n".join(parts)


def message_candidate(at: int, message: AskMessage) -> Candidate:
    """A message of the conversation as a ledger candidate."""
    name = f"{HISTORY}[{at}]"
    return Candidate(id=name, key=name, text="", section=HISTORY, kind=message.role, redacted=True)


def _number_sources(shown: Sequence[tuple[Candidate, Variant]]) -> tuple[AskSource, ...]:
    """The sources by section, the section with the best candidate first, numbered in this order."""
    sections = list(dict.fromkeys(candidate.section for candidate, _ in shown))
    found: list[AskSource] = []
    for section in sections:
        inside = [pair for pair in shown if pair[0].section == section]
        for block in record_blocks.group_by_record(inside):
            found.append(
                AskSource(
                    number=len(found) + 1,
                    kind=SourceKind(section),
                    block=block,
                    shown=tuple(pair for pair in inside if pair[0].record_id == block.record_id),
                )
            )
    return tuple(found)


def _filter_candidates(
    asked: CleanAsk, candidates: Sequence[Candidate], recipe: AskRecipe, fence: PromptFence, trace: Trace
) -> list[Candidate]:
    """Candidates to pack, best first.

    Duplicates, empty ones, corrected memories and those of low relevance are dropped with a reason.
    """
    single = drop_duplicate_keys(candidates, trace)
    visible = [each for each in single if fence.inline(each.text).strip()]
    for candidate in single:
        if candidate not in visible:
            trace.drop(candidate, Reason.EMPTY)
    memories = [each for each in visible if each.section == SourceKind.MEMORIES]
    others = [each for each in visible if each.section != SourceKind.MEMORIES]
    stated = rank_below_statements(
        drop_superseded(rank_candidates(memories), asked.standalone, trace), asked.standalone
    )
    ranked = rank_candidates((*stated, *others))
    different = drop_near_duplicates(ranked, trace, threshold=recipe.near_duplicate)
    best = max((each.score for each in different), default=0.0)
    return keep_above_floor(different, max(recipe.floor, recipe.best_share * best), trace)


def _share_by_kind(kept: Sequence[Candidate], recipe: AskRecipe) -> PackFunction:
    """A packer that guarantees each kind its share, and lends what a kind does not use."""
    kinds = list(dict.fromkeys(each.section for each in kept))

    def pack(items: Sequence[PackingItem], capacity: int) -> PackingResult:
        floor = int(recipe.kind_share * capacity)
        budget = Budget(total=capacity, sections=tuple(Section(name=kind, floor=floor) for kind in kinds))
        packed = pack_sections(items, budget, PACKERS[recipe.packer])
        chosen = packed.chosen
        return PackingResult(
            chosen={item.id: chosen[item.id] for item in items if item.id in chosen},
            tokens=packed.tokens,
            value=packed.value,
            gap=max((each.gap for each in packed.sections.values()), default=0.0),
        )

    return pack


def _fit_history(asked: CleanAsk, counter: TokenCounter, recipe: AskRecipe, trace: Trace) -> tuple[Message, ...]:
    """The newest messages that fit in their share of the budget, without a gap; a verdict for each."""
    messages: list[Message] = [{"role": each.role, "content": each.content} for each in asked.history]
    nothing = counter.count_messages([])
    costs = [counter.count_messages([message]) - nothing for message in messages]
    fixed = counter.count_messages(record_blocks.render_messages(asked.system, asked.query, "", recipe.material_role))
    room, start = int(recipe.history_share * max(0, asked.max_tokens - fixed)), len(messages)
    while start and costs[start - 1] <= room:
        start -= 1
        room -= costs[start]
    for at, (message, cost) in enumerate(zip(asked.history, costs, strict=True)):
        candidate = message_candidate(at + asked.older, message)
        if at < start:
            trace.drop(candidate, Reason.OVER_BUDGET, tokens=cost)
        else:
            trace.keep(candidate, tokens=cost)
    return tuple(messages[start:])


def _count_by_part(
    asked: CleanAsk,
    history: Sequence[Message],
    sources: Sequence[AskSource],
    total: int,
    counter: TokenCounter,
) -> Mapping[str, int]:
    """Tokens by part, of which each section is one; framing and headings are what is left of the total."""
    nothing = counter.count_messages([])
    spent: dict[str, int] = {
        "system": counter.count(str(record_blocks.render_messages(asked.system, "", "")[0]["content"])),
        HISTORY: counter.count_messages(history) - nothing if history else 0,
    }
    for source in sources:
        blocks = counter.count(record_blocks.render_blocks([source.block], source.number))
        spent[source.kind] = spent.get(source.kind, 0) + blocks
    spent["user"] = counter.count(asked.query)
    return {**spent, "framing": total - sum(spent.values())}
