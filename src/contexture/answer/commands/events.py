"""`/events link`: a timeline of dated events from articles, and links between events that share actors or places."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from itertools import combinations

from contexture.answer.commands._article_sentences import ArticleSentence, ReadArticle, is_question, newsroom_names
from contexture.answer.commands._sentence_comparison import refers_back
from contexture.answer.commands._sentence_ranking import SentenceSimilarity, is_roundup
from contexture.answer.commands.answer import Findings, Statement, drop_lost_evidence
from contexture.answer.commands.job import Job
from contexture.graph.assembly import assemble_graph
from contexture.graph.entities import ORGANIZATION, PERSON, PLACE, Entity, name_key
from contexture.news.articles import asks_for_latest
from contexture.text.terms import extract_terms, split_words, term_id
from contexture.types import ExtractedMentions

MAX_EVENTS = 12
"""Maximum number of events in a timeline, so that it can be read."""

MAX_LINKS = 8
"""Maximum number of links between them, the strongest first."""

_EVENTS_PER_ARTICLE = 3
_SAME_EVENT_SIMILARITY = 0.3
_SAME_EVENT_DAYS = 1
_MIN_SHARED_WORDS = 2
_MIN_REPEATED_WORDS, _MIN_REPEATED_SHARE = 5, 0.5  # common words of two sentences that report one event
_MIN_WORD_LENGTH = 4  # letters of a main word
_ALL_ENTITIES = 1_000_000
_MIN_CLAUSE_SHARE = 0.5  # share of a clause's words that speak of the other event
_MIN_ACTOR_LETTERS = 4  # of a name that is no abbreviation; shorter ones are pieces of names
_COMMON_NAME_SHARE = 0.4
_MIN_EVENTS_FOR_COMMON = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class TimelineEvent:
    """An event on a day, in the words of one source, with every source that reports it as evidence."""

    id: str
    date: str
    text: str
    lang: str
    actors: tuple[str, ...]
    places: tuple[str, ...]
    sources: tuple[str, ...]
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EventLink:
    """Two events, the earlier first, and what links them in their text.

    `kind` is `cause`, `sequence` or `same_actor`; `via` are the shared actors or main words.
    """

    first: str
    second: str
    kind: str
    via: tuple[str, ...]
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EventDetails:
    """The timeline and its links."""

    events: tuple[TimelineEvent, ...]
    links: tuple[EventLink, ...]

    def without_evidence(self, lost: frozenset[int]) -> EventDetails:
        """The details without lost events, and without links to them."""
        events = drop_lost_evidence(self.events, lost)
        left = {event.id for event in events}
        links = tuple(link for link in self.links if {link.first, link.second} <= left)
        return EventDetails(events=events, links=drop_lost_evidence(links, lost))


@dataclass(frozen=True, kw_only=True, slots=True)
class _DatedSentence:
    """A sentence and the date it refers to."""

    day: date
    sentence: ArticleSentence


@dataclass(frozen=True, kw_only=True, slots=True)
class _EntityNames:
    """The entities of the articles by normalized name, aliases merged."""

    found: Mapping[str, ExtractedMentions]
    entities: Mapping[str, Entity]

    @classmethod
    def from_extracted(cls, found: Sequence[ExtractedMentions]) -> _EntityNames:
        """The names of these articles, aliases merged."""
        graph = assemble_graph(found, entities=_ALL_ENTITIES, relations=0)
        spelled = {name_key(name): each for each in graph.entities for name in (each.name, *each.aliases)}
        return cls(found={each.record_id: each for each in found}, entities=spelled)

    def find_in_sentence(self, sentence: ArticleSentence) -> list[Entity]:
        """Return the entities that a sentence names."""
        found = self.found.get(sentence.source.article_id)
        if found is None or found.hash != sentence.source.hash:
            return []
        inside = (each for each in found.mentions if sentence.start <= each.start and each.end <= sentence.end)
        return [self.entities[name_key(each.name)] for each in inside]


async def link_events(job: Job) -> Findings:
    """The timeline of what the context's articles say about the subject, and the links between its events."""
    readings = await job.read_documents()
    names = _EntityNames.from_extracted(await job.extract_names(job.plan.articles))
    relevant = await _find_relevant(job, readings)
    dated = [each for reading in readings for each in extract_dated_sentences(reading, relevant)]
    like = SentenceSimilarity([each.sentence for each in dated])
    found = _build_events(job, cluster_sentences(dated, like, names), names)
    links = find_links(found)
    return Findings(
        sections=(
            job.make_section("timeline", [_event_statement(event) for event in found]),
            job.make_section("links", [_link_statement(job, link, found) for link in links]),
        ),
        details=EventDetails(events=tuple(found), links=tuple(links)),
        readings=tuple(readings),
    )


