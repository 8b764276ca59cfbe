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
from contexture.builders.workspace import _render as render
from contexture.builders.workspace import request, result
from contexture.builders.workspace._document import FittedDocument, fit_document
from contexture.capsule import Capsule
from contexture.errors import BudgetTooSmall, RedactionFailed
from contexture.ledger import Reason, Trace
from contexture.pipeline.candidates import drop_near_duplicates, rank_candidates
from contexture.pipeline.fence import PromptFence, PromptFormat, make_fence, validate_prompt
from contexture.pipeline.knapsack import PACKERS
from contexture.pipeline.packing import PackingItem, PackingResult, make_pack_items, record_verdicts
from contexture.pipeline.sections import pack_sections
from contexture.ports import TokenCounter
from contexture.types import Budget, Candidate, Form, Section, Variant

_SEARCHED = frozenset({result.SectionType.SEMANTIC})


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedWorkspace:
    """A composed context: text, tokens, tokens by section (`spent`), items and shown candidates.

    `unlimited` is the cost without a limit.
    """

    serialized: str
    tokens: int
    spent: Mapping[str, int]
    parts: render.ContextParts
    shown: tuple[Candidate, ...]
    unlimited: int


def compose_workspace(
    plan: request.ContextPlan, candidates: Sequence[Candidate], *, counter: TokenCounter, trace: Trace
) -> ComposedWorkspace:
    """The context within its token budget; every candidate and message gets a verdict in the trace."""
    fence = make_fence(counter, PromptFormat.WORKSPACE, version=plan.fence_version)
    kept = _filter_candidates(plan, candidates, fence, trace)
    found = {
        each.key: each.signals.get(result.COLLECTED_SIGNAL, 0.0) for each in candidates if each.section in _SEARCHED
    }
    return _Composer(plan, kept, counter, fence, found).compose(trace)


def recompose_workspace(capsule: Capsule, more_tokens: int, counter: TokenCounter, trace: Trace) -> ComposedPrompt:
    """The context of a workspace capsule, composed again; see `RecomposeFunction`."""
    plan = request.read_context_plan(capsule)
    plan = changed(plan, total=plan.total + more_tokens)
    composed = compose_workspace(plan, capsule.candidates, counter=counter, trace=trace)
    return ComposedPrompt(result.to_messages(composed.serialized), composed.unlimited)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Choice:
    """What a context shows: the variant per candidate id, and the fitted documents and surroundings of hits."""

    forms: Mapping[str, Variant]
    documents: tuple[FittedDocument, ...] = ()
    around: tuple[FittedDocument, ...] = ()

    def add(self, id_: str, form: Variant) -> _Choice:
        """The choice with one more candidate."""
        return changed(self, forms={**self.forms, id_: form})


_NOTHING = _Choice(forms={})
_FACT_SHARE = 0.6  # of the budget, for everything that is shown before candidates, facts included
_AROUND_PATH_SHARE = 0.2  # of the text of a list or section around a hit, for its path
_LEAST_TEXT_SHARE, _TEXT_SHARE = 0.75, 0.77  # of a prompt, for text of blocks: what is promised, and what is aimed at
_FREED_SHARE = 0.05  # more text, where a document that was cut fills what labels leave
_MIN_LABEL_BUDGET = 1_000  # tokens
_PARTIAL_SHARE = 0.5  # of the blocks of a page that is a hit, below which its summary is shown
_NEIGHBOUR_SHARE = 0.25  # of the focus share, for blocks around a document


