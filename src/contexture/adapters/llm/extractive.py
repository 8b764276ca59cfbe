"""Extractive answers without a language model: sentences of the prompt that match the question, quoted verbatim."""

import math
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import zip_longest
from typing import Any, cast

from contexture.text.language import detect_language
from contexture.text.questions import (
    SORTS,
    asks_about_past,
    asks_about_self,
    complete_follow_up,
    find_proper_names,
    split_questions,
)
from contexture.text.segmentation import split_sentences
from contexture.text.statements import MessageIntent, detect_intent, select_statements
from contexture.text.supersession import (
    find_attribute_terms,
    find_value_kinds,
    is_negated,
    is_outdated,
    is_superseded,
)
from contexture.text.terms import split_words, stem
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

MatchLabelFunction = Callable[[str, str], float]
"""Returns how well a table's row with a label is what a question asks for, from 0 to 1."""

_BLOCK_HEADER = re.compile(r"^\[(?:(\d+)\] \((.*)\)|Document (\d+): .*, Page \d+\])$", re.MULTILINE)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_HEADING = re.compile(r"^\\*#{1,6}\s.*$", re.MULTILINE)
_TABLE_ROW = re.compile(r"\s*\|.*\|\s*$")
_TABLE_RULE = re.compile(r"[\s|:-]+")
_VALUE = re.compile(
    r"\(?[$€£₽].*|[\d.,]+\s?%?\s+to\s+[\d.,]+\s?%?|(?!(?:19|20)\d\d$)[\d.,%\s()–—-]*\d[\d.,%\s()–—-]*"
)  # no header: a row without one
_CITATION_MARKS = re.compile(r"(?: \[\d+\])+$", re.MULTILINE)
_DOCUMENTS_NAME = "context"
_MATERIAL_NAMES = ("memory", _DOCUMENTS_NAME)
_MATERIAL_ROLES = ("system", "user")
_SPEAKER_ROLES = ("user", "assistant", "tool")
_SECONDARY_LABELS = ("assistant", "summary")
_BULLET = re.compile(r"^\s*(?:[-*+•>]\s+)+(?=\S)")
_ORG_LINE = re.compile(r"^\s*#\+\w+:?")
_CODE_FENCE = re.compile(r"^\s*(?:```|~~~)")
_LINK_TARGET = re.compile(r"^\s*\[[^\]\n]+\]:\s*\S+\s*$")
_RULE = re.compile(r"\s*[-=~_*]{3,}\s*")
_SETEXT_HEADING = re.compile(r"(?:(?<=\n\n)|\A\s*)[^\n|]+\n[ ]*(?:={3,}|-{3,}|~{3,})[ ]*(?=\n|\Z)")
_LINK = re.compile(r"!?\[([^\[\]\n]+)\]\((?:[^()\s]|\([^()\s]*\)|\[\[[^\]\n]*\]\])+(?:\s+\"[^\"\n]*\")?\)")
_WIKI_LINK = re.compile(r"\[\[([^\[\]\n]+)\]\]")
_EMPHASIS = re.compile(r"(?<![\w*_])(\*\*|__)(?=\S)([^\n*_]+?)(?<=\S)\1(?![\w*_])")
_DATELINE = re.compile(
    r"^[ ]*(?:[A-Z][\w.'’-]*,?[ ]?){0,5}(?:[-–—]{1,2})?\((?:[A-Z]{2,}(?: [A-Z][A-Za-z]+)?|Reuters)\)[ ]*[-–—]*[ ]*",
    re.MULTILINE,
)
_CLOSING_MARKS = "\"'»”’)]*_ "
_MIN_PROSE = 2  # sentences of a document; then its lines without a full stop are headings
_PAGE_OF_LABEL = re.compile(r", page \d+$|, Page \d+\]$|^\[Document \d+: ")
_MAX_HEADING_WORDS = 10
_HEADING_WORTH = 0.5  # times the score of a heading
_OFF_TOPIC = 0.25  # times the score of a sentence whose document has none of the question's words
_SIMILAR_NAME = 0.8
_CONTINUES = re.compile(r"(?:and|or|but|what about|how about|а|и|или|что насч[её]т|как насч[её]т)\b.*\?", re.IGNORECASE)
_CYRILLIC = re.compile(r"[\u0400-\u04ff]")
_MAX_SENTENCES = 3
_MAX_OF_PARTS = 4  # for several questions in one message
_MAX_FACTS = 8  # listed when the user asks what is known
_MIN_SHARE_OF_BEST = 0.5  # of the best score: sentences with a lower score are left out
_MIN_SIMILARITY = 0.55
_CHARS_PER_TOKEN = 4
_MAX_COMPARED = 32  # sentences; each is embedded
_CLEAR_SHARE = 0.6  # of the question by words: meaning is not asked

