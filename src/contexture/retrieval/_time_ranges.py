"""The time that a question names, in English or Russian: a day, a month, a year, or one relative to now."""

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_DAY = timedelta(days=1)
_FADE_DAYS = 7.0
_MIN_YEAR, _MAX_YEAR = 1900, 2100

_MONTHS = (
    ("january", "jan", "январ"),
    ("february", "feb", "феврал"),
    ("march", "mar", "март"),
    ("april", "apr", "апрел"),
    ("may", "may", "ма[йяею]"),
    ("june", "jun", "июн"),
    ("july", "jul", "июл"),
    ("august", "aug", "август"),
    ("september", "sept?", "сентябр"),
    ("october", "oct", "октябр"),
    ("november", "nov", "ноябр"),
    ("december", "dec", "декабр"),
)
_MONTH = "|".join(
    rf"(?P<m{number}>{full}|{short}\.?(?=\s+\d)|{russian}\w{{0,3}})"
    for number, (full, short, russian) in enumerate(_MONTHS, start=1)
)
_YEAR = r"(?:19|20)\d\d"
_ISO = re.compile(rf"\b(?P<year>{_YEAR})[-/.]?(?P<month>0[1-9]|1[0-2])[-/.]?(?P<day>0[1-9]|[12]\d|3[01])\b")
_DAY_MONTH = re.compile(
    rf"\b(?:(?P<before>[1-3]?\d)(?:st|nd|rd|th)?(?:\s+of)?\s+)?(?:{_MONTH})\b"
    rf"(?:\s+(?P<after>[1-3]?\d)(?:st|nd|rd|th)?\b)?(?:,?\s+(?P<year>{_YEAR}))?",
    re.IGNORECASE,
)
_YEAR_ALONE = re.compile(rf"\b(?:in|of|since|during|в|за|с)\s+(?P<year>{_YEAR})\b", re.IGNORECASE)
_AGO = re.compile(
    r"\b(?P<count>\d{1,3}|an?|one|two|three|four|five|six|seven|один|одну|два|две|три|четыре|пять|шесть|семь)?\s*"
    r"(?P<unit>days?|weeks?|months?|years?|дн(?:я|ей)|день|недел[юиь]|месяц(?:а|ев)?|год(?:а)?|лет)\s+(?:ago|назад)\b",
    re.IGNORECASE,
)
_NUMBERS = {
    **dict.fromkeys(("a", "an", "one", "один", "одну"), 1),
    **dict.fromkeys(("two", "два", "две"), 2),
    **dict.fromkeys(("three", "три"), 3),
    **dict.fromkeys(("four", "четыре"), 4),
    **dict.fromkeys(("five", "пять"), 5),
    **dict.fromkeys(("six", "шесть"), 6),
    **dict.fromkeys(("seven", "семь"), 7),
}


@dataclass(frozen=True, slots=True)
class DateRange:
    """A time from `start` up to `end`."""

    start: datetime
    end: datetime

    def closeness(self, time: datetime) -> float:
        """1 within the range, .5 a week outside of it, and less further away."""
        moment = time if time.tzinfo else time.replace(tzinfo=UTC)
        outside = max(self.start - moment, moment - self.end, timedelta())
        return 1 / (1 + outside / _DAY / _FADE_DAYS)


def find_time_range(question: str, now: datetime | None = None) -> DateRange | None:
    """The first time that a question names; None if it names none.

    A relative one ("last week") and a month without a year need `now`. A month without a year is the last such month.
    """
    moment = None if now is None else (now if now.tzinfo else now.replace(tzinfo=UTC))
    found = _find_iso(question) or _find_month(question, moment)
    if found is None and moment is not None:
        found = _find_ago(question, moment) or _find_relative(question, moment)
    return found or _find_year(question)


def _find_iso(question: str) -> DateRange | None:
    match = _ISO.search(question)
    return _day(int(match["year"]), int(match["month"]), int(match["day"])) if match else None


