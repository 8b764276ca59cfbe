"""Extractive answers without a language model: sentences of the prompt that match the question, quoted verbatim."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from contexture.text.language import detect_language
from contexture.text.segmentation import split_sentences
from contexture.text.terms import extract_terms
from contexture.types import Message

NAME = "extractive"
NO_MATCH_ANSWERS = {
    "en": "Without a model I can only quote what was said before, and nothing in it speaks of this.",
    "ru": "Без модели я могу лишь повторить сказанное раньше, а об этом там ничего нет.",
}

_BLOCK_HEADER = re.compile(r"^\[(?:(\d+)\] \(.*\)|Document (\d+): .*, Page \d+\])$", re.MULTILINE)
_HEADING = re.compile(r"^\\*#{1,6}\s.*$", re.MULTILINE)
_CITATION_MARKS = re.compile(r"(?: \[\d+\])+$", re.MULTILINE)
_MATERIAL_NAMES = ("memory", "context")
_SPEAKER_ROLES = ("user", "assistant")
_MAX_SENTENCES = 3
_MIN_SHARE_OF_BEST = 0.5  # of the best score: sentences with a lower score are left out
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    mark: str
    terms: frozenset[int]


class ExtractiveModel:
    """Chat model that answers with up to three sentences of the prompt that match the question.

    Sentences come from the numbered blocks and from the conversation. Each keeps the number of its block as a citation;
    citations in earlier answers refer to earlier prompts and are removed. Questions, headings and duplicates are left
    out. If nothing matches, the answer says so in one sentence. Equal prompts give equal answers.
    """

    @property
    def name(self) -> str:
        """Name in ledgers and metrics."""
        return NAME

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Matching sentences, best first, one per line."""
        return "".join(_answer_pieces(messages, max_tokens))

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """Yield the answer sentence by sentence."""
        for piece in _answer_pieces(messages, max_tokens):
            yield piece


def _answer_pieces(messages: Sequence[Message], max_tokens: int) -> Iterator[str]:
    question = _last_question(messages)
    found = _best_sentences(list(_source_sentences(messages)), frozenset(extract_terms(question)))
    if not found:
        yield NO_MATCH_ANSWERS.get(detect_language(question), NO_MATCH_ANSWERS["en"])
        return
    room = max_tokens * _CHARS_PER_TOKEN
    for at, sentence in enumerate(found):
        piece = ("\n" if at else "") + sentence.text + sentence.mark
        room -= len(piece)
        if at and room < 0:
            return
        yield piece


def _last_question(messages: Sequence[Message]) -> str:
    return next((_message_text(message) for message in reversed(messages) if message.get("role") == "user"), "")


def _source_sentences(messages: Sequence[Message]) -> Iterator[_Sentence]:
    """Sentences of the numbered blocks, then of the conversation before its last message, newest message first."""
    for message in messages:
        if message.get("role") == "system" and message.get("name") in _MATERIAL_NAMES:
            yield from _block_sentences(_message_text(message))
    for message in reversed(messages[:-1]):
        if message.get("role") in _SPEAKER_ROLES:
            yield from _split_source(_CITATION_MARKS.sub("", _message_text(message)), "")


def _block_sentences(text: str) -> Iterator[_Sentence]:
    marks = list(_BLOCK_HEADER.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends, strict=True):
        yield from _split_source(_HEADING.sub("", text[mark.end() : end]), f" [{mark[1] or mark[2]}]")


def _split_source(text: str, mark: str) -> Iterator[_Sentence]:
    for start, end in split_sentences(text):
        piece = " ".join(text[start:end].split())
        if not piece.rstrip("\"'»”)").endswith(("?", "？")) and piece not in NO_MATCH_ANSWERS.values():
            yield _Sentence(piece, mark, frozenset(extract_terms(piece)))


def _best_sentences(found: Sequence[_Sentence], wanted: frozenset[int]) -> list[_Sentence]:
    """Best sentences without duplicates; rarer words of the question weigh more."""
    unique = list({sentence.terms: sentence for sentence in reversed(found)}.values())[::-1]
    holders = Counter(term for sentence in unique for term in sentence.terms & wanted)
    worth = {term: math.log(1 + len(unique) / count) for term, count in holders.items()}
    scored = [(sum(worth[term] for term in sentence.terms & wanted), sentence) for sentence in unique]
    best = max((score for score, _ in scored), default=0.0)
    close = [(score, sentence) for score, sentence in scored if score > 0 and score >= best * _MIN_SHARE_OF_BEST]
    return [sentence for _, sentence in sorted(close, key=lambda each: -each[0])[:_MAX_SENTENCES]]


def _message_text(message: Message) -> str:
    content: Any = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [cast("dict[str, Any]", part).get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
