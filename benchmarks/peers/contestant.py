"""What a library must do to take part: load documents, then answer questions with a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.peers.material import INSTRUCTION, TOKENS, Asked, Document, Rows


@dataclass(frozen=True, slots=True)
class Answer:
    """Ids of what was retrieved, best first; the prompt made of it; and the ids in it, where the library says."""

    ranking: Sequence[str]
    prompt: str
    shown: Sequence[str] | None = None


class Contestant(Protocol):
    """A library, set up in one way."""

    def load(self, documents: Sequence[Document], vectors: Rows) -> float:
        """Take in the documents with their vectors; seconds spent on embedding, which are not counted, are returned."""
        ...

    def ask(self, asked: Asked, vector: Rows) -> Answer:
        """Retrieve for a question whose vector is known, and pack a prompt of at most `TOKENS` tokens."""
        ...


def plain_prompt(texts: Sequence[str], question: str, count: Callable[[str], int]) -> str:
    """For libraries that pack nothing: texts, best first, as long as their exact counts add up to the budget."""
    left = TOKENS - count(_framed("", question))
    chosen: list[str] = []
    for text in texts:
        left -= count(f"{text}\n\n")
        if left < 0:
            break
        chosen.append(text)
    return _framed("\n\n".join(chosen), question)


def _framed(context: str, question: str) -> str:
    return f"{INSTRUCTION}\n\n{context}\n\n{question}"
