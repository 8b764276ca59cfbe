"""Query intent in English and Russian: block types, due dates and database rows that a query asks for."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from typing import NamedTuple

from contexture.pipeline.scoring import NEUTRAL_SIGNAL
from contexture.workspace import Block, BlockType, is_done, task_due


@dataclass(frozen=True, kw_only=True, slots=True)
class DateSpan:
    """The half-open time range `[start, end)`; without a start, everything before `end`."""

    end: datetime
    start: datetime | None = None

    @property
    def latest(self) -> datetime:
        """An exclusive upper bound of the due times in the range, valid in every time zone."""
        return self.end + timedelta(days=1)

    def contains(self, due: datetime) -> bool:
        """Whether a due time is in the range."""
        return due < self.end and (self.start is None or due >= self.start)


def due_time(block: Block, zone: tzinfo) -> datetime | None:
    """When a block becomes overdue: a day without a time ends at midnight in the user's zone."""
    due = task_due(block)
    if due is not None and due.time() == time.max:
        return datetime.combine(due.date(), time.max, zone)
    return due


def overdue_span(now: datetime) -> DateSpan:
    """Everything due before now."""
    return DateSpan(end=now)


def day_span(now: datetime, zone: tzinfo, first: int, count: int) -> DateSpan:
    """`count` days, beginning `first` days after today."""
    begin = now.astimezone(zone).date() + timedelta(days=first)
    return DateSpan(start=_start_of_day(begin, zone), end=_start_of_day(begin + timedelta(days=count), zone))


def week_span(now: datetime, zone: tzinfo, ahead: int) -> DateSpan:
    """The week from Monday to Sunday that is `ahead` weeks after this one."""
    return day_span(now, zone, 7 * ahead - now.astimezone(zone).weekday(), 7)


def _start_of_day(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time.min, zone).astimezone(UTC)


MATCH_SCORE = 0.9
PREFERRED_SCORE = 0.8
OTHER_DATES_FACTOR = 0.45
"""Factor on a block's score when the query asks for other dates: the result is below the score of any match."""

_DATED_TYPES = frozenset({BlockType.TODO, BlockType.KANBAN_CARD, BlockType.DB_ROW})


class IntentRule(NamedTuple):
    """Words that ask for block types, and the score of each type; `titled` also matches the page title."""

    name: str
    words: re.Pattern[str]
    worth: Mapping[BlockType, float]
    titled: bool = False


def _word_pattern(*patterns: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)", re.IGNORECASE)


_INTENT_RULES = (
    IntentRule(
        "tasks",
        _word_pattern(
            r"(?:sub)?tasks?", r"to-?dos?", r"action items?", r"overdue", r"deadlines?", r"backlog", r"assigned",
            r"(?:под)?задач\w*", r"дел(?:а|о|ам|ах)", r"поручени\w*", r"просроч\w*", r"дедлайн\w*",
        ),
        {BlockType.TODO: MATCH_SCORE, BlockType.KANBAN_CARD: MATCH_SCORE, BlockType.DB_ROW: 0.7},
    ),
    IntentRule(
        "summary",
        _word_pattern(
            r"summar(?:y|ies|i[sz]e\w*)", r"overview", r"recap", r"tl;?dr", r"outline",
            r"саммари", r"сводк\w*", r"кратко\w*", r"обзор\w*", r"резюм\w*", r"итог\w*",
        ),
        {BlockType.PAGE: 0.8, BlockType.HEADING: 0.7},
    ),
    IntentRule(
        "meetings",
        _word_pattern(
            r"meetings?", r"minutes", r"stand-?ups?", r"agendas?", r"retros?(?:pectives?)?", r"calls?", r"1:1s?",
            r"встреч\w*", r"совещани\w*", r"созвон\w*", r"планёрк\w*", r"планерк\w*", r"протокол\w*", r"повестк\w*",
        ),
        {BlockType.PAGE: 0.7, BlockType.HEADING: 0.6},
        titled=True,
    ),
    IntentRule(
        "code",
        _word_pattern(
            r"code", r"snippets?", r"functions?", r"scripts?", r"sql", r"api", r"implementation", r"regex",
            r"код\w{0,2}", r"скрипт\w*", r"функци\w*", r"запрос sql",
        ),
        {BlockType.CODE: MATCH_SCORE},
    ),
    IntentRule(
        "data",
        _word_pattern(
            r"databases?", r"tables?", r"rows?", r"columns?", r"customers?", r"records?",
            r"баз\w{0,2} данных", r"таблиц\w*", r"строк\w{0,3}", r"клиент\w*",
        ),
        {BlockType.DB_ROW: MATCH_SCORE, BlockType.DB: 0.8, BlockType.TABLE: 0.8},
    ),
)  # fmt: skip

