"""The builder for chat turns: health, recall, salience, redaction, budget, summary, prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from contexture.builders.turn.capsule import KIND, asked_to_json
from contexture.builders.turn.clean import Cleaner
from contexture.builders.turn.compose import Composed, compose, line_candidate
from contexture.builders.turn.counting import CountText, counter_of
from contexture.builders.turn.history import first_read, lines_of
from contexture.builders.turn.messages import words_of
from contexture.builders.turn.metrics import Metrics, NoMetrics
from contexture.builders.turn.phases import Phases
from contexture.builders.turn.render import system_of
from contexture.builders.turn.request import Asked, Line, Turn, TurnRecipe, limit_of, scope_of, turn_of
from contexture.builders.turn.result import TurnContext, debug_of, snippet_of
from contexture.builders.turn.snippets import candidate_id, candidates_of
from contexture.builders.turn.summary import Summaries, Trim, key_of
from contexture.capsule import Box, Capsule
from contexture.conversation import HealthState, Recall, Recalled
from contexture.errors import RedactionFailed, RequestError, SourceUnavailable
from contexture.ledger import Ledger, Reason, Trace
from contexture.pipeline.collect import Source, collect
from contexture.pipeline.known import KnownSecrets
from contexture.pipeline.mask import Mask
from contexture.pipeline.operators import Operator, Placeholders
from contexture.pipeline.redact import redact
from contexture.pipeline.scans import RememberedScans
from contexture.ports import Clock, MemoryService, Redactor, Secrets, TokenCounter
from contexture.retrieval.prepare import mended
from contexture.types import Candidate, Message, Scope

MEMORY = "memory"


@dataclass(kw_only=True, slots=True)
class _Build:
    """One build while it runs."""

    turn: Turn
    scope: Scope
    limit: int
    state: HealthState
    now: datetime
    cleaner: Cleaner
    operator: Operator
    mask: Mask
    phases: Phases
    trace: Trace = field(default_factory=Trace)
    recalled: dict[str, Recalled] = field(default_factory=dict[str, Recalled])


class TurnContextBuilder:
    """Builds the prompt of one turn of a conversation.

    `health_provider` says how the memory service is doing; a recall that fails while it says NORMAL calls
    `on_degraded` with the seconds to be careful for. Whatever memory does, a turn is built within `deadline`.
    `speaker` is who asks where neither the call nor the turn says so.
    """

    def __init__(  # noqa: PLR0913 - every part it works with, by name
        self,
        *,
        memory: MemoryService,
        token_counter: TokenCounter | CountText,
        redactor: Redactor,
        clock: Clock,
        metrics: Metrics | None = None,
        health_provider: Callable[[], HealthState] = lambda: HealthState.NORMAL,
        on_degraded: Callable[[float], None] = lambda _: None,
        secrets: Secrets | None = None,
        summaries: Summaries | None = None,
        recipe: TurnRecipe | None = None,
        operator: Callable[[], Operator] = Placeholders,
        deadline: float = 10.0,
        model: str = "",
        speaker: Scope | None = None,
    ) -> None:
        self._memory = memory
        self._counter = counter_of(token_counter)
        self._redactor = RememberedScans(redactor)
        self._clock = clock
        self._metrics = metrics or NoMetrics()
        self._health = health_provider
        self._on_degraded = on_degraded
        self._known = KnownSecrets(secrets)
        self._summaries = summaries
        self._recipe = recipe or TurnRecipe()
        self._operator = operator
        self._deadline = deadline
        self._speaker = speaker or Scope.local()
        self._model = model or (self._counter.encoding if self._counter.exact else "")

    async def build_for_turn(
        self,
        turn: Turn | Mapping[str, Any],
        *,
        max_prompt_tokens: int | None = None,
        scope: Scope | None = None,
        now: datetime | None = None,
        remember: bool = True,
    ) -> TurnContext:
        """The prompt for a turn, as `scope` may see it; without one, the turn says who asks.

        The limit is `max_prompt_tokens`, else the turn's own, else the recipe's. Raises what the caller can mend,
        and `RedactionFailed` when the user's message cannot be read; whatever else fails is a degradation. The prompt
        is the same where nothing is to be remembered of what it has no room for.
        """
        build = self._begin(turn, max_prompt_tokens, scope, now)
        with build.phases("total"):
            raw = await self._recall(build)
            with build.phases("redaction"):
                asked = self._clean(build)
                clean = redact(raw, self._redactor, build.operator, build.trace)
            composed = compose(
                asked, clean, counter=self._counter, recipe=self._recipe, trace=build.trace, timed=build.phases
            )
            ledger = build.trace.finish(raw)
            capsule = self._capsule(build, asked, composed, clean, ledger)
        if remember:
            self._summarise(build, asked, composed)
        self._report(asked, composed)
        return self._result(build, asked, composed, ledger, capsule)

    def _capsule(
        self, build: _Build, asked: Asked, composed: Composed, candidates: Sequence[Candidate], ledger: Ledger
    ) -> Capsule:
        box = Box(
            kind=KIND,
            scope=build.scope,
            now=build.now,
            request={**asked_to_json(asked), **self._ids(build)},
            settings={"model": self._model, "recipe": asdict(self._recipe)},
        )
        return box.shut(candidates, ledger, composed.messages, said={f"history[{line.at}]" for line in asked.lines})

    def _ids(self, build: _Build) -> dict[str, str]:
        """What the caller calls the conversation, fit to be kept: callers make such names of whatever they have."""
        names = {"session_id": build.turn.session_id, "persona_id": build.turn.persona_id}
        return {name: build.cleaner.text(value) if value else value for name, value in names.items()}

    async def settle(self) -> None:
        """Wait until every summary is in the hands of its sink."""
        if self._summaries is not None:
            await self._summaries.settle()

    def _begin(
        self, turn: Turn | Mapping[str, Any], limit: int | None, scope: Scope | None, now: datetime | None
    ) -> _Build:
        sent = turn_of(turn)
        state, operator, mask = self._health(), self._operator(), self._known.mask()
        return _Build(
            turn=sent,
            scope=scope_of(sent, scope, self._speaker),
            limit=limit_of(limit) if limit is not None else sent.max_prompt_tokens or self._recipe.max_tokens,
            state=state,
            now=now or self._clock.now(),
            cleaner=Cleaner(self._redactor, operator, mask),
            operator=operator,
            mask=mask,
            phases=Phases(self._metrics, state.value),
        )

    async def _recall(self, build: _Build) -> list[Candidate]:
        """What memory knows, asked under the deadline; a failure is a degradation, and the state hears of it."""
        question = build.mask.mask(words_of(build.turn.user_message))
        if build.state is not HealthState.NORMAL:
            most = self._recipe.most(build.state)
            build.trace.degraded(MEMORY, f"the memory service is {build.state}: at most {most} memories are recalled")
        if not self._recipe.most(build.state) or not question.strip():
            return []
        attempt = Trace()
        source = Source(ask=lambda: self._ask(build, question), patience=self._deadline)
        with build.phases("retrieval"):
            found = await collect({MEMORY: source}, deadline=self._deadline, trace=attempt)
        for lost in attempt.finish(()).degradations:
            build.trace.degraded(lost.source, lost.reason)
            self._metrics.inc_degradation(lost.reason.partition(":")[0])
            if build.state is HealthState.NORMAL:
                self._on_degraded(self._recipe.degraded_seconds)
        return found

    async def _ask(self, build: _Build, question: str) -> Sequence[Candidate]:
        recipe = self._recipe
        query = Recall(
            query=question,
            now=build.now,
            top_k=recipe.most(build.state),
            threshold=recipe.threshold,
            session_id=build.turn.session_id,
            persona_id=build.turn.persona_id,
            namespace=recipe.namespace,
            universe=recipe.universe,
        )
        try:
            found = await self._memory.recall(build.scope, query)
        except RequestError as refusal:  # the turn's caller cannot mend what memory refuses
            raise SourceUnavailable(f"the memory service refused: {refusal}") from refusal
        with build.phases("salience"):
            candidates = candidates_of(
                found, now=build.now, rules=self._redactor.rules, lift=recipe.neighbour_lift, mask=build.mask
            )
        build.recalled.update((candidate_id(each.id), each) for each in found)
        return candidates

    def _clean(self, build: _Build) -> Asked:
        """History, then the user's message: values are numbered in the order in which later turns meet them again."""
        turn, first = build.turn, first_read(len(build.turn.history), build.limit)
        if first:
            unread = Candidate(id=f"history[0:{first}]", key="history", text="", section="history")
            build.trace.drop(unread, Reason.OVER_BUDGET, note=f"{first} messages before those that may fit")
        readable = [(at, clean) for at in range(first, len(turn.history)) if (clean := self._line(build, at))]
        lines, incomplete = lines_of(readable)
        for at in incomplete:
            message = line_candidate(at, str(turn.history[at]["role"]))
            build.trace.drop(message, Reason.INCOMPLETE, note="a tool call and its results stay together")
        return Asked(
            system=system_of(build.mask.mask(mended(turn.system_prompt))),
            user=build.cleaner.content(turn.user_message),
            limit=build.limit,
            state=build.state,
            lines=tuple(lines),
            older=first,
            names={
                "tenant_id": build.scope.tenant,
                "user_id": build.scope.user,
                "session_id": turn.session_id,
                "persona_id": turn.persona_id,
            },
        )

    def _line(self, build: _Build, at: int) -> Message | None:
        """One message of the history, cleaned; one that cannot be read is left out."""
        message = build.turn.history[at]
        try:
            return build.cleaner.message(message)
        except RedactionFailed as failure:
            build.trace.drop(line_candidate(at, str(message["role"])), Reason.REDACTION_FAILED, note=str(failure))
            build.trace.degraded("redactor", str(failure))
            return None

    def _summarise(self, build: _Build, asked: Asked, composed: Composed) -> None:
        """Hand on what was trimmed, without what earlier trims of this conversation have told already."""
        removed, kept = asked.lines[: composed.start], asked.lines[composed.start :]
        if self._summaries is None or not removed:
            return
        upto = kept[0].at if kept else len(build.turn.history)
        told = self._summaries.told(build.scope, build.turn)
        trim = Trim(
            removed=tuple(line.message for line in removed if line.at >= told or told > upto),
            upto=upto,
            key=key_of(build.scope, build.turn, upto),
            trimmed_from=len(build.turn.history),
            trimmed_to=len(kept),
            now=build.now,
            session_id=build.turn.session_id,
            persona_id=build.turn.persona_id,
        )
        if self._summaries.hand_on(build.scope, trim):
            self._metrics.inc_snippets(stage="summary", count=1)

    def _report(self, asked: Asked, composed: Composed) -> None:
        self._metrics.record_tokens(
            before_budget=composed.unlimited,
            after_budget=composed.tokens,
            after_redaction=composed.unlimited,  # nothing is counted before it is redacted
            prompt_tokens=composed.tokens,
        )
        self._metrics.record_use(snippets=len(composed.shown), utilization=composed.tokens / asked.limit)
        self._metrics.inc_prompt()
        self._metrics.inc_snippets(stage="final", count=len(composed.shown))

    def _result(self, build: _Build, asked: Asked, composed: Composed, ledger: Ledger, capsule: Capsule) -> TurnContext:
        lines: Sequence[Line] = asked.lines[composed.start :]
        snippets = tuple(
            snippet_of(build.recalled[candidate.id], candidate, form, build.cleaner)
            for candidate, form in composed.shown
        )
        return TurnContext(
            build_id=f"ctx-{capsule.seal[:12]}",
            system_prompt=asked.system,
            messages=composed.messages,
            tokens=composed.tokens,
            token_counts=composed.token_counts,
            debug=debug_of(asked, composed, snippets, len(lines)),
            snippets=snippets,
            history=tuple(line.message for line in lines),
            encoding=self._counter.encoding,
            exact=self._counter.exact,
            ledger=ledger,
            capsule=capsule,
            timings=build.phases.seconds,
        )
