"""Extractive answers without a language model: sentences of the prompt that match the question, quoted verbatim."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, cast

from contexture.text.language import detect_language
from contexture.text.questions import asks_about_self
from contexture.text.segmentation import split_sentences
from contexture.text.statements import MessageIntent, detect_intent, select_statements
from contexture.text.terms import extract_terms, split_words, stem
from contexture.types import Message

NAME = "extractive"
NO_MATCH_ANSWERS = {
    "en": "No earlier message mentions this. Without a chat model I only quote what was said; "
    "CONTEXTURE_CHAT_MODEL connects one.",
    "ru": "В сказанном раньше об этом ничего нет. Без модели я только цитирую; "
    "модель подключает CONTEXTURE_CHAT_MODEL.",
}

_ACKNOWLEDGEMENTS = {
    ("en", MessageIntent.STATEMENT): "Noted. Without a chat model I only quote what was said; ask me about it.",
    ("ru", MessageIntent.STATEMENT): "Принято. Без модели я только цитирую сказанное; спросите меня об этом.",
    (
        "en",
        MessageIntent.SMALLTALK,
    ): "Without a chat model I only quote what was said; CONTEXTURE_CHAT_MODEL connects one.",
    ("ru", MessageIntent.SMALLTALK): "Без модели я только цитирую сказанное; модель подключает CONTEXTURE_CHAT_MODEL.",
}
"""What is said to a message that asks nothing."""

_OWN_ANSWERS = frozenset((*NO_MATCH_ANSWERS.values(), *_ACKNOWLEDGEMENTS.values()))

CompareFunction = Callable[[str, Sequence[str]], Awaitable[Sequence[float]]]
"""Returns how similar a question is to each of some sentences, from 0 to 1, across languages."""

_BLOCK_HEADER = re.compile(r"^\[(?:(\d+)\] \((.*)\)|Document (\d+): .*, Page \d+\])$", re.MULTILINE)
_HEADING = re.compile(r"^\\*#{1,6}\s.*$", re.MULTILINE)
_TABLE_ROW = re.compile(r"\s*\|.*\|\s*$")
_TABLE_RULE = re.compile(r"[\s|:-]+")
_VALUE = re.compile(r"\(?[$€£₽].*|(?!(?:19|20)\d\d$)[\d.,%\s()–—-]*\d[\d.,%\s()–—-]*")  # no header: a row without one
_CITATION_MARKS = re.compile(r"(?: \[\d+\])+$", re.MULTILINE)
_DOCUMENTS_NAME = "context"
_MATERIAL_NAMES = ("memory", _DOCUMENTS_NAME)
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

_SORTS: tuple[frozenset[str], ...] = tuple(
    frozenset(map(stem, words.split()))
    for words in (
        "dog dogs puppy собака собаку собаки пес пса щенок",
        "cat cats kitten кот кота кошка кошку кошки котенок",
        "parrot попугай попугая",
        "hamster хомяк хомяка",
        "horse лошадь лошади конь",
        "rabbit кролик кролика",
        "bird птица птицу",
        "fish рыбка рыбку",
        "son сын сына",
        "daughter дочь дочка дочери дочку",
        "kid",
        "brother брат брата",
        "sister сестра сестру сестры",
        "mother mom mum мать мама маму",
        "father dad отец отца папа папу",
        "wife жена жену",
        "husband муж мужа",
        "uncle дядя дядю",
        "aunt тетя тетю",
        "cousin",
        "nephew племянник племянника",
        "niece племянница племянницу",
        "grandmother grandma бабушка бабушку",
        "grandfather grandpa дедушка дедушку",
        "friend друг друга подруга подругу",
        "boss начальник начальника",
        "neighbour neighbor сосед соседа соседка соседку",
        "landlord",
        "dentist стоматолог стоматолога",
        "doctor врач врача",
        "teacher учитель учителя учительница учительницу",
        "pupil student ученик ученика ученица ученицу",
        "colleague коллега коллегу",
        "accountant бухгалтер бухгалтера",
    )
)
"""Sorts of animals, and then of people, each by its words in English and Russian."""

_ANIMALS = frozenset[str]().union(*_SORTS[:8])
_CHILDREN = frozenset[str]().union(*_SORTS[8:11])
_NAMED_ONES = frozenset[str]().union(*_SORTS)
_GENERAL_WORDS = {
    **dict.fromkeys(map(stem, ("pet", "pets", "питомец", "питомца")), _ANIMALS),
    **dict.fromkeys(map(stem, ("child", "children", "ребенок", "ребенка", "дети", "детей")), _CHILDREN),
}
"""Words for several sorts of people or animals, and the sorts that they accept."""

_NAMING_WORDS = frozenset(map(stem, "called name named names зовут звать имя кличка".split()))


@dataclass(frozen=True, slots=True)
class _Sentence:
    text: str
    mark: str
    terms: frozenset[int]
    secondary: bool = False


class ExtractiveModel:
    """Chat model that answers with up to three sentences of the prompt that match the question.

    Sentences come from the numbered blocks and from the conversation, tool results included; a row of a table is one,
    with the headers of its columns. Each keeps the number of
    its block as a citation; citations in earlier answers refer to earlier prompts and are removed. Questions, headings
    and duplicates are left out; what the assistant said is quoted only if nothing else matches. With `compare`,
    sentences match by meaning too. A sentence about another person or animal than the question names does not match.
    If nothing matches, the answer says so and names the setting that connects a model. A statement or a greeting is
    acknowledged. Equal prompts give equal answers.
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
        at = _last_question(messages)
        question = _message_text(messages[at]) if at >= 0 else ""
        lang = "ru" if detect_language(question) == "ru" else "en"
        sentences = _drop_repeated(list(_source_sentences(messages, at)))
        said = _ACKNOWLEDGEMENTS.get((lang, _classify(question)))
        if (
            said
            and not any(each.get("name") == _DOCUMENTS_NAME for each in messages)
            and not _is_known(question, sentences)
        ):
            yield said
            return
        found = await self._find_answer(question, sentences)
        if not found:
            yield NO_MATCH_ANSWERS[lang]
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
            told = [each for each in sentences if not each.secondary and select_statements(each.text)]
            return told[:_MAX_FACTS]
        fitting = [each for each in sentences if not _is_about_other(question, each.text)]
        wanted = frozenset(extract_terms(question))
        scores = _score_sentences(fitting, wanted, [0.0] * len(fitting))
        clear = any(wanted and len(each.terms & wanted) >= _CLEAR_SHARE * len(wanted) for each in fitting)
        if self._compare is not None and not clear and fitting:
            near = fitting[:_MAX_COMPARED]
            scores = _score_sentences(near, wanted, await self._compare(question, [each.text for each in near]))
        stated = _best_sentences([pair for pair in scores if not pair[1].secondary])
        return stated or _best_sentences(scores)


