"""The prompt of a command: instructions, numbered articles, what was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contexture.builders.command.documents import Document
from contexture.pipeline.fence import DATA_NOTICE, fence, label
from contexture.types import Message

NOTHING_FOUND = "_No articles found._"

_SYSTEM = "Work from the numbered articles alone and cite them like [1]. Say so when they do not hold the answer."
_SPOKEN = {"ru": "Answer in Russian.", "en": "Answer in English."}


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """An article as a prompt shows it: a heading of one line, and its text, redacted and fenced."""

    heading: str
    text: str


def block(document: Document) -> Block:
    """The block of a document."""
    title = label(document.passages[0].label or document.title) or "untitled"
    named = (title, label(document.source), document.date)
    return Block(heading=", ".join(part for part in named if part), text=fence(document.snippet))


def messages(text: str, lang: str, blocks: Sequence[Block]) -> tuple[Message, ...]:
    """Stable part first, then the articles, then the question."""
    system = " ".join(part for part in (_SYSTEM, _SPOKEN.get(lang, "")) if part)
    material = [f"[{number}] ({each.heading})\n{each.text}" for number, each in enumerate(blocks, start=1)]
    return (
        {"role": "system", "content": f"{system}\n\n{DATA_NOTICE}"},
        {"role": "system", "name": "context", "content": "\n\n".join(material) or NOTHING_FOUND},
        {"role": "user", "content": text},
    )
