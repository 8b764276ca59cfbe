"""`/events link`: a timeline of dated events from articles, and links between events that share actors or places."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import combinations, pairwise

from contexture.answer.commands.answer import Findings, Statement, drop_lost_evidence
from contexture.answer.commands.article_sentences import ArticleSentence, ReadArticle, SentenceSimilarity
from contexture.answer.commands.job import Job
from contexture.graph.assembly import assemble_graph
from contexture.graph.entities import ORGANIZATION, PERSON, PLACE, Entity, name_key
from contexture.types import ExtractedMentions

MAX_EVENTS = 30
MAX_LINKS = 40

_EVENTS_PER_ARTICLE = 4
_SAME_EVENT_SIMILARITY = 0.3
_SAME_EVENT_DAYS = 1
_CONSECUTIVE_DAYS = 3
_ALL_ENTITIES = 1_000_000
_COMMON_NAME_SHARE = 0.6


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
    """Two events, the earlier first, and what links them: an actor, a place, or closeness in time."""

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
    """The timeline of the context's articles, and the links between its events."""
    readings = await job.read_documents()
    names = _EntityNames.from_extracted(await job.extract_names(job.plan.articles))
    told = [each for reading in readings for each in extract_dated_sentences(reading)]
    like = SentenceSimilarity([each.sentence for each in told])
    found = _build_events(job, cluster_sentences(told, like), names)
    links = find_links(found)
    return Findings(
        sections=(
            job.make_section("timeline", [_event_statement(event) for event in found]),
            job.make_section("links", [_link_statement(job, link, found) for link in links]),
        ),
        details=EventDetails(events=tuple(found), links=tuple(links)),
    )


def extract_dated_sentences(reading: ReadArticle) -> list[_DatedSentence]:
    """Return the first sentence of an article and those that name a date; none for an article without a date."""
    if not reading.source.date:
        return []
    told = date.fromisoformat(reading.source.date)
    days = [(find_date(sentence.text, told), sentence) for sentence in reading.sentences]
    found = [_DatedSentence(day=day or told, sentence=sentence) for day, sentence in days if day or sentence.lead]
    return found[:_EVENTS_PER_ARTICLE]


def cluster_sentences(told: Sequence[_DatedSentence], like: SentenceSimilarity) -> list[list[_DatedSentence]]:
    """Group sentences by the event they report, in order of date."""
    found: list[list[_DatedSentence]] = []
    for each in sorted(told, key=lambda one: (one.day, one.sentence.key)):
        home = next((cluster for cluster in found if _is_same_event(each, cluster, like)), None)
        if home is None:
            found.append([each])
        else:
            home.append(each)
    return found


def find_links(found: Sequence[TimelineEvent]) -> list[EventLink]:
    """Return the links between events in order of time; those with most in common are kept.

    A name shared by most of many events does not distinguish them and links none. Events that follow each other closely
    are linked for that reason alone only if they are neighbours.
    """
    common = _common_names(found)
    every = [link for first, second in combinations(found, 2) for link in _shared_name_links(first, second, common)]
    every += [link for first, second in pairwise(found) if (link := _consecutive_link(first, second))]
    best = sorted(every, key=lambda link: (-len(link.via), link.first, link.second, link.kind))[:MAX_LINKS]
    return sorted(best, key=lambda link: (link.first, link.second, link.kind))


def _common_names(found: Sequence[TimelineEvent]) -> frozenset[str]:
    """Return the names shared by most of the events, if there are enough events to decide."""
    counts = Counter(name for event in found for name in {*event.actors, *event.places})
    many = len(found) * _COMMON_NAME_SHARE
    return (
        frozenset(name for name, count in counts.items() if count > many)
        if len(found) > _CONSECUTIVE_DAYS
        else frozenset()
    )


def _is_same_event(told: _DatedSentence, cluster: Sequence[_DatedSentence], like: SentenceSimilarity) -> bool:
    """Whether a sentence reports the event of a cluster; an article does not report one event twice."""
    if any(told.sentence.source == each.sentence.source for each in cluster):
        return False
    first = cluster[0]
    return (told.day - first.day).days <= _SAME_EVENT_DAYS and like(
        told.sentence, first.sentence
    ) >= _SAME_EVENT_SIMILARITY


