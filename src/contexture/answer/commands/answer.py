"""The answer to a command: statements, their numbered evidence, command-specific details, and its plain text form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, TypeVar

from typing_extensions import TypedDict

from contexture.answer.commands._article_sentences import Evidence, ReadArticle
from contexture.builders.command.result import CommandContextJson
from contexture.ledger import Degradation, LedgerEntry
from contexture.results import JsonResult

UNSUPPORTED_FIGURES = "figures_not_in_evidence"
"""Marks a model's statement with a figure that its evidence does not contain."""

UNSUPPORTED = "not_in_evidence"
"""Marks a model's statement that its evidence does not say."""


class AnswerMode(StrEnum):
    """Who wrote the statements: a model, or the sources themselves (extractive)."""

    MODEL = "model"
    EXTRACTIVE = "extractive"


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """One sentence and the numbers of its evidence; `marks` are warnings about it."""

    text: str
    lang: str
    evidence: tuple[int, ...]
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerSection:
    """Statements under one heading, in the language of the request."""

    name: str
    heading: str
    statements: tuple[Statement, ...]


class HasEvidence(Protocol):
    """Anything with numbered evidence."""

    @property
    def evidence(self) -> tuple[int, ...]:
        """The evidence numbers."""
        ...


G = TypeVar("G", bound=HasEvidence)


class CommandDetails(Protocol):
    """What a command found besides its statements, with numbered evidence."""

    def without_evidence(self, lost: frozenset[int]) -> CommandDetails:
        """Return the details without what was supported by the lost evidence numbers."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class NoDetails:
    """The details of a command that found only statements."""

    def without_evidence(self, lost: frozenset[int]) -> NoDetails:
        """Unchanged: there is no evidence to lose."""
        del lost
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """The result of a command before it is checked or rewritten by a model: sections, details, and notes.

    `readings` are the articles that were read, from which a model may answer.
    """

    sections: tuple[AnswerSection, ...]
    details: CommandDetails = field(default_factory=NoDetails)
    notes: tuple[str, ...] = ()
    readings: tuple[ReadArticle, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandUsage:
    """Upper bound of the model cost in cents, the budget, and the number of calls."""

    cents: float
    budget_cents: float
    calls: int


class CommandAnswerJson(TypedDict):
    """An executed command."""

    command: str
    question: str
    lang: str
    mode: AnswerMode
    model: str | None
    answer: str
    sections: tuple[AnswerSection, ...]
    details: CommandDetails
    evidence: tuple[Evidence, ...]
    notes: tuple[str, ...]
    usage: CommandUsage
    degradations: tuple[Degradation, ...]
    ledger: tuple[LedgerEntry, ...]
    context: CommandContextJson


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandAnswer(JsonResult):
    """An executed command: its statements with their evidence, and the context it was executed in.

    Every number in a statement is the number of an `Evidence`, and every citation resolved when the answer was created.
    `context` is the built context with graph and memory results filled in. `ledger` says which passages of the articles
    were in the prompt of a model; it is empty when none was asked.
    """

    command: str
    question: str
    lang: str
    mode: AnswerMode
    model: str
    sections: tuple[AnswerSection, ...]
    details: CommandDetails
    evidence: tuple[Evidence, ...]
    notes: tuple[str, ...]
    usage: CommandUsage
    context: CommandContextJson
    degradations: tuple[Degradation, ...]
    ledger: tuple[LedgerEntry, ...] = ()

    @property
    def statements(self) -> tuple[Statement, ...]:
        """All statements, in order."""
        return tuple(statement for section in self.sections for statement in section.statements)

    def json_form(self) -> CommandAnswerJson:
        """The answer with its evidence, without timings, so that equal executions give equal bytes."""
        return {
            "command": self.command,
            "question": self.question,
            "lang": self.lang,
            "mode": self.mode,
            "model": self.model or None,
            "answer": render_answer(self),
            "sections": self.sections,
            "details": self.details,
            "evidence": self.evidence,
            "notes": self.notes,
            "usage": self.usage,
            "degradations": self.degradations,
            "ledger": self.ledger,
            "context": self.context,
        }


def drop_lost_evidence(found: Iterable[G], lost: frozenset[int]) -> tuple[G, ...]:
    """Remove lost evidence numbers from the items.

    An item that loses all its evidence is dropped; an item that never had any is kept.
    """
    kept: list[G] = []
    for each in found:
        left = tuple(number for number in each.evidence if number not in lost)
        if left or not each.evidence:
            kept.append(replace(each, evidence=left) if left != each.evidence else each)  # pyright: ignore[reportArgumentType, reportUnknownArgumentType, reportUnknownVariableType] - all of them are dataclasses
    return tuple(kept)


def drop_lost_statements(section: AnswerSection, lost: frozenset[int]) -> AnswerSection:
    """The section without statements that lost all their evidence."""
    return replace(section, statements=drop_lost_evidence(section.statements, lost))


def render_answer(answer: CommandAnswer) -> str:
    """The answer as plain text: sections with a line per statement, then the notes."""
    parts = [
        "\n".join(
            [section.heading, *(f"- {format_statement(statement, answer.lang)}" for statement in section.statements)]
        )
        for section in answer.sections
    ]
    return "\n\n".join([*parts, *answer.notes])


MARK_TEXTS: Mapping[str, Mapping[str, str]] = {
    "en": {
        UNSUPPORTED_FIGURES: "contains a figure that is not in its evidence",
        UNSUPPORTED: "its evidence does not say this",
    },
    "ru": {
        UNSUPPORTED_FIGURES: "содержит число, которого нет в источнике",
        UNSUPPORTED: "в источнике этого нет",
    },
}
"""What the marks of a statement mean, by language."""


def format_statement(statement: Statement, lang: str) -> str:
    """A statement followed by its evidence numbers in brackets, and by what its marks mean."""
    texts = MARK_TEXTS.get(lang, MARK_TEXTS["en"])
    marks = (f"({texts.get(mark, mark)})" for mark in statement.marks)
    return " ".join([statement.text, *(f"[{number}]" for number in statement.evidence), *marks])
