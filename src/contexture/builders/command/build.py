"""The builder for slash commands: parse, fill in, retrieve, clean, compose, check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from time import perf_counter
from typing import Any

from msgspec.structs import replace as changed

from contexture.builders.command.answers import Answers, answering
from contexture.builders.command.capsule import KIND
from contexture.builders.command.clean import Cleaner, facts_of
from contexture.builders.command.compose import Composed, Plan, compose
from contexture.builders.command.experiments import Arm, Experiments, assigned
from contexture.builders.command.grammar import parse
from contexture.builders.command.ladder import ARTICLES, ENOUGH, LADDER, Climb, Finder, Retrieved, Search, first_search
from contexture.builders.command.params import (
    Limits,
    Params,
    graph_plan,
    limits_of,
    memory_plan,
    params_of,
    search_text,
)
from contexture.builders.command.parsed import ParsedCommand
from contexture.builders.command.request import AbTest, CommandRequest, request_of
from contexture.builders.command.result import CommandContext, Retrieval, params_object
from contexture.builders.command.routing import ROUTING, Routing, models_for
from contexture.builders.command.validate import check
from contexture.builders.command.words import Command
from contexture.capsule import Box, Capsule
from contexture.ledger import Ledger, Trace
from contexture.news.newest import RECENCY
from contexture.pipeline.known import KnownSecrets
from contexture.pipeline.operators import Operator, Placeholders
from contexture.ports import Clock, Redactor, Secrets, TokenCounter
from contexture.resilience.deadline import Deadline
from contexture.retrieval.search import COSINE, LEXICAL
from contexture.types import Candidate, Scope

_MORE = 2  # documents looked at beyond those asked for, so that the ledger can say what was close
_POOL = 20  # and where an arm weighs them anew


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """A command as it was understood, with every default filled in; not yet redacted."""

    request: CommandRequest
    parsed: ParsedCommand
    params: Params
    limits: Limits
    ab_test: AbTest
    arm: Arm
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Made:
    """What a build has made of the documents that were found."""

    params: Params
    composed: Composed
    ledger: Ledger
    capsule: Capsule


class CommandContextBuilder:
    """Builds what executing a slash command over the news takes.

    `models` says which models a command is for, `experiments` what their arms change. `speaker` is who asks where
    the call does not say so.
    """

    def __init__(  # noqa: PLR0913 - every part it works with, by name
        self,
        *,
        news: Finder,
        token_counter: TokenCounter,
        redactor: Redactor,
        clock: Clock,
        secrets: Secrets | None = None,
        models: Routing = ROUTING,
        experiments: Experiments | None = None,
        operator: Callable[[], Operator] = Placeholders,
        model: str = "",
        speaker: Scope | None = None,
    ) -> None:
        self._news = news
        self._counter = token_counter
        self._redactor = redactor
        self._clock = clock
        self._known = KnownSecrets(secrets)
        self._models = models
        self._experiments = experiments or {}
        self._operator = operator
        self._model = model or token_counter.encoding
        self._speaker = speaker or Scope.local()

    async def build_context(
        self, raw_input: CommandRequest | Mapping[str, Any], *, scope: Scope | None = None, now: datetime | None = None
    ) -> CommandContext:
        """The context of a command, as `scope` may see it; the clock is read once, or given.

        Raises a `CommandError`, whose `to_dict` is the answer: what the caller can mend, `NothingFound` after every
        step of recovery that its flags allow, or what failed.
        """
        moment, who = now or self._clock.now(), scope or self._speaker
        with answering(raw_input, who, moment) as answer:
            return await self._build(request_of(raw_input), who, moment, answer)

    async def _build(self, request: CommandRequest, scope: Scope, now: datetime, answer: Answers) -> CommandContext:
        started = perf_counter()
        mask, trace = self._known.mask(), Trace()
        asked = self._understood(request, scope, tuple(mask.mask(part) for part in request.line))
        retrieved = await self._retrieve(asked, scope, now, trace)
        searched = perf_counter()
        cleaner = Cleaner(self._redactor, self._operator(), mask, trace)
        made = self._make(asked, retrieved, scope, now, cleaner, trace)
        if not made.composed.documents and not asked.parsed.command.remembers:
            raise answer.nothing(retrieved.steps)
        built = self._context(asked, retrieved, made, {"retrieve": searched - started})
        check(built.to_dict(), strict_k=request.flags.strict_k)
        built.timings["compose"] = perf_counter() - searched
        return built

    def _understood(self, request: CommandRequest, scope: Scope, line: tuple[str, ...]) -> _Asked:
        parsed = parse(*line)
        ab_test, arm = assigned(request.ab_test or AbTest(), self._experiments, scope)
        return _Asked(
            request=request,
            parsed=parsed,
            params=params_of(parsed, request, arm),
            limits=limits_of(request),
            ab_test=ab_test,
            arm=arm,
            text=search_text(parsed),
        )

    async def _retrieve(self, asked: _Asked, scope: Scope, now: datetime, trace: Trace) -> Retrieved:
        """What is found inside the command's time; memory commands take what there is, and storing takes nothing."""
        search = first_search(asked.params, more=_MORE if asked.arm.lexical is None else _POOL)
        if asked.parsed.command is Command.STORE:
            return Retrieved(found=(), search=search, steps=())
        deadline = Deadline(asked.limits.timeout_s)
        climb = Climb(self._news, search, scope=scope, text=asked.text, now=now, deadline=deadline, trace=trace)
        ladder = () if asked.parsed.command.remembers else LADDER
        return await climb.retrieve(flags=asked.request.flags, ladder=ladder)

    def _make(
        self, asked: _Asked, retrieved: Retrieved, scope: Scope, now: datetime, cleaner: Cleaner, trace: Trace
    ) -> _Made:
        params = cleaner.params(asked.params)
        raw = [
            cleaner.masked(_weighed(candidate, asked.arm))
            for _, found in retrieved.found
            for candidate in found.candidates
        ]
        clean = cleaner.passages(raw)
        plan = Plan(
            text=cleaner.text(asked.text),
            lang=params.lang,
            k=retrieved.search.k,
            max_tokens=asked.limits.max_tokens,
            articles=tuple(facts_of(number, found, now) for number, found in retrieved.found),
        )
        composed = compose(plan, clean, counter=self._counter, trace=trace)
        addresses = {found.article.article_id: found.article.url for _, found in retrieved.found}
        documents = tuple(replace(each, url=cleaner.address(addresses[each.article_id])) for each in composed.documents)
        _record(retrieved, composed, trace, needed=not asked.parsed.command.remembers)
        ledger = trace.finish(raw)
        said = {"command": asked.parsed.command.value, "params": params_object(params)}
        box = Box(
            kind=KIND,
            scope=scope,
            now=now,
            request={**said, "plan": asdict(plan)},
            settings={"model": self._model},
        )
        capsule = box.shut(clean, ledger, composed.messages)
        return _Made(params=params, composed=replace(composed, documents=documents), ledger=ledger, capsule=capsule)

    def _context(self, asked: _Asked, retrieved: Retrieved, made: _Made, timings: dict[str, float]) -> CommandContext:
        search, command = retrieved.search, asked.parsed.command
        return CommandContext(
            command=command,
            params=made.params,
            retrieval=_retrieval(search, made),
            graph=graph_plan(asked.parsed),
            memory=memory_plan(command, made.params),
            models=models_for(command, self._models),
            limits=asked.limits,
            version=asked.request.version,
            ab_test=asked.ab_test,
            recovery=retrieved.steps,
            messages=made.composed.messages,
            tokens=made.composed.tokens,
            ledger=made.ledger,
            capsule=made.capsule,
            now=made.capsule.now,
            asked=asked.parsed,
            timings=timings,
        )