async def _find_relevant(job: Job, readings: Sequence[ReadArticle]) -> frozenset[tuple[str, int]] | None:
    """The keys of the sentences about the subject; None if the command names no subject, so that all count."""
    if asks_for_latest(job.plan.question):
        return None
    ranked = await job.ranker.rank(readings, job.plan.question)
    return frozenset(each.sentence.key for group in ranked for each in group if each.is_relevant)


def extract_dated_sentences(
    reading: ReadArticle, relevant: Container[tuple[str, int]] | None = None
) -> list[_DatedSentence]:
    """The lead of an article and its sentences that name a date, those in `relevant` only if it is given.

    None for an article without a date and for a roundup, which repeats other articles. The lead is dated by the article
    unless it names a date. Another sentence must name what it is about, and its date must not be a deadline.
    """
    if not reading.source.date or is_roundup(reading):
        return []
    published = date.fromisoformat(reading.source.date)
    chosen = [
        each
        for each in reading.sentences
        if each.whole and not is_question(each.text) and (relevant is None or each.key in relevant)
    ]
    chosen = [each for each in chosen if each.lead or not refers_back(each.text)]
    whole_day = reading.source.published is not None and reading.source.published.time() == time()
    days = [
        (find_date(_DEADLINE.sub(" ", sentence.text), published, whole_day=whole_day), sentence) for sentence in chosen
    ]
    found = [_DatedSentence(day=day or published, sentence=each) for day, each in days if day or each.lead]
    return sorted(found, key=lambda each: not each.sentence.lead)[:_EVENTS_PER_ARTICLE]


# A day until or since which something holds is not the day on which it happens.
_DEADLINE = re.compile(
    r"\b(?:through|until|till|by|since|before|no later than|as of|"
    r"(?<!moved )(?<!postponed )(?<!delayed )(?<!rescheduled )to|"
    r"не позднее|вплоть до|до|со?|по|к)\s+(?:\w+day,?\s)?"
    r"(?:\d{1,2}\.\d{1,2}\.\d{4}|\d{4}-\d\d-\d\d|[0-3]?\d(?:st|nd|rd|th)?\s[a-zа-я]{3,}|[a-z]{3,9}\.?\s[0-3]?\d\b)"
    r"(?:,?\s(?:19|20)\d\d)?",
    re.IGNORECASE,
)


def cluster_sentences(
    dated: Sequence[_DatedSentence], like: SentenceSimilarity, names: _EntityNames
) -> list[list[_DatedSentence]]:
    """Group sentences by the event they report, in order of date; what an article repeats is of one event."""
    found: list[list[_DatedSentence]] = []
    for each in sorted(dated, key=lambda one: (one.day, one.sentence.key)):
        home = next((cluster for cluster in found if _is_same_event(each, cluster, like, names)), None)
        if home is None:
            found.append([each])
        else:
            home.append(each)
    return found


def find_links(found: Sequence[TimelineEvent]) -> list[EventLink]:
    """Return at most `MAX_LINKS` links between events: the strongest, in order of time.

    An event follows from another or comes after it when a clause of its text says so in main words of the other;
    otherwise a shared actor links them. An actor shared by most of many events does not distinguish them, and a place
    links none.
    """
    common = _common_names(found)
    every = [link for first, second in combinations(found, 2) if (link := _find_link(first, second, common))]
    best = sorted(every, key=lambda link: (_LINK_KINDS.index(link.kind), -len(link.via), link.first, link.second))
    return sorted(best[:MAX_LINKS], key=lambda link: (link.first, link.second))