_ANIMALS = frozenset[str]().union(*SORTS[:8])
_CHILDREN = frozenset[str]().union(*SORTS[8:11])
_NAMED_ONES = frozenset[str]().union(*SORTS)
_GENERAL_WORDS = {
    **dict.fromkeys(map(stem, ("pet", "pets", "питомец", "питомца")), _ANIMALS),
    **dict.fromkeys(map(stem, ("child", "children", "ребенок", "ребенка", "дети", "детей")), _CHILDREN),
}
"""Words for several sorts of people or animals, and the sorts that they accept."""

_NAMING_WORDS = frozenset(map(stem, "called name named names зовут звать имя кличка".split()))


_PRONOUN = re.compile(
    r"(?:and |but |so |а |и |но )?(?:he|she|it|they|his|her|hers|its|their|there|он|она|оно|они|его|ее|их|там|туда)\b"
)
_ABOUT_BEFORE = 0.7  # of a word that only the sentence before has, to which a pronoun refers

_ASKS_WHEN = r"when|what (?:time|day|date)|which (?:day|date|month)|когда|во сколько|как\w+ (?:числа|день|дня|дням)"
_ASKS_AMOUNT = (
    r"what (?:do|does|did|will|would)\b.{0,80} (?:cost|pay|weigh|earn|spend)|во сколько обош\w+"
    r"|what (?:is|was|are|were) (?:the )?(?:\w+ ){0,3}(?:costs?|price|fees?|rate|budget|total|amount|salary|rent)"
    r"|(?:what|which) (?:code|price)|how much|как\w+ (?:номер|код|цена|стоимость|плата|бюджет|размер|процент)"
)
_ASKS_NUMBER = (
    r"how (?:many|old|long|big|tall|far)|(?:what|which) (?:year|number|seat|size)|сколько|как\w+ (?:год\w*|рост|вес)"
)
_ASKS_WHO = r"who|whose|whom|what is the name|кто|кого|кому|чей|чья|как зовут"
_EXPECTED_VALUES = tuple(
    (re.compile(rf"\b(?:{form})\b"), frozenset(kinds.split()))
    for form, kinds in (
        (_ASKS_AMOUNT, "digits"),
        (_ASKS_WHEN, "day month number"),
        (_ASKS_NUMBER, "number"),
        (_ASKS_WHO, "name"),
    )
)
"""Questions by their form, and the kinds of values that answer them."""

_FITTING_VALUE = 1.7  # times the score of a sentence with such a value