def _build_events(job: Job, found: Sequence[Sequence[_DatedSentence]], names: _EntityNames) -> list[TimelineEvent]:
    """Convert the clusters to events; if there are too many, those with most sources are kept."""
    kept = sorted(found, key=lambda cluster: (-len(cluster), -cluster[0].day.toordinal()))[:MAX_EVENTS]
    ordered = sorted(kept, key=lambda cluster: (cluster[0].day, cluster[0].sentence.key))
    return [_build_event(job, f"e{at:02d}", cluster, names) for at, cluster in enumerate(ordered, start=1)]


def _build_event(job: Job, name: str, cluster: Sequence[_DatedSentence], names: _EntityNames) -> TimelineEvent:
    first = cluster[0].sentence
    named = [entity for told in cluster for entity in names.find_in_sentence(told.sentence)]
    return TimelineEvent(
        id=name,
        date=cluster[0].day.isoformat(),
        text=first.text,
        lang=first.source.lang,
        actors=_filter_names(named, (PERSON, ORGANIZATION)),
        places=_filter_names(named, (PLACE,)),
        sources=tuple(dict.fromkeys(told.sentence.source.name for told in cluster)),
        evidence=tuple(dict.fromkeys(job.evidence_registry.cite(told.sentence) for told in cluster)),
    )


def _filter_names(found: Sequence[Entity], kinds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entity.name for entity in found if entity.kind in kinds))


def _shared_name_links(first: TimelineEvent, second: TimelineEvent, common: frozenset[str]) -> list[EventLink]:
    shared = {
        "same_actor": _intersect(first.actors, second.actors),
        "same_place": _intersect(first.places, second.places),
    }
    telling = {kind: tuple(name for name in names if name not in common) for kind, names in shared.items()}
    return [_make_link(first, second, kind, via) for kind, via in telling.items() if via]


def _consecutive_link(first: TimelineEvent, second: TimelineEvent) -> EventLink | None:
    days = (date.fromisoformat(second.date) - date.fromisoformat(first.date)).days
    via = _intersect((*first.actors, *first.places), (*second.actors, *second.places))
    return _make_link(first, second, "consecutive", via) if via and 0 < days <= _CONSECUTIVE_DAYS else None


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
_MAX_DAYS_BACK = 4
_PAST_PREFIXES = ("last", "прошл")
_WEEKDAY_PATTERNS = tuple(
    re.compile(rf"\b(?:on|last|во?|прошл\w+)\s+(?:{names})\b", re.IGNORECASE) for names in _WEEKDAYS
)


def find_date(text: str, told: date) -> date | None:
    """Return the first date named in a text published on `told`; None if it names none.

    A weekday means one of the four days before `told`, that day itself, or one of the two days after it. A day and
    month without a year mean the nearest such date.
    """
    return _find_exact_date(text, told) or _find_relative_date(text, told)


def _find_exact_date(text: str, told: date) -> date | None:
    matches = [match for pattern in (*_WRITTEN_DATES, _ISO_DATE, _DOTTED_DATE) if (match := pattern.search(text))]
    for match in sorted(matches, key=lambda each: each.start()):
        found = _date_from_match(match, told)
        if found:
            return found
    return None


def _date_from_match(match: re.Match[str], told: date) -> date | None:
    month = match["month"]
    number = int(month) if month.isdigit() else _MONTHS[month[:3].lower()]
    years = [int(match["year"])] if match["year"] else [told.year, told.year - 1, told.year + 1]
    fitting = [day for year in years if (day := _make_date(year, number, int(match["day"])))]
    return min(fitting, key=lambda day: abs(day - told), default=None)


def _make_date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _find_relative_date(text: str, told: date) -> date | None:
    for pattern, days in _RELATIVE_DAYS:
        if pattern.search(text):
            return told + timedelta(days=days)
    for weekday, pattern in enumerate(_WEEKDAY_PATTERNS):
        if match := pattern.search(text):
            back = (told.weekday() - weekday) % 7
            ahead = back > _MAX_DAYS_BACK and not match.group().lower().startswith(_PAST_PREFIXES)
            return told + timedelta(days=7 - back if ahead else -back)
    return None