class _Composer:
    """Packs candidates, counts the rendered context, and packs again until it fits the budget."""

    def __init__(
        self,
        plan: request.ContextPlan,
        kept: Sequence[Candidate],
        counter: TokenCounter,
        fence: PromptFence,
        found: Mapping[str, float],
    ) -> None:
        self._plan = plan
        self._fence = fence
        self._kept = kept
        self._counter = counter
        self._found = found
        in_documents = {node.key for document in plan.documents for node in document.nodes}
        self._documented = {each.key: each for each in kept if each.key in in_documents}
        only_around = keys_only_around(plan) - in_documents
        self._around = {each.key: each for each in kept}
        self._extra = [each for each in kept if each.key in only_around]
        self._loose = [each for each in kept if each.key not in in_documents and each.key not in only_around]
        self._forms = render.make_variants(self._loose, plan, counter, fence)
        self._items = make_pack_items(self._loose, self._forms)
        self._costs = count_message_tokens(plan.history, counter, fence)
        self._counted: dict[str, int] = {}
        self._facts = plan.facts
        self._shown: dict[str, tuple[Variant, result.ContextItem]] = {}
        self._fitted: dict[tuple[int, int], FittedDocument] = {}
        self._unwanted = frozenset[str]()

    def compose(self, trace: Trace) -> ComposedWorkspace:
        """The finished context."""
        start = self._history_start()
        choice = self._choose_all(start)
        if labels := self._find_labels(choice, start):
            self._items = [item for item in self._items if item.id not in labels]
            self._unwanted = labels
            choice = self._choose_all(start)
        start = self._extend_history(choice, start)
        parts = self._make_parts(choice, start)
        text = render.render_context(parts)
        tokens = self._count_text(text)
        self._record(choice, start, trace)
        visible = [candidate for candidate in self._kept if candidate.id in choice.forms]
        validate_prompt(
            tokens=tokens,
            limit=self._plan.total,
            shown=visible,
            texts=[form.text for form in choice.forms.values()],
            messages=result.to_messages(text),
            fence=self._fence,
        )
        return ComposedWorkspace(
            serialized=text,
            tokens=tokens,
            spent=self._count_by_section(choice, start),
            parts=parts,
            shown=tuple(visible),
            unlimited=self._count_unlimited(tokens),
        )

    def _choose_all(self, start: int) -> _Choice:
        """What fits, with the lists around hits, and the best of the rest shortened into what is left."""
        choice, _ = self._fit(start)
        choice = self._complete_hits(choice, start)
        return self._top_up(choice, start, self._count_context(choice, start))

    def _history_start(self) -> int:
        """Index where history begins within its own share of the budget.

        Raises `BudgetTooSmall` when not even the context without history and candidates fits.
        """
        plan = self._plan
        fixed = self._count_context(_NOTHING, len(plan.history))
        while self._facts and fixed > _FACT_SHARE * plan.total:
            self._facts = _trim_facts(self._facts)
            fixed = self._count_context(_NOTHING, len(plan.history))
        if fixed > plan.total:
            raise BudgetTooSmall(needed=fixed, available=plan.total)
        share = min(plan.floors[result.SectionType.HISTORY], self._history_cap(), plan.total - fixed)
        start = find_newest_start(self._costs, share)
        while start < len(plan.history) and self._count_context(_NOTHING, start) > plan.total:
            start += 1
        return start

    def _fit(self, start: int) -> tuple[_Choice, int]:
        """A choice whose rendered context fits: while it is too large, pack again into less capacity."""
        empty = self._count_context(_NOTHING, start)
        filled = {candidate.section for candidate in self._kept}
        capacity = self._plan.total - empty + len(filled) * self._counter.count(render.NOTHING_FOUND)
        while capacity > 0 and (self._items or self._plan.documents):
            choice = self._choose(capacity)
            tokens = self._count_context(choice, start)
            if tokens <= self._plan.total:
                return choice, tokens
            capacity -= tokens - self._plan.total
        return _NOTHING, empty

    def _choose(self, capacity: int) -> _Choice:
        """Documents first, then the other candidates in what is left."""
        documents = self._fit_documents(capacity)
        forms = {self._documented[key].id: form for document in documents for key, form in document.shown.items()}
        spent: dict[str, int] = {}
        for at, document in enumerate(documents):
            used = document.tokens if document.shown else self._counter.count(document.text)
            spent[self._plan.documents[at].section] = spent.get(self._plan.documents[at].section, 0) + used
        packed = self._pack(self._items, max(0, capacity - sum(spent.values())), spent)
        return _Choice(forms={**forms, **self._chosen_variants(packed.chosen)}, documents=documents)

    def _fit_documents(self, capacity: int) -> tuple[FittedDocument, ...]:
        """The documents in order, each in the share of its section and in what the other sections leave unused."""
        plan, fitted, spent = self._plan, list[FittedDocument](), 0
        demand = _count_demand(self._items)
        for at, document in enumerate(plan.documents):
            floor = plan.floors[document.section]
            reserved = sum(
                min(plan.floors[section], demand.get(section, 0))
                for section in plan.sections
                if section != document.section
            )
            near = min(demand.get(document.section, 0), int(_NEIGHBOUR_SHARE * floor))
            room = min(max(floor, capacity - reserved) - near, plan.caps.get(document.section, capacity), capacity)
            fitted.append(self._fit_document(at, document, max(0, room - spent)))
            spent += fitted[-1].tokens
        return tuple(fitted)

    def _fit_document(self, at: int, document: request.DocumentPlan, room: int) -> FittedDocument:
        """One document; cached, because it is the same in most rounds of packing."""
        for (known, most), fitted in self._fitted.items():
            if known == at and room <= most and fitted.tokens <= room and not fitted.left_out:
                return fitted
        if (at, room) not in self._fitted:
            self._fitted[at, room] = fit_document(
                document, self._documented, room, self._plan, self._counter, self._fence, self._found
            )
        return self._fitted[at, room]

    def _history_cap(self) -> int:
        return self._plan.caps.get(result.SectionType.HISTORY, self._plan.total)

    def _extend_history(self, choice: _Choice, start: int) -> int:
        """Start history earlier while tokens are left, within its cap."""
        cap = self._history_cap() if self._plan.floors[result.SectionType.HISTORY] else 0
        while start > 0 and sum(self._costs[start - 1 :]) <= cap:
            if self._count_context(choice, start - 1) > self._plan.total:
                break
            start -= 1
        return start

    def _pack(self, items: Sequence[PackingItem], capacity: int, spent: Mapping[str, int]) -> PackingResult:
        packed = pack_sections(
            items, Budget(total=capacity, sections=self._budget_sections(spent)), PACKERS[self._plan.packer]
        )
        gap = max((part.gap for part in packed.sections.values()), default=0.0)
        return PackingResult(chosen=packed.chosen, tokens=packed.tokens, value=packed.value, gap=gap)

    def _budget_sections(self, spent: Mapping[str, int]) -> tuple[Section, ...]:
        """The sections as the packer sees them; `spent` are the tokens that documents use of each."""
        plan, weights = self._plan, request.SECTION_WEIGHTS[self._plan.kind]
        return tuple(
            Section(
                name=section,
                floor=max(0, plan.floors[section] - spent.get(section, 0)),
                cap=None if section not in plan.caps else max(0, plan.caps[section] - spent.get(section, 0)),
                weight=weights.get(section, 1.0),
                enabled=section in plan.sections,
            )
            for section in result.COLLECTED_SECTIONS
        )

    def _chosen_variants(self, chosen: Mapping[str, int]) -> dict[str, Variant]:
        return {id_: self._forms[id_][option] for id_, option in chosen.items()}

    def _top_up(self, choice: _Choice, start: int, tokens: int) -> _Choice:
        """Shorten the best candidate that did not fit into the remaining tokens, if enough of it remains."""
        room = self._plan.total - tokens
        if room < self._plan.truncation.min_tokens:
            return choice
        for candidate in self._loose:
            if candidate.id in choice.forms or candidate.id in self._unwanted:
                continue
            whole = self._forms[candidate.id][0]
            form = render.shorten_candidate(
                candidate,
                whole,
                min(room, self._section_room(candidate.section, choice)),
                self._plan,
                self._counter,
                self._fence,
            )
            if form is not None and self._count_context(choice.add(candidate.id, form), start) <= self._plan.total:
                return choice.add(candidate.id, form)
        return choice

    def _complete_hits(self, choice: _Choice, start: int) -> _Choice:
        """Show the lists and sections of hits in place of the hits, where the whole of them fits."""
        if not self._plan.surroundings:
            return choice
        steps = [choice]
        left = self._plan.total - self._count_context(choice, start)
        for surrounding in self._plan.surroundings:
            hits = {self._around[key].id: key for key in surrounding.hits if key in self._around}
            used = sum(form.tokens for id_, form in choice.forms.items() if id_ in hits)
            room = min(left, self._section_room(surrounding.document.section, steps[-1])) + used
            fitted = fit_document(
                surrounding.document,
                self._around,
                room,
                self._plan,
                self._counter,
                self._fence,
                self._found,
                path_share=_AROUND_PATH_SHARE,
            )
            if not fitted.shown or (_is_shortened(fitted) and not self._may_be_partial(surrounding, fitted)):
                continue
            forms = {id_: form for id_, form in steps[-1].forms.items() if hits.get(id_, "") not in fitted.shown}
            forms |= {self._around[key].id: form for key, form in fitted.shown.items()}
            steps.append(changed(steps[-1], forms=forms, around=(*steps[-1].around, fitted)))
            left -= fitted.tokens - used + _SEPARATOR_TOKENS
        while len(steps) > 1 and self._count_context(steps[-1], start) > self._plan.total:
            steps.pop()
        return steps[-1]

    def _may_be_partial(self, surrounding: request.SurroundingPlan, fitted: FittedDocument) -> bool:
        """Whether a page may be shown in part: not when its summary says more than the few blocks that fit."""
        whole = len(surrounding.document.nodes)
        return surrounding.partial and (not self._plan.is_compact or len(fitted.shown) > _PARTIAL_SHARE * whole)

    def _find_labels(self, choice: _Choice, start: int) -> frozenset[str]:
        """Ids of the least relevant hits that are mostly label, as many as keep a prompt from being mostly text.

        None where it would not be mostly text without them either, because little was found.
        """
        plan = self._plan
        if not plan.is_compact or plan.total < _MIN_LABEL_BUDGET:
            return frozenset()
        parts = self._make_parts(choice, start)
        around = parts.system, parts.query, *(item.content for item in parts.items[result.SectionType.HISTORY])
        rest = self._count_context(choice, start) - sum(map(self._counter.count, around))
        shown = [each for each in self._kept if each.id in choice.forms]
        bodies = {each.id: self._count_shown(each, choice.forms[each.id]) for each in shown}
        text, labels = sum(bodies.values()), set[str]()
        completed = {key for fitted in choice.around for key in fitted.shown}
        for candidate in reversed(self._loose):
            if text >= _TEXT_SHARE * rest:
                break
            form = choice.forms.get(candidate.id)
            if form is None or candidate.key in completed or not _is_dispensable(candidate):
                continue
            if bodies[candidate.id] < _TEXT_SHARE * form.tokens:
                labels.add(candidate.id)
                text -= bodies[candidate.id]
                rest -= form.tokens
        has_more = any(document.left_out for document in choice.documents)  # text for what becomes free
        least = _LEAST_TEXT_SHARE - (_FREED_SHARE if has_more else 0)
        return frozenset(labels) if text >= least * rest else frozenset()

    def _count_shown(self, candidate: Candidate, form: Variant) -> int:
        """Tokens of the text that is shown of a candidate; most are shown as they were counted before."""
        if form.text == candidate.text:
            return render.count_body(candidate, self._counter, self._fence)
        return self._counter.count(form.text)

    def _section_room(self, section: str, choice: _Choice) -> int:
        cap = self._plan.caps.get(section, self._plan.total)
        used = (each.id for each in self._kept if each.section == section and each.id in choice.forms)
        return cap - sum(choice.forms[id_].tokens for id_ in used)

    def _make_parts(self, choice: _Choice, start: int) -> render.ContextParts:
        items: dict[str, list[result.ContextItem]] = {
            result.SectionType.HISTORY: [message_item(line, self._fence) for line in self._plan.history[start:]]
        }
        documents: dict[str, list[str]] = {}
        for document, fitted in zip(self._plan.documents, choice.documents, strict=False):
            if fitted.text:
                documents.setdefault(document.section, []).append(fitted.text)
            items.setdefault(document.section, []).extend(
                self._make_item(self._documented[key], form) for key, form in fitted.shown.items()
            )
        for fitted in choice.around:
            documents.setdefault(result.SectionType.SEMANTIC, []).append(fitted.text)
            items.setdefault(result.SectionType.SEMANTIC, []).extend(
                self._make_item(self._around[key], form) for key, form in fitted.shown.items()
            )
        completed = {key for fitted in choice.around for key in fitted.shown}
        loose = {section: len(found) for section, found in items.items()}
        for candidate in self._loose:
            if candidate.id in choice.forms and candidate.key not in completed:
                items.setdefault(candidate.section, []).append(self._make_item(candidate, choice.forms[candidate.id]))
        return render.ContextParts(
            system=self._plan.system,
            sections=self._plan.sections,
            items=items,
            query=self._plan.query,
            documents=documents,
            documented={section: loose.get(section, 0) for section in documents},
            facts=self._facts if self._plan.sections else (),
            short_paths=self._plan.short_paths,
            path_share=self._plan.path_share,
            fence=self._fence,
        )

    def _make_item(self, candidate: Candidate, form: Variant) -> result.ContextItem:
        """A candidate as an item; cached, because most candidates are rendered several times in the same form."""
        known = self._shown.get(candidate.id)
        if known is None or known[0] is not form:
            known = self._shown[candidate.id] = (form, render.make_item(candidate, form))
        return known[1]

    def _count_context(self, choice: _Choice, start: int) -> int:
        return self._count_text(render.render_context(self._make_parts(choice, start)))

    def _count_text(self, text: str) -> int:
        """Tokens of a rendered context; cached, because the last one counted is often the final one."""
        if text not in self._counted:
            self._counted[text] = self._counter.count_messages(result.to_messages(text))
        return self._counted[text]

    def _count_by_section(self, choice: _Choice, start: int) -> dict[str, int]:
        """Tokens of the items of each section, as the ledger counts them."""
        spent: dict[str, int] = {result.SectionType.HISTORY: sum(self._costs[start:])}
        for candidate in self._kept:
            if candidate.id in choice.forms:
                spent[candidate.section] = spent.get(candidate.section, 0) + choice.forms[candidate.id].tokens
        return spent

    def _count_unlimited(self, tokens: int) -> int:
        documented = sum(render.count_body(each, self._counter, self._fence) for each in self._documented.values())
        around = sum(render.count_body(each, self._counter, self._fence) for each in self._extra)
        return tokens + sum(item.options[0].tokens for item in self._items) + sum(self._costs) + 2 * documented + around

    def _record(self, choice: _Choice, start: int, trace: Trace) -> None:
        """Verdicts for every candidate and message, and a degradation for every document that is incomplete."""
        completed = {self._around[key].id: form for fitted in choice.around for key, form in fitted.shown.items()}
        loose = [each for each in self._loose if each.id not in completed]
        record_verdicts(loose, self._forms, choice.forms, trace)
        for candidate in (
            *self._documented.values(),
            *self._extra,
            *(each for each in self._loose if each.id in completed),
        ):
            form = choice.forms.get(candidate.id)
            if form is None:
                trace.drop(
                    candidate, Reason.OVER_BUDGET, tokens=render.count_body(candidate, self._counter, self._fence)
                )
            else:
                trace.keep(candidate, tokens=form.tokens, form=form.form)
        for at, document in enumerate(self._plan.documents):
            fitted = choice.documents[at] if choice.documents else None
            missing = len(document.nodes) if fitted is None else fitted.left_out
            shortened = 0 if fitted is None else sum(form.form is not Form.FULL for form in fitted.shown.values())
            if missing or document.cut or shortened:
                more = "more than " if document.cut else ""
                note = f"{missing} of {more}{len(document.nodes)} blocks of the document are left out"
                trace.add_degradation(document.section, f"{note}, {shortened} are shortened" if shortened else note)
        self._record_history(start, trace)

    def _record_history(self, start: int, trace: Trace) -> None:
        for at, (line, cost) in enumerate(zip(self._plan.history, self._costs, strict=True)):
            if at < start:
                trace.drop(message_candidate(line), Reason.OVER_BUDGET, tokens=cost)
            else:
                trace.keep(message_candidate(line), tokens=cost)


