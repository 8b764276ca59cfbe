"""Times that a question names, in English, Russian and German: days, weeks, months, and ranges between dates."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from contexture.builders.workspace._intent import find_dates, find_months


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeSpan:
    """The time from `start` up to `end`, and how to say it; one of the ends may be open."""

    label: str
    start: datetime | None = None
    end: datetime | None = None

    @property
    def first_day(self) -> str:
        """The first day as an ISO date, in UTC; empty when open."""
        return "" if self.start is None else self.start.date().isoformat()


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)", re.IGNORECASE)


_WEEKDAYS = (
    r"monday|понедельник\w*|montag", r"tuesday|вторник\w*|dienstag", r"wednesday|сред[ыу]|mittwoch",
    r"thursday|четверг\w*|donnerstag", r"friday|пятниц\w*|freitag", r"saturday|суббот\w*|samstag",
    r"sunday|воскресень\w*|sonntag",
)  # fmt: skip
_SINCE = r"(?:since|from|after|starting|с|со|после|начиная с|seit|ab)"
_BEFORE = r"(?:before|by|until|till|up to|до|к|не позднее|bis|vor)"
_BETWEEN = _words(r"between", r"from", r"между", r"с", r"zwischen", r"vom")
_SINCE_DATE, _BEFORE_DATE = (re.compile(rf"(?<!\w){each}\s+\S{{0,12}}?$", re.IGNORECASE) for each in (_SINCE, _BEFORE))
_SINCE_DAY = [
    re.compile(rf"(?<!\w){_SINCE}\s+(?:last\s+|прошл\w+\s+|letzte\w*\s+)?(?:{day})(?!\w)", re.IGNORECASE)
    for day in _WEEKDAYS
]
_BEFORE_DAY = [
    re.compile(
        rf"(?<!\w){_BEFORE}\s+(?:next\s+|this\s+|(?:эт|следующ)\w+\s+|nächste\w*\s+|zum\s+)?(?:{day})(?!\w)",
        re.IGNORECASE,
    )
    for day in _WEEKDAYS
]
_LAST_DAYS = re.compile(
    r"(?<!\w)(?:last|past|previous|последни\w+|прошедши\w+|за|letzten?|vergangenen?)\s+(\d{1,3})\s+"
    r"(day|week|month|дн|ден|недел|месяц|tag|woche|monat)\w*",
    re.IGNORECASE,
)
_NEXT_DAYS = re.compile(
    r"(?<!\w)(?:next|coming|following|следующи\w+|ближайши\w+|nächsten?|kommenden?)\s+(\d{1,3})\s+"
    r"(day|week|month|дн|ден|недел|месяц|tag|woche|monat)\w*",
    re.IGNORECASE,
)
_UNIT_DAYS = {
    "day": 1, "дн": 1, "ден": 1, "tag": 1, "week": 7, "недел": 7, "woche": 7, "month": 30, "месяц": 30, "monat": 30
}  # fmt: skip
_FORTNIGHT = _words(r"(?:last|past) fortnight", r"последние две недели")
_DayRange = Callable[[date], tuple[date, date]]


def _days_around(first: int, count: int) -> _DayRange:
    return lambda today: (today + timedelta(days=first), today + timedelta(days=first + count))


def _week(ahead: int) -> _DayRange:
    def find_week(today: date) -> tuple[date, date]:
        monday = today - timedelta(days=today.weekday()) + timedelta(days=7 * ahead)
        return monday, monday + timedelta(days=7)

    return find_week


def _month(ahead: int) -> _DayRange:
    def find_month(today: date) -> tuple[date, date]:
        number = today.year * 12 + today.month - 1 + ahead
        return date(number // 12, number % 12 + 1, 1), date((number + 1) // 12, (number + 1) % 12 + 1, 1)

    return find_month


_RELATIVE: Sequence[tuple[re.Pattern[str], str, _DayRange]] = (
    (_words(r"yesterday", r"вчера\w*", r"gestern"), "yesterday", _days_around(-1, 1)),
    (_words(r"day after tomorrow", r"послезавтра", r"übermorgen"), "the day after tomorrow", _days_around(2, 1)),
    (_words(r"tomorrow", r"завтра\w*"), "tomorrow", _days_around(1, 1)),
    (_words(r"today", r"сегодня\w*", r"heute"), "today", _days_around(0, 1)),
    (_words(r"last week", r"(?:на )?прошл\w+ недел\w*", r"letzte woche", r"letzter woche"), "last week", _week(-1)),
    (_words(r"next week", r"(?:на )?следующ\w* недел\w*", r"nächste woche", r"nächster woche"), "next week", _week(1)),
    (_words(r"this week", r"(?:на |за )?эт\w+ недел\w*", r"diese woche", r"dieser woche"), "this week", _week(0)),
    (_words(r"last month", r"прошл\w+ месяц\w*", r"letzten monat"), "last month", _month(-1)),
    (_words(r"next month", r"следующ\w+ месяц\w*", r"nächsten monat"), "next month", _month(1)),
    (_words(r"this month", r"эт\w+ месяц\w*", r"diesen monat"), "this month", _month(0)),
)  # fmt: skip


def detect_span(question: str, now: datetime, zone: tzinfo) -> TimeSpan | None:
    """The time that a question names; None when it names none."""
    today = now.astimezone(zone).date()
    return _detect_dates(question, today, zone) or _detect_relative(question, today, zone)


def _detect_dates(question: str, today: date, zone: tzinfo) -> TimeSpan | None:
    """A range between two dates, since or before one, a day, or a month by its name."""
    dates = find_dates(question, today)
    if len(dates) > 1 and _BETWEEN.search(question):
        first, last = sorted(day for day, _ in dates[:2])
        return _make_span(f"from {first} to {last}", first, last + timedelta(days=1), zone)
    if dates:
        day, at = dates[0]
        if _SINCE_DATE.search(question[:at]):
            return _make_span(f"since {day}", day, None, zone)
        if _BEFORE_DATE.search(question[:at]):
            return _make_span(f"up to {day}", None, day + timedelta(days=1), zone)
        return _make_span(f"on {day}", day, day + timedelta(days=1), zone)
    for month in find_months(question, today):
        first, end = _month(0)(month)
        return _make_span(f"in {first:%B %Y}", first, end, zone)
    return None


def _detect_weekday(question: str, today: date, zone: tzinfo) -> TimeSpan | None:
    """Since the last day of a name, or up to the next one."""
    for weekday in range(7):
        if _SINCE_DAY[weekday].search(question):
            first = today - timedelta(days=(today.weekday() - weekday) % 7 or 7)
            return _make_span(f"since {first:%A}, {first}", first, None, zone)
        if _BEFORE_DAY[weekday].search(question):
            last = today + timedelta(days=(weekday - today.weekday()) % 7)
            return _make_span(f"up to {last:%A}, {last}", None, last + timedelta(days=1), zone)
    return None


def _detect_relative(question: str, today: date, zone: tzinfo) -> TimeSpan | None:
    if (span := _detect_weekday(question, today, zone)) is not None:
        return span
    for pattern, sign in ((_LAST_DAYS, -1), (_NEXT_DAYS, 1)):
        found = pattern.search(question)
        if found:
            days = int(found[1]) * _UNIT_DAYS[found[2].lower()]
            return _around(today, sign * days, zone)
    if _FORTNIGHT.search(question):
        return _around(today, -14, zone)
    for pattern, label, find_days in _RELATIVE:
        found = pattern.search(question)
        if found:
            first, end = find_days(today)
            if _SINCE_DATE.search(question[: found.start()]):
                return _make_span(f"since {first}", first, None, zone)
            return _make_span(label, first, end, zone)
    return None


def _around(today: date, days: int, zone: tzinfo) -> TimeSpan:
    first, last = sorted((today, today + timedelta(days=days)))
    label = f"in the last {-days} days" if days < 0 else f"in the next {days} days"
    return _make_span(label, first, last + timedelta(days=1), zone)


def _make_span(label: str, first: date | None, end: date | None, zone: tzinfo) -> TimeSpan:
    return TimeSpan(label=label, start=_start_of(first, zone), end=_start_of(end, zone))


def _start_of(day: date | None, zone: tzinfo) -> datetime | None:
    return None if day is None else datetime.combine(day, time.min, zone).astimezone(UTC)
