"""`/events link`: a timeline of dated events from articles, and links between events that share actors or places."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import combinations

from contexture.answer.commands._article_sentences import ArticleSentence, ReadArticle, is_question
from contexture.answer.commands._sentence_ranking import SentenceSimilarity, is_roundup
from contexture.answer.commands.answer import Findings, Statement, drop_lost_evidence
from contexture.answer.commands.job import Job
from contexture.graph.assembly import assemble_graph
from contexture.graph.entities import ORGANIZATION, PERSON, PLACE, Entity, name_key
from contexture.news.articles import asks_for_latest
from contexture.text.language import detect_language
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
_MIN_WORD_LENGTH = 4  # letters of a main word
_ALL_ENTITIES = 1_000_000
_COMMON_NAME_SHARE = 0.5
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
    if not dated and _has_foreign(readings, job.plan.question):  # across languages the search knows better than words
        dated = [each for reading in readings for each in extract_dated_sentences(reading)]
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


def _has_foreign(readings: Sequence[ReadArticle], question: str) -> bool:
    lang = detect_language(question)
    return any(reading.source.lang != lang for reading in readings)


def extract_dated_sentences(
    reading: ReadArticle, relevant: Container[tuple[str, int]] | None = None
) -> list[_DatedSentence]:
    """The lead of an article and its sentences that name a date, those in `relevant` only if it is given.

    None for an article without a date and for a roundup, which repeats other articles. The lead is dated by the article
    unless it names a date.
    """
    if not reading.source.date or is_roundup(reading):
        return []
    published = date.fromisoformat(reading.source.date)
    chosen = [
        each
        for each in reading.sentences
        if each.whole and not is_question(each.text) and (relevant is None or each.key in relevant)
    ]
    days = [(find_date(sentence.text, published), sentence) for sentence in chosen]
    found = [_DatedSentence(day=day or published, sentence=each) for day, each in days if day or each.lead]
    return sorted(found, key=lambda each: not each.sentence.lead)[:_EVENTS_PER_ARTICLE]


def cluster_sentences(
    dated: Sequence[_DatedSentence], like: SentenceSimilarity, names: _EntityNames
) -> list[list[_DatedSentence]]:
    """Group sentences by the event they report, in order of date."""
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

    An event causes or follows another when its text says so and they share an actor or main words; otherwise a shared
    actor links them. An actor shared by most of many events does not distinguish them, and a place links none.
    """
    common = _common_names(found)
    every = [link for first, second in combinations(found, 2) if (link := _find_link(first, second, common))]
    best = sorted(every, key=lambda link: (_LINK_KINDS.index(link.kind), -len(link.via), link.first, link.second))
    return sorted(best[:MAX_LINKS], key=lambda link: (link.first, link.second))


_LINK_KINDS = ("cause", "sequence", "same_actor")
_CAUSE = re.compile(
    r"\b(?:because of|due to|as a result of|led to|leads to|caused|triggered|prompt(?:ed|ing)|in response to|blamed on|"
    r"sparked|forc(?:ed|ing)|из-за|вследствие|в результате|привел[аои]?|вызвал[аои]?|в ответ на|по причине)\b",
    re.IGNORECASE,
)
_SEQUENCE = re.compile(
    r"\b(?:after|following|followed|days? later|weeks? later|in the wake of|since|then|once|afterwards|после|вслед за|"
    r"спустя|затем|накануне|через \w+ (?:дн|час|недел)\w*)\b",
    re.IGNORECASE,
)


def _find_link(first: TimelineEvent, second: TimelineEvent, common: frozenset[str]) -> EventLink | None:
    actors = tuple(name for name in _intersect(first.actors, second.actors) if name not in common)
    words = _shared_words(first, second)
    if actors or len(words) >= _MIN_SHARED_WORDS:
        for kind, pattern in (("cause", _CAUSE), ("sequence", _SEQUENCE)):
            if pattern.search(second.text) and first.date <= second.date and (words or actors):
                return _make_link(first, second, kind, actors or words)
    return _make_link(first, second, "same_actor", actors) if actors else None


def _shared_words(first: TimelineEvent, second: TimelineEvent) -> tuple[str, ...]:
    """The main words that both events have, as the second spells them; names of places are none."""
    wanted = set(extract_terms(first.text)) - {term for name in first.places for term in extract_terms(name)}
    long = (word for word in split_words(second.text) if len(word) >= _MIN_WORD_LENGTH)
    return tuple({term: word for word in long if (term := term_id(word)) in wanted}.values())


def _common_names(found: Sequence[TimelineEvent]) -> frozenset[str]:
    """Return the names shared by most of the events, if there are enough events to decide."""
    counts = Counter(name for event in found for name in {*event.actors, *event.places})
    many = len(found) * _COMMON_NAME_SHARE
    return (
        frozenset(name for name, count in counts.items() if count > many)
        if len(found) > _MIN_EVENTS_FOR_COMMON
        else frozenset()
    )


def _is_same_event(
    dated: _DatedSentence, cluster: Sequence[_DatedSentence], like: SentenceSimilarity, names: _EntityNames
) -> bool:
    """Whether a sentence reports the event of a cluster: time, place and main words agree.

    An article does not report one event twice.
    """
    if any(dated.sentence.source == each.sentence.source for each in cluster):
        return False
    first = cluster[0]
    if (dated.day - first.day).days > _SAME_EVENT_DAYS or _differ_in_place(dated.sentence, first.sentence, names):
        return False
    shared = dated.sentence.terms & first.sentence.terms
    return len(shared) >= _MIN_SHARED_WORDS and like(dated.sentence, first.sentence) >= _SAME_EVENT_SIMILARITY


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


def find_date(text: str, told: date) -> date | None:
    """Return the first date named in a text published on `told`; None if it names none.

    A weekday is the last one before `told` in a sentence about the past, and the next one in a sentence about the
    future; of both tenses the one that stands nearer to it decides. A day and month without a year mean the nearest
    such date.
    """
    found = [each for each in (_find_exact_date(text, told), _find_relative_date(text, told)) if each]
    return min(found)[1] if found else None


PositionedDate = tuple[int, date]  # where a date is named, and the date


def _find_exact_date(text: str, told: date) -> PositionedDate | None:
    matches = [match for pattern in (*_WRITTEN_DATES, _ISO_DATE, _DOTTED_DATE) if (match := pattern.search(text))]
    for match in sorted(matches, key=lambda each: each.start()):
        found = _date_from_match(match, told)
        if found:
            return match.start(), found
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


def _find_relative_date(text: str, told: date) -> PositionedDate | None:
    found: list[PositionedDate] = []
    for pattern, days in _RELATIVE_DAYS:
        if match := pattern.search(text):
            found.append((match.start(), told + timedelta(days=days)))
    for weekday, pattern in enumerate(_WEEKDAY_PATTERNS):
        if match := pattern.search(text):
            back = (told.weekday() - weekday) % 7
            found.append((match.start(), told + timedelta(days=(7 - back) % 7 if _is_ahead(text, match) else -back)))
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
