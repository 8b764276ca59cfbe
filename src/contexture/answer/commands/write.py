"""The answer in a model's words: asked only within budget and time, and believed only where it names evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from contexture.answer import route
from contexture.answer.commands.check import checked
from contexture.answer.commands.job import Job
from contexture.answer.commands.prices import PRICES, UNKNOWN, Price, Purse, price_of
from contexture.answer.commands.prompt import prompt_of
from contexture.answer.commands.values import Evidence, Findings, Section, Statement
from contexture.answer.commands.words import heading
from contexture.errors import RedactionFailed, SourceError, SourceTimeout
from contexture.ports import ChatModel, TokenCounter
from contexture.types import Message

LONGEST = 1_024
"""Tokens of an answer."""

_SHORTEST = 64  # tokens: less is no answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a model wrote and which one."""

    model: str
    section: Section


@dataclass(frozen=True, kw_only=True, slots=True)
class Writer:
    """Asks the models of a command in their order; `models` are those that are configured, by their routed names."""

    models: Mapping[str, ChatModel]
    counter: TokenCounter
    prices: Mapping[str, Price] = field(default_factory=lambda: PRICES)

    async def write(self, job: Job, findings: Findings, purse: Purse) -> Written | None:
        """The answer of the first model that gives one with evidence; None when there is none to ask or none does."""
        names = [name for name in job.plan.models if name in self.models]
        shown = {each.number: each for each in job.notebook.evidence}
        if not names or not shown or not any(section.statements for section in findings.sections):
            return None
        length = min(LONGEST, job.plan.max_tokens // 2)
        messages, offered = prompt_of(job, findings, shown, counter=self.counter, limit=job.plan.max_tokens - length)
        for name in names:
            if not job.in_time(f"model {name}"):
                return None
            text = await self._asked(job, name, messages, length, purse)
            statements = self._believed(job, name, text, offered) if text else ()
            if statements:
                section = Section(name="answer", heading=heading("answer", job.plan.lang), statements=statements)
                return Written(model=name, section=section)
        return None

    async def _asked(self, job: Job, name: str, messages: Sequence[Message], length: int, purse: Purse) -> str:
        """What the model says; empty when it cannot be paid for, fails, or takes too long."""
        price, prompt = price_of(name, self.prices), self.counter.count_messages(messages)
        longest = purse.affords(price, prompt, length)
        if longest < _SHORTEST:
            unknown = ", and nobody knows its price" if price == UNKNOWN else ""
            job.trace.degraded(
                f"model:{name}",
                f"it was not asked: of {purse.budget:g} cents {purse.spent:.4f} are spent already{unknown}",
            )
            return ""
        text = ""
        try:
            work = route.complete([self.models[name]], messages, longest, job.trace)
            text = (await job.deadline.wait_for(work, f"model {name}")).text
        except SourceTimeout as failure:
            job.trace.degraded(f"model:{name}", failure)
        except SourceError:
            pass  # the route has written down why
        purse.pay(price, prompt, longest)
        return text

    def _believed(self, job: Job, name: str, text: str, offered: Mapping[int, Evidence]) -> tuple[Statement, ...]:
        try:
            found = checked(job.reader.redacted(text), offered, job.plan.lang)
        except RedactionFailed as failure:
            job.trace.degraded(f"model:{name}", str(failure))
            return ()
        if found.removed:
            job.trace.degraded(f"model:{name}", f"{found.removed} sentences without valid evidence were left out")
        return found.statements