@dataclass(frozen=True, slots=True)
class _RowAnswers:
    """A row's label, its terms, and those of the columns in which it has a yes and a no."""

    name: str
    label: frozenset[str]
    yes: frozenset[str]
    no: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence, the number it is cited by, its terms, when it was said, and the terms that a pronoun refers to."""

    text: str
    mark: str
    terms: frozenset[str]
    secondary: bool = False
    time: tuple[str, int] = ("", 0)
    before: frozenset[str] = frozenset()
    row: _RowAnswers | None = None
    around: frozenset[str] = frozenset()  # terms of the whole document that it is from
    heading: bool = False


class ExtractiveModel:
    """Chat model that answers with up to three sentences of the prompt that match the question.

    Sentences come from the numbered blocks and from the conversation, tool results included; a row of a table is one,
    with the headers of its columns. Each keeps the number of
    its block as a citation; citations in earlier answers refer to earlier prompts and are removed. Questions, headings
    and duplicates are left out; what the assistant said is quoted only if nothing else matches. With `compare`,
    sentences match by meaning too. A sentence about another person or animal than the question names does not match.
    Markup around a sentence, such as a list bullet or the address of a link, is left out. A sentence of a document that
    has few words of the question counts less, and nothing matches a question whose proper names are nowhere.
    If nothing matches, the answer says so and names the setting that connects a model. A statement or a greeting is
    acknowledged. Equal prompts give equal answers.
    """

    def __init__(self, compare: CompareFunction | None = None, match_label: MatchLabelFunction | None = None) -> None:
        self._compare = compare
        self._match_label = match_label

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
        question = _find_question(messages, at)
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
        known = _names_are_known(question, [each for place, each in enumerate(messages) if place != at])
        found = await self._find_answers(question, sentences) if known else []
        if not found:
            command = detect_intent(question) is MessageIntent.COMMAND
            yield _ACKNOWLEDGEMENTS[lang, MessageIntent.SMALLTALK] if command else NO_MATCH_ANSWERS[lang]
            return
        room = max_tokens * _CHARS_PER_TOKEN
        for at, sentence in enumerate(found):
            piece = ("\n" if at else "") + sentence.text + sentence.mark
            room -= len(piece)
            if at and room < 0:
                return
            yield piece

    async def _find_answers(self, question: str, sentences: list[_Sentence]) -> list[_Sentence]:
        """The best sentences for each question in a message, in the order in which they are asked."""
        parts = split_questions(question)
        if len(parts) == 1:
            return await self._find_answer(question, sentences)
        found: dict[int, _Sentence] = {}
        for part in parts:
            best = await self._find_answer(part, sentences)
            found |= {id(each): each for each in best[: max(1, _MAX_OF_PARTS // len(parts))]}
        return list(found.values())

    async def _find_answer(self, question: str, sentences: Sequence[_Sentence]) -> list[_Sentence]:
        if asks_about_self(question):
            statements = [each for each in sentences if not each.secondary and select_statements(each.text)]
            return statements[:_MAX_FACTS]
        fitting = _select_rows(question, [each for each in sentences if not _is_about_other(question, each.text)])
        wanted = find_attribute_terms(question)
        scores = _score_sentences(fitting, wanted, [0.0] * len(fitting))
        clear = len(wanted) > 1 and any(len(each.terms & wanted) >= _CLEAR_SHARE * len(wanted) for each in fitting)
        if self._compare is not None and not clear and fitting:
            near = fitting[:_MAX_COMPARED]
            scores = _score_sentences(near, wanted, await self._compare(question, [each.text for each in near]))
        scores = _prefer_expected_values(question, self._add_matching_rows(question, scores))
        stated = _best_sentences(question, [pair for pair in scores if not pair[1].secondary])
        return stated or _best_sentences(question, scores)

    def _add_matching_rows(
        self, question: str, scores: Sequence[tuple[float, _Sentence]]
    ) -> Sequence[tuple[float, _Sentence]]:
        """The scores, higher for rows whose label the question has, above all where they have words of it, too."""
        if self._match_label is None:
            return scores
        matches = [self._match_label(question, each.row.name) if each.row else 0.0 for _, each in scores]
        return [(score + match, each) for (score, each), match in zip(scores, matches, strict=True)]


def _classify(message: str) -> MessageIntent:
    """The intent of a message; an order to remember something is a statement."""
    intent = detect_intent(message)
    is_stated = intent is not MessageIntent.QUESTION and select_statements(message)
    return MessageIntent.STATEMENT if is_stated else intent


def _is_known(message: str, sentences: Sequence[_Sentence]) -> bool:
    """Whether one sentence has every word of a message: `garage code` asks for it, and says nothing."""
    wanted = find_attribute_terms(message)
    return bool(wanted) and any(wanted <= each.terms for each in sentences)


def _last_question(messages: Sequence[Message]) -> int:
    """Position of the last message of the user; -1 if there is none."""
    places = [at for at, each in enumerate(messages) if each.get("role") == "user" and not _is_material(each)]
    return places[-1] if places else -1


def _source_sentences(messages: Sequence[Message], question: int) -> Iterator[_Sentence]:
    """Sentences of the numbered blocks, then of the conversation without the question, newest message first."""
    for message in messages:
        if _is_material(message):
            yield from _block_sentences(_message_text(message), documents=message.get("name") == _DOCUMENTS_NAME)
    for at, message in reversed(list(enumerate(messages))):
        if at != question and message.get("role") in _SPEAKER_ROLES and not _is_material(message):
            said = _CITATION_MARKS.sub("", _message_text(message))
            yield from _split_source(said, "", secondary=message.get("role") == "assistant", time=("now", at))


def _is_material(message: Message) -> bool:
    """Whether a message shows retrieved text; builders give no message of a history such a name."""
    return message.get("role") in _MATERIAL_ROLES and message.get("name") in _MATERIAL_NAMES


def _find_question(messages: Sequence[Message], at: int) -> str:
    """The message at a position; one that continues a question before it, "and in 2019?", together with that one."""
    question = _message_text(messages[at]) if at >= 0 else ""
    if not _CONTINUES.match(question.strip()):
        return question
    spoken = [each for each in messages[:at] if each.get("role") == "user" and not _is_material(each)]
    return complete_follow_up(question, [_message_text(each) for each in spoken])


def _names_are_known(question: str, messages: Sequence[Message]) -> bool:
    """Whether a question has no proper names, or a message has one of them, also with a typing error or in a word.

    Nothing is known of names that messages may have in Cyrillic letters.
    """
    names = find_proper_names(question)
    text = "\n".join(map(_message_text, messages)).casefold() if names else ""
    if not names or _CYRILLIC.search(text) or any(name in text for name in names):
        return True
    words = frozenset(split_words(text))
    return any(get_close_matches(name, words, n=1, cutoff=_SIMILAR_NAME) for name in names)


def _block_sentences(text: str, *, documents: bool) -> list[_Sentence]:
    found: list[tuple[str, list[_Sentence]]] = []
    marks = list(_BLOCK_HEADER.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    for mark, end in zip(marks, ends, strict=True):
        speaker, _, day = (mark[2] or "").rpartition(", ")
        if not _DAY.fullmatch(day):
            speaker, day = "", mark[2] or ""
        secondary = (speaker or day).partition(",")[0] in _SECONDARY_LABELS
        said = _remove_markup(text[mark.end() : end])
        number = mark[1] or mark[3]
        # Of one day, a statement that corrects another is shown before it.
        sentences = list(
            _split_source(said, f" [{number}]", secondary=secondary, time=(day if speaker else "", -int(number)))
        )
        found.append((_PAGE_OF_LABEL.sub("", mark[2] or mark[0]), sentences))
    return _relate_to_documents(found) if documents else [each for _, sentences in found for each in sentences]


def _relate_to_documents(found: Sequence[tuple[str, Sequence[_Sentence]]]) -> list[_Sentence]:
    """The sentences with the terms of their document, of which each page may be a block, and whether they are headings.

    Short lines without a full stop are headings where a block has sentences with one.
    """
    around: dict[str, frozenset[str]] = {}
    for label, sentences in found:
        terms = find_attribute_terms(label).union(*(each.terms for each in sentences))
        around[label] = around.get(label, frozenset()) | terms
    related: list[_Sentence] = []
    for label, sentences in found:
        prose = sum(_ends_sentence(each.text) for each in sentences) >= _MIN_PROSE
        related += [
            replace(each, around=around[label], heading=prose and each.row is None and _is_heading(each.text))
            for each in sentences
        ]
    return related


def _is_heading(text: str) -> bool:
    return not _ends_sentence(text) and len(text.split()) <= _MAX_HEADING_WORDS


def _ends_sentence(text: str) -> bool:
    bare = text.rstrip(_CLOSING_MARKS)
    return bare.endswith((".", "!", "?", ":", ";", "。")) and not bare.endswith("...")


def _remove_markup(text: str) -> str:
    """The text of a document without markup: a list item or a block of code is a paragraph, a heading is left out."""
    lines: list[str] = []
    for line in _SETEXT_HEADING.sub("", text).split("\n"):
        if _TABLE_ROW.match(line):
            lines.append(line)
            continue
        item = _BULLET.sub("", line)
        bare = _ORG_LINE.sub("", item)
        if _CODE_FENCE.match(bare) or _LINK_TARGET.match(bare) or _RULE.fullmatch(bare):
            lines.append("")
            continue
        if _HEADING.match(bare.lstrip()):
            lines.append("")
            continue
        lines += ("", bare) if item != line else (bare,)
    plain = _LINK.sub(r"\1", "\n".join(lines))
    plain = _EMPHASIS.sub(r"\2", _WIKI_LINK.sub(r"\1", plain))
    return _DATELINE.sub("", plain)


def _split_source(
    text: str, mark: str, *, secondary: bool = False, time: tuple[str, int] = ("", 0)
) -> Iterator[_Sentence]:
    prose: list[str] = []
    header: list[str] = []
    rows: dict[str, _RowAnswers] = {}
    for line in text.split("\n"):
        if not _TABLE_ROW.match(line):
            header = []
            prose.append(line)
        elif _TABLE_RULE.fullmatch(line):
            continue
        elif not header and not any(map(_VALUE.fullmatch, _split_cells(line)[1:])):
            header = _split_cells(line)
        elif row := _describe_row(header or [""], cells := _split_cells(line)):
            rows[row] = _find_row_answers(header, cells)
    said = "\n".join(prose)
    pieces = (" ".join(said[start:end].split()) for start, end in split_sentences(said))
    before = frozenset[str]()
    for piece in (*pieces, *rows):
        terms = find_attribute_terms(piece)
        before = before | terms if _PRONOUN.match(" ".join(split_words(piece))) else terms
        if not piece.rstrip("\"'»”)").endswith(("?", "？")) and piece not in _OWN_ANSWERS:
            yield _Sentence(piece, mark, terms, secondary, time, before - terms, rows.get(piece))


def _split_cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def _describe_row(header: Sequence[str], cells: Sequence[str]) -> str:
    """A row of a table as text, each cell behind its header; empty for a row without cells beside its label."""
    label = " ".join(filter(None, (cells[0], header[0] if header[0].startswith("(") else "")))
    named = [
        f"{head}: {cell}" if head else cell for head, cell in zip_longest(header[1:], cells[1:], fillvalue="") if cell
    ]
    return f"{label} — {'; '.join(named)}" if named else ""


_YES = frozenset("yes y true ✓ ✔ да истина ja oui si sí".split())
_NO = frozenset("no n false ✗ ✘ нет ложь nein non".split())
_ASKS_FOR_ROWS = re.compile(
    r"\b(?:who|whose|which|what|list|show|how many|кто|у кого|какие|какой|сколько|wer|welche)\b"
)


def _find_row_answers(header: Sequence[str], cells: Sequence[str]) -> _RowAnswers:
    columns = list(zip(header[1:], (cell.casefold() for cell in cells[1:]), strict=False))
    return _RowAnswers(
        name=cells[0],
        label=find_attribute_terms(cells[0]),
        yes=frozenset[str]().union(*(find_attribute_terms(head) for head, cell in columns if cell in _YES)),
        no=frozenset[str]().union(*(find_attribute_terms(head) for head, cell in columns if cell in _NO)),
    )


def _select_rows(question: str, sentences: Sequence[_Sentence]) -> list[_Sentence]:
    """The sentences without the rows that answer "who has not paid?" with a yes, or "who has paid?" with a no.

    A question that names a row asks for its cells, whatever they are.
    """
    asked = question.casefold()
    if not _ASKS_FOR_ROWS.search(asked):
        return list(sentences)
    wanted, negated = find_attribute_terms(question), is_negated(question)
    return [
        each
        for each in sentences
        if each.row is None or wanted & each.row.label or not wanted & (each.row.yes if negated else each.row.no)
    ]


def _drop_repeated(found: Sequence[_Sentence]) -> list[_Sentence]:
    """The sentences without repetitions; the first of equal ones is kept."""
    return list({sentence.terms or sentence.text: sentence for sentence in reversed(found)}.values())[::-1]


def _score_sentences(
    sentences: Sequence[_Sentence], wanted: frozenset[str], similar: Sequence[float]
) -> list[tuple[float, _Sentence]]:
    """Each sentence with its score: the share of the question's words it contains, rarer ones weigh more, and meaning.

    A sentence without a word of the question counts only if it is clearly similar. A heading counts less, and so does a
    sentence of a document with fewer words of the question than another has.
    """
    holders = Counter(term for sentence in sentences for term in sentence.terms & wanted)
    worth = {term: math.log(1 + len(sentences) / count) for term, count in holders.items()}
    most = sum(worth.values()) or 1.0
    held = [len(sentence.around & wanted) for sentence in sentences]
    best = max(held, default=0)
    scores: list[tuple[float, _Sentence]] = []
    for sentence, meaning, near in zip(sentences, similar, held, strict=True):
        words = sum(worth[term] for term in sentence.terms & wanted) / most
        words += _ABOUT_BEFORE * sum(worth.get(term, 0.0) for term in sentence.before & wanted) / most
        counts = words > 0 or meaning >= _MIN_SIMILARITY
        related = _OFF_TOPIC + (1 - _OFF_TOPIC) * near / best if sentence.around and best else 1.0
        share = related * (_HEADING_WORTH if sentence.heading else 1.0)
        scores.append(((words + meaning) * share if counts else 0.0, sentence))
    return scores


def _prefer_expected_values(question: str, scores: Sequence[tuple[float, _Sentence]]) -> list[tuple[float, _Sentence]]:
    """The scores, higher where a sentence has a value of the kind that the question asks for."""
    asked = " ".join(split_words(question))
    expected = next((kinds for form, kinds in _EXPECTED_VALUES if form.search(asked)), frozenset[str]())
    return [
        (score * _FITTING_VALUE if score and expected & _find_values(sentence.text) else score, sentence)
        for score, sentence in scores
    ]


def _find_values(text: str) -> frozenset[str]:
    kinds = find_value_kinds(text)
    return kinds | {"digits"} if any(char.isdigit() for char in text) else kinds


def _best_sentences(question: str, scores: Sequence[tuple[float, _Sentence]]) -> list[_Sentence]:
    """The sentences that score half of the best or more, best first, newer ones first; none that a newer supersedes."""
    best = max((score for score, _ in scores), default=0.0)
    close = [(score, sentence) for score, sentence in scores if score > 0 and score >= best * _MIN_SHARE_OF_BEST]
    close.sort(key=lambda each: (round(each[0], 6), each[1].time), reverse=True)
    if not asks_about_past(question):
        known = [sentence for score, sentence in scores if score > 0 and sentence.time[0]]
        close = [pair for pair in close if not any(is_superseded(*texts) for texts in _pair_newer(pair[1], known))]
        close.sort(key=lambda pair: any(is_outdated(*texts) for texts in _pair_newer(pair[1], known)))
    return [sentence for _, sentence in close[:_MAX_SENTENCES]]


def _pair_newer(sentence: _Sentence, known: Sequence[_Sentence]) -> list[tuple[str, str]]:
    """The text of a dated sentence with that of each newer one."""
    return [(sentence.text, newer.text) for newer in known if sentence.time[0] and newer.time > sentence.time]


def _is_about_other(question: str, sentence: str) -> bool:
    """Whether a question names a person or an animal by its sort, and the sentence is not about that sort.

    A sentence that names no sort may be about any, unless the question asks for a name: any name would match that.
    """
    asked = frozenset(map(stem, split_words(question)))
    general = asked & _GENERAL_WORDS.keys()
    accepted = general.union(*(sort for sort in SORTS if sort & asked), *(_GENERAL_WORDS[each] for each in general))
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
