"""An answer as plain text: headings, statements, and the numbers of their evidence."""

from __future__ import annotations

from contexture.answer.commands.values import CommandAnswer, Statement


def text_of(answer: CommandAnswer) -> str:
    """The sections with their statements, a line each, then the notes."""
    parts = [
        "\n".join([section.heading, *(f"- {marked(statement)}" for statement in section.statements)])
        for section in answer.sections
    ]
    return "\n\n".join([*parts, *answer.notes])


def marked(statement: Statement) -> str:
    """A statement with the numbers of its evidence behind it."""
    return " ".join([statement.text, *(f"[{number}]" for number in statement.evidence)])
