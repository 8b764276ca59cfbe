"""An executed command, as the route and the command line answer with it."""

from __future__ import annotations

from typing import Any

from contexture.answer.commands.render import text_of
from contexture.answer.commands.values import CommandAnswer


def answer_object(answer: CommandAnswer) -> dict[str, Any]:
    """The answer; equal executions are equal bytes, so nothing in it is a timing."""
    return {
        "command": answer.command,
        "question": answer.question,
        "lang": answer.lang,
        "mode": answer.mode,
        "model": answer.model or None,
        "answer": text_of(answer),
        "sections": answer.sections,
        "details": answer.details,
        "evidence": answer.evidence,
        "notes": answer.notes,
        "usage": answer.usage,
        "degradations": answer.degradations,
        "context": answer.context,
    }
