"""The turn builder: recall memories, redact, compose within the token limit, submit a summary of trimmed history."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from contexture.builders._tokens import CountText, as_token_counter
from contexture.builders.clean import Cleaner, CleanerFactory
from contexture.builders.sources import SourceFinder, SourceKind, SourcePorts, SourceQuestion
from contexture.builders.telemetry import NoTurnTelemetry, Stopwatch, TurnTelemetry, turn_timers
from contexture.builders.turn import request
from contexture.builders.turn._history import clean_content, clean_message, count_unread, drop_incomplete_calls
from contexture.builders.turn.compose import (
    SOURCE_MATERIAL,
    ComposedTurn,
    compose_turn,
    message_candidate,
    render_system,
)
from contexture.builders.turn.result import TurnContext, make_debug, make_snippet
from contexture.builders.turn.summary import HistorySummarizer, TrimmedHistory, trim_key
from contexture.capsule import Capsule, make_capsule
from contexture.conversation import HealthState, Recall, Recalled
from contexture.errors import RedactionFailed, RequestError, SourceUnavailable
from contexture.ledger import Ledger, Reason, Trace
from contexture.memory.candidates import SNIPPETS_SECTION, make_candidates, memory_candidate_id
from contexture.pipeline.candidates import CandidateSource, collect_candidates
from contexture.pipeline.fence import make_fence
from contexture.pipeline.masking import SecretMaskCache
from contexture.pipeline.redaction import Placeholders, RedactionOperator, RememberedScans, restorer
from contexture.pipeline.scoring import RELEVANCE, recency, salience
from contexture.ports import Clock, MemoryService, Redactor, Secrets, TokenCounter
from contexture.text.questions import asks_about_self, asks_for_several, complete_follow_up
from contexture.text.statements import MessageIntent, detect_intent
from contexture.types import Candidate, Message, Scope

MEMORY_SOURCE = "memory"
_MATERIAL_KINDS = tuple(kind for kind in SourceKind if kind is not SourceKind.MEMORIES)
_FIRST_PERSON = re.compile(
    r"\b(?:i|me|my|mine|myself|я|меня|мне|мной|мой|моя|мо[её]|мои|моего|моей|моему|моих|моим|мою)\b"
)
_ASKS_FOR_HELP = re.compile(
    r"\bhow (?:can|could|do|should|would|must) i\b(?! (?:like|feel|know|look)\b)"
    r"|\b(?:where|when) (?:can|could|should|must) i\b"
    r"|^(?:can|could|may|should|must) i\b|\bhow to\b|\bкак (?:мне|я могу)\b|\b(?:могу|можно) ли (?:я|мне)\b"
)
"""Questions in the first person about how something is done, which documents answer: `How do I export my graph?`."""


@dataclass(kw_only=True, slots=True)
class _TurnBuild:
    """State of one running build."""

    turn: request.Turn
    scope: Scope
    limit: int
    state: HealthState
    now: datetime
    cleaner: Cleaner
    trace: Trace
    watch: Stopwatch
    recalled: dict[str, Recalled] = field(default_factory=dict[str, Recalled])


class TurnContextBuilder:
    """Builds the prompt of one turn of a conversation.

    `health_provider` returns the health state of the memory service; a recall that fails in state NORMAL calls
    `on_degraded` with the seconds to treat the service as degraded. A failure of one of these two functions is a
    degradation. `deadline` limits the seconds a turn waits for memory, however the service behaves. `speaker` is the
    scope when neither the call nor the turn names one. `sources` are what `with_sources` searches besides memory.
    """

    def __init__(  # noqa: PLR0913 - every part it works with, by name
        self,
        *,
        memory: MemoryService,
        token_counter: TokenCounter | CountText,
        redactor: Redactor,
        clock: Clock,
        metrics: TurnTelemetry | None = None,
        health_provider: Callable[[], HealthState] = lambda: HealthState.NORMAL,
        on_degraded: Callable[[float], None] = lambda _: None,
        secrets: Secrets | None = None,
        summaries: HistorySummarizer | None = None,
        recipe: request.TurnRecipe | None = None,
        operator: Callable[[], RedactionOperator] = Placeholders,
        deadline: float = 10.0,
        model: str = "",
        speaker: Scope | None = None,
        sources: SourcePorts | None = None,
    ) -> None:
        self._memory = memory
        self._sources = SourceFinder(sources, deadline=deadline) if sources is not None else None
        self._counter = as_token_counter(token_counter)
        self._fence = make_fence(self._counter)
        self._cleaners = CleanerFactory(
            redactor=RememberedScans(redactor), secrets=SecretMaskCache(secrets), operator=operator
        )
        self._clock = clock
        self._metrics = metrics or NoTurnTelemetry()
        self._health = health_provider
        self._on_degraded = on_degraded
        self._summaries = summaries
        self._recipe = recipe or request.TurnRecipe()
        self._deadline = deadline
        self._speaker = speaker or Scope.local()
        self._model = model or (self._counter.encoding if self._counter.exact else "")

    async def build_for_turn(
        self,
        turn: request.Turn | Mapping[str, Any],
        *,
        max_prompt_tokens: int | None = None,
        scope: Scope | None = None,
        now: datetime | None = None,
        remember: bool = True,
        with_sources: bool = False,
    ) -> TurnContext:
        """The prompt for a turn, as `scope` may read it; without one, the scope that the turn names.

        The limit is `max_prompt_tokens`, else the turn's own, else the recipe's. Raises a `RequestError` that the
        caller can fix, and `RedactionFailed` when the user's message cannot be redacted; any other failure is a
        degradation. `remember=False` submits no summary of trimmed history; the prompt is the same. `with_sources` adds
        what answers the message in records, documents, news and the workspace.
        """
        build = self._start_build(turn, max_prompt_tokens, scope, now)
        with build.watch.phase("total"):
            recalled, material = await asyncio.gather(
                self._collect_memories(build), self._find_material(build) if with_sources else _find_nothing()
            )
            raw = [*recalled, *material]
            with build.watch.phase("redaction"):
                asked = self._redact_turn(build)
                clean = build.cleaner.clean_candidates(raw)
            composed = compose_turn(
                asked, clean, counter=self._counter, recipe=self._recipe, trace=build.trace, timed=build.watch.phase
            )
            ledger = build.trace.finish(raw)
            capsule = self._make_capsule(build, asked, composed, clean, ledger)
        if remember:
            self._submit_summary(build, asked, composed)
        self._record_metrics(asked, composed, self._count_redacted(build.turn, asked, raw, clean))
        return self._make_result(build, asked, composed, ledger, capsule)

    def _make_capsule(
        self,
        build: _TurnBuild,
        asked: request.RedactedTurn,
        composed: ComposedTurn,
        candidates: Sequence[Candidate],
        ledger: Ledger,
    ) -> Capsule:
        return make_capsule(
            request.CAPSULE_KIND,
            scope=build.scope,
            now=build.now,
            request={**request.redacted_turn_to_json(asked), **self._redact_ids(build)},
            settings={"model": self._model, "encoding": self._counter.encoding, "recipe": asdict(self._recipe)},
            candidates=candidates,
            ledger=ledger,
            messages=composed.messages,
            in_request={f"history[{line.at}]" for line in asked.lines},
        )

    def _redact_ids(self, build: _TurnBuild) -> dict[str, str]:
        """Session and persona ids, redacted, for the capsule."""
        names = {"session_id": build.turn.session_id, "persona_id": build.turn.persona_id}
        return {name: build.cleaner.clean_text(value) if value else value for name, value in names.items()}

    async def settle(self) -> None:
        """Wait until every submitted summary is stored in its sink or has failed."""
        if self._summaries is not None:
            await self._summaries.settle()

    def _start_build(
        self, turn: request.Turn | Mapping[str, Any], limit: int | None, scope: Scope | None, now: datetime | None
    ) -> _TurnBuild:
        sent, trace = request.parse_turn(turn), Trace()
        state = self._read_health(trace)
        return _TurnBuild(
            turn=sent,
            scope=request.resolve_scope(sent, scope, self._speaker),
            limit=request.check_limit(limit)
            if limit is not None
            else sent.max_prompt_tokens or self._recipe.max_tokens,
            state=state,
            now=now or self._clock.now(),
            cleaner=self._cleaners.make(trace),
            trace=trace,
            watch=Stopwatch(turn_timers(self._metrics, state.value)),
        )

    def _read_health(self, trace: Trace) -> HealthState:
        """The state of the memory service; degraded when the caller's function fails, which is a degradation."""
        try:
            return self._health()
        except Exception as failure:  # noqa: BLE001 - an edge: a function of the caller may raise anything
            trace.add_degradation(MEMORY_SOURCE, f"`health_provider` failed: {type(failure).__name__}: {failure}")
            return HealthState.DEGRADED

    def _report_degraded(self, trace: Trace) -> None:
        try:
            self._on_degraded(self._recipe.degraded_seconds)
        except Exception as failure:  # noqa: BLE001 - an edge: a function of the caller may raise anything
            trace.add_degradation(MEMORY_SOURCE, f"`on_degraded` failed: {type(failure).__name__}: {failure}")

    async def _collect_memories(self, build: _TurnBuild) -> list[Candidate]:
        """Recall memories under the deadline; a failure is a degradation and is reported to `on_degraded`."""
        question = build.cleaner.mask_text(request.plain_text(build.turn.user_message))
        if build.state is not HealthState.NORMAL:
            most = self._recipe.max_memories(build.state)
            build.trace.add_degradation(
                MEMORY_SOURCE,
                f"the memory service is {build.state}: at most {most} memories are recalled",
            )
        if not self._recipe.max_memories(build.state) or not question.strip():
            return []
        attempt = Trace()
        source = CandidateSource(ask=lambda: self._recall_candidates(build, question), timeout_seconds=self._deadline)
        with build.watch.phase("retrieval"):
            found = await collect_candidates({MEMORY_SOURCE: source}, deadline=self._deadline, trace=attempt)
        for lost in attempt.finish(()).degradations:
            build.trace.add_degradation(lost.source, lost.reason)
            self._metrics.inc_degradation(lost.reason.partition(":")[0])
            if build.state is HealthState.NORMAL:
                self._report_degraded(build.trace)
        return found

    async def _find_material(self, build: _TurnBuild) -> list[Candidate]:
        """What answers a question or an order in the other kinds of sources; a kind that fails is a degradation."""
        message = request.plain_text(build.turn.user_message)
        if self._sources is None or detect_intent(message) not in (MessageIntent.QUESTION, MessageIntent.COMMAND):
            return []
        asked = [request.plain_text(each.get("content")) for each in build.turn.history if each.get("role") == "user"]
        cleaner = build.cleaner
        question = cleaner.mask_text(message)
        # What "I" like is in memory; a document that has the word is about something else.
        asked_for = question.casefold()
        personal = _FIRST_PERSON.search(asked_for) and not _ASKS_FOR_HELP.search(asked_for)
        kinds = (SourceKind.WORKSPACE,) if personal else _MATERIAL_KINDS
        completed = complete_follow_up(question, [cleaner.mask_text(each) for each in asked])
        searches = [  # a short question may also begin another subject
            SourceQuestion(text=text, scope=build.scope, now=build.now, kinds=kinds)
            for text in dict.fromkeys((question, completed))
        ]
        best: dict[str, Candidate] = {}
        for found in await asyncio.gather(*(self._sources.find(each, cleaner) for each in searches)):
            for each in found:
                best[each.id] = max(each, best.get(each.id, each), key=lambda known: known.score)
        material = [_to_material(each, build.now) for each in best.values()]
        build.recalled.update((each.id, _describe_material(each)) for each in material)
        return material

    async def _recall_candidates(self, build: _TurnBuild, question: str) -> Sequence[Candidate]:
        recipe = self._recipe
        query = Recall(
            query=question,
            now=build.now,
            top_k=recipe.max_memories(build.state),
            threshold=0.0 if recipe.corrections and asks_about_self(question) else recipe.threshold,
            session_id=build.turn.session_id,
            persona_id=build.turn.persona_id,
            namespace=recipe.namespace,
            universe=recipe.universe,
            neighbours=recipe.neighbours if build.state is HealthState.NORMAL else 0,
            unclipped=True,
        )
        try:
            found = await self._memory.recall(build.scope, query)
        except RequestError as refusal:  # the caller of the turn cannot fix a request that memory rejects
            raise SourceUnavailable(f"the memory service refused: {refusal}") from refusal
        with build.watch.phase("salience"):
            cleaner = build.cleaner
            candidates = make_candidates(
                found,
                now=build.now,
                rules=cleaner.redactor.rules,
                mask=cleaner.mask,
                dated=recipe.speaker_labels,
                lift=recipe.neighbour_lift,
                spread=recipe.session_spread if asks_for_several(question) else 0.0,
            )
        build.recalled.update((memory_candidate_id(each.id), each) for each in found)
        return candidates

    def _redact_turn(self, build: _TurnBuild) -> request.RedactedTurn:
        """Redact history, then the user message.

        In this order later turns number the same values with the same placeholders.
        """
        turn, first = build.turn, count_unread(len(build.turn.history), build.limit)
        if first:
            unread = Candidate(id=f"history[0:{first}]", key="history", text="", section="history")
            build.trace.drop(unread, Reason.OVER_BUDGET, note=f"{first} messages before those that may fit")
        readable = [(at, clean) for at in range(first, len(turn.history)) if (clean := self._redact_message(build, at))]
        lines, incomplete = drop_incomplete_calls(readable)
        for at in incomplete:
            message = message_candidate(at, str(turn.history[at]["role"]))
            build.trace.drop(message, Reason.INCOMPLETE, note="a tool call and its results stay together")
        return request.RedactedTurn(
            system=render_system(self._fence.inline(build.cleaner.mask_text(turn.system_prompt))),
            user=clean_content(build.cleaner, turn.user_message, self._fence),
            limit=build.limit,
            state=build.state,
            lines=tuple(lines),
            older=first,
            continuation=tuple(clean_message(build.cleaner, each, self._fence) for each in turn.continuation),
            names={
                "tenant_id": build.scope.tenant,
                "user_id": build.scope.user,
                "session_id": turn.session_id,
                "persona_id": turn.persona_id,
            },
        )

    def _redact_message(self, build: _TurnBuild, at: int) -> Message | None:
        """One redacted message of the history; None when it cannot be redacted, which is recorded as a drop."""
        message = build.turn.history[at]
        try:
            return clean_message(build.cleaner, message, self._fence)
        except RedactionFailed as failure:
            build.trace.drop(message_candidate(at, str(message["role"])), Reason.REDACTION_FAILED, note=str(failure))
            build.trace.add_degradation("redactor", str(failure))
            return None

    def _submit_summary(self, build: _TurnBuild, asked: request.RedactedTurn, composed: ComposedTurn) -> None:
        """Submit the trimmed messages for summary, except those that an earlier summary covers."""
        removed, kept = asked.lines[: composed.start], asked.lines[composed.start :]
        if self._summaries is None or not removed:
            return
        upto = kept[0].at if kept else len(build.turn.history)
        summarized = self._summaries.count_summarized(build.scope, build.turn)
        trim = TrimmedHistory(
            removed=tuple(line.message for line in removed if line.at >= summarized or summarized > upto),
            upto=upto,
            key=trim_key(build.scope, build.turn, upto),
            trimmed_from=len(build.turn.history),
            trimmed_to=len(kept),
            now=build.now,
            session_id=build.turn.session_id,
            persona_id=build.turn.persona_id,
        )
        if self._summaries.submit(build.scope, trim):
            self._metrics.inc_snippets(stage="summary", count=1)

    def _count_redacted(
        self,
        turn: request.Turn,
        asked: request.RedactedTurn,
        raw: Sequence[Candidate],
        clean: Sequence[Candidate],
    ) -> int:
        """The tokens by which redaction shortened the texts; negative if its placeholders are longer."""
        shown = {candidate.id: candidate.text for candidate in clean}
        said = ((turn.history[line.at].get("content"), line.message.get("content")) for line in asked.lines)
        pairs = [
            *((candidate.text, shown[candidate.id]) for candidate in raw if candidate.id in shown),
            *((request.plain_text(before), request.plain_text(after)) for before, after in said),
            (request.plain_text(turn.user_message), request.plain_text(asked.user)),
        ]
        return sum(
            self._counter.count(before) - self._counter.count(after) for before, after in pairs if before != after
        )

    def _record_metrics(self, asked: request.RedactedTurn, composed: ComposedTurn, redacted: int) -> None:
        self._metrics.record_tokens(
            before_budget=composed.unlimited + redacted,
            after_budget=composed.tokens,
            after_redaction=composed.unlimited,
            prompt_tokens=composed.tokens,
        )
        self._metrics.record_use(snippets=len(composed.shown), utilization=composed.tokens / asked.limit)
        self._metrics.inc_prompt()
        self._metrics.inc_snippets(stage="final", count=len(composed.shown))

    def _make_result(
        self, build: _TurnBuild, asked: request.RedactedTurn, composed: ComposedTurn, ledger: Ledger, capsule: Capsule
    ) -> TurnContext:
        lines: Sequence[request.HistoryLine] = asked.lines[composed.start :]
        snippets = tuple(
            make_snippet(build.recalled[candidate.id], candidate, form, build.cleaner)
            for candidate, form in composed.shown
        )
        return TurnContext(
            build_id=capsule.build_id,
            system_prompt=asked.system,
            messages=composed.messages,
            tokens=composed.tokens,
            token_counts=composed.token_counts,
            debug=make_debug(asked, composed, snippets, len(lines)),
            snippets=snippets,
            history=tuple(line.message for line in lines),
            encoding=self._counter.encoding,
            exact=self._counter.exact,
            ledger=ledger,
            capsule=capsule,
            timings=build.watch.seconds,
            restore=restorer(build.cleaner.operator),
        )


async def _find_nothing() -> list[Candidate]:
    return []


def _to_material(candidate: Candidate, now: datetime) -> Candidate:
    """A candidate of another kind of source among the memories of a turn, scored as they are."""
    fresh = recency(candidate.time, now)
    signals = {**candidate.signals, RELEVANCE: candidate.score, "recency": fresh, SOURCE_MATERIAL: 1.0}
    return replace(
        candidate,
        section=SNIPPETS_SECTION,
        label=candidate.label or candidate.title,
        score=salience(candidate.score, fresh),
        signals=signals,
    )


def _describe_material(candidate: Candidate) -> Recalled:
    return Recalled(id=candidate.record_id, text=candidate.text, score=candidate.signals[RELEVANCE])