_LINK_KINDS = ("cause", "sequence", "same_actor")
# What follows these words in a report is what came first; what stands before the last of them is what caused the rest.
_CAUSE = re.compile(
    r"\b(?:because of|due to|as a result of|in response to|blamed on|sparked by|caused by|triggered by|prompted by|"
    r"из-за|вследствие|в результате|в ответ на|по причине)\b",
    re.IGNORECASE,
)
_SEQUENCE = re.compile(
    r"\b(?:after|following|followed|in the wake of|since|после|вслед за|(?:дней|дня|день|недел[июь]|час\w*) спустя)\b",
    re.IGNORECASE,
)
_EFFECT = re.compile(
    r"\b(?:led to|caused|triggered|prompted|sparked|forced|привел[аои]? к|вызвал[аои]?)\b", re.IGNORECASE
)
_CLAUSE_END = re.compile(r"[,;:.!?—–]\s|$")


def _find_link(first: TimelineEvent, second: TimelineEvent, common: frozenset[str]) -> EventLink | None:
    """The link that the text of the second event names: a clause of it that speaks of the first one."""
    newsrooms = {name for event in (first, second) for source in event.sources for name in newsroom_names(source)}
    shared = _intersect(first.actors, second.actors)
    actors = tuple(
        name
        for name in shared
        if name not in common
        and name_key(name).replace(" ", "") not in newsrooms  # a report that quotes its own newsroom
        and (len(name) >= _MIN_ACTOR_LETTERS or name.isupper())
    )
    for kind, clauses in (("cause", _find_causes(second.text)), ("sequence", _find_clauses(second.text, _SEQUENCE))):
        for clause in clauses:
            words = _shared_words(first, clause)
            if len(words) >= max(_MIN_SHARED_WORDS, _MIN_CLAUSE_SHARE * len(set(extract_terms(clause)))):
                return _make_link(first, second, kind, words)
    return _make_link(first, second, "same_actor", actors) if actors else None


def _find_clauses(text: str, pattern: re.Pattern[str]) -> list[str]:
    """What follows each match of a pattern, up to the end of the clause."""
    ends = (_CLAUSE_END.search(text, found.end()) for found in pattern.finditer(text))
    return [text[found.end() : end.start()] for found, end in zip(pattern.finditer(text), ends, strict=True) if end]


def _find_causes(text: str) -> list[str]:
    effect = _EFFECT.search(text)
    return [*_find_clauses(text, _CAUSE), *([text[: effect.start()]] if effect else [])]


def _shared_words(first: TimelineEvent, clause: str) -> tuple[str, ...]:
    """The main words that an event and a clause have, as the clause spells them; names of places are none."""
    wanted = set(extract_terms(first.text)) - {term for name in first.places for term in extract_terms(name)}
    long = (word for word in split_words(clause) if len(word) >= _MIN_WORD_LENGTH)
    return tuple({term: word for word in long if (term := term_id(word)) in wanted}.values())


def _common_names(found: Sequence[TimelineEvent]) -> frozenset[str]:
    """Return the names shared by most of the events, if there are enough events to decide."""
    counts = Counter(name for event in found for name in {*event.actors, *event.places})
    many = len(found) * _COMMON_NAME_SHARE
    return (
        frozenset(name for name, count in counts.items() if count >= many)
        if len(found) > _MIN_EVENTS_FOR_COMMON
        else frozenset()
    )


def _is_same_event(
    dated: _DatedSentence, cluster: Sequence[_DatedSentence], like: SentenceSimilarity, names: _EntityNames
) -> bool:
    """Whether a sentence reports the event of a cluster: time, place and main words agree.

    On one day the same words in most of the shorter sentence are enough.
    """
    if any(_repeats_event(dated, each) for each in cluster):
        return True
    if any(dated.sentence.source == each.sentence.source for each in cluster):
        return False
    first = cluster[0]
    if (dated.day - first.day).days > _SAME_EVENT_DAYS or _differ_in_place(dated.sentence, first.sentence, names):
        return False
    shared = dated.sentence.terms & first.sentence.terms
    return len(shared) >= _MIN_SHARED_WORDS and like(dated.sentence, first.sentence) >= _SAME_EVENT_SIMILARITY


def _repeats_event(one: _DatedSentence, other: _DatedSentence) -> bool:
    if one.day != other.day:
        return False
    shared, terms = one.sentence.terms & other.sentence.terms, (one.sentence.terms, other.sentence.terms)
    return len(shared) >= _MIN_REPEATED_WORDS and len(shared) >= _MIN_REPEATED_SHARE * min(map(len, terms))


