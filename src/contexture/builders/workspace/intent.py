"""What a query is after, in English and Russian: kinds of blocks, and dates by which something is due."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import NamedTuple

from contexture.builders.workspace.dates import Span, days, due_in, overdue, week
from contexture.pipeline.score import UNKNOWN
from contexture.workspace import Block, BlockType, done_of

MATCH = 0.9
PREFERRED = 0.8
OTHER_DATES = 0.45
"""What is left of a score when the query asks for dates and the block has others: less than any match scores."""

_DATED = frozenset({BlockType.TODO, BlockType.KANBAN_CARD, BlockType.DB_ROW})


class Wish(NamedTuple):
    """Words that ask for kinds of blocks, and what each kind is then worth; `titled` where the page's title counts."""

    name: str
    words: re.Pattern[str]
    worth: Mapping[BlockType, float]
    titled: bool = False


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)", re.IGNORECASE)


_WISHES = (
    Wish(
        "tasks",
        _words(
            r"(?:sub)?tasks?", r"to-?dos?", r"action items?", r"overdue", r"deadlines?", r"backlog", r"assigned",
            r"(?:под)?задач\w*", r"дел(?:а|о|ам|ах)", r"поручени\w*", r"просроч\w*", r"дедлайн\w*",
        ),
        {BlockType.TODO: MATCH, BlockType.KANBAN_CARD: MATCH, BlockType.DB_ROW: 0.7},
    ),
    Wish(
        "summary",
        _words(
            r"summar(?:y|ies|i[sz]e\w*)", r"overview", r"recap", r"tl;?dr", r"outline",
            r"саммари", r"сводк\w*", r"кратко\w*", r"обзор\w*", r"резюм\w*", r"итог\w*",
        ),
        {BlockType.PAGE: 0.8, BlockType.HEADING: 0.7},
    ),
    Wish(
        "meetings",
        _words(
            r"meetings?", r"minutes", r"stand-?ups?", r"agendas?", r"retros?(?:pectives?)?", r"calls?", r"1:1s?",
            r"встреч\w*", r"совещани\w*", r"созвон\w*", r"планёрк\w*", r"планерк\w*", r"протокол\w*", r"повестк\w*",
        ),
        {BlockType.PAGE: 0.7, BlockType.HEADING: 0.6},
        titled=True,
    ),
    Wish(
        "code",
        _words(
            r"code", r"snippets?", r"functions?", r"scripts?", r"sql", r"api", r"implementation", r"regex",
            r"код\w{0,2}", r"скрипт\w*", r"функци\w*", r"запрос sql",
        ),
        {BlockType.CODE: MATCH},
    ),
    Wish(
        "data",
        _words(
            r"databases?", r"tables?", r"rows?", r"columns?", r"customers?", r"records?",
            r"баз\w{0,2} данных", r"таблиц\w*", r"строк\w{0,3}", r"клиент\w*",
        ),
        {BlockType.DB_ROW: MATCH, BlockType.DB: 0.8, BlockType.TABLE: 0.8},
    ),
)  # fmt: skip

_DUE = _words(
    r"due", r"deadlines?", r"tasks?", r"to-?dos?", r"срок\w*", r"дедлайн\w*", r"задач\w*", r"сдать", r"дел(?:а|о)"
)

_When = Callable[[datetime, tzinfo], Span]
_WHENS: Sequence[tuple[re.Pattern[str], bool, _When]] = (
    (_words(r"overdue", r"past due", r"late tasks?", r"missed deadlines?", r"просроч\w*"), True,
     lambda now, _zone: overdue(now)),
    (_words(r"today", r"сегодня\w*"), False, lambda now, zone: days(now, zone, 0, 1)),
    (_words(r"tomorrow", r"завтра\w*"), False, lambda now, zone: days(now, zone, 1, 1)),
    (_words(r"this week", r"(?:на )?эт(?:ой|у) недел\w*"), False, lambda now, zone: week(now, zone, 0)),
    (_words(r"next week", r"(?:на )?следующ\w* недел\w*"), False, lambda now, zone: week(now, zone, 1)),
)  # fmt: skip

_HERE = _words(
    r"this", r"these", r"here", r"it", r"current",
    r"эт(?:от|а|о|у|ой|ого|ом|и|их)", r"здесь", r"тут", r"текущ\w*", r"его", r"её",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Intent:
    """What a query is after; `span` are the dates it asks about, `here` says that it points at the focus."""

    wishes: tuple[Wish, ...]
    span: Span | None
    here: bool
    zone: tzinfo
    preferred: Mapping[BlockType, float]

    def type_match(self, block: Block, page_title: str = "") -> float:
        """How well a block's type suits, from 0 to 1; .5 when the query says nothing about it."""
        if self.span is not None and block.type in _DATED:
            return 1.0 if self.dated(block) else 1.0 - MATCH
        found = [worth for wish in self.wishes if (worth := _worth(wish, block, page_title))]
        if block.type in self.preferred:
            found.append(self.preferred[block.type])
        return max(found, default=UNKNOWN)

    def dated(self, block: Block) -> bool:
        """Whether a block is an open task due in the dates asked about."""
        if self.span is None or block.type not in _DATED or done_of(block):
            return False
        due = due_in(block, self.zone)
        return due is not None and self.span.holds(due)


def intent_of(
    query: str,
    *,
    now: datetime,
    zone: tzinfo,
    hinted: Sequence[BlockType] = (),
    preferred: Sequence[BlockType] = (),
) -> Intent:
    """What the words of a query ask for; a type that a hint names counts like words, a preferred one a little less."""
    return Intent(
        wishes=tuple(wish for wish in _WISHES if wish.words.search(query)),
        span=_span(query, now, zone),
        here=_HERE.search(query) is not None,
        zone=zone,
        preferred={**dict.fromkeys(preferred, PREFERRED), **dict.fromkeys(hinted, MATCH)},
    )


def _span(query: str, now: datetime, zone: tzinfo) -> Span | None:
    """Dates named in a query that speaks of what is due; "overdue" says so by itself."""
    for words, alone, when in _WHENS:
        if words.search(query) and (alone or _DUE.search(query)):
            return when(now, zone)
    return None


def _worth(wish: Wish, block: Block, page_title: str) -> float | None:
    if wish.titled and wish.words.search(page_title):
        return MATCH
    return wish.worth.get(block.type)