_DUE_WORDS = _word_pattern(
    r"due", r"deadlines?", r"tasks?", r"to-?dos?", r"срок\w*", r"дедлайн\w*", r"задач\w*", r"сдать", r"дел(?:а|о)"
)

_MakeSpan = Callable[[datetime, tzinfo], DateSpan]
_DATE_RULES: Sequence[tuple[re.Pattern[str], bool, _MakeSpan]] = (
    (_word_pattern(r"overdue", r"past due", r"late tasks?", r"missed deadlines?", r"просроч\w*"), True,
     lambda now, _zone: overdue_span(now)),
    (_word_pattern(r"today", r"сегодня\w*"), False, lambda now, zone: day_span(now, zone, 0, 1)),
    (_word_pattern(r"tomorrow", r"завтра\w*"), False, lambda now, zone: day_span(now, zone, 1, 1)),
    (_word_pattern(r"this week", r"(?:на )?эт(?:ой|у) недел\w*"), False, lambda now, zone: week_span(now, zone, 0)),
    (_word_pattern(r"next week", r"(?:на )?следующ\w* недел\w*"), False, lambda now, zone: week_span(now, zone, 1)),
)  # fmt: skip

_HERE_WORDS = _word_pattern(
    r"this", r"these", r"here", r"it", r"current",
    r"эт(?:от|а|о|у|ой|ого|ом|и|их)", r"здесь", r"тут", r"текущ\w*", r"его", r"её",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceIntent:
    """What a query asks for; `span` is the date range, `here` says that it refers to the focus."""

    wishes: tuple[IntentRule, ...]
    span: DateSpan | None
    here: bool
    zone: tzinfo
    preferred: Mapping[BlockType, float]

    def type_match(self, block: Block, page_title: str = "") -> float:
        """How well a block's type matches the query, from 0 to 1; .5 when the query does not concern it."""
        if self.span is not None and block.type in _DATED_TYPES:
            return 1.0 if self.is_due(block) else 1.0 - MATCH_SCORE
        found = [worth for wish in self.wishes if (worth := _rule_score(wish, block, page_title))]
        if block.type in self.preferred:
            found.append(self.preferred[block.type])
        return max(found, default=NEUTRAL_SIGNAL)

    def is_due(self, block: Block) -> bool:
        """Whether a block is an open task due in the date range."""
        if self.span is None or block.type not in _DATED_TYPES or is_done(block):
            return False
        due = due_time(block, self.zone)
        return due is not None and self.span.contains(due)


def detect_intent(
    query: str,
    *,
    now: datetime,
    zone: tzinfo,
    hinted: Sequence[BlockType] = (),
    preferred: Sequence[BlockType] = (),
) -> WorkspaceIntent:
    """The intent of a query; a hinted type scores like one the query names, a preferred type a little less."""
    return WorkspaceIntent(
        wishes=tuple(wish for wish in _INTENT_RULES if wish.words.search(query)),
        span=_detect_dates(query, now, zone),
        here=_HERE_WORDS.search(query) is not None,
        zone=zone,
        preferred={**dict.fromkeys(preferred, PREFERRED_SCORE), **dict.fromkeys(hinted, MATCH_SCORE)},
    )


def _detect_dates(query: str, now: datetime, zone: tzinfo) -> DateSpan | None:
    """The date range of a query about due dates; "overdue" needs no other word."""
    for words, alone, when in _DATE_RULES:
        if words.search(query) and (alone or _DUE_WORDS.search(query)):
            return when(now, zone)
    return None


def _rule_score(wish: IntentRule, block: Block, page_title: str) -> float | None:
    if wish.titled and wish.words.search(page_title):
        return MATCH_SCORE
    return wish.worth.get(block.type)


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


class RowOrder(StrEnum):
    """Which of the matching rows come first."""

    NONE = "none"
    SOONEST = "soonest"
    NEWEST = "newest"


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSelection:
    """The rows a query asks for: with a date in `days`, or from `since` to today, and the order to prefer them in."""

    days: tuple[date, ...]
    order: RowOrder
    today: date
    since: date | None = None

    @property
    def search_text(self) -> str:
        """The days in ISO format, as cells store them, to search for."""
        return " ".join(day.isoformat() for day in self.days)

    def score_dates(self, block: Block) -> float:
        """How well a row's dates match, from 0 to 1; 0 when the query names no dates."""
        dates = list(row_dates(block))
        if self.days:
            return float(bool(set(dates) & set(self.days)))
        if self.since is not None:
            return float(any(self.since <= day <= self.today for day in dates))
        if self.order is RowOrder.SOONEST:
            return max((_closeness(day - self.today) for day in dates if day >= self.today), default=0.0)
        if self.order is RowOrder.NEWEST:
            return max((_closeness(self.today - day) for day in dates if day <= self.today), default=0.0)
        return 0.0


def detect_selection(query: str, today: date) -> RowSelection | None:
    """The row selection of a query; None when it selects none."""
    days = tuple(dict.fromkeys(_named_days(query, today)))
    ahead, back = _NEXT.search(query), _LAST.search(query)
    if not (days or ahead or back or _EVERY.search(query)):
        return None
    order = RowOrder.SOONEST if ahead else RowOrder.NEWEST if back else RowOrder.NONE
    return RowSelection(days=days, order=order, today=today, since=_past_start(query, today))


def row_dates(block: Block) -> Iterator[date]:
    """The dates that a row's cells start with."""
    for value in block.properties.values():
        found = _ISO.match(value) if isinstance(value, str) else None
        day = _make_date(int(found[1]), int(found[2]), int(found[3])) if found else None
        if day is not None:
            yield day


def _named_days(query: str, today: date) -> Iterator[date]:
    for found in _ISO.finditer(query):
        day = _make_date(int(found[1]), int(found[2]), int(found[3]))
        if day is not None:
            yield day
    for pattern in (_MONTH_DAY, _DAY_MONTH):
        for found in pattern.finditer(query):
            yield from _nearest_date(_month_number(found["month"]), int(found["day"]), today)


def find_dates(query: str, today: date) -> list[tuple[date, int]]:
    """The dates that a query names, in its order, each with where it begins."""
    found: list[tuple[int, date]] = []
    for match in _ISO.finditer(query):
        day = _make_date(int(match[1]), int(match[2]), int(match[3]))
        if day is not None:
            found.append((match.start(), day))
    for pattern in (_MONTH_DAY, _DAY_MONTH):
        for match in pattern.finditer(query):
            found += [
                (match.start(), day) for day in _nearest_date(_month_number(match["month"]), int(match["day"]), today)
            ]
    return [(day, at) for at, day in sorted(found)]


_MONTH_NAME = re.compile(rf"(?<!\w)(?:in|during|of|в|за|im)\s+(?P<month>{_MONTH})(?!\w)", re.IGNORECASE)


def find_months(query: str, today: date) -> Iterator[date]:
    """The first days of the months that a query names, those nearest to today."""
    for match in _MONTH_NAME.finditer(query):
        yield from _nearest_date(_month_number(match["month"]), 1, today)


def _past_start(query: str, today: date) -> date | None:
    found = _PAST.search(query)
    return today - timedelta(days=int(found[1]) * _UNITS[found[2].lower()]) if found else None


def _nearest_date(month: int, day: int, today: date) -> Iterator[date]:
    """The date with this month and day that is nearest to today; nothing when there is none."""
    years: Sequence[int] = (today.year, today.year - 1, today.year + 1)
    found = [each for year in years if (each := _make_date(year, month, day))]
    yield from sorted(found, key=lambda each: abs(each - today))[:1]


def _month_number(name: str) -> int:
    return next(at for at, names in enumerate(_MONTHS, start=1) if re.fullmatch(names, name, re.IGNORECASE))


def _make_date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _closeness(away: timedelta) -> float:
    """Decay with the time from today: 1 at zero, .5 at half a year."""
    return 1 / (1 + away / _HALF_YEAR)
