"""Which rows a query selects: by days it names, by what comes next or came last, or all of a kind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum

from contexture.workspace import Block

_MONTHS = (
    "january|jan|январ[яьюе]", "february|feb|феврал[яьюе]", "march|mar|март[ае]?", "april|apr|апрел[яьюе]",
    "may|ма[яйею]", "june|jun|июн[яьюе]", "july|jul|июл[яьюе]", "august|aug|август[ае]?",
    "september|sept?|сентябр[яьюе]", "october|oct|октябр[яьюе]", "november|nov|ноябр[яьюе]",
    "december|dec|декабр[яьюе]",
)  # fmt: skip
_MONTH = "|".join(f"(?:{names})" for names in _MONTHS)
_MONTH_DAY = re.compile(rf"(?<!\w)(?P<month>{_MONTH})\.?\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?!\w)", re.IGNORECASE)
_DAY_MONTH = re.compile(
    rf"(?<!\w)(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?\s+(?P<month>{_MONTH})(?!\w)", re.IGNORECASE
)
_ISO = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_PAST = re.compile(
    r"(?<!\w)(?:last|past|previous|последни[ехм]{1,2})\s+(\d{1,3})\s+(day|week|month|дн|ден|недел|месяц)\w*",
    re.IGNORECASE,
)
_UNITS = {"day": 1, "дн": 1, "ден": 1, "week": 7, "недел": 7, "month": 30, "месяц": 30}
_NEXT = re.compile(
    r"(?<!\w)(?:next|future|upcoming|coming|ahead|следующ\w*|предстоящ\w*|будущ\w*|ближайш\w*)(?!\w)", re.IGNORECASE
)
_LAST = re.compile(
    r"(?<!\w)(?:last|latest|newest|most recent|recent|последн\w*|недавн\w*|свеж\w*)(?!\w)", re.IGNORECASE
)
_EVERY = re.compile(
    r"(?<!\w)(?:all|every|each|any|first|which|list|unfinished|open|in progress"
    r"|все|всех|всем|кажд\w*|любы\w*|перв\w*|списо\w*)(?!\w)",
    re.IGNORECASE,
)
_HALF_YEAR = timedelta(days=183)


class Order(StrEnum):
    """Which of the rows that suit come first."""

    NONE = "none"
    SOONEST = "soonest"
    NEWEST = "newest"


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """Rows that a query asks for: those with a date among `days`, or since a day up to today; in this order."""

    days: tuple[date, ...]
    order: Order
    today: date
    since: date | None = None

    @property
    def spelled(self) -> str:
        """The days as cells spell them, so that a search finds them there."""
        return " ".join(day.isoformat() for day in self.days)

    def suits(self, block: Block) -> float:
        """How well a row's dates suit, from 0 to 1; 0 where nothing was asked about dates."""
        dates = list(dates_of(block))
        if self.days:
            return float(bool(set(dates) & set(self.days)))
        if self.since is not None:
            return float(any(self.since <= day <= self.today for day in dates))
        if self.order is Order.SOONEST:
            return max((_near(day - self.today) for day in dates if day >= self.today), default=0.0)
        if self.order is Order.NEWEST:
            return max((_near(self.today - day) for day in dates if day <= self.today), default=0.0)
        return 0.0


def selection_of(query: str, today: date) -> Selection | None:
    """What a query selects; None when it asks for nothing in particular."""
    days = tuple(dict.fromkeys(_days(query, today)))
    ahead, back = _NEXT.search(query), _LAST.search(query)
    if not (days or ahead or back or _EVERY.search(query)):
        return None
    order = Order.SOONEST if ahead else Order.NEWEST if back else Order.NONE
    return Selection(days=days, order=order, today=today, since=_since(query, today))


def dates_of(block: Block) -> Iterator[date]:
    """The days that a row's cells begin with."""
    for value in block.properties.values():
        found = _ISO.match(value) if isinstance(value, str) else None
        day = _day(int(found[1]), int(found[2]), int(found[3])) if found else None
        if day is not None:
            yield day


def _days(query: str, today: date) -> Iterator[date]:
    for found in _ISO.finditer(query):
        day = _day(int(found[1]), int(found[2]), int(found[3]))
        if day is not None:
            yield day
    for pattern in (_MONTH_DAY, _DAY_MONTH):
        for found in pattern.finditer(query):
            yield from _nearest(_month(found["month"]), int(found["day"]), today)


def _since(query: str, today: date) -> date | None:
    found = _PAST.search(query)
    return today - timedelta(days=int(found[1]) * _UNITS[found[2].lower()]) if found else None


def _nearest(month: int, day: int, today: date) -> Iterator[date]:
    """The day of the year that lies nearest."""
    years: Sequence[int] = (today.year, today.year - 1, today.year + 1)
    found = [each for year in years if (each := _day(year, month, day))]
    yield from sorted(found, key=lambda each: abs(each - today))[:1]


def _month(name: str) -> int:
    return next(at for at, names in enumerate(_MONTHS, start=1) if re.fullmatch(names, name, re.IGNORECASE))


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _near(away: timedelta) -> float:
    """1 for today, .5 in half a year."""
    return 1 / (1 + away / _HALF_YEAR)