def _classify(message: str) -> MessageIntent:
    """The intent of a message; an order to remember something is a statement."""
    intent = detect_intent(message)
    is_stated = intent is not MessageIntent.QUESTION and select_statements(message)
    return MessageIntent.STATEMENT if is_stated else intent


def _is_known(message: str, sentences: Sequence[_Sentence]) -> bool:
    """Whether one sentence has every word of a message: `garage code` asks for it, and says nothing."""
    wanted = frozenset(extract_terms(message))
    return bool(wanted) and any(wanted <= each.terms for each in sentences)


def _last_question(messages: Sequence[Message]) -> int:
    """Position of the last message of the user; -1 if there is none."""
    places = [at for at, each in enumerate(messages) if each.get("role") == "user" and not _is_material(each)]
    return places[-1] if places else -1


def _source_sentences(messages: Sequence[Message], question: int) -> Iterator[_Sentence]:
    """Sentences of the numbered blocks, then of the conversation without the question, newest message first."""
    for message in messages:
        if _is_material(message):
            yield from _block_sentences(_message_text(message))
    for at, message in reversed(list(enumerate(messages))):
        if at != question and message.get("role") in _SPEAKER_ROLES and not _is_material(message):
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
    prose: list[str] = []
    header: list[str] = []
    rows: list[str] = []
    for line in text.split("\n"):
        if not _TABLE_ROW.match(line):
            header = []
            prose.append(line)
        elif _TABLE_RULE.fullmatch(line):
            continue
        elif not header and not any(map(_VALUE.fullmatch, _split_cells(line)[1:])):
            header = _split_cells(line)
        elif row := _describe_row(header or [""], _split_cells(line)):
            rows.append(row)
    said = "\n".join(prose)
    pieces = (" ".join(said[start:end].split()) for start, end in split_sentences(said))
    for piece in (*pieces, *rows):
        if not piece.rstrip("\"'»”)").endswith(("?", "？")) and piece not in _OWN_ANSWERS:
            yield _Sentence(piece, mark, frozenset(extract_terms(piece)), secondary)


def _split_cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def _describe_row(header: Sequence[str], cells: Sequence[str]) -> str:
    """A row of a table as text, each cell behind its header; empty for a row without cells beside its label."""
    label = " ".join(filter(None, (cells[0], header[0] if header[0].startswith("(") else "")))
    named = [
        f"{head}: {cell}" if head else cell for head, cell in zip_longest(header[1:], cells[1:], fillvalue="") if cell
    ]
    return f"{label} — {'; '.join(named)}" if named else ""


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
    """Whether a question names a person or an animal by its sort, and the sentence is not about that sort.

    A sentence that names no sort may be about any, unless the question asks for a name: any name would match that.
    """
    asked = frozenset(map(stem, split_words(question)))
    general = asked & _GENERAL_WORDS.keys()
    accepted = general.union(*(sort for sort in _SORTS if sort & asked), *(_GENERAL_WORDS[each] for each in general))
    if not accepted:
        return False
    words = frozenset(map(stem, split_words(sentence)))
    named = words & (_NAMED_ONES | _GENERAL_WORDS.keys())
    return not named & accepted if named or asked & _NAMING_WORDS else False


def _message_text(message: Message) -> str:
    content: Any = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [cast("dict[str, Any]", part).get("text") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))
