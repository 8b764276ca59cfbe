"""Extractive answers without a language model: sentences of the prompt that match the question, quoted verbatim."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from contexture.text.language import detect_language
from contexture.text.questions import asks_about_self
from contexture.text.segmentation import split_sentences
from contexture.text.terms import extract_terms, split_words, stem
from contexture.types import Message

NAME = "extractive"
NO_MATCH_ANSWERS = {
    "en": "No earlier message mentions this. Without a chat model I only quote what was said; "
    "CONTEXTURE_CHAT_MODEL connects one.",
    "ru": "В сказанном раньше об этом ничего нет. Без модели я только цитирую; "
    "модель подключает CONTEXTURE_CHAT_MODEL.",
}

CompareFunction = Callable[[str, Sequence[str]], Awaitable[Sequence[float]]]
"""Returns how similar a question is to each of some sentences, from 0 to 1, across languages."""

_BLOCK_HEADER = re.compile(r"^\[(?:(\d+)\] \((.*)\)|Document (\d+): .*, Page \d+\])$", re.MULTILINE)
_HEADING = re.compile(r"^\\*#{1,6}\s.*$", re.MULTILINE)
_CITATION_MARKS = re.compile(r"(?: \[\d+\])+$", re.MULTILINE)
_MATERIAL_NAMES = ("memory", "context")
_MATERIAL_ROLES = ("system", "user")
_SPEAKER_ROLES = ("user", "assistant", "tool")
_SECONDARY_LABELS = ("assistant", "summary")
_MAX_SENTENCES = 3
_MAX_FACTS = 8  # listed when the user asks what is known
_MIN_SHARE_OF_BEST = 0.5  # of the best score: sentences with a lower score are left out
_MIN_SIMILARITY = 0.55
_CHARS_PER_TOKEN = 4
_MAX_COMPARED = 32  # sentences; each is embedded
_CLEAR_SHARE = 0.6  # of the question by words: meaning is not asked

_ANIMALS = frozenset(
    map(
        stem,
        "dog cat parrot hamster horse rabbit bird fish собака собаку кот кошка кошку попугай хомяк лошадь "
        "кролик".split(),
    )
)
_PEOPLE = frozenset(
    map(
        stem,
        """son daughter brother sister mother father mom mum dad wife husband uncle aunt cousin nephew niece grandmother
        grandfather grandma grandpa kid friend boss neighbour neighbor landlord dentist doctor
        сын дочь дочка дочери дочку брат сестра сестру мать мама маму отец папа жена жену муж дядя тетя бабушка
        бабушку дедушка друг подруга начальник сосед врач стоматолог""".split(),
    )
)
_NAMED_ONES = _ANIMALS | _PEOPLE
_GENERAL_WORDS = {
    stem("pet"): _ANIMALS,
    stem("питомец"): _ANIMALS,
    stem("child"): frozenset(map(stem, ("son", "daughter", "kid"))),
    stem("ребенок"): frozenset(map(stem, ("сын", "дочь", "дочка"))),
}
"""Words for several sorts of people or animals, and the sorts that they accept."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    mark: str
    terms: frozenset[int]
    secondary: bool = False


