"""Executes slash commands: checks the policy, builds the context, runs the command and verifies the evidence."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from contexture.answer.commands import answer
from contexture.answer.commands._article_sentences import (
    ArticleMatch,
    ArticleReader,
    ArticleSentence,
    EvidenceRegistry,
    ReadArticle,
    make_match,
)
from contexture.answer.commands._sentence_ranking import (
    CompareTexts,
    SentenceRanker,
    covers_question,
    list_leads,
    split_question,
)
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
from contexture.news.articles import FoundArticle, asks_for_latest
from contexture.news.store import NewsStore
from contexture.pipeline.masking import SecretMaskCache
from contexture.pipeline.redaction import Placeholders, RedactionOperator
from contexture.ports import Index, MemoryService, Policy, Redactor
from contexture.resilience import Deadline
from contexture.retrieval.citations import verify_citations
from contexture.retrieval.search import SEMANTIC
from contexture.types import Scope

MAX_ROUNDS = 3

_SENTENCES_OF_ONE_PART = 4
_SENTENCES_PER_PART = 3  # of a question with several parts
_ARTICLES_PER_PART = 5  # articles to search for, per part
_MIN_SIMILARITY = 0.8  # calibrated similarity at which an article answers without sharing words
_MIN_SIMILARITY_OTHER_LANGUAGE = 0.5  # the same for an article in another language


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionPart:
    """One part of the question, whether it is covered, and by which evidence."""

    text: str
    covered: bool
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchRound:
    """The queries of one search round, and the ids of the new articles."""

    number: int
    queries: tuple[str, ...]
    articles: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AskDetails:
    """The parts of the question and the search rounds."""

    parts: tuple[QuestionPart, ...]
    rounds: tuple[SearchRound, ...]

    def without_evidence(self, lost: frozenset[int]) -> AskDetails:
        """The details without lost evidence; a part that loses all of it is uncovered."""
        left = (replace(part, evidence=tuple(n for n in part.evidence if n not in lost)) for part in self.parts)
        return replace(self, parts=tuple(replace(part, covered=part.covered and bool(part.evidence)) for part in left))


@dataclass(slots=True)
class _SearchState:
    """Articles read so far, rounds made, the sentences chosen for each part, and parts with a similar article."""

    ranker: SentenceRanker
    most: int
    readings: list[ReadArticle]
    rounds: list[SearchRound]
    chosen: dict[str, list[ArticleSentence]] = field(default_factory=dict[str, list[ArticleSentence]])
    semantically_covered: set[str] = field(default_factory=set[str])

    async def choose(self, parts: Sequence[str]) -> None:
        """Choose the best sentences for these parts; one that asks for any news gets the lead of each article.

        A part keeps what was chosen for it in an earlier round when further articles offer nothing.
        """
        for part in parts:
            if asks_for_latest(part):
                self.chosen[part] = list_leads(self.readings)
            else:
                found = await self.ranker.select(self.readings, part, self.most)
                self.chosen[part] = found or self.chosen.get(part, [])

    def is_covered(self, part: str, *, titled: bool = False) -> bool:
        """Whether a part is answered, by shared words or, across languages, by semantic similarity.

        The words of titles count only if `titled`: they do not make a further search needless.
        """
        found = self.chosen[part]
        return bool(found) and (part in self.semantically_covered or covers_question(found, part, titled=titled))


async def answer_question(job: Job) -> answer.Findings:
    """Return the sentences that answer each part of the question, and the parts without an answer."""
    parts = split_question(job.plan.question)
    search = await _search_parts(job, parts)
    quoted = {part: [job.quote(sentence) for sentence in search.chosen[part]] for part in parts}
    answered = tuple(
        QuestionPart(
            text=job.reader.redact_line(part),
            covered=search.is_covered(part, titled=True),
            evidence=tuple(number for statement in quoted[part] for number in statement.evidence),
        )
        for part in parts
    )
    unique = {statement.evidence: statement for part in parts for statement in quoted[part]}
    return answer.Findings(
        sections=(job.make_section("answer", list(unique.values())),),
        details=AskDetails(parts=answered, rounds=tuple(search.rounds)),
        notes=tuple(job.explain_missing("uncovered", {"part": part.text}) for part in answered if not part.covered),
        readings=tuple(search.readings),
    )


async def _search_parts(job: Job, parts: Sequence[str]) -> _SearchState:
    """Read the articles of the context, and those found by further rounds for uncovered parts."""
    plan = job.plan
    first = SearchRound(number=1, queries=(job.reader.redact_line(plan.question),), articles=plan.articles)
    most = _SENTENCES_OF_ONE_PART if len(parts) == 1 else _SENTENCES_PER_PART
    search = _SearchState(job.ranker, most, await job.read_documents(), [first])
    await search.choose(parts)
    while len(search.rounds) < MAX_ROUNDS:
        left = [part for part in parts if not search.is_covered(part)]
        if not left or not job.has_time_left(f"round {len(search.rounds) + 1}"):
            break
        if await _run_round(job, search, left):
            await search.choose(left)
    return search


async def _run_round(job: Job, search: _SearchState, parts: Sequence[str]) -> bool:
    """Run one more round: each uncovered part alone, then together with the subject of the best article.

    Returns whether it found articles that were not read before.
    """
    number = len(search.rounds) + 1
    queries = {part: _build_query(job, search, part, number) for part in parts}
    new: dict[str, ArticleMatch] = {}
    known = {reading.source.article_id for reading in search.readings}
    for part, query in queries.items():
        found = await job.find_articles(query, _ARTICLES_PER_PART)
        new |= {
            each.article.article_id: make_match(each.article.article_id, each.score, each.candidates)
            for each in found
            if known.isdisjoint(_article_ids(each))
        }
        if any(_is_semantic_match(each, job.plan.lang) for each in found):
            search.semantically_covered.add(part)
    search.readings += await job.reader.read_matches(job.scope, list(new.values()), job.trace)
    search.rounds.append(
        SearchRound(number=number, queries=tuple(map(job.reader.redact_line, queries.values())), articles=tuple(new))
    )
    return bool(new)


def _build_query(job: Job, search: _SearchState, part: str, number: int) -> str:
    if number < MAX_ROUNDS:
        return part
    about = search.readings[0].source.title if search.readings else job.plan.question
    return f"{about}: {part}"


def _article_ids(found: FoundArticle) -> set[str]:
    """The ids of an article and of its copies."""
    return {found.article.article_id, *(other.article_id for other in found.article.also)}


def _is_semantic_match(found: FoundArticle, lang: str) -> bool:
    """Whether an article matches semantically; the threshold is lower across languages, where words cannot match."""
    enough = _MIN_SIMILARITY if found.article.lang == lang else _MIN_SIMILARITY_OTHER_LANGUAGE
    return any(candidate.signals.get(SEMANTIC, 0.0) >= enough for candidate in found.candidates)


POLICY_ACTION = "command.execute"

COMMAND_HANDLERS: Mapping[Command, Callable[[Job], Awaitable[answer.Findings]]] = {
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
    ) -> answer.CommandAnswer:
        """Return the answer to a command, as visible to `scope`.

        Raises a `CommandError`, whose `to_dict` is the response, if there is no context to execute or the execution
        fails, and `NotPermitted` if the policy denies it.
        """
        started = self.clock()
        await self._check_permitted(raw_input, scope)
        context = await self.build(raw_input, scope=scope, now=now)
        with command_error_boundary(raw_input, scope, context.now):
            return await self._execute(context, scope, self.clock() - started)

    async def _execute(self, context: CommandContext, scope: Scope, spent: float) -> answer.CommandAnswer:
        job = self._create_job(context, scope, spent)
        findings = await COMMAND_HANDLERS[context.command](job)
        purse = SpendingBudget(job.plan.budget_cents)
        written = None if context.command.is_memory else await self.writer.write(job, findings, purse)
        lost = await find_unresolved_evidence(self.index, scope, job.evidence_registry, job.trace)
        return _build_answer(
            job, context, _ExecutionOutcome(findings=findings, written=written, lost=lost, purse=purse)
        )

    async def _check_permitted(self, raw_input: CommandRequest | Mapping[str, Any], scope: Scope) -> None:
        await require_permission(self.policy, scope, POLICY_ACTION, {"command": _command_words(raw_input)})

    def _create_job(self, context: CommandContext, scope: Scope, spent: float) -> Job:
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
            deadline=Deadline(context.limits.timeout_s, spent=spent, clock=self.clock),
            trace=Trace(),
            compare=self.compare,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _ExecutionOutcome:
    """What executing a command produced: findings, the model's answer, lost evidence and cost."""

    findings: answer.Findings
    written: WrittenAnswer | None
    lost: frozenset[int]
    purse: SpendingBudget


