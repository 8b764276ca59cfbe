"""The builder for workspaces: find the focus, collect around it, score, redact, fit, explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from time import perf_counter
from typing import Any

import msgspec

from contexture.builders.workspace.capsule import KIND
from contexture.builders.workspace.clean import Cleaner
from contexture.builders.workspace.collectors.activity import collect_activity
from contexture.builders.workspace.collectors.focus import collect_focus, collect_included
from contexture.builders.workspace.collectors.relations import collect_relations
from contexture.builders.workspace.collectors.semantic import SemanticCollector
from contexture.builders.workspace.compose import compose
from contexture.builders.workspace.config import ContextConfig
from contexture.builders.workspace.desk import Desk, Place, place_of
from contexture.builders.workspace.dress import dressed
from contexture.builders.workspace.intent import intent_of
from contexture.builders.workspace.metrics import Metrics, NoMetrics
from contexture.builders.workspace.plan import Plan, caps_of, floors_of, total_of
from contexture.builders.workspace.render import instructions
from contexture.builders.workspace.request import ContextRequest, request_of
from contexture.builders.workspace.result import payload_of
from contexture.builders.workspace.summaries import summaries
from contexture.builders.workspace.validate import validated
from contexture.builders.workspace.values import (
    COLLECTED,
    ContextPayload,
    ContextValidationResult,
    SectionType,
    messages_of,
)
from contexture.builders.workspace.variants import counted
from contexture.capsule import Box
from contexture.errors import InvalidRequest, NotPermitted, SourceError
from contexture.ledger import State, Trace
from contexture.pipeline.collect import Source, collect
from contexture.pipeline.fence import DATA_NOTICE
from contexture.pipeline.known import KnownSecrets
from contexture.pipeline.operators import Operator, Placeholders
from contexture.pipeline.scans import RememberedScans
from contexture.ports import ChatModel, Clock, Redactor, Secrets, TokenCounter
from contexture.retrieval.search import HybridSearch
from contexture.types import Candidate, Scope
from contexture.workspace import BlockStore

_FIRST_YEAR, _LAST_YEAR = 1_000, 9_000


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    """A build half way: the plan, and the candidates before and after redaction."""

    plan: Plan
    raw: Sequence[Candidate]
    clean: Sequence[Candidate]


class WorkspaceContextBuilder:
    """Builds the context of a request from a workspace, as one user may read it.

    `search` looks into the collection `blocks`. `summarizer` writes summaries where the configuration asks for them.
    `speaker` is who asks where the call does not say so.
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
        operator: Callable[[], Operator] = Placeholders,
        summarizer: ChatModel | None = None,
        deadline: float = 10.0,
        model: str = "",
        speaker: Scope | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._metrics: Metrics = metrics or NoMetrics()
        self._store = store
        self._semantic = SemanticCollector(search)
        self._counter = token_counter
        self._redactor = RememberedScans(redactor)
        self._clock = clock
        self._known = KnownSecrets(secrets)
        self._config = config or ContextConfig()
        self._operator = operator
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
    ) -> ContextPayload:
        """The context for a request; the clock is read once, or given.

        A focus that does not exist, or that `scope` may not read, is `NotFound`. A collector that fails is a
        degradation; the others still count.
        """
        started = perf_counter()
        asked, who, trace = request_of(request), scope or self._speaker, Trace()
        _check_user(asked, who)
        moment = _counted(now or self._clock.now())
        cleaner = Cleaner(self._redactor, self._operator(), self._known.mask(), trace)
        desk = await self._desk(asked, who, moment, cleaner, trace)
        found = await self._collected(desk)
        collected = perf_counter()
        raw = await dressed(desk, found, self._counter)
        made = await self._made(desk, raw, cleaner)
        read = perf_counter()
        payload = self._payload(desk, made)
        payload.timings.update(collect=collected - started, dress=read - collected, compose=perf_counter() - read)
        self._record(payload)
        return payload

    def estimate_tokens(self, payload: ContextPayload) -> int:
        """What the model will be charged for the context: counted, not estimated, where its tokenizer is known."""
        return self._counter.count_messages(payload.messages)

    def validate(self, payload: ContextPayload) -> ContextValidationResult:
        """Whether a context keeps its promises, and what is worth knowing about it."""
        return validated(payload, self._counter)

    def _record(self, payload: ContextPayload) -> None:
        self._metrics.record(
            seconds=payload.timings,
            tokens=payload.metadata.total_tokens,
            budget=payload.budget,
            blocks={str(state): payload.ledger.count(state) for state in State},
            lost=[each.source for each in payload.degradations],
        )

    async def _desk(self, asked: ContextRequest, scope: Scope, now: datetime, cleaner: Cleaner, trace: Trace) -> Desk:
        question = cleaner.masked(asked.query)
        try:
            place = await place_of(self._store, scope, asked)
        except SourceError as failure:
            trace.degraded(SectionType.FOCUS, failure)
            place = Place()
        return Desk(
            store=self._store,
            scope=scope,
            request=asked,
            config=self._config,
            now=now,
            intent=intent_of(
                question,
                now=now,
                zone=asked.zone,
                hinted=asked.hints.prioritize_types,
                preferred=asked.user.preferences.prioritize_types,
            ),
            question=question,
            place=place,
            trace=trace,
            rules=self._redactor.rules,
        )

    async def _collected(self, desk: Desk) -> list[Candidate]:
        """What the collectors find whose sections are shown."""
        floors = floors_of(desk.request, self._config)
        asks = {
            SectionType.FOCUS: lambda: collect_focus(desk),
            SectionType.SEMANTIC: lambda: self._semantic.collect(desk),
            SectionType.RELATIONS: lambda: collect_relations(desk),
            SectionType.ACTIVITY: lambda: collect_activity(desk),
        }
        sources = {
            str(name): Source(ask=asks[name], patience=self._deadline)
            for name in COLLECTED
            if floors[name] and name in self._used(desk)
        }
        on = [name for name in COLLECTED if floors[name]]
        if desk.request.hints.include_blocks and on:
            included = Source(ask=lambda: collect_included(desk, on[0]), patience=self._deadline)
            sources = {"include": included, **sources}
        return await collect(sources, deadline=self._deadline, trace=desk.trace)

    def _used(self, desk: Desk) -> list[SectionType]:
        """The collectors that are switched on and have something to go by."""
        config = self._config.collectors
        focused = desk.place.nearest is not None
        ready = {
            SectionType.FOCUS: config.focus.enabled and focused,
            SectionType.SEMANTIC: config.semantic.enabled,
            SectionType.RELATIONS: config.relations.enabled and focused,
            SectionType.ACTIVITY: config.activity.enabled,
        }
        return [name for name in COLLECTED if ready[name]]

    async def _made(self, desk: Desk, raw: Sequence[Candidate], cleaner: Cleaner) -> _Made:
        plan = self._plan(desk, cleaner)
        clean = counted(cleaner.candidates(raw), self._counter)
        shorter = await summaries(clean, plan, counter=self._counter, model=self._summarizer, trace=desk.trace)
        return _Made(plan=replace(plan, shorter=shorter), raw=raw, clean=clean)

    def _plan(self, desk: Desk, cleaner: Cleaner) -> Plan:
        asked, config, place = desk.request, self._config, desk.place
        floors = floors_of(asked, config)
        told = instructions(asked.type, asked.user.preferences.language) if floors[SectionType.SYSTEM] else DATA_NOTICE
        failed = {lost.source for lost in desk.trace.finish(()).degradations}
        return Plan(
            query=cleaner.text(asked.query),
            kind=asked.type,
            system=told,
            total=total_of(asked, config),
            floors=floors,
            caps=caps_of(asked),
            history=cleaner.lines(asked.conversation_history),
            timestamp=desk.now.isoformat(),
            collectors=tuple(str(name) for name in self._used(desk) if floors[name] and name not in failed),
            focus={
                "block": place.block and place.block.id,
                "page": place.page and place.page.id,
                "database": place.database and place.database.id,
            },
            truncation=config.truncation,
            packer=config.packer,
            near_duplicate=config.near_duplicate,
            sharpness=config.sharpness,
        )

    def _payload(self, desk: Desk, made: _Made) -> ContextPayload:
        composed = compose(made.plan, made.clean, counter=self._counter, trace=desk.trace)
        ledger = desk.trace.finish(made.raw)
        box = Box(
            kind=KIND,
            scope=desk.scope,
            now=desk.now,
            request=msgspec.to_builtins(asdict(made.plan)),
            settings={"model": self._model},
        )
        capsule = box.shut(
            made.clean,
            ledger,
            messages_of(composed.serialized),
            said={f"history[{line.at}]" for line in made.plan.history},
        )
        return payload_of(
            made.plan, composed, considered=made.raw, ledger=ledger, capsule=capsule, counter=self._counter
        )


def _counted(now: datetime) -> datetime:
    """The clock, if days, weeks and zones can be counted from it without leaving the calendar."""
    if not _FIRST_YEAR <= now.year <= _LAST_YEAR:
        raise InvalidRequest(f"the clock says {now.isoformat()}; it must be from {_FIRST_YEAR} to {_LAST_YEAR}")
    return now


def _check_user(asked: ContextRequest, scope: Scope) -> None:
    if asked.user.id is not None and asked.user.id != scope.user:
        raise NotPermitted(f"you may not ask for user {asked.user.id!r}")
    times = asked.hints.time_range
    if times is not None and times.start is not None and times.end is not None and times.start > times.end:
        raise InvalidRequest("the time range ends before it starts")