class ExtractiveModel:
    """Chat model that answers with up to three sentences of the prompt that match the question.

    Sentences come from the numbered blocks and from the conversation, tool results included. Each keeps the number of
    its block as a citation; citations in earlier answers refer to earlier prompts and are removed. Questions, headings
    and duplicates are left out; what the assistant said is quoted only if nothing else matches. With `compare`,
    sentences match by meaning too. A sentence about another person or animal than the question names does not match.
    If nothing matches, the answer says so and names the setting that connects a model. Equal prompts give equal
    answers.
    """

    def __init__(self, compare: CompareFunction | None = None) -> None:
        self._compare = compare

    @property
    def name(self) -> str:
        """Name in ledgers and metrics."""
        return NAME

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Matching sentences, best first, one per line."""
        return "".join([piece async for piece in self.stream(messages, max_tokens=max_tokens)])

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """Yield the answer sentence by sentence."""
        question = _last_question(messages)
        found = await self._find_answer(question, _drop_repeated(list(_source_sentences(messages))))
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

    async def _find_answer(self, question: str, sentences: Sequence[_Sentence]) -> list[_Sentence]:
        if asks_about_self(question):
            return [each for each in sentences if each.mark and not each.secondary][:_MAX_FACTS]
        fitting = [each for each in sentences if not _is_about_other(question, each.text)]
        wanted = frozenset(extract_terms(question))
        scores = _score_sentences(fitting, wanted, [0.0] * len(fitting))
        clear = any(wanted and len(each.terms & wanted) >= _CLEAR_SHARE * len(wanted) for each in fitting)
        if self._compare is not None and not clear and fitting:
            near = fitting[:_MAX_COMPARED]
            scores = _score_sentences(near, wanted, await self._compare(question, [each.text for each in near]))
        stated = _best_sentences([pair for pair in scores if not pair[1].secondary])
        return stated or _best_sentences(scores)


def _last_question(messages: Sequence[Message]) -> str:
    spoken = (message for message in reversed(messages) if message.get("role") == "user" and not _is_material(message))
    return next(map(_message_text, spoken), "")


def _source_sentences(messages: Sequence[Message]) -> Iterator[_Sentence]:
    """Sentences of the numbered blocks, then of the conversation before its last message, newest message first."""
    for message in messages:
        if _is_material(message):
            yield from _block_sentences(_message_text(message))
    for message in reversed(messages[:-1]):
        if message.get("role") in _SPEAKER_ROLES and not _is_material(message):
            said = _CITATION_MARKS.sub("", _message_text(message))
            yield from _split_source(said, "", secondary=message.get("role") == "assistant")


def _is_material(message: Message) -> bool:
    """Whether a message shows retrieved text; builders give no message of a history such a name."""
    return message.get("role") in _MATERIAL_ROLES and message.get("name") in _MATERIAL_NAMES


def _block_sentences(text: str) -> Iterator[_Sentence]:
    marks = list(_BLOCK_HEADER.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends, strict=True):
        secondary = (mark[2] or "").partition(",")[0] in _SECONDARY_LABELS
        yield from _split_source(
            _HEADING.sub("", text[mark.end() : end]), f" [{mark[1] or mark[3]}]", secondary=secondary
        )


def _split_source(text: str, mark: str, *, secondary: bool = False) -> Iterator[_Sentence]:
    for start, end in split_sentences(text):
        piece = " ".join(text[start:end].split())
        if not piece.rstrip("\"'»”)").endswith(("?", "？")) and piece not in NO_MATCH_ANSWERS.values():
            yield _Sentence(piece, mark, frozenset(extract_terms(piece)), secondary)


def _drop_repeated(found: Sequence[_Sentence]) -> list[_Sentence]:
    """The sentences without repetitions; the first of equal ones is kept."""
    return list({sentence.terms or sentence.text: sentence for sentence in reversed(found)}.values())[::-1]


def _score_sentences(
    sentences: Sequence[_Sentence], wanted: frozenset[int], similar: Sequence[float]
) -> list[tuple[float, _Sentence]]:
    """Each sentence with its score: the share of the question's words it contains, rarer ones weigh more, and meaning.

    A sentence without a word of the question counts only if it is clearly similar.
    """
    holders = Counter(term for sentence in sentences for term in sentence.terms & wanted)
    worth = {term: math.log(1 + len(sentences) / count) for term, count in holders.items()}
    most = sum(worth.values()) or 1.0
    scores: list[tuple[float, _Sentence]] = []
    for sentence, meaning in zip(sentences, similar, strict=True):
        words = sum(worth[term] for term in sentence.terms & wanted) / most
        counts = words > 0 or meaning >= _MIN_SIMILARITY
        scores.append((words + meaning if counts else 0.0, sentence))
    return scores


def _best_sentences(scores: Sequence[tuple[float, _Sentence]]) -> list[_Sentence]:
    best = max((score for score, _ in scores), default=0.0)
    close = [(score, sentence) for score, sentence in scores if score > 0 and score >= best * _MIN_SHARE_OF_BEST]
    return [sentence for _, sentence in sorted(close, key=lambda each: -each[0])[:_MAX_SENTENCES]]


def _is_about_other(question: str, sentence: str) -> bool:
    """Whether a question names a person or an animal by its sort, and the sentence only others."""
    asked = frozenset(map(stem, split_words(question)))
    accepted = (asked & _NAMED_ONES).union(*(_GENERAL_WORDS[each] for each in asked & _GENERAL_WORDS.keys()))
    named = frozenset(map(stem, split_words(sentence))) & _NAMED_ONES
    return bool(accepted) and bool(named) and not named & accepted


def _message_text(message: Message) -> str:
    content: Any = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [cast("dict[str, Any]", part).get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
