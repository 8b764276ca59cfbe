"""Statements of a message by a chat model: atomic, dated, and in the message's own words."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from contexture.builders.turn.result import Snippet
from contexture.conversation import MAX_STATEMENTS
from contexture.errors import SourceError
from contexture.pipeline.fence import DATA_NOTICE, PromptFence, safe_label
from contexture.ports import ChatModel
from contexture.text.segmentation import split_sentences
from contexture.text.statements import select_statements
from contexture.text.supersession import find_attribute_terms, is_negated
from contexture.types import Message

_INSTRUCTION = (
    "Split what the user states in the message into atomic statements: one fact, preference or plan each, in the words "
    "and the language of the message, in the first person where it is. Each must be understood without the others: put "
    "names in the place of pronouns, and the date behind a relative time, as in `tomorrow (2026-03-03)`. Leave out "
    "questions, greetings and orders. Answer with JSON alone: a list of objects "
    '{"statement": text, "corrects": [numbers]}; `corrects` names the numbered memories that the statement makes '
    "untrue. Answer [] if nothing is stated."
)
_MAX_ANSWER_TOKENS = 1_024
_MIN_COVERED = 0.5  # of a sentence's content words: otherwise the model has left something out
_MAX_DAYS_AWAY = 800
_DATE = re.compile(r"\s*\((\d{4}-\d{2}-\d{2})\)")
_LIST = re.compile(r"\[.*\]", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class RememberedStatement:
    """Something that a message states, and the ids of the memories that it corrects."""

    text: str
    corrects: tuple[str, ...] = ()


class _Item(msgspec.Struct):
    statement: str
    corrects: list[Annotated[int, msgspec.Meta(ge=1)]] = []


@dataclass(frozen=True, kw_only=True, slots=True)
class StatementExtractor:
    """Splits messages into statements with `model`, which may take `seconds`.

    A statement counts if all its content words, names and numbers are words of the message, and it denies something
    only where the message does; only a date in parentheses may be new. Sentences that no statement covers are kept as
    they are. When the model fails or invents, the statements are those that the rules find.
    """

    model: ChatModel
    seconds: float = 20.0

    async def extract(
        self, message: str, *, shown: str, memories: Sequence[Snippet], restore: Callable[[str], str], now: datetime
    ) -> Sequence[RememberedStatement]:
        """The statements of a message, in order; empty if it states nothing.

        The model reads `shown`, the message without personal data, and the memories of its prompt; `restore` puts the
        data back.
        """
        stated = select_statements(message)
        if not stated:
            return ()
        try:
            async with asyncio.timeout(self.seconds):
                answer = await self.model.complete(_make_prompt(shown, memories, now), max_tokens=_MAX_ANSWER_TOKENS)
        except (SourceError, TimeoutError):
            return (RememberedStatement(text=stated),)
        ids = {number: snippet.id for number, snippet in enumerate(memories, start=1)}
        found = [
            RememberedStatement(text=text, corrects=tuple(ids[number] for number in item.corrects if number in ids))
            for item in _read_items(answer)
            if is_stated(text := restore(item.statement).strip(), message, now)
        ]
        left = [] if not found else _find_uncovered(stated, [each.text for each in found])
        return tuple([*found, *(RememberedStatement(text=each) for each in left)][:MAX_STATEMENTS]) or (
            RememberedStatement(text=stated),
        )


def is_stated(statement: str, message: str, now: datetime) -> bool:
    """Whether a message says a statement in its own words; a date of about its time may be added in parentheses."""
    if any(not _is_near(date, now) for date in _DATE.findall(statement)):
        return False
    bare = _DATE.sub("", statement)
    words, sentences = find_attribute_terms(bare), [message[start:end] for start, end in split_sentences(message)]
    if not words or not words <= find_attribute_terms(message):
        return False
    source = max(sentences, key=lambda sentence: len(words & find_attribute_terms(sentence)))
    return is_negated(bare) == is_negated(source) or (is_negated(source) and len(sentences) > 1)


def _is_near(date: str, now: datetime) -> bool:
    try:
        return abs(datetime.fromisoformat(date).date() - now.date()) <= timedelta(days=_MAX_DAYS_AWAY)
    except ValueError:
        return False


def _find_uncovered(stated: str, statements: Iterable[str]) -> list[str]:
    """The sentences of a message of whose content words the statements have too few."""
    known = frozenset[str]().union(*map(find_attribute_terms, statements))
    sentences = ((stated[start:end], find_attribute_terms(stated[start:end])) for start, end in split_sentences(stated))
    return [text for text, words in sentences if len(words & known) < _MIN_COVERED * len(words)]


def _read_items(answer: str) -> Sequence[_Item]:
    """The objects of the list in an answer, whatever is around it; none if it cannot be read."""
    found = _LIST.search(answer)
    try:
        return msgspec.json.decode(found[0], type=list[_Item]) if found else ()
    except msgspec.MsgspecError:
        return ()


def _make_prompt(shown: str, memories: Sequence[Snippet], now: datetime) -> list[Message]:
    fence = PromptFence()
    blocks = [
        f"[{at}] ({safe_label(each.label)})\n{fence.block(each.text)}" for at, each in enumerate(memories, start=1)
    ]
    known = "\n".join(("Earlier memories:", *blocks, "")) if blocks else ""
    said = fence.block_after_label(f"The message, of {now:%A, %Y-%m-%d}:\n{shown}")
    return [
        {"role": "system", "content": f"{_INSTRUCTION} {DATA_NOTICE}"},
        {"role": "user", "content": f"{known}{said}"},
    ]