def _retrieval(search: Search, made: _Made) -> Retrieval:
    """How the documents were found; sources are those of the parameters, redacted, or none once they were dropped."""
    named = (*(made.params.sources or ()), *(made.params.domains or ()))
    return Retrieval(
        docs=made.composed.documents,
        window=search.window,
        lang=search.langs[0] if search.langs else "auto",
        sources=tuple(dict.fromkeys(named)) or None if search.sources else None,
        rerank_enabled=search.rerank,
    )


def _weighed(candidate: Candidate, arm: Arm) -> Candidate:
    """The passage with the score that an arm gives it; where only age counts there is nothing to weigh."""
    if arm.lexical is None or RECENCY in candidate.signals:
        return candidate
    words, meaning = candidate.signals.get(LEXICAL, 0.0), candidate.signals.get(COSINE, 0.0)
    return changed(candidate, score=max(0.0, arm.lexical * words + (1 - arm.lexical) * meaning))


def _record(retrieved: Retrieved, composed: Composed, trace: Trace, *, needed: bool) -> None:
    """Name what the documents cost in precision, and that there are few."""
    for step in retrieved.steps:
        if step.found:
            trace.degraded("recovery", step.done)
    count = len(composed.documents)
    if needed and count < ENOUGH:
        trace.degraded(ARTICLES, f"only {count} of at least {ENOUGH} documents were found")