def _differ_in_place(one: ArticleSentence, other: ArticleSentence, names: _EntityNames) -> bool:
    """Whether both sentences name places and have none in common."""
    here, there = (
        {entity.key for entity in names.find_in_sentence(each) if entity.kind == PLACE} for each in (one, other)
    )
    return bool(here) and bool(there) and here.isdisjoint(there)


def _build_events(job: Job, found: Sequence[Sequence[_DatedSentence]], names: _EntityNames) -> list[TimelineEvent]:
    """Convert the clusters to events; if there are too many, those with most sources are kept."""
    kept = sorted(found, key=lambda cluster: (-len(cluster), -cluster[0].day.toordinal()))[:MAX_EVENTS]
    ordered = sorted(kept, key=lambda cluster: (cluster[0].day, cluster[0].sentence.key))
    return [_build_event(job, f"e{at:02d}", cluster, names) for at, cluster in enumerate(ordered, start=1)]


def _build_event(job: Job, name: str, cluster: Sequence[_DatedSentence], names: _EntityNames) -> TimelineEvent:
    first = cluster[0].sentence
    named = [entity for statement in cluster for entity in names.find_in_sentence(statement.sentence)]
    return TimelineEvent(
        id=name,
        date=cluster[0].day.isoformat(),
        text=first.text,
        lang=first.source.lang,
        actors=_filter_names(named, (PERSON, ORGANIZATION)),
        places=_filter_names(named, (PLACE,)),
        sources=tuple(dict.fromkeys(statement.sentence.source.name for statement in cluster)),
        evidence=tuple(dict.fromkeys(job.evidence_registry.cite(statement.sentence) for statement in cluster)),
    )


def _filter_names(found: Sequence[Entity], kinds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entity.name for entity in found if entity.kind in kinds))


def _make_link(first: TimelineEvent, second: TimelineEvent, kind: str, via: tuple[str, ...]) -> EventLink:
    evidence = tuple(dict.fromkeys((*first.evidence, *second.evidence)))
    return EventLink(first=first.id, second=second.id, kind=kind, via=via, evidence=evidence)


def _intersect(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in one if name in other)


def _event_statement(event: TimelineEvent) -> Statement:
    return Statement(text=f"{event.id} ({event.date}): {event.text}", lang=event.lang, evidence=event.evidence)


