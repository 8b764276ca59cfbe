"""Composition of a workspace context.

Choose candidates per section and the newest messages within the token budget. Pure, so that a capsule rebuilds the same
bytes. Every candidate and message gets a verdict in the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from itertools import accumulate

from msgspec.structs import replace

from contexture.builders.clean import Cleaner
from contexture.builders.replay import ComposedPrompt
from contexture.builders.workspace.render import (
    NOTHING_FOUND,
    ContextParts,
    is_deduplicated,
    make_item,
    make_variants,
    render_context,
    render_item,
    shorten_candidate,
)
from contexture.builders.workspace.request import (
    SECTION_WEIGHTS,
    ContextPlan,
    ConversationLine,
    ConversationMessage,
    read_context_plan,
)
from contexture.builders.workspace.result import COLLECTED_SECTIONS, ContextItem, ItemMetadata, SectionType, to_messages
from contexture.capsule import Capsule
from contexture.errors import BudgetTooSmall, RedactionFailed
from contexture.ledger import Reason, Trace
from contexture.pipeline.candidates import drop_near_duplicates, rank_candidates
from contexture.pipeline.fence import fence, validate_prompt
from contexture.pipeline.knapsack import PACKERS
from contexture.pipeline.packing import PackingItem, PackingResult, make_pack_items, record_verdicts
from contexture.pipeline.sections import pack_sections
from contexture.ports import TokenCounter
from contexture.types import Budget, Candidate, Section, Variant

Chosen = dict[str, Variant]


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedWorkspace:
    """A composed context: text, tokens, tokens by section (`spent`), items and shown candidates.

    `unlimited` is the cost without a limit.
    """

    serialized: str
    tokens: int
    spent: Mapping[str, int]
    parts: ContextParts
    shown: tuple[Candidate, ...]
    unlimited: int


def compose_workspace(
    plan: ContextPlan, candidates: Sequence[Candidate], *, counter: TokenCounter, trace: Trace
) -> ComposedWorkspace:
    """The context within its token budget; every candidate and message gets a verdict in the trace."""
    return _Composer(plan, _filter_candidates(plan, candidates, trace), counter).compose(trace)


def recompose_workspace(capsule: Capsule, more_tokens: int, counter: TokenCounter, trace: Trace) -> ComposedPrompt:
    """The context of a workspace capsule, composed again; see `RecomposeFunction`."""
    plan = read_context_plan(capsule)
    plan = changed(plan, total=plan.total + more_tokens)
    composed = compose_workspace(plan, capsule.candidates, counter=counter, trace=trace)
    return ComposedPrompt(to_messages(composed.serialized), composed.unlimited)


class _Composer:
    """Packs candidates, counts the rendered context, and packs again until it fits the budget."""

    def __init__(self, plan: ContextPlan, kept: Sequence[Candidate], counter: TokenCounter) -> None:
        self._plan = plan
        self._kept = kept
        self._counter = counter
        self._forms = make_variants(kept, plan, counter)
        self._items = make_pack_items(kept, self._forms)
        self._costs = count_message_tokens(plan.history, counter)
        self._counted: dict[str, int] = {}
        self._shown: dict[str, tuple[Variant, ContextItem]] = {}

    def compose(self, trace: Trace) -> ComposedWorkspace:
        """The finished context."""
        start = self._history_start()
        chosen, tokens = self._fit(start)
        chosen = self._top_up(chosen, start, tokens)
        start = self._extend_history(chosen, start)
        parts = self._make_parts(chosen, start)
        text = render_context(parts)
        tokens = self._count_text(text)
        record_verdicts(self._kept, self._forms, chosen, trace)
        self._record_history(start, trace)
        visible = [candidate for candidate in self._kept if candidate.id in chosen]
        validate_prompt(
            tokens=tokens, limit=self._plan.total, shown=visible, texts=[form.text for form in chosen.values()]
        )
        return ComposedWorkspace(
            serialized=text,
            tokens=tokens,
            spent=self._count_by_section(chosen, start),
            parts=parts,
            shown=tuple(visible),
            unlimited=self._count_unlimited(tokens),
        )

    def _history_start(self) -> int:
        """Index where history begins within its own share of the budget.

        Raises `BudgetTooSmall` when not even the context without history and candidates fits.
        """
        plan = self._plan
        fixed = self._count_context({}, len(plan.history))
        if fixed > plan.total:
            raise BudgetTooSmall(needed=fixed, available=plan.total)
        share = min(plan.floors[SectionType.HISTORY], self._history_cap(), plan.total - fixed)
        start = find_newest_start(self._costs, share)
        while start < len(plan.history) and self._count_context({}, start) > plan.total:
            start += 1
        return start

    def _fit(self, start: int) -> tuple[Chosen, int]:
        """A choice whose rendered context fits: while it is too large, pack again into less capacity."""
        empty = self._count_context({}, start)
        filled = {candidate.section for candidate in self._kept}
        capacity = self._plan.total - empty + len(filled) * self._counter.count(NOTHING_FOUND)
        while capacity > 0 and self._items:
            chosen = self._chosen_variants(self._pack(self._items, capacity).chosen)
            tokens = self._count_context(chosen, start)
            if tokens <= self._plan.total:
                return chosen, tokens
            capacity -= tokens - self._plan.total
        return {}, empty

    def _history_cap(self) -> int:
        return self._plan.caps.get(SectionType.HISTORY, self._plan.total)

    def _extend_history(self, chosen: Chosen, start: int) -> int:
        """Start history earlier while tokens are left, within its cap."""
        cap = self._history_cap() if self._plan.floors[SectionType.HISTORY] else 0
        while start > 0 and sum(self._costs[start - 1 :]) <= cap:
            if self._count_context(chosen, start - 1) > self._plan.total:
                break
            start -= 1
        return start

    def _pack(self, items: Sequence[PackingItem], capacity: int) -> PackingResult:
        packed = pack_sections(
            items, Budget(total=capacity, sections=self._budget_sections()), PACKERS[self._plan.packer]
        )
        gap = max((part.gap for part in packed.sections.values()), default=0.0)
        return PackingResult(chosen=packed.chosen, tokens=packed.tokens, value=packed.value, gap=gap)

    def _budget_sections(self) -> tuple[Section, ...]:
        plan, weights = self._plan, SECTION_WEIGHTS[self._plan.kind]
        return tuple(
            Section(
                name=section,
                floor=plan.floors[section],
                cap=plan.caps.get(section),
                weight=weights.get(section, 1.0),
                enabled=section in plan.sections,
            )
            for section in COLLECTED_SECTIONS
        )

    def _chosen_variants(self, chosen: Mapping[str, int]) -> Chosen:
        return {id_: self._forms[id_][option] for id_, option in chosen.items()}

    def _top_up(self, chosen: Chosen, start: int, tokens: int) -> Chosen:
        """Shorten the best candidate that did not fit into the remaining tokens, if enough of it remains."""
        room = self._plan.total - tokens
        if room < self._plan.truncation.min_tokens:
            return chosen
        for candidate in self._kept:
            if candidate.id in chosen:
                continue
            whole = self._forms[candidate.id][0]
            form = shorten_candidate(
                candidate, whole, min(room, self._section_room(candidate.section, chosen)), self._plan, self._counter
            )
            if form is not None and self._count_context({**chosen, candidate.id: form}, start) <= self._plan.total:
                return {**chosen, candidate.id: form}
        return chosen

    def _section_room(self, section: str, chosen: Chosen) -> int:
        cap = self._plan.caps.get(section, self._plan.total)
        return cap - sum(chosen[each.id].tokens for each in self._kept if each.section == section and each.id in chosen)

    def _make_parts(self, chosen: Chosen, start: int) -> ContextParts:
        items: dict[str, list[ContextItem]] = {
            SectionType.HISTORY: [message_item(line) for line in self._plan.history[start:]]
        }
        for candidate in self._kept:
            if candidate.id in chosen:
                items.setdefault(candidate.section, []).append(self._make_item(candidate, chosen[candidate.id]))
        return ContextParts(system=self._plan.system, sections=self._plan.sections, items=items, query=self._plan.query)

    def _make_item(self, candidate: Candidate, form: Variant) -> ContextItem:
        """A candidate as an item; cached, because most candidates are rendered several times in the same form."""
        known = self._shown.get(candidate.id)
        if known is None or known[0] is not form:
            known = self._shown[candidate.id] = (form, make_item(candidate, form))
        return known[1]

    def _count_context(self, chosen: Chosen, start: int) -> int:
        return self._count_text(render_context(self._make_parts(chosen, start)))

    def _count_text(self, text: str) -> int:
        """Tokens of a rendered context; cached, because the last one counted is often the final one."""
        if text not in self._counted:
            self._counted[text] = self._counter.count_messages(to_messages(text))
        return self._counted[text]

    def _count_by_section(self, chosen: Chosen, start: int) -> dict[str, int]:
        """Tokens of the items of each section, as the ledger counts them."""
        spent: dict[str, int] = {SectionType.HISTORY: sum(self._costs[start:])}
        for candidate in self._kept:
            if candidate.id in chosen:
                spent[candidate.section] = spent.get(candidate.section, 0) + chosen[candidate.id].tokens
        return spent

    def _count_unlimited(self, tokens: int) -> int:
        return tokens + sum(item.options[0].tokens for item in self._items) + sum(self._costs)

    def _record_history(self, start: int, trace: Trace) -> None:
        for at, (line, cost) in enumerate(zip(self._plan.history, self._costs, strict=True)):
            if at < start:
                trace.drop(message_candidate(line), Reason.OVER_BUDGET, tokens=cost)
            else:
                trace.keep(message_candidate(line), tokens=cost)


def _filter_candidates(plan: ContextPlan, candidates: Sequence[Candidate], trace: Trace) -> list[Candidate]:
    """Candidates to pack, best first: disabled sections, duplicates and empty ones dropped with a reason."""
    sections = plan.sections
    shown = [each for each in candidates if each.section in sections]
    for candidate in candidates:
        if candidate.section not in sections:
            trace.drop(candidate, Reason.SECTION_OFF)
    single = _merge_duplicates(shown, trace)
    for candidate in single:
        if not candidate.text.strip():
            trace.drop(candidate, Reason.EMPTY)
    spoken = rank_candidates(candidate for candidate in single if candidate.text.strip())
    prose = [candidate for candidate in spoken if is_deduplicated(candidate)]
    kept = {candidate.id for candidate in drop_near_duplicates(prose, trace, threshold=plan.near_duplicate)}
    return [candidate for candidate in spoken if candidate.id in kept or not is_deduplicated(candidate)]


def _merge_duplicates(candidates: Sequence[Candidate], trace: Trace) -> list[Candidate]:
    """One candidate per block: in the first section that has it, with the best score."""
    order = {str(section): at for at, section in enumerate(COLLECTED_SECTIONS)}
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.key, []).append(candidate)
    found: list[Candidate] = []
    for group in groups.values():
        first, *others = sorted(group, key=lambda each: (order[each.section], -each.score, each.id))
        best = max(group, key=lambda each: each.score)
        for other in others:
            trace.drop(other, Reason.DUPLICATE, of=first.id)
        found.append(replace(first, score=best.score, signals=best.signals))
    return found


MESSAGE_TYPE = "message"
MAX_MESSAGES = 200
"""How many of the newest messages are read; more than that never fit in a context."""

_SEPARATOR_TOKENS = 1


def clean_history(cleaner: Cleaner, messages: Sequence[ConversationMessage]) -> tuple[ConversationLine, ...]:
    """The newest messages, cleaned, without a gap: everything before one that cannot be scanned is dropped."""
    trace, lines = cleaner.trace, list[ConversationLine]()
    for at in range(max(0, len(messages) - MAX_MESSAGES), len(messages)):
        line = ConversationLine(at=at, role=messages[at].role, text="")
        if not messages[at].content.strip():
            trace.drop(message_candidate(line), Reason.EMPTY)
            continue
        try:
            lines.append(replace(line, text=cleaner.clean_text(messages[at].content)))
        except RedactionFailed as failure:
            trace.drop(message_candidate(line), Reason.REDACTION_FAILED, note=str(failure))
            trace.add_degradation("history", str(failure))
            for older in lines:
                trace.drop(message_candidate(older), Reason.INCOMPLETE)
            lines.clear()
    return tuple(lines)


def message_item(line: ConversationLine) -> ContextItem:
    """A history message as a context item."""
    return ContextItem(
        block_id=f"history[{line.at}]",
        block_type=MESSAGE_TYPE,
        content=fence(line.text),
        relevance=1.0,
        metadata=ItemMetadata(page_title=line.role),
    )


def message_candidate(line: ConversationLine) -> Candidate:
    """A history message as a ledger candidate."""
    name = f"history[{line.at}]"
    return Candidate(id=name, key=name, text="", section=SectionType.HISTORY, kind=line.role, redacted=True)


def count_message_tokens(lines: Sequence[ConversationLine], counter: TokenCounter) -> list[int]:
    """Tokens of each message with its header."""
    return [counter.count(render_item(message_item(line))) + _SEPARATOR_TOKENS for line in lines]


def find_newest_start(costs: Sequence[int], room: int) -> int:
    """Index where the longest run of newest messages begins that fits in `room` tokens."""
    behind = list(accumulate(reversed(costs)))
    return len(costs) - sum(spent <= room for spent in behind)
