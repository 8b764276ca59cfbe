"""`/events link`: what happened when, told by whom, and which events belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import combinations, pairwise

from contexture.answer.commands.dates import date_in
from contexture.answer.commands.job import Job
from contexture.answer.commands.likeness import Likeness
from contexture.answer.commands.reading import Reading, Sentence
from contexture.answer.commands.values import Findings, Statement, grounded
from contexture.graph.assemble import assemble
from contexture.graph.names import key_of
from contexture.graph.values import ORGANIZATION, PERSON, PLACE, Entity
from contexture.types import Extracted

MOST_EVENTS = 30
MOST_LINKS = 40

_PER_ARTICLE = 4
_SAME_EVENT = 0.3
_SAME_DAYS = 1
_SOON_DAYS = 3
_EVERY = 1_000_000
_MOST_OF = 0.6


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that happened on a day, in the words of one source, with everyone who tells it as evidence."""

    id: str
    date: str
    text: str
    lang: str
    actors: tuple[str, ...]
    places: tuple[str, ...]
    sources: tuple[str, ...]
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """Two events, the earlier first, and what ties them: an actor, a place, or that one soon followed the other."""

    first: str
    second: str
    kind: str
    via: tuple[str, ...]
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EventDetails:
    """The timeline and its links."""

    events: tuple[Event, ...]
    links: tuple[Link, ...]

    def without(self, lost: frozenset[int]) -> EventDetails:
        """A link goes with either of its events."""
        events = grounded(self.events, lost)
        left = {event.id for event in events}
        links = tuple(link for link in self.links if {link.first, link.second} <= left)
        return EventDetails(events=events, links=grounded(links, lost))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Told:
    """A sentence and the day of which it speaks."""

    day: date
    sentence: Sentence


@dataclass(frozen=True, kw_only=True, slots=True)
class _Names:
    """Who and what the articles name, by one name each."""

    found: Mapping[str, Extracted]
    entities: Mapping[str, Entity]

    @classmethod
    def of(cls, found: Sequence[Extracted]) -> _Names:
        """The names of these articles, aliases merged."""
        graph = assemble(found, entities=_EVERY, relations=0)
        spelled = {key_of(name): each for each in graph.entities for name in (each.name, *each.aliases)}
        return cls(found={each.record_id: each for each in found}, entities=spelled)

    def within(self, sentence: Sentence) -> list[Entity]:
        """Those that a sentence names."""
        found = self.found.get(sentence.source.article_id)
        if found is None or found.hash != sentence.source.hash:
            return []
        inside = (each for each in found.mentions if sentence.start <= each.start and each.end <= sentence.end)
        return [self.entities[key_of(each.name)] for each in inside]


async def events(job: Job) -> Findings:
    """The timeline of the context's articles, and the links between its events."""
    readings = await job.documents()
    names = _Names.of(await job.names(job.plan.articles))
    told = [each for reading in readings for each in dated(reading)]
    like = Likeness([each.sentence for each in told])
    found = _events(job, clusters(told, like), names)
    links = links_of(found)
    return Findings(
        sections=(
            job.section("timeline", [_statement(event) for event in found]),
            job.section("links", [_said(job, link, found) for link in links]),
        ),
        details=EventDetails(events=tuple(found), links=tuple(links)),
    )


def dated(reading: Reading) -> list[_Told]:
    """What an article tells: its first sentence, and those that name a day; an article without a date tells nothing."""
    if not reading.source.date:
        return []
    told = date.fromisoformat(reading.source.date)
    days = [(date_in(sentence.text, told), sentence) for sentence in reading.sentences]
    found = [_Told(day=day or told, sentence=sentence) for day, sentence in days if day or sentence.lead]
    return found[:_PER_ARTICLE]


def clusters(told: Sequence[_Told], like: Likeness) -> list[list[_Told]]:
    """Sentences that tell the same event, in the order of their days."""
    found: list[list[_Told]] = []
    for each in sorted(told, key=lambda one: (one.day, one.sentence.place)):
        home = next((cluster for cluster in found if _same(each, cluster, like)), None)
        if home is None:
            found.append([each])
        else:
            home.append(each)
    return found


