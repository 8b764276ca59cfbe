"""Answers without a model: the sentences of the prompt that speak of the question, word for word."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from contexture.text.language import detect
from contexture.text.sentences import sentences
from contexture.text.terms import terms
from contexture.types import Message

NAME = "extractive"
NOTHING = {
    "en": "Without a model I can only quote what was said before, and nothing in it speaks of this.",
    "ru": "Без модели я могу лишь повторить сказанное раньше, а об этом там ничего нет.",
}

_BLOCK = re.compile(r"^\[(?:(\d+)\] \(.*\)|Document (\d+): .*, Page \d+\])$", re.MULTILINE)
_HEADING = re.compile(r"^\\*#{1,6}\s.*$", re.MULTILINE)
_MARKS = re.compile(r"(?: \[\d+\])+$", re.MULTILINE)
_MATERIAL = ("memory", "context")
_SPEAKERS = ("user", "assistant")
_SHOWN = 3
_CLOSE = 0.5  # how much worse than the best a sentence may be and still be shown
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    mark: str
    terms: frozenset[int]


class ExtractiveModel:
    """Answers with up to three sentences of the numbered blocks and of the conversation that match the question.

    Each keeps the number of its block; numbers at the end of earlier answers are of blocks of earlier prompts, and go.
    A question, a heading, and what was said twice, is not repeated. When nothing matches, the answer says so in one
    sentence. Equal prompts give equal answers.
    """

    @property
    def name(self) -> str:
        """Names it in ledgers and metrics."""
        return NAME

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """The sentences, best first."""
        return "".join(_pieces(messages, max_tokens))

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """A sentence a piece."""
        for piece in _pieces(messages, max_tokens):
            yield piece


def _pieces(messages: Sequence[Message], max_tokens: int) -> Iterator[str]:
    question = _question(messages)
    found = _matching(list(_material(messages)), frozenset(terms(question)))
    if not found:
        yield NOTHING.get(detect(question), NOTHING["en"])
        return
    room = max_tokens * _CHARS_PER_TOKEN
    for at, sentence in enumerate(found):
        piece = ("\n" if at else "") + sentence.text + sentence.mark
        room -= len(piece)
        if at and room < 0:
            return
        yield piece


def _question(messages: Sequence[Message]) -> str:
    return next((_text(message) for message in reversed(messages) if message.get("role") == "user"), "")


def _material(messages: Sequence[Message]) -> Iterator[_Sentence]:
    """Sentences of the numbered blocks, then those of the conversation before its last message, newest first."""
    for message in messages:
        if message.get("role") == "system" and message.get("name") in _MATERIAL:
            yield from _of_blocks(_text(message))
    for message in reversed(messages[:-1]):
        if message.get("role") in _SPEAKERS:
            yield from _sentences(_MARKS.sub("", _text(message)), "")


def _of_blocks(text: str) -> Iterator[_Sentence]:
    marks = list(_BLOCK.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends, strict=True):
        yield from _sentences(_HEADING.sub("", text[mark.end() : end]), f" [{mark[1] or mark[2]}]")


def _sentences(text: str, mark: str) -> Iterator[_Sentence]:
    for start, end in sentences(text):
        piece = " ".join(text[start:end].split())
        if not piece.rstrip("\"'»”)").endswith(("?", "？")) and piece not in NOTHING.values():
            yield _Sentence(piece, mark, frozenset(terms(piece)))


def _matching(found: Sequence[_Sentence], wanted: frozenset[int]) -> list[_Sentence]:
    """The best sentences, each said once; rarer words of the question count more."""
    unique = list({sentence.terms: sentence for sentence in reversed(found)}.values())[::-1]
    holders = Counter(term for sentence in unique for term in sentence.terms & wanted)
    worth = {term: math.log(1 + len(unique) / count) for term, count in holders.items()}
    scored = [(sum(worth[term] for term in sentence.terms & wanted), sentence) for sentence in unique]
    best = max((score for score, _ in scored), default=0.0)
    close = [(score, sentence) for score, sentence in scored if score > 0 and score >= best * _CLOSE]
    return [sentence for _, sentence in sorted(close, key=lambda each: -each[0])[:_SHOWN]]


def _text(message: Message) -> str:
    content: Any = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [cast("dict[str, Any]", part).get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
