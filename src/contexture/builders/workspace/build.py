"""The workspace builder.

Load the focus, collect around it, hydrate, redact, summarize, compose, return a `ContextPayload`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from contexture.blocks.render import is_bare
from contexture.builders.clean import Cleaner, CleanerFactory
from contexture.builders.telemetry import NoWorkspaceTelemetry, Stopwatch, WorkspaceTelemetry
from contexture.builders.workspace import _collect as collect
from contexture.builders.workspace import result
from contexture.builders.workspace._document import plan_document
from contexture.builders.workspace._hydrate import hydrate
from contexture.builders.workspace._intent import detect_intent
from contexture.builders.workspace._planner import collect_changes, collect_work
from contexture.builders.workspace._render import SECTION_TITLES, add_token_counts, render_instructions
from contexture.builders.workspace._state import BuildState, FocusBlocks, load_focus
from contexture.builders.workspace._surroundings import AROUND, collect_surroundings
from contexture.builders.workspace._validate import validate_payload
from contexture.builders.workspace.compose import ComposedWorkspace, clean_history, compose_workspace
from contexture.builders.workspace.config import ContextConfig, WorkspaceRecipe
from contexture.builders.workspace.request import (
    CAPSULE_KIND,
    LAYOUT_VERSION,
    ContextPlan,
    ContextRequest,
    DocumentPlan,
    PlannedFact,
    SurroundingPlan,
    parse_request,
    section_caps,
    section_floors,
    total_budget,
)
from contexture.capsule import Capsule, make_capsule
from contexture.errors import InvalidRequest, NotPermitted, SourceError
from contexture.ledger import Ledger, State, Trace
from contexture.pipeline.candidates import CandidateSource, collect_candidates, rank_candidates
from contexture.pipeline.fence import DATA_NOTICE, FENCE_VERSION, PromptFormat, make_fence
from contexture.pipeline.masking import SecretMaskCache
from contexture.pipeline.redaction import Placeholders, RedactionOperator, RememberedScans
from contexture.pipeline.truncation import TruncationStrategy, summarize
from contexture.ports import ChatModel, Clock, Redactor, Secrets, TokenCounter
from contexture.retrieval.search import HybridSearch
from contexture.types import Candidate, Scope
from contexture.workspace import BlockStore, BlockType

_PATH_SHARE = 0.1
_FIRST_YEAR, _LAST_YEAR = 1_000, 9_000


@dataclass(frozen=True, kw_only=True, slots=True)
class _CleanedCandidates:
    """The plan, and the candidates before and after redaction."""

    plan: ContextPlan
    raw: Sequence[Candidate]
    clean: Sequence[Candidate]


class WorkspaceContextBuilder:
    """Builds the context of a request from a workspace, as one user may read it.

    `search` searches the collection `blocks`. `summarizer` writes summaries when the configuration asks for them.
    `speaker` is the scope of calls that pass none.
    """

    def __init__(  # noqa: PLR0913 - every part it works with, by name
        self,
        *,
        store: BlockStore,
        search: HybridSearch,
        token_counter: TokenCounter,
        redactor: Redactor,
        clock: Clock,
        secrets: Secrets | None = None,
        config: ContextConfig | None = None,
        operator: Callable[[], RedactionOperator] = Placeholders,
        summarizer: ChatModel | None = None,
        deadline: float = 10.0,
        model: str = "",
        speaker: Scope | None = None,
        metrics: WorkspaceTelemetry | None = None,
    ) -> None:
        self._metrics: WorkspaceTelemetry = metrics or NoWorkspaceTelemetry()
        self._store = store
        self._semantic = collect.SemanticCollector(search)
        self._counter = token_counter
        self._fence = make_fence(token_counter, PromptFormat.WORKSPACE)
        self._cleaners = CleanerFactory(
            redactor=RememberedScans(redactor), secrets=SecretMaskCache(secrets), operator=operator
        )
        self._clock = clock
        self._config = config or ContextConfig()
        self._summarizer = summarizer
        self._deadline = deadline
        self._model = model or token_counter.encoding
        self._speaker = speaker or Scope.local()

    async def build(
        self,
        request: ContextRequest | Mapping[str, Any],
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
    ) -> result.ContextPayload:
        """The context for a request, as `scope` may read it; `now` replaces the clock, which is otherwise read once.

        Raises `NotFound` when the focus does not exist or `scope` may not read it. A collector that fails is recorded
        as a degradation, and the build goes on with the others.
        """
        watch = Stopwatch()
        with watch.phase("collect"):
            asked, who = parse_request(request), scope or self._speaker
            _check_user(asked, who)
            moment = _check_clock(now or self._clock.now())
            cleaner = self._cleaners.make(Trace())
            state = await self._start_build(asked, who, moment, cleaner)
            found = await self._collect(state)
            found += await collect_surroundings(state, found)
        with watch.phase("dress"):
            raw = await hydrate(state, found, self._counter)
            made = await self._clean(state, raw, cleaner)
        with watch.phase("compose"):
            payload = self._make_payload(state, made)
        payload.timings.update(watch.seconds)
        self._record_metrics(payload)
        return payload

    def estimate_tokens(self, payload: result.ContextPayload) -> int:
        """Tokens that the model is charged for the context: exact when its tokenizer is known, else an estimate."""
        return self._counter.count_messages(payload.messages)

    def validate(self, payload: result.ContextPayload) -> result.ContextValidationResult:
        """Validate a context: errors are broken guarantees, warnings are losses of quality."""
        return validate_payload(payload, self._counter)

    def _record_metrics(self, payload: result.ContextPayload) -> None:
        self._metrics.record(
            seconds=payload.timings,
            tokens=payload.metadata.total_tokens,
            budget=payload.budget,
            blocks={str(verdict): payload.ledger.count(verdict) for verdict in State},
            lost=[each.source for each in payload.degradations],
        )

    async def _start_build(self, asked: ContextRequest, scope: Scope, now: datetime, cleaner: Cleaner) -> BuildState:
        question = cleaner.mask_text(asked.query)
        try:
            place = await load_focus(self._store, scope, asked)
        except SourceError as failure:
            cleaner.trace.add_degradation(result.SectionType.FOCUS, failure)
            place = FocusBlocks()
        return BuildState(
            store=self._store,
            scope=scope,
            request=asked,
            config=self._config,
            now=now,
            intent=detect_intent(
                question,
                now=now,
                zone=asked.zone,
                hinted=asked.hints.prioritize_types,
                preferred=asked.user.preferences.prioritize_types,
            ),
            question=question,
            place=place,
            trace=cleaner.trace,
            rules=cleaner.redactor.rules,
        )

    async def _collect(self, state: BuildState) -> list[Candidate]:
        """Run the enabled collectors under the deadline."""
        floors = section_floors(state.request, self._config)
        asks = {
            result.SectionType.FOCUS: lambda: collect.collect_focus(state),
            result.SectionType.SEMANTIC: lambda: self._semantic.collect(state),
            result.SectionType.RELATIONS: lambda: collect.collect_relations(state),
            result.SectionType.ACTIVITY: lambda: collect.collect_activity(state),
        }
        sources = {
            str(name): CandidateSource(ask=asks[name], timeout_seconds=self._deadline)
            for name in result.COLLECTED_SECTIONS
            if floors[name] and name in self._active_collectors(state)
        }
        on = [name for name in result.COLLECTED_SECTIONS if floors[name]]
        config_planner = self._config.collectors.planner
        if on and config_planner.enabled and self._config.recipe is not WorkspaceRecipe.SEED:
            work = result.SectionType.SEMANTIC if result.SectionType.SEMANTIC in on else on[0]
            changes = result.SectionType.ACTIVITY if result.SectionType.ACTIVITY in on else work
            sources |= {
                "planner": CandidateSource(ask=lambda: collect_work(state, work), timeout_seconds=self._deadline),
                "changes": CandidateSource(ask=lambda: collect_changes(state, changes), timeout_seconds=self._deadline),
            }
        if state.request.hints.prioritize_types and on and self._config.recipe is not WorkspaceRecipe.SEED:
            searched = result.SectionType.SEMANTIC if result.SectionType.SEMANTIC in on else on[0]
            sources["types"] = CandidateSource(
                ask=lambda: self._semantic.collect_types(state, searched), timeout_seconds=self._deadline
            )
        if state.request.hints.include_blocks and on:
            included = CandidateSource(
                ask=lambda: collect.collect_included(state, on[0]), timeout_seconds=self._deadline
            )
            sources = {"include": included, **sources}
        return await collect_candidates(sources, deadline=self._deadline, trace=state.trace)

    def _active_collectors(self, state: BuildState) -> list[result.SectionType]:
        """The collectors that are enabled and have what they need."""
        config = self._config.collectors
        focused = state.place.nearest is not None
        ready = {
            result.SectionType.FOCUS: config.focus.enabled and focused,
            result.SectionType.SEMANTIC: config.semantic.enabled,
            result.SectionType.RELATIONS: config.relations.enabled and focused,
            result.SectionType.ACTIVITY: config.activity.enabled,
        }
        return [name for name in result.COLLECTED_SECTIONS if ready[name]]

    async def _clean(self, state: BuildState, raw: Sequence[Candidate], cleaner: Cleaner) -> _CleanedCandidates:
        plan = replace(
            self._make_plan(state, cleaner),
            documents=_plan_documents(state, raw),
            surroundings=_plan_surroundings(state, raw),
            facts=tuple(_clean_facts(state, cleaner)),
        )
        masked = map(cleaner.mask_candidate, raw)
        clean = add_token_counts(cleaner.clean_candidates(masked), self._counter, self._fence)
        shorter = await write_summaries(clean, plan, counter=self._counter, model=self._summarizer, trace=state.trace)
        return _CleanedCandidates(plan=replace(plan, shorter=shorter), raw=raw, clean=clean)

    def _make_plan(self, state: BuildState, cleaner: Cleaner) -> ContextPlan:
        asked, config, place = state.request, self._config, state.place
        floors = section_floors(asked, config)
        query_text = (
            render_instructions(asked.type, asked.user.preferences.language)
            if floors[result.SectionType.SYSTEM]
            else DATA_NOTICE
        )
        failed = {lost.source for lost in state.trace.finish(()).degradations}
        return ContextPlan(
            query=cleaner.clean_prompt_text(asked.query, self._fence),
            kind=asked.type,
            system=self._fence.inline(query_text),
            total=total_budget(asked, config),
            floors=floors,
            caps=section_caps(asked),
            history=clean_history(cleaner, asked.conversation_history, self._fence),
            timestamp=state.now.isoformat(),
            collectors=tuple(
                str(name) for name in self._active_collectors(state) if floors[name] and name not in failed
            ),
            focus={
                "block": place.block and place.block.id,
                "page": place.page and place.page.id,
                "database": place.database and place.database.id,
            },
            truncation=config.truncation,
            packer=config.packer,
            near_duplicate=config.near_duplicate,
            sharpness=config.sharpness,
            short_paths=config.recipe is not WorkspaceRecipe.SEED,
            path_share=0.0 if config.recipe is WorkspaceRecipe.SEED else _PATH_SHARE,
            fence_version=FENCE_VERSION,
            layout_version=1 if config.recipe is WorkspaceRecipe.SEED else LAYOUT_VERSION,
        )

    def _make_payload(self, state: BuildState, made: _CleanedCandidates) -> result.ContextPayload:
        composed = compose_workspace(made.plan, made.clean, counter=self._counter, trace=state.trace)
        ledger = state.trace.finish(made.raw)
        capsule = make_capsule(
            CAPSULE_KIND,
            scope=state.scope,
            now=state.now,
            request=msgspec.to_builtins(made.plan),
            settings={"model": self._model, "encoding": self._counter.encoding},
            candidates=made.clean,
            ledger=ledger,
            messages=result.to_messages(composed.serialized),
            in_request={f"history[{line.at}]" for line in made.plan.history},
        )
        return make_payload(
            made.plan, composed, considered=made.raw, ledger=ledger, capsule=capsule, counter=self._counter
        )


def _clean_facts(state: BuildState, cleaner: Cleaner) -> Iterator[PlannedFact]:
    """The facts without personal data; one that cannot be scanned is left out, which is a degradation."""
    for fact in state.facts:
        cleaned = cleaner.clean_or("\n".join([fact.label, *fact.details]), "")
        if cleaned:
            label, *details = cleaned.split("\n")
            yield PlannedFact(label=label, total=fact.total, keys=fact.keys, details=tuple(details))


def _plan_documents(state: BuildState, raw: Sequence[Candidate]) -> tuple[DocumentPlan, ...]:
    """The documents of a build, those of the focus first; a block is in the first document that contains it."""
    keys = {candidate.key for candidate in raw}
    anchor = state.place.block.id if state.place.block is not None else ""
    wanted = {id_: at for at, id_ in enumerate(state.request.hints.include_blocks, start=1)}
    planned: list[DocumentPlan] = []
    for document in sorted(state.documents, key=lambda each: wanted.get(each.root.id, 0) if each.included else 0):
        if document.root.id in keys:
            planned.append(plan_document(document, keys, anchor))
            keys -= {node.key for node in planned[-1].nodes}
    return tuple(planned)


def _plan_surroundings(state: BuildState, raw: Sequence[Candidate]) -> tuple[SurroundingPlan, ...]:
    """The lists and sections around hits, without blocks that other sections have."""
    keys = {each.key for each in raw if each.section == result.SectionType.SEMANTIC}
    found = {each.key: each for each in raw if each.key in keys and not each.id.startswith(f"{AROUND}:")}
    planned: list[SurroundingPlan] = []
    for section in state.surroundings:
        document = plan_document(section, keys)
        hits = (
            node.key
            for node in document.nodes
            if node.key in found and not is_bare(state.blocks[node.key], found[node.key].text)
        )
        partial = section.root.type is BlockType.PAGE and section.root.id in found
        planned.append(SurroundingPlan(document=document, hits=tuple(hits), partial=partial))
    return tuple(each for each in planned if each.document.nodes)


def _check_clock(now: datetime) -> datetime:
    """The time itself; raises `InvalidRequest` when date arithmetic with it could overflow."""
    if not _FIRST_YEAR <= now.year <= _LAST_YEAR:
        raise InvalidRequest(f"the clock says {now.isoformat()}; it must be from {_FIRST_YEAR} to {_LAST_YEAR}")
    return now


def _check_user(asked: ContextRequest, scope: Scope) -> None:
    if asked.user.id is not None and asked.user.id != scope.user:
        raise NotPermitted(f"you may not ask for user {asked.user.id!r}")
    times = asked.hints.time_range
    if times is not None and times.start is not None and times.end is not None and times.start > times.end:
        raise InvalidRequest("the time range ends before it starts")


INSTRUCTION_TYPE = "instruction"


def make_payload(
    plan: ContextPlan,
    composed: ComposedWorkspace,
    *,
    considered: Sequence[Candidate],
    ledger: Ledger,
    capsule: Capsule,
    counter: TokenCounter,
) -> result.ContextPayload:
    """The payload of a composed context; its metadata counts blocks, not candidates."""
    return result.ContextPayload(
        sections=tuple(_make_sections(plan, composed, counter)),
        metadata=result.ContextMetadata(
            total_tokens=composed.tokens,
            timestamp=plan.timestamp,
            collectors_used=plan.collectors,
            blocks_included=len(composed.shown),
            blocks_considered=len({candidate.key for candidate in considered}),
            focus_block_id=plan.focus.get("block"),
            focus_page_id=plan.focus.get("page"),
            focus_database_id=plan.focus.get("database"),
        ),
        serialized=composed.serialized,
        budget=plan.total,
        caps=dict(plan.caps),
        build_id=capsule.build_id,
        citations=tuple(candidate.citation for candidate in composed.shown if candidate.citation is not None),
        ledger=ledger,
        capsule=capsule,
        validator=partial(validate_payload, counter=counter),
        encoding=counter.encoding,
        exact=counter.exact,
    )


def _make_sections(
    plan: ContextPlan, composed: ComposedWorkspace, counter: TokenCounter
) -> Iterator[result.ContextSection]:
    if plan.floors[result.SectionType.SYSTEM]:
        entry = result.ContextItem(
            block_id=result.SectionType.SYSTEM, block_type=INSTRUCTION_TYPE, content=plan.system, relevance=1.0
        )
        yield _make_section(result.SectionType.SYSTEM, [entry], counter.count(plan.system))
    for section in (result.SectionType.HISTORY, *result.COLLECTED_SECTIONS):
        if plan.floors[section]:
            yield _make_section(section, composed.parts.items.get(section, ()), composed.spent.get(section, 0))


def _make_section(
    section: result.SectionType, items: Sequence[result.ContextItem], tokens: int
) -> result.ContextSection:
    return result.ContextSection(type=section, title=SECTION_TITLES[section], items=tuple(items), token_count=tokens)


_MAX_MODEL_CALLS = 3  # model calls that one build waits for


async def write_summaries(
    candidates: Sequence[Candidate], plan: ContextPlan, *, counter: TokenCounter, model: ChatModel | None, trace: Trace
) -> Mapping[str, str]:
    """Model summaries of the best long candidates, each in half of its tokens, by candidate id.

    Without a model this is a degradation, and extracts are used instead.
    """
    if plan.truncation.default_strategy is not TruncationStrategy.SUMMARIZE:
        return {}
    if model is None:
        trace.add_degradation("summarize", "no model is configured; the best sentences are shown instead")
        return {}
    written: dict[str, str] = {}
    for candidate in _long_candidates(candidates, plan, counter)[:_MAX_MODEL_CALLS]:
        limit = counter.count(candidate.text) // 2
        found = await summarize(candidate.text, counter, limit, model=model, trace=trace, query=plan.query)
        if found is not None and not found.spans:
            written[candidate.id] = found.text
    return written


def _long_candidates(candidates: Sequence[Candidate], plan: ContextPlan, counter: TokenCounter) -> list[Candidate]:
    least = 2 * plan.truncation.min_tokens
    return [candidate for candidate in rank_candidates(candidates) if counter.count(candidate.text) >= least]