def _is_dispensable(candidate: Candidate) -> bool:
    """Whether a candidate was found by a search, a link or activity, and not asked for by focus, hint or planner."""
    return candidate.section != result.SectionType.FOCUS and candidate.id.startswith(f"{candidate.section}:")


def _is_shortened(fitted: FittedDocument) -> bool:
    return fitted.left_out > 0 or any(form.form is not Form.FULL for form in fitted.shown.values())


def _trim_facts(facts: Sequence[request.PlannedFact]) -> tuple[request.PlannedFact, ...]:
    """The facts without the last line of details, or without the last fact when none has details."""
    for at in range(len(facts) - 1, -1, -1):
        if facts[at].details:
            shorter = request.PlannedFact(
                label=facts[at].label, total=facts[at].total, keys=facts[at].keys, details=facts[at].details[:-1]
            )
            return (*facts[:at], shorter, *facts[at + 1 :])
    return tuple(facts[:-1])


def _count_demand(items: Sequence[PackingItem]) -> dict[str, int]:
    """Tokens that the items of each section could use."""
    demand: dict[str, int] = {}
    for item in items:
        demand[item.section] = demand.get(item.section, 0) + max(option.tokens for option in item.options)
    return demand


def _filter_candidates(
    plan: request.ContextPlan, candidates: Sequence[Candidate], fence: PromptFence, trace: Trace
) -> list[Candidate]:
    """Candidates to pack, best first: disabled sections, duplicates and empty ones dropped with a reason."""
    sections = plan.sections
    shown = [each for each in candidates if each.section in sections]
    for candidate in candidates:
        if candidate.section not in sections:
            trace.drop(candidate, Reason.SECTION_OFF)
    single = _merge_duplicates(shown, trace)
    visible = {candidate.id for candidate in single if fence.inline(candidate.text).strip()}
    for candidate in single:
        if candidate.id not in visible:
            trace.drop(candidate, Reason.EMPTY)
    spoken = rank_candidates(candidate for candidate in single if candidate.id in visible)
    documented = {node.key for document in plan.documents for node in document.nodes} | keys_only_around(plan)
    prose = [candidate for candidate in spoken if render.is_deduplicated(candidate) and candidate.key not in documented]
    repeated = _drop_repeated(prose, plan, trace)
    return [candidate for candidate in spoken if candidate.id not in repeated]


