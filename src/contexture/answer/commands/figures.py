"""The figures in a sentence and what they count, so that two sources can be compared."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from contexture.text.stopwords import STOPWORDS
from contexture.text.terms import stem

_SCALES = {
    "thousand": 1e3,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
    "mln": 1e6,
    "bn": 1e9,
    "тыс": 1e3,
    "тысяч": 1e3,
    "тысячи": 1e3,
    "млн": 1e6,
    "миллиона": 1e6,
    "миллионов": 1e6,
    "миллион": 1e6,
    "млрд": 1e9,
    "миллиарда": 1e9,
    "миллиардов": 1e9,
    "миллиард": 1e9,
    "трлн": 1e12,
}
_SPELLED = {
    **{name: float(at) for at, name in enumerate("one two three four five six seven eight nine ten".split(), start=1)},
    "twelve": 12.0,
    "twenty": 20.0,
    "dozen": 12.0,
    "два": 2.0,
    "две": 2.0,
    "три": 3.0,
    "четыре": 4.0,
    "пять": 5.0,
    "шесть": 6.0,
    "семь": 7.0,
    "восемь": 8.0,
    "девять": 9.0,
    "десять": 10.0,
}
_CURRENCY = {"$": "dollar", "€": "euro", "£": "pound", "₽": "rubl"}
_NUMBER = r"\d{1,3}(?:[ \u00a0,]\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?"
_FIGURE = re.compile(
    rf"(?P<sign>[$€£₽])?(?<![\w.])(?P<number>{_NUMBER}|(?:{'|'.join(_SPELLED)})\b)"
    rf"(?:[ \u00a0]?(?P<scale>{'|'.join(sorted(_SCALES, key=len, reverse=True))})\b\.?)?"
    r"(?P<percent>[ \u00a0]?(?:%|percent\b|per cent\b|процент\w*))?(?P<after>(?:[ \u00a0-]+[^\W\d_]+){0,3})",
    re.IGNORECASE,
)
_DIGITS = re.compile(rf"(?<![\w<])(?:{_NUMBER})(?![\w>])")
_STOP = STOPWORDS["en"] | STOPWORDS["ru"]
_YEARS = range(1900, 2101)
_MONTHS = re.compile(
    "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|янв|фев|мар|апр|мая|июн|июл|авг|сен|окт|ноя|дек", re.IGNORECASE
)
PERCENT = "%"
PEOPLE = "people"
_PEOPLE = frozenset(
    stem(word)
    for word in """people persons workers dockers employees staff strikers protesters demonstrators passengers residents
    miners soldiers victims patients members voters students injured killed dead arrested evacuated
    человек людей рабочих докеров сотрудников работников участников жителей пассажиров погибших пострадавших
    раненых задержанных избирателей студентов""".split()
)

Units: TypeAlias = dict[str, set[float]]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and the stem of what it counts."""

    value: float
    unit: str


def figures(text: str) -> tuple[Figure, ...]:
    """The figures that count something; years, dates and bare numbers do not."""
    found = (_figure(match) for match in _FIGURE.finditer(text))
    return tuple(figure for figure in found if figure is not None)


def digits(text: str) -> frozenset[str]:
    """Every number that is written in digits, without its separators."""
    return frozenset(re.sub(r"[ \u00a0,]", "", match.group()).rstrip(".") for match in _DIGITS.finditer(text))


def differing(one: str, other: str) -> str | None:
    """What two texts count differently; None when every unit that both use has a value in common."""
    left, right = by_unit(one), by_unit(other)
    shared = sorted(unit for unit in left.keys() & right.keys() if left[unit].isdisjoint(right[unit]))
    return shared[0] if shared else None


def by_unit(text: str) -> Units:
    """The values in a text, by what they count."""
    found: Units = {}
    for figure in figures(text):
        found.setdefault(figure.unit, set()).add(figure.value)
    return found


def _figure(match: re.Match[str]) -> Figure | None:
    value = _value(match["number"]) * _SCALES.get((match["scale"] or "").lower(), 1.0)
    unit = _unit(match)
    if not unit or (value in _YEARS and not match["scale"] and unit != PERCENT and not match["sign"]):
        return None
    return Figure(value, unit)


def _value(number: str) -> float:
    if number.lower() in _SPELLED:
        return _SPELLED[number.lower()]
    grouped = re.sub(r"[ \u00a0]|,(?=\d{3}\b)", "", number)
    return float(grouped.replace(",", "."))


def _unit(match: re.Match[str]) -> str:
    if match["percent"]:
        return PERCENT
    if match["sign"]:
        return _CURRENCY[match["sign"]]
    words = [word for word in re.findall(r"[^\W\d_]+", match["after"].lower()) if word not in _STOP]
    if not words or _MONTHS.match(words[0]):
        return ""
    unit = stem(words[0])
    return PEOPLE if unit in _PEOPLE else unit