def links_of(found: Sequence[Event]) -> list[Link]:
    """The ties between events in order of time; those with most in common are kept.

    A name that most of many events share ties none of them more than the others. Of events that soon follow each
    other, only neighbours are tied for that alone.
    """
    common = _everywhere(found)
    every = [link for first, second in combinations(found, 2) for link in _links(first, second, common)]
    every += [link for first, second in pairwise(found) if (link := _following(first, second))]
    best = sorted(every, key=lambda link: (-len(link.via), link.first, link.second, link.kind))[:MOST_LINKS]
    return sorted(best, key=lambda link: (link.first, link.second, link.kind))


def _everywhere(found: Sequence[Event]) -> frozenset[str]:
    """Names in most of the events, where there are enough to tell."""
    counts = Counter(name for event in found for name in {*event.actors, *event.places})
    many = len(found) * _MOST_OF
    return frozenset(name for name, count in counts.items() if count > many) if len(found) > _SOON_DAYS else frozenset()


def _same(told: _Told, cluster: Sequence[_Told], like: Likeness) -> bool:
    """Whether a sentence tells what a cluster tells; an article does not tell one event twice."""
    if any(told.sentence.source == each.sentence.source for each in cluster):
        return False
    first = cluster[0]
    return (told.day - first.day).days <= _SAME_DAYS and like(told.sentence, first.sentence) >= _SAME_EVENT


def _events(job: Job, found: Sequence[Sequence[_Told]], names: _Names) -> list[Event]:
    """The clusters as events; of too many, those that most sources tell are kept."""
    kept = sorted(found, key=lambda cluster: (-len(cluster), -cluster[0].day.toordinal()))[:MOST_EVENTS]
    ordered = sorted(kept, key=lambda cluster: (cluster[0].day, cluster[0].sentence.place))
    return [_event(job, f"e{at:02d}", cluster, names) for at, cluster in enumerate(ordered, start=1)]


def _event(job: Job, name: str, cluster: Sequence[_Told], names: _Names) -> Event:
    first = cluster[0].sentence
    named = [entity for told in cluster for entity in names.within(told.sentence)]
    return Event(
        id=name,
        date=cluster[0].day.isoformat(),
        text=first.text,
        lang=first.source.lang,
        actors=_names(named, (PERSON, ORGANIZATION)),
        places=_names(named, (PLACE,)),
        sources=tuple(dict.fromkeys(told.sentence.source.name for told in cluster)),
        evidence=tuple(dict.fromkeys(job.notebook.cite(told.sentence) for told in cluster)),
    )


def _names(found: Sequence[Entity], kinds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entity.name for entity in found if entity.kind in kinds))


def _links(first: Event, second: Event, common: frozenset[str]) -> list[Link]:
    shared = {"same_actor": _shared(first.actors, second.actors), "same_place": _shared(first.places, second.places)}
    telling = {kind: tuple(name for name in names if name not in common) for kind, names in shared.items()}
    return [_link(first, second, kind, via) for kind, via in telling.items() if via]


def _following(first: Event, second: Event) -> Link | None:
    days = (date.fromisoformat(second.date) - date.fromisoformat(first.date)).days
    via = _shared((*first.actors, *first.places), (*second.actors, *second.places))
    return _link(first, second, "consecutive", via) if via and 0 < days <= _SOON_DAYS else None


def _link(first: Event, second: Event, kind: str, via: tuple[str, ...]) -> Link:
    evidence = tuple(dict.fromkeys((*first.evidence, *second.evidence)))
    return Link(first=first.id, second=second.id, kind=kind, via=via, evidence=evidence)


def _shared(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in one if name in other)


def _statement(event: Event) -> Statement:
    return Statement(text=f"{event.id} ({event.date}): {event.text}", lang=event.lang, evidence=event.evidence)


def _said(job: Job, link: Link, found: Sequence[Event]) -> Statement:
    dates = {event.id: event.date for event in found}
    names = {
        "first": f"{link.first} ({dates[link.first]})",
        "second": f"{link.second} ({dates[link.second]})",
        "via": ", ".join(link.via),
    }
    return Statement(text=job.say(link.kind, dict[str, object](names)), lang=job.plan.lang, evidence=link.evidence)