def _drop_repeated(prose: Sequence[Candidate], plan: request.ContextPlan, trace: Trace) -> set[str]:
    """Ids of the near duplicates of better candidates; blocks of one list that is shown as a whole stay."""
    found = Trace()
    kept = {candidate.id for candidate in drop_near_duplicates(prose, found, threshold=plan.near_duplicate)}
    verdicts = {entry.id: entry for entry in found.finish(()).entries}
    lists = {node.key: at for at, each in enumerate(plan.surroundings) for node in each.document.nodes}
    places = {candidate.id: lists.get(candidate.key) for candidate in prose} if plan.is_compact else {}
    repeated: set[str] = set()
    for candidate in prose:
        if candidate.id in kept:
            continue
        verdict, place = verdicts[candidate.id], places.get(candidate.id)
        if place is None or place != places.get(verdict.of or ""):
            repeated.add(candidate.id)
            trace.drop(candidate, verdict.reason, of=verdict.of)
    return repeated


def keys_only_around(plan: request.ContextPlan) -> set[str]:
    """Block ids that are only shown as part of the list or section around a hit."""
    inside = {node.key for each in plan.surroundings for node in each.document.nodes}
    return inside - {key for each in plan.surroundings for key in each.hits}


def _merge_duplicates(candidates: Sequence[Candidate], trace: Trace) -> list[Candidate]:
    """One candidate per block: in the first section that has it, with the best score."""
    order = {str(section): at for at, section in enumerate(result.COLLECTED_SECTIONS)}
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


