"""When a sentence says something happened: dates written out, numeric ones, and days told from the article's own."""

from __future__ import annotations

import re
from datetime import date, timedelta

_MONTHS = {
    **{name: at for at, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), start=1)},
    **{name: at for at, name in enumerate("янв фев мар апр мая июн июл авг сен окт ноя дек".split(), start=1)},
    "май": 5,
}
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?|января|февраля|марта|апреля|мая|июня|июля|августа|сентября|октября|"
    r"ноября|декабря)"
)
_YEAR = r"(?:,?\s+(?P<year>(?:19|20)\d\d))?"
_WRITTEN = (
    re.compile(rf"\b(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\s+{_MONTH}\b\.?{_YEAR}", re.IGNORECASE),
    re.compile(rf"\b{_MONTH}\b\.?\s+(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\b{_YEAR}", re.IGNORECASE),
)
_ISO = re.compile(r"\b(?P<year>(?:19|20)\d\d)-(?P<month>[01]\d)-(?P<day>[0-3]\d)\b")
_DOTTED = re.compile(r"\b(?P<day>[0-3]?\d)\.(?P<month>[01]?\d)\.(?P<year>(?:19|20)\d\d)\b")
_RELATIVE = (
    (re.compile(r"\b(?:the day before yesterday|позавчера)\b", re.IGNORECASE), -2),
    (re.compile(r"\b(?:yesterday|вчера|накануне)\b", re.IGNORECASE), -1),
    (re.compile(r"\b(?:today|this morning|tonight|сегодня)\b", re.IGNORECASE), 0),
    (re.compile(r"\b(?:tomorrow|завтра)\b", re.IGNORECASE), 1),
)
_WEEKDAYS = (
    "monday|понедельник",
    "tuesday|вторник",
    "wednesday|сред[ау]",
    "thursday|четверг",
    "friday|пятниц[ау]",
    "saturday|суббот[ау]",
    "sunday|воскресенье",
)
_BEHIND = 4
_PAST = ("last", "прошл")
_WEEKDAY = tuple(re.compile(rf"\b(?:on|last|во?|прошл\w+)\s+(?:{names})\b", re.IGNORECASE) for names in _WEEKDAYS)


def date_in(text: str, told: date) -> date | None:
    """The first date that a text names, for a reader of `told`; None when it names none.

    A weekday is one of the four days before it, that day itself, or one of the two after it. A day and month
    without a year are those nearest to it.
    """
    return _exact(text, told) or _relative(text, told)


def _exact(text: str, told: date) -> date | None:
    matches = [match for pattern in (*_WRITTEN, _ISO, _DOTTED) if (match := pattern.search(text))]
    for match in sorted(matches, key=lambda each: each.start()):
        found = _date(match, told)
        if found:
            return found
    return None


def _date(match: re.Match[str], told: date) -> date | None:
    month = match["month"]
    number = int(month) if month.isdigit() else _MONTHS[month[:3].lower()]
    years = [int(match["year"])] if match["year"] else [told.year, told.year - 1, told.year + 1]
    fitting = [day for year in years if (day := _day(year, number, int(match["day"])))]
    return min(fitting, key=lambda day: abs(day - told), default=None)


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _relative(text: str, told: date) -> date | None:
    for pattern, days in _RELATIVE:
        if pattern.search(text):
            return told + timedelta(days=days)
    for weekday, pattern in enumerate(_WEEKDAY):
        if match := pattern.search(text):
            back = (told.weekday() - weekday) % 7
            ahead = back > _BEHIND and not match.group().lower().startswith(_PAST)
            return told + timedelta(days=7 - back if ahead else -back)
    return None
