"""From redacted candidates to a finished context: pure, so that a capsule rebuilds the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from contexture.builders.workspace.history import costs_of, line_candidate, message_item, newest
from contexture.builders.workspace.plan import EMPHASIS, Plan
from contexture.builders.workspace.render import NOTHING_FOUND, Parts, serialized
from contexture.builders.workspace.values import COLLECTED, ContextItem, SectionType, messages_of
from contexture.builders.workspace.variants import Forms, forms_of, item_of, items_of, repeatable, shortened
from contexture.errors import BudgetTooSmall
from contexture.ledger import Reason, Trace
from contexture.pipeline.dedupe import near_duplicates
from contexture.pipeline.pack import Item, Packing
from contexture.pipeline.packers import PACKERS
from contexture.pipeline.rank import ranked
from contexture.pipeline.sections import pack_sections
from contexture.pipeline.validate import validate
from contexture.ports import TokenCounter
from contexture.types import Budget, Candidate, Section, Variant

Chosen = dict[str, Variant]


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """A finished context, what is shown in it, and what everything would have cost; `spent` is by section."""

    serialized: str
    tokens: int
    spent: Mapping[str, int]
    parts: Parts
    shown: tuple[Candidate, ...]
    unlimited: int


def compose(plan: Plan, candidates: Sequence[Candidate], *, counter: TokenCounter, trace: Trace) -> Composed:
    """The context within its budget; every candidate and every message gets its verdict."""
    return _Composer(plan, _eligible(plan, candidates, trace), counter).composed(trace)


class _Composer:
    """Chooses, counts the whole, and chooses again, until nothing more fits."""

    def __init__(self, plan: Plan, kept: Sequence[Candidate], counter: TokenCounter) -> None:
        self._plan = plan
        self._kept = kept
        self._counter = counter
        self._forms: Forms = forms_of(kept, plan, counter)
        self._items = items_of(kept, self._forms)
        self._costs = costs_of(plan.history, counter)
        self._counted: dict[str, int] = {}
        self._shown: dict[str, tuple[Variant, ContextItem]] = {}

    def composed(self, trace: Trace) -> Composed:
        """The finished context."""
        start = self._history_start()
        chosen, tokens = self._fitted(start)
        chosen = self._topped_up(chosen, start, tokens)
        start = self._longer_history(chosen, start)
        parts = self._parts(chosen, start)
        text = serialized(parts)
        tokens = self._whole(text)
        self._judge(chosen, start, trace)
        visible = [candidate for candidate in self._kept if candidate.id in chosen]
        validate(tokens=tokens, limit=self._plan.total, shown=visible, texts=[form.text for form in chosen.values()])
        return Composed(
            serialized=text,
            tokens=tokens,
            spent=self._spent(chosen, start),
            parts=parts,
            shown=tuple(visible),
            unlimited=self._unlimited(tokens),
        )

    def _history_start(self) -> int:
        """Where history begins while it has its own share only; without room for anything it is empty."""
        plan = self._plan
        fixed = self._tokens({}, len(plan.history))
        if fixed > plan.total:
            raise BudgetTooSmall(needed=fixed, available=plan.total)
        share = min(plan.floors[SectionType.HISTORY], self._history_cap(), plan.total - fixed)
        start = newest(self._costs, share)
        while start < len(plan.history) and self._tokens({}, start) > plan.total:
            start += 1
        return start

    def _fitted(self, start: int) -> tuple[Chosen, int]:
        """A choice whose context, counted as a whole, fits: one that is a little too large is packed into less."""
        empty = self._tokens({}, start)
        filled = {candidate.section for candidate in self._kept}
        capacity = self._plan.total - empty + len(filled) * self._counter.count(NOTHING_FOUND)
        while capacity > 0 and self._items:
            chosen = self._forms_of(self._pack(self._items, capacity).chosen)
            tokens = self._tokens(chosen, start)
            if tokens <= self._plan.total:
                return chosen, tokens
            capacity -= tokens - self._plan.total
        return {}, empty

    def _history_cap(self) -> int:
        return self._plan.caps.get(SectionType.HISTORY, self._plan.total)

    def _longer_history(self, chosen: Chosen, start: int) -> int:
        """History begins earlier where room was left over, within its cap; a section that is off stays off."""
        cap = self._history_cap() if self._plan.floors[SectionType.HISTORY] else 0
        while start > 0 and sum(self._costs[start - 1 :]) <= cap:
            if self._tokens(chosen, start - 1) > self._plan.total:
                break
            start -= 1
        return start

    def _pack(self, items: Sequence[Item], capacity: int) -> Packing:
        packed = pack_sections(items, Budget(total=capacity, sections=self._sections()), PACKERS[self._plan.packer])
        gap = max((part.gap for part in packed.sections.values()), default=0.0)
        return Packing(chosen=packed.chosen, tokens=packed.tokens, value=packed.value, gap=gap)

    def _sections(self) -> tuple[Section, ...]:
        plan, weights = self._plan, EMPHASIS[self._plan.kind]
        return tuple(
            Section(
                name=section,
                floor=plan.floors[section],
                cap=plan.caps.get(section),
                weight=weights.get(section, 1.0),
                enabled=section in plan.sections,
            )
            for section in COLLECTED
        )

    def _forms_of(self, chosen: Mapping[str, int]) -> Chosen:
        return {id_: self._forms[id_][option] for id_, option in chosen.items()}

    def _topped_up(self, chosen: Chosen, start: int, tokens: int) -> Chosen:
        """The best block that did not fit is shortened into what is left, if that is enough to say something."""
        room = self._plan.total - tokens
        if room < self._plan.truncation.min_tokens:
            return chosen
        for candidate in self._kept:
            if candidate.id in chosen:
                continue
            whole = self._forms[candidate.id][0]
            form = shortened(
                candidate, whole, min(room, self._room_in(candidate.section, chosen)), self._plan, self._counter
            )
            if form is not None and self._tokens({**chosen, candidate.id: form}, start) <= self._plan.total:
                return {**chosen, candidate.id: form}
        return chosen

    def _room_in(self, section: str, chosen: Chosen) -> int:
        cap = self._plan.caps.get(section, self._plan.total)
        return cap - sum(chosen[each.id].tokens for each in self._kept if each.section == section and each.id in chosen)

    def _parts(self, chosen: Chosen, start: int) -> Parts:
        items: dict[str, list[ContextItem]] = {
            SectionType.HISTORY: [message_item(line) for line in self._plan.history[start:]]
        }
        for candidate in self._kept:
            if candidate.id in chosen:
                items.setdefault(candidate.section, []).append(self._item(candidate, chosen[candidate.id]))
        return Parts(system=self._plan.system, sections=self._plan.sections, items=items, query=self._plan.query)

    def _item(self, candidate: Candidate, form: Variant) -> ContextItem:
        """A candidate as it is shown; most are tried several times in one form."""
        known = self._shown.get(candidate.id)
        if known is None or known[0] is not form:
            known = self._shown[candidate.id] = (form, item_of(candidate, form))
        return known[1]

    def _tokens(self, chosen: Chosen, start: int) -> int:
        return self._whole(serialized(self._parts(chosen, start)))

    def _whole(self, text: str) -> int:
        """What a finished text costs; the last one tried is often the one that is kept."""
        if text not in self._counted:
            self._counted[text] = self._counter.count_messages(messages_of(text))
        return self._counted[text]

    def _spent(self, chosen: Chosen, start: int) -> dict[str, int]:
        """What the items of each section cost, as the ledger counts them."""
        spent: dict[str, int] = {SectionType.HISTORY: sum(self._costs[start:])}
        for candidate in self._kept:
            if candidate.id in chosen:
                spent[candidate.section] = spent.get(candidate.section, 0) + chosen[candidate.id].tokens
        return spent

    def _unlimited(self, tokens: int) -> int:
        return tokens + sum(item.options[0].tokens for item in self._items) + sum(self._costs)

    def _judge(self, chosen: Chosen, start: int, trace: Trace) -> None:
        for candidate in self._kept:
            form = chosen.get(candidate.id)
            if form is None:
                trace.drop(candidate, Reason.OVER_BUDGET, tokens=self._forms[candidate.id][0].tokens)
            else:
                trace.keep(candidate, tokens=form.tokens, form=form.form)
        for at, (line, cost) in enumerate(zip(self._plan.history, self._costs, strict=True)):
            if at < start:
                trace.drop(line_candidate(line), Reason.OVER_BUDGET, tokens=cost)
            else:
                trace.keep(line_candidate(line), tokens=cost)


def _eligible(plan: Plan, candidates: Sequence[Candidate], trace: Trace) -> list[Candidate]:
    """Candidates worth packing, best first: each block once, nothing empty, nothing that repeats a better one."""
    sections = plan.sections
    shown = [each for each in candidates if each.section in sections]
    for candidate in candidates:
        if candidate.section not in sections:
            trace.drop(candidate, Reason.SECTION_OFF)
    single = _once(shown, trace)
    for candidate in single:
        if not candidate.text.strip():
            trace.drop(candidate, Reason.EMPTY)
    spoken = ranked(candidate for candidate in single if candidate.text.strip())
    prose = [candidate for candidate in spoken if repeatable(candidate)]
    kept = {candidate.id for candidate in near_duplicates(prose, trace, threshold=plan.near_duplicate)}
    return [candidate for candidate in spoken if candidate.id in kept or not repeatable(candidate)]


def _once(candidates: Sequence[Candidate], trace: Trace) -> list[Candidate]:
    """One candidate of every block: in the first section that has it, with the best score any of them got."""
    order = {str(section): at for at, section in enumerate(COLLECTED)}
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