def _find_month(question: str, now: datetime | None) -> DateRange | None:
    for match in _DAY_MONTH.finditer(question):
        month = next(number for number in range(1, 13) if match[f"m{number}"])
        day = match["before"] or match["after"]
        bare = match["year"] is None and day is None
        if bare and match[f"m{month}"] in ("may", "march", "Mar", "mar"):  # verbs, unless written with a capital letter
            continue
        year = int(match["year"]) if match["year"] else _last_year_with(month, now)
        if year is None:
            continue
        found = _day(year, month, int(day)) if day else _month(year, month)
        if found is not None:
            return found
    return None


def _last_year_with(month: int, now: datetime | None) -> int | None:
    return None if now is None else now.year - (month > now.month)


def _find_year(question: str) -> DateRange | None:
    match = _YEAR_ALONE.search(question)
    return _years(int(match["year"]), 1) if match else None


def _find_ago(question: str, now: datetime) -> DateRange | None:
    match = _AGO.search(question)
    if match is None:
        return None
    amount = (match["count"] or "a").lower()
    count = int(amount) if amount.isdecimal() else _NUMBERS[amount]
    unit = match["unit"].lower()
    if unit.startswith(("day", "д")):
        return _days(now, -count, 1)
    if unit.startswith(("week", "нед")):
        return _days(now, -7 * count - 3, 7)
    if unit.startswith(("month", "мес")):
        return _months_before(now, count)
    return _years(now.year - count, 1)


_Resolver = Callable[[datetime], "DateRange | None"]
_RELATIVE: tuple[tuple[str, _Resolver], ...] = (
    (r"day before yesterday|позавчера", lambda now: _days(now, -2, 1)),
    (r"yesterday|last night|вчера", lambda now: _days(now, -1, 1)),
    (r"today|this morning|tonight|сегодня", lambda now: _days(now, 0, 1)),
    (
        r"(?:last|past|previous) week|на прошлой неделе|прошл\w+ недел\w+",
        lambda now: _days(now, -now.weekday() - 7, 7),
    ),
    (r"this week|на этой неделе|эт\w+ недел\w+", lambda now: _days(now, -6, 7)),
    (r"(?:last|past|previous) month|прошл\w+ месяц\w*", lambda now: _months_before(now, 1)),
    (r"this month|эт\w+ месяц\w*", lambda now: _months_before(now, 0)),
    (r"(?:last|past|previous) year|прошл\w+ год\w*", lambda now: _years(now.year - 1, 1)),
    (r"this year|эт\w+ год\w*", lambda now: _years(now.year, 1)),
    (r"recent(?:ly)?|lately|недавно|на днях", lambda now: _days(now, -13, 14)),
)
_RELATIVE_PATTERNS = tuple((re.compile(rf"\b(?:{words})\b", re.IGNORECASE), resolve) for words, resolve in _RELATIVE)


def _find_relative(question: str, now: datetime) -> DateRange | None:
    return next((resolve(now) for pattern, resolve in _RELATIVE_PATTERNS if pattern.search(question)), None)


def _day(year: int, month: int, day: int) -> DateRange | None:
    if not 1 <= day <= monthrange(year, month)[1]:
        return None
    start = datetime(year, month, day, tzinfo=UTC)
    return DateRange(start, start + _DAY)


def _days(now: datetime, offset: int, count: int) -> DateRange:
    start = now.replace(hour=0, minute=0, second=0, microsecond=0) + offset * _DAY
    return DateRange(start, start + count * _DAY)


def _month(year: int, month: int) -> DateRange:
    start = datetime(year, month, 1, tzinfo=UTC)
    return DateRange(start, start + monthrange(year, month)[1] * _DAY)


def _months_before(now: datetime, count: int) -> DateRange:
    months = now.year * 12 + now.month - 1 - count
    return _month(months // 12, months % 12 + 1)


def _years(year: int, count: int) -> DateRange | None:
    if not _MIN_YEAR <= year <= _MAX_YEAR:
        return None
    return DateRange(datetime(year, 1, 1, tzinfo=UTC), datetime(year + count, 1, 1, tzinfo=UTC))