def _command_words(raw_input: CommandRequest | Mapping[str, Any]) -> str:
    """Return the words that name a command, for the policy check.

    Input that cannot be parsed is rejected later, with a better error.
    """
    given: object = raw_input.raw_command if isinstance(raw_input, CommandRequest) else raw_input.get("raw_command")
    return " ".join(str(given).lower().split()[:2]) if isinstance(given, str) else ""


def _build_answer(job: Job, context: CommandContext, outcome: _ExecutionOutcome) -> answer.CommandAnswer:
    sections = tuple(answer.drop_lost_statements(each, outcome.lost) for each in _choose_sections(outcome))
    details = outcome.findings.details.without_evidence(outcome.lost)
    written = outcome.written
    evidence = tuple(each for each in job.evidence_registry.evidence if each.number not in outcome.lost)
    ledger = job.trace.finish(())
    return answer.CommandAnswer(
        command=context.command,
        question=job.reader.redact_line(job.plan.question),
        lang=job.plan.lang,
        mode=answer.AnswerMode.MODEL if written else answer.AnswerMode.EXTRACTIVE,
        model=written.model if written else "",
        sections=tuple(each for each in sections if each.statements),
        details=details,
        evidence=evidence,
        notes=_collect_notes(job, outcome, sections, evidence),
        usage=answer.CommandUsage(
            cents=round(outcome.purse.spent, 6), budget_cents=job.plan.budget_cents, calls=outcome.purse.calls
        ),
        context=_fill_context(context.json_form(), details),
        degradations=(*context.degradations, *ledger.degradations),
        ledger=ledger.entries,
    )


def _choose_sections(outcome: _ExecutionOutcome) -> tuple[answer.AnswerSection, ...]:
    """Return the sections to show: a model's answer comes first and replaces the quoted answer section."""
    found = outcome.findings.sections
    if outcome.written is None:
        return found
    return (outcome.written.section, *(section for section in found if section.name != "answer"))


def _collect_notes(
    job: Job,
    outcome: _ExecutionOutcome,
    sections: tuple[answer.AnswerSection, ...],
    evidence: tuple[answer.Evidence, ...],
) -> tuple[str, ...]:
    found = list(outcome.findings.notes)
    statements = [statement for section in sections for statement in section.statements]
    if job.has_timed_out or not (statements or found):
        found.append(job.explain_missing("nothing"))
    foreign = sorted({statement.lang for statement in statements} - {job.plan.lang})
    if foreign and evidence:
        found.append(job.localize("quoted", {"langs": ", ".join(foreign)}))
    return tuple(dict.fromkeys(found))


def _fill_context(context: CommandContextJson, details: answer.CommandDetails) -> CommandContextJson:
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
