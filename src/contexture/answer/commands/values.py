"""What a command answers: statements, the evidence each of them rests on, and what was found besides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from contexture.ledger import Degradation
from contexture.types import Citation

UNSURE = "figures_not_in_evidence"
"""Marks a statement of a model with a figure that its evidence does not show."""


class Mode(StrEnum):
    """Who wrote the statements: a model, or the sources themselves."""

    MODEL = "model"
    EXTRACTIVE = "extractive"


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One numbered reference: characters of an article, or of a memory, that a statement rests on.

    `text` is what stands there, as it may be shown; `citation` leads to the stored text.
    """

    number: int
    article_id: str
    title: str
    url: str
    source: str
    date: str
    lang: str
    text: str
    citation: Citation


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """One sentence and the numbers of its evidence; `marks` say what to be careful about."""

    text: str
    lang: str
    evidence: tuple[int, ...]
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """Statements under one heading, which is in the language that was asked for."""

    name: str
    heading: str
    statements: tuple[Statement, ...]


class Grounded(Protocol):
    """Anything that rests on numbered evidence."""

    @property
    def evidence(self) -> tuple[int, ...]:
        """The numbers."""
        ...


G = TypeVar("G", bound=Grounded)


class Details(Protocol):
    """What a command found besides its statements; grounded in the same evidence."""

    def without(self, lost: frozenset[int]) -> Details:
        """The same, but for what rested on evidence that is lost."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Nothing:
    """A command that found only statements."""

    def without(self, lost: frozenset[int]) -> Nothing:
        """Nothing can be lost."""
        del lost
        return self


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """What a command found before anything is checked or written: sections, details, and notes for the reader."""

    sections: tuple[Section, ...]
    details: Details = field(default_factory=Nothing)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What the models cost at most, in cents, of what they might."""

    cents: float
    budget_cents: float
    calls: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandAnswer:
    """An executed command: its statements with their evidence, and the context it was executed in.

    Every number in a statement is the number of an evidence, and every evidence resolved when the answer was given.
    `context` is the built context with graph and memory filled in.
    """

    command: str
    question: str
    lang: str
    mode: Mode
    model: str
    sections: tuple[Section, ...]
    details: Details
    evidence: tuple[Evidence, ...]
    notes: tuple[str, ...]
    usage: Usage
    context: Mapping[str, Any]
    degradations: tuple[Degradation, ...]

    @property
    def statements(self) -> tuple[Statement, ...]:
        """All of them, in order."""
        return tuple(statement for section in self.sections for statement in section.statements)


def grounded(found: Iterable[G], lost: frozenset[int]) -> tuple[G, ...]:
    """Those that still rest on something, without the evidence that is lost; what needed none stays."""
    kept: list[G] = []
    for each in found:
        left = tuple(number for number in each.evidence if number not in lost)
        if left or not each.evidence:
            kept.append(replace(each, evidence=left) if left != each.evidence else each)  # pyright: ignore[reportArgumentType, reportUnknownArgumentType, reportUnknownVariableType] - all of them are dataclasses
    return tuple(kept)


def section_without(section: Section, lost: frozenset[int]) -> Section:
    """The section with only the statements that still rest on something."""
    return replace(section, statements=grounded(section.statements, lost))
