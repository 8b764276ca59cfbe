"""Lets a model write the answer to a command: the prompt, the spending budget and the citation check."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from contexture.answer import route
from contexture.answer.commands import answer
from contexture.answer.commands._article_sentences import (
    ArticleSentence,
    ReadArticle,
    join_sentences,
    make_evidence,
)
from contexture.answer.commands.job import Job, localize_heading
from contexture.answer.grounding import MIN_WORD_SHARE, extract_digits, word_overlap
from contexture.builders.command.syntax import Command
from contexture.errors import RedactionFailed, SourceError, SourceTimeout
from contexture.ledger import Reason, Trace
from contexture.pipeline.fence import DATA_NOTICE, MaterialRole, PromptFence, make_fence, safe_label
from contexture.pipeline.knapsack import pack_optimal
from contexture.pipeline.packing import PackingItem, PackingOption, fit_prompt
from contexture.ports import ChatModel, TokenCounter
from contexture.text.language import UNKNOWN_LANGUAGE, detect_language
from contexture.text.segmentation import split_sentences
from contexture.types import Candidate, Message

MAX_ANSWER_TOKENS = 1_024
"""Maximum number of tokens in an answer."""

_MIN_ANSWER_TOKENS = 64  # fewer tokens are not enough for an answer


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenAnswer:
    """The section that a model wrote, and the model's name."""

    model: str
    section: answer.AnswerSection


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerWriter:
    """Asks the models of a command in order until one writes an answer with evidence.

    `models` and `counters` are by routed name; `counter` counts for a model that has none of its own.
    """

    models: Mapping[str, ChatModel]
    counter: TokenCounter
    prices: Mapping[str, Price] = field(default_factory=lambda: PRICES)
    counters: Mapping[str, TokenCounter] = field(default_factory=dict[str, TokenCounter])
    material_role: MaterialRole = MaterialRole.USER

    async def write(self, job: Job, findings: answer.Findings, purse: SpendingBudget) -> WrittenAnswer | None:
        """Return the first model answer that has evidence; None if no model is configured or none gives one."""
        names = [name for name in job.plan.models if name in self.models]
        if not names or not any(reading.sentences for reading in findings.readings):
            return None
        length = min(MAX_ANSWER_TOKENS, job.plan.max_tokens // 2)
        for at, name in enumerate(names):
            if not job.has_time_left(f"model {name}"):
                return None
            prompt = build_prompt(
                job,
                findings.readings,
                counter=self._counter_for(name),
                limit=job.plan.max_tokens - length,
                role=self.material_role,
            )
            if at == 0:
                prompt.record_verdicts(job.trace)
            text = await self._ask_model(job, name, prompt.messages, length, purse)
            statements = self._parse_statements(job, name, text, prompt.offered) if text else ()
            if statements:
                checked = await self._mark_unsupported(job, name, statements, prompt.offered, purse)
                cited = tuple(_cite_passages(job, each, prompt.passages) for each in checked)
                heading = localize_heading("answer", job.plan.lang)
                return WrittenAnswer(
                    model=name, section=answer.AnswerSection(name="answer", heading=heading, statements=cited)
                )
        return None

    def _counter_for(self, name: str) -> TokenCounter:
        return self.counters.get(name, self.counter)

    async def _ask_model(
        self, job: Job, name: str, messages: Sequence[Message], length: int, purse: SpendingBudget
    ) -> str:
        """The model's text; empty when it is too expensive, fails, or times out. Only an answer is charged."""
        price, prompt = look_up_price(name, self.prices), self._counter_for(name).count_messages(messages)
        longest = purse.affordable_tokens(price, prompt, length)
        if longest < min(length, _MIN_ANSWER_TOKENS):
            job.trace.add_degradation(
                f"model:{name}",
                f"it was not asked: of {purse.budget:g} cents {purse.spent:.4f} are spent already",
            )
            return ""
        purse.calls += 1
        try:
            work = route.complete([self.models[name]], messages, longest, job.trace)
            text = (await job.deadline.wait_for(work, f"model {name}")).text
        except SourceTimeout as failure:
            job.trace.add_degradation(f"model:{name}", failure)
        except SourceError:
            pass  # `route` has recorded the reason
        else:
            purse.charge(price, prompt, longest)
            return text
        return ""

    def _parse_statements(
        self, job: Job, name: str, text: str, offered: Mapping[int, answer.Evidence]
    ) -> tuple[answer.Statement, ...]:
        try:
            found = check_statements(job.reader.redact(text), offered, job.plan.lang)
        except RedactionFailed as failure:
            job.trace.add_degradation(f"model:{name}", str(failure))
            return ()
        if found.removed:
            job.trace.add_degradation(
                f"model:{name}",
                f"{found.removed} sentences without valid evidence were left out",
            )
        return found.statements

    async def _mark_unsupported(
        self,
        job: Job,
        name: str,
        statements: tuple[answer.Statement, ...],
        offered: Mapping[int, answer.Evidence],
        purse: SpendingBudget,
    ) -> tuple[answer.Statement, ...]:
        """Mark the statements that their evidence does not support: by the model that wrote them, asked once.

        When it cannot be asked or gives no verdicts, overlap of content words decides, which is a degradation.
        """
        sources = [[offered[number] for number in each.evidence] for each in statements]
        counter = self._counter_for(name)
        messages = build_support_prompt(statements, sources, make_fence(counter))
        asked = counter.count_messages(messages) <= job.plan.max_tokens and job.has_time_left("checking the answer")
        length = _VERDICT_TOKENS * len(statements)
        text = await self._ask_model(job, name, messages, length, purse) if asked else ""
        verdicts = parse_verdicts(text, len(statements))
        if verdicts is None:
            job.trace.add_degradation("support", "the answer was checked by its words only: the model gave no verdicts")
            verdicts = [is_supported(each.text, found) for each, found in zip(statements, sources, strict=True)]
        return tuple(
            each if supported or each.marks else replace(each, marks=(*each.marks, answer.UNSUPPORTED))
            for each, supported in zip(statements, verdicts, strict=True)
        )


_RULES = (
    "Answer in {lang}. Use only the numbered passages of articles. End every sentence with the numbers of the passages "
    "it rests on, such as [2] or [1, 3]; a sentence without a number is thrown away. Copy figures and names exactly. "
    "Of two reports of one figure the later is the current one. If the passages do not answer something, leave it out."
)
_LANGUAGE_NAMES = {"en": "English", "ru": "Russian"}
_TASKS: Mapping[str, str] = {
    Command.ASK: "Answer the question.",
    Command.EVENTS: "Tell what happened in the order of time, and how the events are connected.",
    Command.GRAPH: "Explain how the people, organisations and places in the question are connected.",
    Command.SYNTHESIZE: "Say what the sources agree on, where they differ, and what only one of them says.",
}
_PASSAGE_CHARS = 500  # passages are runs of sentences of about this length
_PASSAGE_SECTION = "passages"
_BASE_VALUE = 0.15  # value of a passage that no search found, in the article that matches worst


@dataclass(frozen=True, kw_only=True, slots=True)
class WriterPrompt:
    """The messages for a model, and the passages in them, numbered from 1 in the prompt alone.

    `items` are all passages that could have been in it.
    """

    messages: list[Message]
    passages: dict[int, ArticleSentence]
    items: tuple[tuple[PackingItem, ArticleSentence], ...]

    def record_verdicts(self, trace: Trace) -> None:
        """Record for each passage whether it is in the prompt."""
        shown = {_passage_id(each) for each in self.passages.values()}
        for item, passage in self.items:
            candidate, tokens = _to_candidate(item, passage), item.options[0].tokens
            if item.id in shown:
                trace.keep(candidate, tokens=tokens)
            else:
                trace.drop(candidate, Reason.OVER_BUDGET, tokens=tokens)

    @property
    def offered(self) -> dict[int, answer.Evidence]:
        """The passages as evidence, by their numbers in the prompt."""
        return {number: make_evidence(number, passage) for number, passage in self.passages.items()}


def _cite_passages(job: Job, statement: answer.Statement, passages: Mapping[int, ArticleSentence]) -> answer.Statement:
    """The statement with the evidence numbers of the answer instead of those of the prompt."""
    numbers = tuple(job.evidence_registry.cite(passages[number]) for number in statement.evidence)
    return replace(statement, evidence=numbers)


def build_prompt(
    job: Job,
    readings: Sequence[ReadArticle],
    *,
    counter: TokenCounter,
    limit: int,
    role: MaterialRole = MaterialRole.USER,
) -> WriterPrompt:
    """The prompt with as many passages of the articles as fit `limit` tokens, the most relevant ones if not all do.

    They are in the order of the articles.
    """
    plan, fence = job.plan, make_fence(counter)
    task = _TASKS.get(plan.command, _TASKS[Command.ASK])
    rules = _RULES.format(lang=_LANGUAGE_NAMES[plan.lang])
    question = fence.inline(job.reader.redact_line(plan.question))
    ends: list[Message] = [
        {"role": "system", "content": f"{task} {rules}\n\n{DATA_NOTICE}"},
        {"role": "user", "content": f"{_describe_clock(job)}\n\n{question}"},
    ]
    passages = _cut_passages(readings)
    found = {_passage_id(each): each for each in passages}
    blocks = {name: _format_passage(at, each, fence) for at, (name, each) in enumerate(found.items(), start=1)}
    values = _rate_passages(readings, passages)
    items = [
        PackingItem(name, (PackingOption(counter.count(blocks[name]) + 1, values[name]),), _PASSAGE_SECTION)
        for name in found
    ]

    def render(chosen: Mapping[str, int]) -> list[Message]:
        shown = [found[name] for name in found if name in chosen]
        return _assemble_messages(
            ends, [_format_passage(at, each, fence) for at, each in enumerate(shown, start=1)], role
        )

    fitted = fit_prompt(items, limit, pack_optimal, lambda chosen: counter.count_messages(render(chosen)))
    chosen = fitted.packing.chosen
    numbered = dict(enumerate((found[name] for name in found if name in chosen), start=1))
    return WriterPrompt(
        messages=render(chosen), passages=numbered, items=tuple((item, found[item.id]) for item in items)
    )


def _describe_clock(job: Job) -> str:
    """When the question is asked, and from which time articles were searched."""
    plan = job.plan
    since = plan.search.since.date().isoformat() if plan.search.since else "the beginning"
    return f"Asked on {plan.now.date().isoformat()}, about articles since {since} (window {plan.window})."


def _cut_passages(readings: Sequence[ReadArticle]) -> list[ArticleSentence]:
    """Runs of consecutive sentences of one article, each of about `_PASSAGE_CHARS` characters."""
    found: list[ArticleSentence] = []
    for reading in readings:
        run: list[ArticleSentence] = []
        for sentence in reading.sentences:
            if run and sum(len(each.text) for each in run) + len(sentence.text) > _PASSAGE_CHARS:
                found.append(join_sentences(run))
                run = []
            run.append(sentence)
        if run:
            found.append(join_sentences(run))
    return found


def _rate_passages(readings: Sequence[ReadArticle], passages: Sequence[ArticleSentence]) -> dict[str, float]:
    """The value of each passage: how well its article and the searched ranges in it match; leads are worth more."""
    top = max((reading.score for reading in readings), default=0.0) or 1.0
    articles = {reading.source.article_id: reading for reading in readings}
    best = max((each.score for reading in readings for each in reading.passages), default=0.0) or 1.0
    values: dict[str, float] = {}
    for passage in passages:
        reading = articles[passage.source.article_id]
        inside = [each.score for each in reading.passages if each.start < passage.end and passage.start < each.end]
        leads = reading.lead is not None and passage.start <= reading.lead.start < passage.end
        relevance = max(max(inside, default=0.0) / best, 0.8 if leads else 0.0)
        values[_passage_id(passage)] = (_BASE_VALUE + reading.score / top) * (_BASE_VALUE + relevance)
    return values


def _to_candidate(item: PackingItem, passage: ArticleSentence) -> Candidate:
    return Candidate(
        id=item.id,
        key=passage.source.article_id,
        text=passage.text,
        section=_PASSAGE_SECTION,
        title=passage.source.title,
        kind="article",
        lang=passage.source.lang,
        source=passage.source.name,
        score=item.options[0].value,
        redacted=True,
        citation=passage.citation,
    )


def _passage_id(passage: ArticleSentence) -> str:
    return f"{passage.source.article_id}#{passage.start}-{passage.end}"


def _assemble_messages(ends: Sequence[Message], blocks: Sequence[str], role: MaterialRole) -> list[Message]:
    return [ends[0], {"role": role.value, "name": "context", "content": "\n\n".join(blocks)}, ends[1]]


def _format_passage(number: int, passage: ArticleSentence, fence: PromptFence) -> str:
    source = passage.source
    about = ", ".join(part for part in (source.title, source.name, source.date) if part)
    return f"[{number}] ({safe_label(about) or 'untitled'})\n{fence.block(passage.text)}"


_SUPPORT_RULES = (
    "Below are sentences, each with the evidence it cites. For every sentence write one line: its number, and yes if "
    "the evidence says what the sentence says or no if it does not, as in `1: yes`. Write nothing else."
)
_VERDICT_TOKENS = 8  # tokens of one verdict
_VERDICT = re.compile(r"^\W*(\d{1,3})\s*[:.)-]+\W*(yes|no|да|нет)\b", re.IGNORECASE | re.MULTILINE)
_MIN_SUPPORT = MIN_WORD_SHARE


def build_support_prompt(
    statements: Sequence[answer.Statement], sources: Sequence[Sequence[answer.Evidence]], fence: PromptFence
) -> list[Message]:
    """The messages that ask a model whether the evidence of each statement says what it says."""
    blocks = [
        f"[{at}] (sentence)\n{fence.block(statement.text)}\n"
        f"[{at}] (evidence)\n{fence.block(' '.join(each.text for each in found))}"
        for at, (statement, found) in enumerate(zip(statements, sources, strict=True), start=1)
    ]
    return [
        {"role": "system", "content": f"{_SUPPORT_RULES}\n\n{DATA_NOTICE}"},
        {"role": "user", "content": "\n\n".join(blocks)},
    ]


def parse_verdicts(text: str, count: int) -> list[bool] | None:
    """Whether each of `count` statements is supported, as a model wrote it; None unless it judged all of them."""
    found = {int(number): said.lower() in ("yes", "да") for number, said in _VERDICT.findall(text)}
    return [found[at] for at in range(1, count + 1)] if all(at in found for at in range(1, count + 1)) else None


def is_supported(text: str, evidence: Sequence[answer.Evidence]) -> bool:
    """Whether evidence in the same script has at least half of a sentence's content words."""
    texts = [f"{each.title} {each.text}" for each in evidence]
    return word_overlap(text, texts) >= _MIN_SUPPORT or not _has_common_language(text, evidence)


def _has_common_language(text: str, evidence: Sequence[answer.Evidence]) -> bool:
    """Whether words can be compared: a sentence in another language than its evidence has none in common with it."""
    lang = detect_language(text)
    return any(each.lang == lang for each in evidence)


_REFERENCE = re.compile(r"\s*\[\s*(\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\s*\]")
# A reference after the full stop belongs to the sentence before it.
_REFERENCE_AFTER_STOP = re.compile(r"([.!?…]+)((?:\s*\[\s*\d{1,4}(?:\s*[,;]\s*\d{1,4})*\s*\])+)")
_LIST_MARKER = re.compile(r"^(?:[-*•]|\d+[.)])\s+")


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedStatements:
    """The statements with valid evidence, and how many sentences were removed."""

    statements: tuple[answer.Statement, ...]
    removed: int


def check_statements(text: str, evidence: Mapping[int, answer.Evidence], lang: str) -> CheckedStatements:
    """Return every sentence with at least one valid reference, without its references.

    A sentence with a figure that its evidence does not contain is marked with `UNSUPPORTED_FIGURES`.
    """
    ordered = _REFERENCE_AFTER_STOP.sub(lambda found: f"{found[2]}{found[1]}", text)
    kept: list[answer.Statement] = []
    removed = 0
    for start, end in split_sentences(ordered):
        statement = _parse_statement(ordered[start:end], evidence, lang)
        if statement is None:
            removed += 1
        else:
            kept.append(statement)
    return CheckedStatements(statements=tuple(kept), removed=removed)


def _parse_statement(sentence: str, evidence: Mapping[int, answer.Evidence], lang: str) -> answer.Statement | None:
    named = [int(number) for found in _REFERENCE.findall(sentence) for number in re.findall(r"\d+", found)]
    valid = tuple(dict.fromkeys(number for number in named if number in evidence))
    text = " ".join(_LIST_MARKER.sub("", _REFERENCE.sub("", sentence)).split())
    if not valid or not any(character.isalnum() for character in text):
        return None
    spoken = detect_language(text)
    return answer.Statement(
        text=text,
        lang=lang if spoken == UNKNOWN_LANGUAGE else spoken,
        evidence=valid,
        marks=()
        if _has_supported_figures(text, [evidence[number] for number in valid])
        else (answer.UNSUPPORTED_FIGURES,),
    )


def _has_supported_figures(text: str, evidence: list[answer.Evidence]) -> bool:
    """Whether every figure of a sentence is in its evidence or in the evidence's date."""
    seen = frozenset[str]().union(*(extract_digits(f"{each.text} {each.title} {each.date}") for each in evidence))
    dates = frozenset(part.lstrip("0") for each in evidence for part in each.date.split("-"))
    return extract_digits(text) <= seen | dates


_MILLION = 1_000_000
_PROMPT_MARGIN = 1.5  # vendors count the same prompt differently, some up to 50% higher


@dataclass(frozen=True, slots=True)
class Price:
    """Cents per million tokens, for input (`read`) and output (`written`)."""

    read: float
    written: float


PRICES: Mapping[str, Price] = MappingProxyType(
    {
        "gpt-5": Price(125, 1_000),
        "claude-4.5": Price(300, 1_500),
        "gemini-2.5-pro": Price(125, 1_000),
        "local": Price(0, 0),
        "extractive": Price(0, 0),
    }
)
"""List prices by routed model name."""

FREE_PRICE = Price(0, 0)
"""Price of local models, and of models whose price nobody gave: the budget cannot limit those."""


@runtime_checkable
class HasPrice(Protocol):
    """A model that knows its price."""

    @property
    def price(self) -> tuple[float, float] | None:
        """Cents per million tokens, input and output; None if unknown."""
        ...


def look_up_price(name: str, prices: Mapping[str, Price] = PRICES) -> Price:
    """Return the price of a routed model name; free if it is not listed."""
    return prices.get(name, FREE_PRICE)


def resolve_price(adapter: str, model: object) -> Price:
    """Return the price of the model behind a routed name.

    Local and extractive models are free, and so is a model of unknown price, which a setting can price.
    """
    if adapter.partition(":")[0] in {"", "local", "extractive"}:
        return FREE_PRICE
    listed = model.price if isinstance(model, HasPrice) else None
    return FREE_PRICE if listed is None else Price(*listed)


@dataclass(slots=True)
class SpendingBudget:
    """The cents that one command may spend; `spent` is an upper bound.

    Prompts are charged with a margin, because vendors count tokens differently. Answers are charged at their maximum
    length, because hidden reasoning tokens are billed too.
    """

    budget: float
    spent: float = 0.0
    calls: int = 0

    def affordable_tokens(self, price: Price, prompt: int, wanted: int) -> int:
        """Return how many answer tokens the remaining budget pays for after the prompt, at most `wanted`."""
        left = (self.budget - self.spent) * _MILLION - _add_margin(prompt) * price.read
        if left < 0:
            return 0
        return wanted if not price.written else min(wanted, int(left / price.written))

    def charge(self, price: Price, prompt: int, longest: int) -> None:
        """Charge an answered call with an answer of up to `longest` tokens."""
        self.spent += (_add_margin(prompt) * price.read + longest * price.written) / _MILLION


def _add_margin(prompt: int) -> int:
    return math.ceil(prompt * _PROMPT_MARGIN)
