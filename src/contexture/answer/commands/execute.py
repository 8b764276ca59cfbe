"""Executes slash commands: checks the policy, builds the context, runs the command and verifies the evidence."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Protocol

from contexture.answer.commands._article_sentences import ArticleReader, EvidenceRegistry
from contexture.answer.commands._sentence_ranking import CompareTexts
from contexture.answer.commands.answer import (
    AnswerMode,
    AnswerSection,
    CommandAnswer,
    CommandDetails,
    CommandUsage,
    Evidence,
    Findings,
    drop_lost_statements,
)
from contexture.answer.commands.ask import answer_question
from contexture.answer.commands.events import link_events
from contexture.answer.commands.graph import GraphDetails, query_graph
from contexture.answer.commands.job import Job, MemoryLocation, make_plan
from contexture.answer.commands.memory import (
    MEMORIES_COLLECTION,
    MemoryDetails,
    recall_memories,
    store_memories,
    suggest_memories,
)
from contexture.answer.commands.synthesize import synthesize
from contexture.answer.commands.writer import AnswerWriter, SpendingBudget, WrittenAnswer
from contexture.answer.permissions import require_permission
from contexture.builders.command.request import CommandRequest
from contexture.builders.command.result import CommandContext, CommandContextJson, command_error_boundary
from contexture.builders.command.syntax import Command
from contexture.graph.store import GraphStore
from contexture.ledger import Trace
from contexture.news.store import NewsStore
from contexture.pipeline.masking import SecretMaskCache
from contexture.pipeline.redaction import Placeholders, RedactionOperator
from contexture.ports import Index, MemoryService, Policy, Redactor
from contexture.resilience.retry import Deadline
from contexture.retrieval.citations import verify_citations
from contexture.types import Scope

POLICY_ACTION = "command.execute"

COMMAND_HANDLERS: Mapping[Command, Callable[[Job], Awaitable[Findings]]] = {
    Command.ASK: answer_question,
    Command.EVENTS: link_events,
    Command.GRAPH: query_graph,
    Command.SYNTHESIZE: synthesize,
    Command.STORE: store_memories,
    Command.RECALL: recall_memories,
    Command.SUGGEST: suggest_memories,
}
"""The function that executes each command."""


class BuildCommand(Protocol):
    """Builds the context of a command, as `CommandContextBuilder.build_context` does."""

    async def __call__(
        self, raw_input: CommandRequest | Mapping[str, Any], /, *, scope: Scope, now: datetime | None = None
    ) -> CommandContext:
        """Return the context."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecuteCommand:
    """Executes slash commands over the news.

    Every statement of an answer has evidence that resolved when the answer was created. Models are called only within
    the command's budget and time limit, and sentences of a model without valid evidence are dropped. Without a model,
    or when none answers, the statements are sentences of the sources, chosen by words and, with `compare`, by meaning.
    `clock` measures the time that a command may take.
    """

    build: BuildCommand
    policy: Policy
    index: Index
    news: NewsStore
    graph: GraphStore
    memory: MemoryService
    redactor: Redactor
    secrets: SecretMaskCache
    writer: AnswerWriter
    place: MemoryLocation = field(default_factory=MemoryLocation)
    operator: Callable[[], RedactionOperator] = Placeholders
    clock: Callable[[], float] = time.monotonic
    compare: CompareTexts | None = None

    async def run(
        self, raw_input: CommandRequest | Mapping[str, Any], *, scope: Scope, now: datetime | None = None
    ) -> CommandAnswer:
        """Return the answer to a command, as visible to `scope`.

        Raises a `CommandError`, whose `to_dict` is the response, if there is no context to execute or the execution
        fails, and `NotPermitted` if the policy denies it.
        """
        started = self.clock()
        await self._check_permitted(raw_input, scope)
        context = await self.build(raw_input, scope=scope, now=now)
        with command_error_boundary(raw_input, scope, context.now):
            return await self._execute(context, scope, context.limits.timeout_s - (self.clock() - started))

    async def _execute(self, context: CommandContext, scope: Scope, seconds: float) -> CommandAnswer:
        job = self._create_job(context, scope, seconds)
        findings = await COMMAND_HANDLERS[context.command](job)
        purse = SpendingBudget(job.plan.budget_cents)
        written = None if context.command.is_memory else await self.writer.write(job, findings, purse)
        lost = await find_unresolved_evidence(self.index, scope, job.evidence_registry, job.trace)
        return _build_answer(
            job, context, _ExecutionOutcome(findings=findings, written=written, lost=lost, purse=purse)
        )

    async def _check_permitted(self, raw_input: CommandRequest | Mapping[str, Any], scope: Scope) -> None:
        await require_permission(self.policy, scope, POLICY_ACTION, {"command": _command_words(raw_input)})

    def _create_job(self, context: CommandContext, scope: Scope, seconds: float) -> Job:
        reader = ArticleReader(
            load=self.news.get, redactor=self.redactor, operator=self.operator(), mask=self.secrets.current()
        )
        return Job(
            plan=make_plan(context),
            scope=scope,
            news=self.news,
            graph=self.graph,
            memory=self.memory,
            memory_location=self.place,
            reader=reader,
            evidence_registry=EvidenceRegistry(),
            deadline=Deadline(max(0.0, seconds), clock=self.clock),
            trace=Trace(),
            compare=self.compare,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _ExecutionOutcome:
    """What executing a command produced: findings, the model's answer, lost evidence and cost."""

    findings: Findings
    written: WrittenAnswer | None
    lost: frozenset[int]
    purse: SpendingBudget


def _command_words(raw_input: CommandRequest | Mapping[str, Any]) -> str:
    """Return the words that name a command, for the policy check.

    Input that cannot be parsed is rejected later, with a better error.
    """
    given: object = raw_input.raw_command if isinstance(raw_input, CommandRequest) else raw_input.get("raw_command")
    return " ".join(str(given).lower().split()[:2]) if isinstance(given, str) else ""


def _build_answer(job: Job, context: CommandContext, outcome: _ExecutionOutcome) -> CommandAnswer:
    sections = tuple(drop_lost_statements(each, outcome.lost) for each in _choose_sections(outcome))
    details = outcome.findings.details.without_evidence(outcome.lost)
    written = outcome.written
    evidence = tuple(each for each in job.evidence_registry.evidence if each.number not in outcome.lost)
    ledger = job.trace.finish(())
    return CommandAnswer(
        command=context.command,
        question=job.reader.redact_line(job.plan.question),
        lang=job.plan.lang,
        mode=AnswerMode.MODEL if written else AnswerMode.EXTRACTIVE,
        model=written.model if written else "",
        sections=tuple(each for each in sections if each.statements),
        details=details,
        evidence=evidence,
        notes=_collect_notes(job, outcome, sections, evidence),
        usage=CommandUsage(
            cents=round(outcome.purse.spent, 6), budget_cents=job.plan.budget_cents, calls=outcome.purse.calls
        ),
        context=_fill_context(context.json_form(), details),
        degradations=(*context.degradations, *ledger.degradations),
        ledger=ledger.entries,
    )


def _choose_sections(outcome: _ExecutionOutcome) -> tuple[AnswerSection, ...]:
    """Return the sections to show: a model's answer comes first and replaces the quoted answer section."""
    found = outcome.findings.sections
    if outcome.written is None:
        return found
    return (outcome.written.section, *(section for section in found if section.name != "answer"))


def _collect_notes(
    job: Job, outcome: _ExecutionOutcome, sections: tuple[AnswerSection, ...], evidence: tuple[Evidence, ...]
) -> tuple[str, ...]:
    found = list(outcome.findings.notes)
    told = [statement for section in sections for statement in section.statements]
    if not told and not found:
        found.append(job.localize("nothing"))
    foreign = sorted({statement.lang for statement in told} - {job.plan.lang})
    if foreign and evidence:
        found.append(job.localize("quoted", {"langs": ", ".join(foreign)}))
    return tuple(found)


def _fill_context(context: CommandContextJson, details: CommandDetails) -> CommandContextJson:
    """Return the context with the graph or memory results that its builder left to the execution, as plain objects."""
    match details:
        case GraphDetails():
            entities: Any = [asdict(each) for each in details.entities]
            relations: Any = [asdict(each) for each in details.relations]
            return {**context, "graph": {**context["graph"], "entities": entities, "relations": relations}}
        case MemoryDetails():
            episodic: Any = [asdict(each) for each in details.episodic]
            return {**context, "memory": {**context["memory"], "episodic": episodic}}
        case _:
            return context


async def find_unresolved_evidence(
    index: Index, scope: Scope, notebook: EvidenceRegistry, trace: Trace
) -> frozenset[int]:
    """Return the evidence numbers whose citations `scope` cannot verify in the store.

    Each is recorded as a degradation. Memory citations are not checked, because a memory service may store them
    elsewhere.
    """
    numbers = {
        each.citation: each.number for each in notebook.evidence if each.citation.collection != MEMORIES_COLLECTION
    }
    problems = await verify_citations(index, scope, list(numbers)) if numbers else []
    for problem in problems:
        trace.add_degradation("evidence", f"[{numbers[problem.citation]}] was left out: {problem.reason}")
    return frozenset(numbers[problem.citation] for problem in problems)
