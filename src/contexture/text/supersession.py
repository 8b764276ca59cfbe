"""Which statement supersedes which: a newer one about the same subject and attribute, with another value.

Rules for the clear cases, without a model, in English and Russian. Two sentences are compared by their content words:
those in both name subject and attribute, the others are values. Each clause of the newer sentence is compared, too,
without a beginning such as `the doctor says`. It supersedes the older sentence

- if exactly one value differs, both values are of one kind (number, weekday, month, name), and the sentences describe
  a state rather than past events; or
- if it corrects: it contains a correction word (`actually`, `postponed`, `теперь`) and shares the subject; or
- if it ends what the older one says: `I sold the Volvo`, or the same words with or without a negation; or
- if both name a single thing that only one value can be (`my favourite`, `my password`), whatever the value is.

Sentences that name different people or animals supersede nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from contexture.text.questions import find_sorts
from contexture.text.segmentation import TextRange, split_sentences
from contexture.text.terms import split_words, stem, term_id

_ATTRIBUTE_WORDS = {
    "live": "live lives living lived moved move relocated живу живет живем живут жить переехал переехала переехали",
    "work": "work works working job employed работаю работает работа устроился устроилась",
    "cost": "cost costs pay pays price стоит стоят плачу платим цена обходится",
    "begin": "begin begins start starts open opens начинается начало открывается",
    "drive": "drive drives car езжу машина",
}
"""Words for one attribute: who moved lives elsewhere now."""

_SYNONYMS = {stem(word): canonical for canonical, words in _ATTRIBUTE_WORDS.items() for word in words.split()}

_ATTRIBUTES = frozenset(_SYNONYMS.values())

_WEEKDAYS = frozenset(
    stem(word)
    for word in """monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun
    mondays tuesdays wednesdays thursdays fridays saturdays sundays today tomorrow tonight
    понедельник вторник среда среду четверг пятница пятницу суббота субботу воскресенье
    понедельникам вторникам средам четвергам пятницам субботам воскресеньям сегодня завтра""".split()
)
_MONTHS = frozenset(
    stem(word)
    for word in """january february march april may june july august september october november december
    января февраля марта апреля мая июня июля августа сентября октября ноября декабря
    январь февраль март апрель май июнь июль август сентябрь октябрь ноябрь декабрь""".split()
)
_NUMERALS = frozenset(
    stem(word)
    for word in """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen twenty
    thirty forty fifty hundred noon midnight first second third fourth fifth sixth seventh eighth ninth tenth once twice
    ноль один одна одного два две три четыре пять шесть семь восемь девять десять одиннадцать двенадцать пятнадцать
    двадцать тридцать сорок пятьдесят сто полдень полночь первый второй третий третьего третьем четвертый пятый шестой
    седьмой восьмой девятый десятый двенадцатый пятнадцатый двадцатый тридцатый двое трое""".split()
)
_CORRECTION = re.compile(
    r"\b(?:actually|correction|i meant|i mean|instead|no longer|not \w+ any ?more|any ?more|turns out"
    r"|from (?:now|(?:this|next) \w+) on"
    r"|changed (?:my|the|to|it|our)|(?:has|have|was|were|got|been|is|are) (?:changed|moved|pushed|shifted|delayed"
    r"|extended|rescheduled|postponed|cancelled|raised|lowered|increased|reduced|renamed|replaced|brought forward)"
    r"|change of plans?|plans? (?:have |has )?changed|(?:pushed|shifted|extended|delayed) (?:it|them)"
    r"|we (?:raised|lowered|increased|reduced|cut|extended|shortened|replaced|chose|picked)"
    r"|switched|moved|rescheduled|postponed|renamed|these days|nowadays|by now|new \w+(?: \w+)? is"
    r"|s now|is now|are now|now i|now we|now my|now (?:costs?|lives?|works?|has)"
    r"|(?:sold|quit|stopped|gave up|replaced) .* now|scratch that|my mistake|i was wrong|sorry|update|no wait"
    r"|not \S+ but|n t (?:\S+ ){1,4}but|rather than|our new|my new|got a new"
    r"|на самом деле|точнее|вернее|исправлени\w*|поправк\w*|я ошиб\w+|(?:я )?перепутал\w*|оказал\w+|больше не|уже не"
    r"|теперь|отныне|вместо|переехал\w*|перенес\w*|перенос\w*|сдвинул\w*|отложил\w*|сменил\w*|смени\w+сь|поменял\w*"
    r"|изменил\w*|передумал\w*|переименовал\w*|задержал\w*|затянул\w*|продлил\w*|подорожал\w*|подешевел\w*"
    r"|повысил\w*|перевел\w*|снизил\w*|планы (?:из|по)менялись|лучше так|снова|а не|не (?:\S+ ){1,3}а)\b"
)
_ENDING = re.compile(
    r"\b(?:sold|quit|stopped|gave up|got rid of|dropped|cancelled|canceled|returned|left|finished with|broke up with)"
    r" (?:my |the |our |a |an |that |this )?(?P<what>\w+)"
    r"|\b(?!я\b|мы\b)(?P<before>\w+) (?:я |мы )?(?:продал|бросил|отменил|закрыл|выбросил|отдал)(?:а|и)?\b"
    r"|\b(?:продал|бросил|отменил|закрыл|выбросил|отдал|уволился из|уволилась из|отказался от|отказалась от)(?:а|и)?"
    r" (?:мою |мой |мое |нашу |наш )?(?P<after>\w+)"
)
"""Something that no longer is: what was sold, quit or cancelled."""

_NEGATION = re.compile(r"\b(?:not|never|no longer|\w*n t|не|нет|никогда)\b")
_REPORTING = re.compile(
    r"^(?:(?:and|but|so|а|и|но) )?(?:\w+ ){1,3}?(?:says?|said|told (?:me|us)|thinks|wrote|confirmed|called|mentioned"
    r"|сказал\w*|говорит|написал\w*|сообщил\w*|подтвердил\w*|велел\w*)(?: that| to| что)? "
)
_CLAUSE_END = re.compile(
    r"[,;:–—]\s+(?:(?:and|but|so|а|и|но)\s+)?|\s+(?:but|and)\s+(?=i\b|we\b|my\b|our\b)", re.IGNORECASE
)
_ADDITION = re.compile(r"\b(?:also|too|as well|besides|in addition|еще (?:и )?|тоже|также|кроме того)\b")
"""Words that add to what was said."""

_SINGLE_VALUED = frozenset(
    stem(word)
    for word in """favourite favorite password address phone number birthday name email nickname job employer boss
    любимый любимая пароль адрес телефон номер рождения зовут имя почта должность начальник""".split()
)
_FRAME_WORDS = frozenset(
    stem(word)
    for word in """actually correction meant instead longer anymore changed change plan switched moved now update sorry
    mistake turns rather really still already just also new again wrong wait got another days nowadays time
    pushed shifted back delayed extended rescheduled postponed renamed
    самом деле точнее вернее исправление поправка ошибся ошиблась перепутал оказалось больше теперь отныне вместо
    переехал переехала перенес перенесли перенесен сдвинули сменил сменила сменилась поменял изменил изменила передумал
    передумала уже еще новый новая новую новое снова опять сейчас лучше так будет ой""".split()
)
"""Words that mark a correction and say nothing of its subject."""

_PAST_EVENT = re.compile(
    r"\b(?:\w{3,}ed|met|went|saw|bought|ate|came|gave|took|had|got|made|told|said|ran|read|wrote|spoke|yesterday|ago)\b"
    r"|\b\w{2,}(?:л|ла|ли|лся|лась|лись)\b|\bвчера\b"
)
_STATE_VERBS = frozenset("called named located based married retired scheduled planned booked supposed зовут".split())
_TITLES = frozenset("mr mrs ms miss dr prof г гн".split())
"""They change with the name behind them, and are not a second value."""

_COMPOUND_NUMBER = re.compile(r"(?<=\d)[:.,/](?=\d)")
"""Inside times, dates and amounts, which are one value."""

_LABEL = re.compile(r"[^\W\d_]+ #?(\d[\w-]*) (?:is|are|was|were|has|have|will|\w+[аея]?н[аоы]?)\b")
"""A number that names its subject: `room 4 is booked`."""

_FIRST_PERSON = re.compile(r"(?:(?:and|so|well|now|actually|а|и|ну|теперь) )?(?:i|we|я|мы)\b")
_SUBJECT_WORDS = 3  # at the beginning of a sentence: `my younger sister`

_CAPITALISED = re.compile(r"[A-ZА-ЯЁ][\w-]*")
_DIGITS = re.compile(r"\d")
_MIN_SHARED = 2
_MAX_VALUES = 3
_MAX_EXTRA = 2  # words that only the newer sentence has, beside its value
_MAX_ENDED = 4  # content words of a sentence that is about one thing


@dataclass(frozen=True, kw_only=True, slots=True)
class DatedStatement:
    """One remembered statement: its id, text, time and speaker, and whether it may supersede others."""

    id: str
    text: str
    time: datetime | None
    speaker: str
    supersedes: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Supersession:
    """What of a statement is superseded: the ranges of its sentences, all of them if `whole`, and the newest cause."""

    by: str
    sentences: tuple[TextRange, ...]
    whole: bool


def find_superseded(statements: Sequence[DatedStatement]) -> dict[str, Supersession]:
    """By id, what of each statement newer ones supersede, and the newest that does.

    Statements without a time, or of different speakers, supersede nothing.
    """
    dated = sorted((each for each in statements if each.time is not None), key=lambda each: (each.time, each.id))
    described = [_describe_text(each.text) for each in dated]
    found: dict[str, Supersession] = {}
    for at, older in enumerate(dated):
        causes: dict[TextRange, str] = {}
        for place in range(len(dated) - 1, at, -1):
            newer = dated[place]
            if newer.supersedes and newer.speaker == older.speaker and newer.time != older.time:
                for before in described[at]:
                    if before.place not in causes and _is_superseded(before, described[place]):
                        causes[before.place] = newer.id
        if causes:
            whole = len(causes) == len(described[at])
            found[older.id] = Supersession(by=next(iter(causes.values())), sentences=tuple(sorted(causes)), whole=whole)
    return found


def is_superseded(older: str, newer: str) -> bool:
    """Whether a sentence of `newer` says of the subject and attribute of one of `older` something else."""
    return any(_is_superseded(before, _describe_text(newer)) for before in _describe_text(older))


def is_outdated(older: str, newer: str) -> bool:
    """Whether a sentence is superseded, or says beside other things what `newer` corrects.

    is_outdated("I live in Oslo with my wife and two cats.", "We moved to Bergen.")  # True
    """
    return any(
        _is_superseded(before, _describe_text(newer))
        or any(_is_partly_corrected(before.whole, each.whole) for each in _describe_text(newer))
        for before in _describe_text(older)
    )


def _is_partly_corrected(before: _Description, after: _Description) -> bool:
    return (
        after.corrects
        and not before.stems.isdisjoint(after.stems & _ATTRIBUTES)
        and not _speak_of_others(before, after)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sentence:
    """A sentence of a statement: its place, what it and its clauses say, and the stems of what it says has ended."""

    place: TextRange
    whole: _Description
    clauses: tuple[_Description, ...]
    ended: frozenset[str]


@lru_cache(maxsize=4_096)
def _describe_text(text: str) -> tuple[_Sentence, ...]:
    """The sentences of a statement; cached, because every statement is compared with every other one."""
    found: list[_Sentence] = []
    for start, end in split_sentences(text):
        sentence = text[start:end]
        whole = _describe(sentence)
        clauses = tuple(_describe_clauses(sentence, whole))
        found.append(_Sentence(place=(start, end), whole=whole, clauses=clauses, ended=_find_ended(sentence)))
    return tuple(found)


def _is_superseded(before: _Sentence, newer: Sequence[_Sentence]) -> bool:
    stems = before.whole.stems
    return any(
        not (stems.isdisjoint(after.whole.stems) and stems.isdisjoint(after.ended)) and _supersedes(before.whole, after)
        for after in newer
    )


def _supersedes(before: _Description, newer: _Sentence) -> bool:
    whole = newer.whole
    others = before.sorts and whole.sorts and not before.sorts & whole.sorts
    if others or ((before.adds or whole.adds) and not whole.corrects):
        return False
    return _ends(before, newer.ended) or any(_contradicts(before, each) for each in (whole, *newer.clauses))


def _contradicts(before: _Description, after: _Description) -> bool:
    shared = before.stems & after.stems
    lost = before.stems - shared
    if not shared or len(lost) > _MAX_VALUES or _speak_of_others(before, after):
        return False
    won = after.stems - shared - _FRAME_WORDS
    if not lost and before.negated != after.negated and not before.past and not after.past:
        return True
    if not won or _names_other_subject(before, lost, after, won):
        return False
    if after.corrects and _is_about(shared, before, after):
        return True
    one_value = len(lost) == len(won) == 1
    if shared & _SINGLE_VALUED and (one_value or (lost and shared - _SINGLE_VALUED)):
        return True
    return _differs_in_one_value(before, lost, after, won, shared)


def _differs_in_one_value(
    before: _Description, lost: frozenset[str], after: _Description, won: frozenset[str], shared: frozenset[str]
) -> bool:
    values = [each for each in won if after.kinds[each]]
    if len(lost) != 1 or len(values) != 1 or len(won) > 1 + _MAX_EXTRA or before.past or after.past:
        return False
    old_value, kind = next(iter(lost)), before.kinds[next(iter(lost))]
    if not kind or kind != after.kinds[values[0]] or len(shared) < min(_MIN_SHARED, len(before.stems) - 1):
        return False
    if kind == "name":
        return len(won) == 1 and _is_predicate(old_value, shared, before)
    return old_value not in before.labels


@dataclass(frozen=True, kw_only=True, slots=True)
class _Description:
    """The content stems of a sentence in order, the kind of value each may be, and how it is told."""

    stems: frozenset[str]
    kinds: dict[str, str]
    corrects: bool
    past: bool
    negated: bool
    adds: bool
    sorts: frozenset[str]
    subject: frozenset[str]
    first_person: bool
    labels: frozenset[str]


def _describe(text: str, *, corrects: bool = False, first: bool = True) -> _Description:
    words = [word for word in split_words(_COMPOUND_NUMBER.sub("x", text)) if word not in _TITLES]
    names = {word.lower().replace("ё", "е") for word in _inner_names(text, first=first)}
    kinds: dict[str, str] = {}
    for word in words:
        if term_id(word) is not None or _is_number(word):
            kinds.setdefault(_SYNONYMS.get(stem(word), stem(word)), _value_kind(word, names))
    joined = " ".join(words)
    past = any(match.group() not in _STATE_VERBS for match in _PAST_EVENT.finditer(joined))
    return _Description(
        stems=frozenset(kinds),
        kinds=kinds,
        corrects=corrects or _CORRECTION.search(joined) is not None,
        past=past,
        negated=_NEGATION.search(joined) is not None,
        adds=_ADDITION.search(joined) is not None,
        sorts=find_sorts(words),
        subject=find_sorts(words[:_SUBJECT_WORDS]),
        first_person=_FIRST_PERSON.match(joined) is not None,
        labels=frozenset(stem(match[1]) for match in _LABEL.finditer(joined)),
    )


def _describe_clauses(newer: str, whole: _Description) -> list[_Description]:
    """The clauses of a sentence, and the sentence without who reports it."""
    parts = [part.strip() for part in _CLAUSE_END.split(newer) if part and part.strip()]
    statement = _REPORTING.sub("", " ".join(newer.split()).lower()) if len(parts) == 1 else ""
    found = [_describe(part, corrects=whole.corrects, first=at == 0) for at, part in enumerate(parts)]
    if statement and statement != newer.lower():
        found.append(_describe(newer[-len(statement) :], corrects=whole.corrects, first=False))
    return [each for each in found if each.stems != whole.stems]


def _speak_of_others(before: _Description, after: _Description) -> bool:
    """Whether the subjects are different people or animals: `I moved` says nothing of `my sister lives in Oslo`."""
    if before.subject and after.subject:
        return not before.subject & after.subject
    return (bool(before.subject) and after.first_person) or (before.first_person and bool(after.subject))


def _ends(before: _Description, ended: frozenset[str]) -> bool:
    """Whether a newer sentence says that what the older one is about is sold, quit or cancelled."""
    if before.past or len(before.stems) > _MAX_ENDED:
        return False
    return not ended.isdisjoint(before.stems - _FRAME_WORDS)


def _find_ended(sentence: str) -> frozenset[str]:
    """The stems of what a sentence says is sold, quit or cancelled."""
    found = _ENDING.finditer(" ".join(split_words(sentence)))
    return frozenset(stem(word) for match in found for word in match.groups() if word and term_id(word) is not None)


def find_attribute_terms(text: str) -> frozenset[str]:
    """The stems of the content words of a text; words for one attribute, such as `live` and `moved`, are one."""
    return frozenset(_SYNONYMS.get(stem(word), stem(word)) for word in split_words(text) if term_id(word) is not None)


def find_attribute_words(text: str) -> tuple[str, ...]:
    """For each attribute that a text names, all words for it: a question where somebody lives finds who moved."""
    named = {_SYNONYMS.get(stem(word)) for word in split_words(text)}
    return tuple(words for attribute, words in _ATTRIBUTE_WORDS.items() if attribute in named)


def is_negated(text: str) -> bool:
    """Whether a text contains a negation, such as `not` or `нет`."""
    return _NEGATION.search(" ".join(split_words(text))) is not None


def find_value_kinds(text: str) -> frozenset[str]:
    """The kinds of values that a sentence states: `number`, `day`, `month` and `name`."""
    return frozenset(_describe(text).kinds.values()) - {""}


def _value_kind(word: str, names: Iterable[str]) -> str:
    if stem(word) in _WEEKDAYS:
        return "day"
    if stem(word) in _MONTHS:
        return "month"
    if _is_number(word):
        return "number"
    return "name" if word in names else ""


def _is_number(word: str) -> bool:
    return stem(word) in _NUMERALS or _DIGITS.search(word) is not None


def _inner_names(text: str, *, first: bool) -> list[str]:
    """Capitalised words that do not begin a sentence; `first` says that the text begins one."""
    starts = {start for start, _ in split_sentences(text)} if first else set[int]()
    return [match.group() for match in _CAPITALISED.finditer(text) if match.start() not in starts]


def _names_other_subject(before: _Description, lost: frozenset[str], after: _Description, won: frozenset[str]) -> bool:
    """Whether plain words differ beside values: `my sister's phone is 12` is not about `my brother's phone is 34`.

    So do a name and another value at once: `the ferry to Bergen leaves at nine` is not about the one to Oslo at ten.
    """
    old, new = ({kinds[each] for each in words} for kinds, words in ((before.kinds, lost), (after.kinds, won)))
    if "name" in old & new and len((old & new) - {""}) > 1:
        return True
    begins_alike = next(iter(before.kinds), "") not in lost
    return not begins_alike and "" in old and "" in new and len(old | new) > 1


def _is_predicate(value: str, shared: frozenset[str], description: _Description) -> bool:
    """Whether a value follows at least half of the shared words: in `my son Tom lives in Rome` Tom is a subject."""
    order = list(description.kinds)
    return 2 * sum(each in shared for each in order[: order.index(value)]) >= len(shared)


def _is_about(shared: frozenset[str], before: _Description, after: _Description) -> bool:
    """Whether a correction is about the earlier statement: it shares most of the words that are not values."""
    subject = {each for each in before.stems if not before.kinds[each]} - _FRAME_WORDS
    return bool(shared & subject) and 2 * len(shared) >= min(len(before.stems), len(after.stems - _FRAME_WORDS))