def clean_history(
    cleaner: Cleaner, messages: Sequence[request.ConversationMessage], fence: PromptFence
) -> tuple[request.ConversationLine, ...]:
    """The newest messages, cleaned, without a gap: everything before one that cannot be scanned is dropped."""
    trace, lines = cleaner.trace, list[request.ConversationLine]()
    for at in range(max(0, len(messages) - MAX_MESSAGES), len(messages)):
        line = request.ConversationLine(at=at, role=messages[at].role, text="")
        if not fence.inline(messages[at].content).strip():
            trace.drop(message_candidate(line), Reason.EMPTY)
            continue
        try:
            lines.append(replace(line, text=cleaner.clean_prompt_text(messages[at].content, fence)))
        except RedactionFailed as failure:
            trace.drop(message_candidate(line), Reason.REDACTION_FAILED, note=str(failure))
            trace.add_degradation("history", str(failure))
            for older in lines:
                trace.drop(message_candidate(older), Reason.INCOMPLETE)
            lines.clear()
    return tuple(lines)


def message_item(line: request.ConversationLine, fence: PromptFence) -> result.ContextItem:
    """A history message as a context item."""
    return result.ContextItem(
        block_id=f"history[{line.at}]",
        block_type=MESSAGE_TYPE,
        content=fence.block(line.text),
        relevance=1.0,
        metadata=result.ItemMetadata(page_title=line.role),
    )


def message_candidate(line: request.ConversationLine) -> Candidate:
    """A history message as a ledger candidate."""
    name = f"history[{line.at}]"
    return Candidate(id=name, key=name, text="", section=result.SectionType.HISTORY, kind=line.role, redacted=True)


def count_message_tokens(
    lines: Sequence[request.ConversationLine], counter: TokenCounter, fence: PromptFence
) -> list[int]:
    """Tokens of each message with its header."""
    return [counter.count(render.render_item(message_item(line, fence))) + _SEPARATOR_TOKENS for line in lines]


def find_newest_start(costs: Sequence[int], room: int) -> int:
    """Index where the longest run of newest messages begins that fits in `room` tokens."""
    behind = list(accumulate(reversed(costs)))
    return len(costs) - sum(spent <= room for spent in behind)
