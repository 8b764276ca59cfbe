"""A command from what was typed to an answer: permitted, built, executed, written, checked."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Protocol

from contexture.answer.commands.ask import ask
from contexture.answer.commands.events import events
from contexture.answer.commands.graph import GraphDetails, graph_query
from contexture.answer.commands.job import Job, MemoryPlace
from contexture.answer.commands.memories import MemoryDetails
from contexture.answer.commands.plan import plan_of
from contexture.answer.commands.prices import Purse
from contexture.answer.commands.reading import Notebook, Reader
from contexture.answer.commands.recall import recall
from contexture.answer.commands.resolve import unresolved
from contexture.answer.commands.store import store
from contexture.answer.commands.suggest import suggest
from contexture.answer.commands.synthesize import synthesize
from contexture.answer.commands.values import (
    CommandAnswer,
    Details,
    Evidence,
    Findings,
    Mode,
    Section,
    Usage,
    section_without,
)
from contexture.answer.commands.write import Writer, Written
from contexture.builders.command.answers import answering
from contexture.builders.command.request import CommandRequest
from contexture.builders.command.result import CommandContext
from contexture.builders.command.words import Command
from contexture.errors import NotPermitted
from contexture.graph.store import GraphStore
from contexture.ledger import Trace
from contexture.news.store import NewsStore
from contexture.pipeline.known import KnownSecrets
from contexture.pipeline.operators import Operator, Placeholders
from contexture.ports import Index, MemoryService, Policy, Redactor
from contexture.resilience.deadline import Deadline
from contexture.types import Scope

ACTION = "command.execute"

COMMANDS: Mapping[Command, Callable[[Job], Awaitable[Findings]]] = {
    Command.ASK: ask,
    Command.EVENTS: events,
    Command.GRAPH: graph_query,
    Command.SYNTHESIZE: synthesize,
    Command.STORE: store,
    Command.RECALL: recall,
    Command.SUGGEST: suggest,
}
"""What carries each command out."""


class BuildCommand(Protocol):
    """Builds the context of a command, as `CommandContextBuilder.build_context` does."""

    async def __call__(
        self, raw_input: CommandRequest | Mapping[str, Any], /, *, scope: Scope, now: datetime | None = None
    ) -> CommandContext:
        """The context."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecuteCommand:
    """Executes slash commands over the news.

    Every statement of an answer rests on evidence that resolved when it was given. A model is asked only within the
    command's budget and time, and what it says without valid evidence is left out; without a model, or when none
    answers, the statements are sentences of the sources. `clock` measures the time that a command may take.
    """

    build: BuildCommand
    policy: Policy
    index: Index
    news: NewsStore
    graph: GraphStore
    memory: MemoryService
    redactor: Redactor
    secrets: KnownSecrets
    writer: Writer
    place: MemoryPlace = field(default_factory=MemoryPlace)
    operator: Callable[[], Operator] = Placeholders
    clock: Callable[[], float] = time.monotonic

    async def run(
        self, raw_input: CommandRequest | Mapping[str, Any], *, scope: Scope, now: datetime | None = None
    ) -> CommandAnswer:
        """The answer to a command, as `scope` may see it.

        Raises a `CommandError`, whose `to_dict` is the answer, where there is no context to execute or executing it
        fails, and `NotPermitted` where a policy says so.
        """
        started = self.clock()
        await self._permit(raw_input, scope)
        context = await self.build(raw_input, scope=scope, now=now)
        with answering(raw_input, scope, context.now):
            return await self._execute(context, scope, context.limits.timeout_s - (self.clock() - started))

    async def _execute(self, context: CommandContext, scope: Scope, seconds: float) -> CommandAnswer:
        job = self._job(context, scope, seconds)
        findings = await COMMANDS[context.command](job)
        purse = Purse(job.plan.budget_cents)
        written = None if context.command.remembers else await self.writer.write(job, findings, purse)
        lost = await unresolved(self.index, scope, job.notebook, job.trace)
        return _answer(job, context, _Outcome(findings=findings, written=written, lost=lost, purse=purse))

    async def _permit(self, raw_input: CommandRequest | Mapping[str, Any], scope: Scope) -> None:
        decision = await self.policy.decide(scope, ACTION, {"command": _typed(raw_input)})
        if not decision.allowed:
            raise NotPermitted(decision.reason or f"the policy does not allow {ACTION!r}")

    def _job(self, context: CommandContext, scope: Scope, seconds: float) -> Job:
        reader = Reader(news=self.news, redactor=self.redactor, operator=self.operator(), mask=self.secrets.mask())
        return Job(
            plan=plan_of(context),
            scope=scope,
            news=self.news,
            graph=self.graph,
            memory=self.memory,
            place=self.place,
            reader=reader,
            notebook=Notebook(),
            deadline=Deadline(max(0.0, seconds), clock=self.clock),
            trace=Trace(),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Outcome:
    """What executing a context has given."""

    findings: Findings
    written: Written | None
    lost: frozenset[int]
    purse: Purse


def _typed(raw_input: CommandRequest | Mapping[str, Any]) -> str:
    """The words that name a command, for a policy; whatever cannot be read is refused later, and better."""
    given: object = raw_input.raw_command if isinstance(raw_input, CommandRequest) else raw_input.get("raw_command")
    return " ".join(str(given).lower().split()[:2]) if isinstance(given, str) else ""


def _answer(job: Job, context: CommandContext, outcome: _Outcome) -> CommandAnswer:
    sections = tuple(section_without(each, outcome.lost) for each in _sections(outcome))
    details = outcome.findings.details.without(outcome.lost)
    evidence = tuple(each for each in job.notebook.evidence if each.number not in outcome.lost)
    written = outcome.written
    return CommandAnswer(
        command=context.command,
        question=job.reader.shown(job.plan.question),
        lang=job.plan.lang,
        mode=Mode.MODEL if written else Mode.EXTRACTIVE,
        model=written.model if written else "",
        sections=tuple(each for each in sections if each.statements),
        details=details,
        evidence=evidence,
        notes=_notes(job, outcome, sections, evidence),
        usage=Usage(cents=round(outcome.purse.spent, 6), budget_cents=job.plan.budget_cents, calls=outcome.purse.calls),
        context=_filled(context.to_dict(), details),
        degradations=(*context.degradations, *job.trace.finish(()).degradations),
    )


def _sections(outcome: _Outcome) -> tuple[Section, ...]:
    """What a model wrote stands first, and instead of sentences quoted as the answer."""
    found = outcome.findings.sections
    if outcome.written is None:
        return found
    return (outcome.written.section, *(section for section in found if section.name != "answer"))


def _notes(
    job: Job, outcome: _Outcome, sections: tuple[Section, ...], evidence: tuple[Evidence, ...]
) -> tuple[str, ...]:
    found = list(outcome.findings.notes)
    told = [statement for section in sections for statement in section.statements]
    if not told and not found:
        found.append(job.say("nothing"))
    foreign = sorted({statement.lang for statement in told} - {job.plan.lang})
    if foreign and evidence:
        found.append(job.say("quoted", {"langs": ", ".join(foreign)}))
    return tuple(found)


def _filled(context: dict[str, Any], details: Details) -> dict[str, Any]:
    """The context with what its builder left to the execution."""
    match details:
        case GraphDetails():
            graph = {
                **context["graph"],
                "entities": [asdict(each) for each in details.entities],
                "relations": [asdict(each) for each in details.relations],
            }
            return {**context, "graph": graph}
        case MemoryDetails():
            return {**context, "memory": {**context["memory"], "episodic": [asdict(each) for each in details.episodic]}}
        case _:
            return context
