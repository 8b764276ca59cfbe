"""Which statement supersedes which: a newer one about the same subject and attribute, with another value.

Rules for the clear cases, without a model, in English and Russian. Two statements are compared by their content words:
those in both name subject and attribute, the others are values. The newer one supersedes the older one

- if exactly one value differs, both values are of one kind (number, weekday, date, time of day, name), and the
  statements describe a state rather than past events; or
- if it corrects: it contains a correction word (`actually`, `no longer`, `теперь`) and shares the subject; or
- if both name a single thing that only one value can be (`my favourite`, `my password`), whatever the value is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from contexture.text.segmentation import split_sentences
from contexture.text.terms import split_words, stem, term_id

_SYNONYMS = {
    stem(word): canonical
    for canonical, words in {
        "live": "live lives living lived moved move relocated живу живет живем живут жить переехал переехала",
        "work": "work works working job employed работаю работает работа устроился устроилась",
    }.items()
    for word in words.split()
}
"""Words for one attribute: who moved lives elsewhere now."""

_WEEKDAYS = frozenset(
    stem(word)
    for word in """monday tuesday wednesday thursday friday saturday sunday mon tue wed thu fri sat sun
    today tomorrow tonight
    понедельник вторник среда среду четверг пятница пятницу суббота субботу воскресенье
    сегодня завтра""".split()
)
_MONTHS = frozenset(
    stem(word)
    for word in """january february march april may june july august september october november december
    января февраля марта апреля мая июня июля августа сентября октября ноября декабря
    январь февраль март апрель май июнь июль август сентябрь октябрь ноябрь декабрь""".split()
)
_NUMERALS = frozenset(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen twenty thirty forty
    fifty hundred noon midnight first second third
    ноль один одна два две три четыре пять шесть семь восемь девять десять одиннадцать двенадцать пятнадцать двадцать
    тридцать сорок пятьдесят сто полдень полночь""".split()
)
_CORRECTION = re.compile(
    r"\b(?:actually|correction|i meant|i mean|instead|no longer|not \w+ any ?more|any ?more|changed (?:my|the|to)"
    r"|has changed|have changed|switched|moved|rescheduled|postponed|renamed|turns out"
    r"|s now|is now|are now|now i|now we|now my|(?:sold|quit|stopped|gave up|replaced) .* now"
    r"|from now on|scratch that|my mistake|i was wrong|sorry|update|not \S+ but|rather than"
    r"|на самом деле|точнее|вернее|исправлени\w*|поправк\w*|я ошиб\w+|оказал\w+|больше не|уже не|теперь|отныне|вместо"
    r"|переехал\w*|перенес\w*|перенос\w*|сменил\w*|изменил\w*|передумал\w*|переименовал\w*|а не|не \S+ а)\b"
)
_SINGLE_VALUED = frozenset(
    stem(word)
    for word in """favourite favorite password address phone number birthday name email nickname job employer boss
    любимый любимая пароль адрес телефон номер рождения зовут имя почта должность начальник""".split()
)
_FRAME_WORDS = frozenset(
    stem(word)
    for word in """actually correction meant instead longer anymore changed switched moved now update sorry mistake
    turns rather really still already just also new again wrong
    самом деле точнее вернее исправление поправка ошибся ошиблась оказалось больше теперь отныне вместо переехал
    переехала перенес перенесли перенесен сменил сменила изменил изменила передумал передумала уже еще новый снова
    сейчас""".split()
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

_CAPITALISED = re.compile(r"[A-ZА-ЯЁ][\w-]*")
_DIGITS = re.compile(r"\d")
_MIN_SHARED = 2
_MAX_VALUES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class DatedStatement:
    """One remembered statement: its id, text, time and speaker."""

    id: str
    text: str
    time: datetime | None
    speaker: str


def find_superseded(statements: Sequence[DatedStatement]) -> dict[str, str]:
    """Maps the id of each superseded statement to the id of the newest statement that supersedes it.

    Statements without a time, or of different speakers, supersede nothing.
    """
    dated = sorted((each for each in statements if each.time is not None), key=lambda each: (each.time, each.id))
    found: dict[str, str] = {}
    for at, older in enumerate(dated):
        for newer in reversed(dated[at + 1 :]):
            if newer.speaker == older.speaker and newer.time != older.time and is_superseded(older.text, newer.text):
                found[older.id] = newer.id
                break
    return found


@lru_cache(maxsize=8_192)
def is_superseded(older: str, newer: str) -> bool:
    """Whether `newer` says of the same subject and attribute something else than `older`."""
    before, after = _describe(older), _describe(newer)
    shared = before.stems & after.stems
    lost, won = before.stems - shared, after.stems - shared - _FRAME_WORDS
    if not shared or not won or len(lost) > _MAX_VALUES or _names_other_subject(before, lost, after, won):
        return False
    one_value = len(lost) == len(won) == 1
    if after.corrects and _is_about(shared, before, after):
        return True
    if shared & _SINGLE_VALUED and (one_value or (lost and shared - _SINGLE_VALUED)):
        return True
    if not one_value or before.past or after.past or len(shared) < min(_MIN_SHARED, len(before.stems) - 1):
        return False
    old_value, new_value = next(iter(lost)), next(iter(won))
    kind = before.kinds[old_value]
    return (
        bool(kind) and kind == after.kinds[new_value] and (kind != "name" or _is_predicate(old_value, shared, before))
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Description:
    """The content stems of a statement in order, the kind of value each may be, and how it is told."""

    stems: frozenset[str]
    kinds: dict[str, str]
    corrects: bool
    past: bool


def _describe(text: str) -> _Description:
    words = [word for word in split_words(_COMPOUND_NUMBER.sub("x", text)) if word not in _TITLES]
    names = {word.lower().replace("ё", "е") for word in _inner_names(text)}
    kinds: dict[str, str] = {}
    for word in words:
        if term_id(word) is not None or _is_number(word):
            kinds.setdefault(_SYNONYMS.get(stem(word), stem(word)), _value_kind(word, names))
    joined = " ".join(words)
    past = any(match.group() not in _STATE_VERBS for match in _PAST_EVENT.finditer(joined))
    return _Description(stems=frozenset(kinds), kinds=kinds, corrects=_CORRECTION.search(joined) is not None, past=past)


def _value_kind(word: str, names: Iterable[str]) -> str:
    if stem(word) in _WEEKDAYS:
        return "day"
    if stem(word) in _MONTHS:
        return "month"
    if _is_number(word):
        return "number"
    return "name" if word in names else ""


def _is_number(word: str) -> bool:
    return word in _NUMERALS or _DIGITS.search(word) is not None


def _inner_names(text: str) -> list[str]:
    """Capitalised words that do not begin a sentence."""
    starts = {start for start, _ in split_sentences(text)}
    return [match.group() for match in _CAPITALISED.finditer(text) if match.start() not in starts]


def _names_other_subject(before: _Description, lost: frozenset[str], after: _Description, won: frozenset[str]) -> bool:
    """Whether plain words differ beside values: `my sister's phone is 12` is not about `my brother's phone is 34`."""
    plain = any(not before.kinds[each] for each in lost) and any(not after.kinds[each] for each in won)
    return plain and (any(before.kinds[each] for each in lost) or any(after.kinds[each] for each in won))


def _is_predicate(value: str, shared: frozenset[str], told: _Description) -> bool:
    """Whether a value follows at least half of the shared words: in `my son Tom lives in Rome` Tom is a subject."""
    order = list(told.kinds)
    return 2 * sum(each in shared for each in order[: order.index(value)]) >= len(shared)


def _is_about(shared: frozenset[str], before: _Description, after: _Description) -> bool:
    """Whether a correction is about the earlier statement: it shares most of the words that are not values."""
    subject = {each for each in before.stems if not before.kinds[each]} - _FRAME_WORDS
    return bool(shared & subject) and 2 * len(shared) >= min(len(before.stems), len(after.stems - _FRAME_WORDS))
