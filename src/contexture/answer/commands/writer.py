"""Lets a model write the answer to a command: the prompt, the spending budget and the citation check."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from contexture.answer import route
from contexture.answer.commands.answer import UNSUPPORTED_FIGURES, AnswerSection, Evidence, Findings, Statement
from contexture.answer.commands.job import Job, localize_heading
from contexture.answer.grounding import extract_digits
from contexture.builders.command.syntax import Command
from contexture.errors import RedactionFailed, SourceError, SourceTimeout
from contexture.pipeline.fence import DATA_NOTICE, fence, safe_label
from contexture.ports import ChatModel, TokenCounter
from contexture.text.language import UNKNOWN_LANGUAGE, detect_language
from contexture.text.segmentation import split_sentences
from contexture.types import Message

MAX_ANSWER_TOKENS = 1_024
"""Maximum number of tokens in an answer."""

_MIN_ANSWER_TOKENS = 64  # fewer tokens are not enough for an answer


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenAnswer:
    """The section that a model wrote, and the model's name."""

    model: str
    section: AnswerSection


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerWriter:
    """Asks the models of a command in order until one writes an answer with evidence; `models` are by routed name."""

    models: Mapping[str, ChatModel]
    counter: TokenCounter
    prices: Mapping[str, Price] = field(default_factory=lambda: PRICES)

    async def write(self, job: Job, findings: Findings, purse: SpendingBudget) -> WrittenAnswer | None:
        """Return the first model answer that has evidence; None if no model is configured or none gives one."""
        names = [name for name in job.plan.models if name in self.models]
        shown = {each.number: each for each in job.evidence_registry.evidence}
        if not names or not shown or not any(section.statements for section in findings.sections):
            return None
        length = min(MAX_ANSWER_TOKENS, job.plan.max_tokens // 2)
        messages, offered = build_prompt(job, findings, shown, counter=self.counter, limit=job.plan.max_tokens - length)
        for name in names:
            if not job.has_time_left(f"model {name}"):
                return None
            text = await self._ask_model(job, name, messages, length, purse)
            statements = self._parse_statements(job, name, text, offered) if text else ()
            if statements:
                section = AnswerSection(
                    name="answer", heading=localize_heading("answer", job.plan.lang), statements=statements
                )
                return WrittenAnswer(model=name, section=section)
        return None

    async def _ask_model(
        self, job: Job, name: str, messages: Sequence[Message], length: int, purse: SpendingBudget
    ) -> str:
        """The model's text; empty when it is too expensive, fails, or times out."""
        price, prompt = look_up_price(name, self.prices), self.counter.count_messages(messages)
        longest = purse.affordable_tokens(price, prompt, length)
        if longest < _MIN_ANSWER_TOKENS:
            unknown = ", and nobody knows its price" if price == UNKNOWN_PRICE else ""
            job.trace.add_degradation(
                f"model:{name}",
                f"it was not asked: of {purse.budget:g} cents {purse.spent:.4f} are spent already{unknown}",
            )
            return ""
        text = ""
        try:
            work = route.complete([self.models[name]], messages, longest, job.trace)
            text = (await job.deadline.wait_for(work, f"model {name}")).text
        except SourceTimeout as failure:
            job.trace.add_degradation(f"model:{name}", failure)
        except SourceError:
            pass  # `route` has recorded the reason
        purse.charge(price, prompt, longest)
        return text

    def _parse_statements(
        self, job: Job, name: str, text: str, offered: Mapping[int, Evidence]
    ) -> tuple[Statement, ...]:
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


_RULES = (
    "Answer in {lang}. Use only the numbered evidence. End every sentence with the numbers of the evidence it rests "
    "on, such as [2] or [1, 3]; a sentence without a number is thrown away. Copy figures and names exactly. "
    "If the evidence does not answer something, leave it out."
)
_LANGUAGE_NAMES = {"en": "English", "ru": "Russian"}
_TASKS: Mapping[str, str] = {
    Command.ASK: "Answer the question.",
    Command.EVENTS: "Tell what happened in the order of time, and how the events are connected.",
    Command.GRAPH: "Explain how the people, organisations and places in the question are connected.",
    Command.SYNTHESIZE: "Say what the sources agree on, where they differ, and what only one of them says.",
}


def build_prompt(
    job: Job, findings: Findings, shown: Mapping[int, Evidence], *, counter: TokenCounter, limit: int
) -> tuple[list[Message], dict[int, Evidence]]:
    """Return the messages and the evidence that fits into them, in the order in which statements cite it."""
    plan = job.plan
    task = _TASKS.get(plan.command, _TASKS[Command.ASK])
    rules = _RULES.format(lang=_LANGUAGE_NAMES[plan.lang])
    ends: list[Message] = [
        {"role": "system", "content": f"{task} {rules}\n\n{DATA_NOTICE}"},
        {"role": "user", "content": job.reader.redact_line(plan.question)},
    ]
    wanted = [number for section in findings.sections for each in section.statements for number in each.evidence]
    offered: dict[int, Evidence] = {}
    blocks: list[str] = []
    for number in dict.fromkeys(wanted):
        block = _format_evidence(shown[number])
        if counter.count_messages(_assemble_messages(ends, [*blocks, block])) <= limit:
            blocks.append(block)
            offered[number] = shown[number]
    return _assemble_messages(ends, blocks), offered


def _assemble_messages(ends: Sequence[Message], blocks: Sequence[str]) -> list[Message]:
    return [ends[0], {"role": "system", "name": "context", "content": "\n\n".join(blocks)}, ends[1]]


def _format_evidence(evidence: Evidence) -> str:
    about = ", ".join(part for part in (evidence.title, evidence.source, evidence.date) if part)
    return f"[{evidence.number}] ({safe_label(about) or 'untitled'})\n{fence(evidence.text)}"


_REFERENCE = re.compile(r"\s*\[\s*(\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\s*\]")
# A reference after the full stop belongs to the sentence before it.
_REFERENCE_AFTER_STOP = re.compile(r"([.!?…]+)((?:\s*\[\s*\d{1,4}(?:\s*[,;]\s*\d{1,4})*\s*\])+)")
_LIST_MARKER = re.compile(r"^(?:[-*•]|\d+[.)])\s+")


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedStatements:
    """The statements with valid evidence, and how many sentences were removed."""

    statements: tuple[Statement, ...]
    removed: int


def check_statements(text: str, evidence: Mapping[int, Evidence], lang: str) -> CheckedStatements:
    """Return every sentence with at least one valid reference, without its references.

    A sentence with a figure that its evidence does not contain is marked with `UNSUPPORTED_FIGURES`.
    """
    ordered = _REFERENCE_AFTER_STOP.sub(lambda found: f"{found[2]}{found[1]}", text)
    kept: list[Statement] = []
    removed = 0
    for start, end in split_sentences(ordered):
        statement = _parse_statement(ordered[start:end], evidence, lang)
        if statement is None:
            removed += 1
        else:
            kept.append(statement)
    return CheckedStatements(statements=tuple(kept), removed=removed)


def _parse_statement(sentence: str, evidence: Mapping[int, Evidence], lang: str) -> Statement | None:
    named = [int(number) for found in _REFERENCE.findall(sentence) for number in re.findall(r"\d+", found)]
    valid = tuple(dict.fromkeys(number for number in named if number in evidence))
    text = " ".join(_LIST_MARKER.sub("", _REFERENCE.sub("", sentence)).split())
    if not valid or not any(character.isalnum() for character in text):
        return None
    spoken = detect_language(text)
    return Statement(
        text=text,
        lang=lang if spoken == UNKNOWN_LANGUAGE else spoken,
        evidence=valid,
        marks=() if _has_supported_figures(text, [evidence[number] for number in valid]) else (UNSUPPORTED_FIGURES,),
    )


def _has_supported_figures(text: str, evidence: list[Evidence]) -> bool:
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
UNKNOWN_PRICE = Price(15_000, 60_000)
"""Price assumed for an unknown model: that of the most expensive listed model."""


@runtime_checkable
class HasPrice(Protocol):
    """A model that knows its price."""

    @property
    def price(self) -> tuple[float, float] | None:
        """Cents per million tokens, input and output; None if unknown."""
        ...


def look_up_price(name: str, prices: Mapping[str, Price] = PRICES) -> Price:
    """Return the price of a routed model name; `UNKNOWN_PRICE`, the highest, if it is not listed."""
    return prices.get(name, UNKNOWN_PRICE)


def resolve_price(adapter: str, model: object) -> Price:
    """Return the price of the model behind a routed name; local and extractive models are free."""
    if adapter.partition(":")[0] in {"", "local", "extractive"}:
        return FREE_PRICE
    listed = model.price if isinstance(model, HasPrice) else None
    return UNKNOWN_PRICE if listed is None else Price(*listed)


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
        """Charge a call with an answer of up to `longest` tokens, whether it succeeded or not."""
        self.calls += 1
        self.spent += (_add_margin(prompt) * price.read + longest * price.written) / _MILLION


def _add_margin(prompt: int) -> int:
    return math.ceil(prompt * _PROMPT_MARGIN)