def _link_statement(job: Job, link: EventLink, found: Sequence[TimelineEvent]) -> Statement:
    dates = {event.id: event.date for event in found}
    names = {
        "first": f"{link.first} ({dates[link.first]})",
        "second": f"{link.second} ({dates[link.second]})",
        "via": ", ".join(link.via),
    }
    return Statement(text=job.localize(link.kind, dict[str, object](names)), lang=job.plan.lang, evidence=link.evidence)


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
_WRITTEN_DATES = (
    re.compile(rf"\b(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\s+{_MONTH}\b\.?{_YEAR}", re.IGNORECASE),
    re.compile(rf"\b{_MONTH}\b\.?\s+(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\b{_YEAR}", re.IGNORECASE),
)
_ISO_DATE = re.compile(r"\b(?P<year>(?:19|20)\d\d)-(?P<month>[01]\d)-(?P<day>[0-3]\d)\b")
_DOTTED_DATE = re.compile(r"\b(?P<day>[0-3]?\d)\.(?P<month>[01]?\d)\.(?P<year>(?:19|20)\d\d)\b")
_RELATIVE_DAYS = (
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
_PAST_PREFIXES = ("last", "прошл")
_NEXT_PREFIXES = ("next", "следующ", "ближайш")
_WEEKDAY_PREFIXES = r"on|last|next|this|by|во?|прошл\w+|следующ\w+|ближайш\w+"
_WEEKDAY_PATTERNS = tuple(
    re.compile(
        rf"\b(?:(?P<prefix>on|last|next|this|by|во?|прошл\w+|следующ\w+|ближайш\w+)\s+)?(?:{names})\b", re.IGNORECASE
    )
    for names in _WEEKDAYS
)
_FUTURE = re.compile(
    r"\b(?:will|won['\u2019]t|shall|would|going to|plans? to|planned for|is set to|are set to|set for|due to|"
    r"(?:is|are) (?:expected|scheduled|slated|due|likely|to)|scheduled for|expects? to|upcoming|begins|starts|"
    r"буд(?:ет|ут)|намерен[аы]?|планиру\w+|собира(?:ет|ют)ся|состоится|состоятся|начн[её]тся|начнутся|"
    r"пройд[её]т|пройдут|"
    r"ожида(?:ет|ют)ся|запланирован\w*|назначен\w*|должн[аоы]?|предстоит|[а-яё]{3,}(?:[ия]т|[уюа]т)(?:ся)?)\b",
    re.IGNORECASE,
)
_PAST = re.compile(
    r"\b(?:was|were|had|did|said|told|[a-z]{3,}ed|took|went|came|met|won|lost|fell|rose|hit|began|died|left|"
    r"[а-яё]{2,}(?:л|ла|ло|ли)(?:с[ья])?|[а-яё]{3,}(?:ен|ён|ан|ят)[аоы]?)\b",
    re.IGNORECASE,
)


def find_date(text: str, published: date, *, whole_day: bool = False) -> date | None:
    """Return the first date named in a text published on `published`; None if it names none.

    A weekday is the last one before `published` in a sentence about the past, and the next one in a sentence about the
    future; of both tenses the one that stands nearer to it decides. A day and month without a year mean the nearest
    such date. `whole_day` is for a publication without a time, whose day may be that of another time zone: in a
    sentence about the past the next weekday is then the next day, not one six days before.
    """
    exact, relative = _find_exact_date(text, published), _find_relative_date(text, published, whole_day=whole_day)
    if exact and relative and 0 <= exact[0] - relative[0] <= _MAX_WEEKDAY_GAP:
        return exact[1]  # "Wednesday, July 13"
    found = [each for each in (exact, relative) if each]
    return min(found)[1] if found else None


_WEEK = 7
_MAX_WEEKDAY_GAP = len("in next Wednesday, the ")  # characters from a weekday, or the word before it, to its date


PositionedDate = tuple[int, date]  # where a date is named, and the date


def _find_exact_date(text: str, published: date) -> PositionedDate | None:
    matches = [match for pattern in (*_WRITTEN_DATES, _ISO_DATE, _DOTTED_DATE) if (match := pattern.search(text))]
    for match in sorted(matches, key=lambda each: each.start()):
        found = _date_from_match(match, published)
        if found:
            return match.start(), found
    return None


def _date_from_match(match: re.Match[str], published: date) -> date | None:
    month = match["month"]
    number = int(month) if month.isdigit() else _MONTHS[month[:3].lower()]
    years = [int(match["year"])] if match["year"] else [published.year, published.year - 1, published.year + 1]
    fitting = [day for year in years if (day := _make_date(year, number, int(match["day"])))]
    return min(fitting, key=lambda day: abs(day - published), default=None)


def _make_date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _find_relative_date(text: str, published: date, *, whole_day: bool) -> PositionedDate | None:
    found: list[PositionedDate] = []
    for pattern, days in _RELATIVE_DAYS:
        if match := pattern.search(text):
            found.append((match.start(), published + timedelta(days=days)))
    for weekday, pattern in enumerate(_WEEKDAY_PATTERNS):
        if match := pattern.search(text):
            ahead = (weekday - published.weekday()) % _WEEK
            later = _is_ahead(text, match) or (
                whole_day and ahead == 1 and not (match["prefix"] or "").lower().startswith(_PAST_PREFIXES)
            )
            found.append((match.start(), published + timedelta(days=ahead if later or not ahead else ahead - _WEEK)))
    return min(found, default=None)


def _is_ahead(text: str, weekday: re.Match[str]) -> bool:
    """Whether a weekday lies ahead, by the word before it or by the tense that stands nearest to it."""
    prefix = (weekday["prefix"] or "").lower()
    if prefix.startswith(_PAST_PREFIXES + _NEXT_PREFIXES):
        return prefix.startswith(_NEXT_PREFIXES)
    future, past = (_distance(text, weekday, pattern) for pattern in (_FUTURE, _PAST))
    return future is not None and (past is None or future <= past)


def _distance(text: str, weekday: re.Match[str], pattern: re.Pattern[str]) -> int | None:
    """How many characters lie between a weekday and the nearest match of a pattern; None without a match."""
    gaps = (max(weekday.start() - found.end(), found.start() - weekday.end()) for found in pattern.finditer(text))
    return min(gaps, default=None)
