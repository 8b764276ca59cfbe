"""Assembles a bounded graph from extracted mentions and ranks paths between its entities.

Names of one entity are merged and relations are weighted.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

from contexture.errors import InvalidRequest
from contexture.graph.entities import (
    KINDS,
    PERSON,
    Entity,
    EntityPath,
    Graph,
    Relation,
    Support,
    merge_names,
    name_key,
    sound_skeleton,
)
from contexture.text.terms import is_cyrillic, split_words, stem, term_id
from contexture.types import ExtractedMentions

MAX_ENTITIES = 60
MAX_RELATIONS = 120
_UNLABELLED_SHARE = 0.5

Pair = tuple[str, str]


@dataclass(slots=True)
class _EntityTally:
    """Counts for one entity while records are read."""

    spellings: Counter[str] = field(default_factory=Counter[str])
    kinds: Counter[str] = field(default_factory=Counter[str])
    records: dict[str, None] = field(default_factory=dict[str, None])


@dataclass(slots=True)
class _PairTally:
    """Counts for one pair of entities while records are read."""

    labels: Counter[tuple[Pair, str]] = field(default_factory=Counter[tuple[Pair, str]])
    support: dict[Support, float] = field(default_factory=dict[Support, float])


def assemble_graph(
    found: Iterable[ExtractedMentions],
    *,
    focus: Collection[str] = (),
    entities: int = MAX_ENTITIES,
    relations: int = MAX_RELATIONS,
) -> Graph:
    """The graph of these records; entities in `focus` come first, then by weight of their relations and mentions.

    The result does not depend on the order of the records; ties are broken by key.
    """
    records = sorted({each.record_id: each for each in found}.values(), key=lambda each: each.record_id)
    stands = _merge_keys(records)
    things, ties = _tally_entities(records, stands), _tally_pairs(records, stands)
    kept = _select_entities(things, ties, focus, entities)
    return Graph(
        entities=tuple(_build_entity(key, things[key]) for key in kept),
        relations=_build_relations(things, ties, frozenset(kept), relations),
    )


def _merge_keys(records: Sequence[ExtractedMentions]) -> dict[str, str]:
    """The merged key of each key in the records."""
    things = _tally_entities(records, {})
    return merge_names(
        {key: (_main_kind(thing.kinds), sorted(thing.spellings)) for key, thing in things.items()},
        {key: thing.spellings.total() for key, thing in things.items()},
    )


def _tally_entities(records: Sequence[ExtractedMentions], stands: Mapping[str, str]) -> dict[str, _EntityTally]:
    found: defaultdict[str, _EntityTally] = defaultdict(_EntityTally)
    for record in records:
        for mention in record.mentions:
            key = name_key(mention.name)
            thing = found[stands.get(key, key)]
            thing.spellings[mention.name] += 1
            thing.kinds[mention.kind] += 1
            thing.records[record.record_id] = None
    return found


def _tally_pairs(records: Sequence[ExtractedMentions], stands: Mapping[str, str]) -> dict[Pair, _PairTally]:
    found: defaultdict[Pair, _PairTally] = defaultdict(_PairTally)
    for record in records:
        keys = [name_key(mention.name) for mention in record.mentions]
        ends = [stands.get(key, key) for key in keys]
        for bond in record.bonds:
            head, tail = ends[bond.head], ends[bond.tail]
            if head != tail:
                tie = found[min(head, tail), max(head, tail)]
                tie.labels[(head, tail), bond.label] += 1
                tie.support[Support(record_id=record.record_id, start=bond.start, end=bond.end)] = bond.weight
    return found


def _select_entities(
    things: Mapping[str, _EntityTally], ties: Mapping[Pair, _PairTally], focus: Collection[str], most: int
) -> list[str]:
    """Keys of the `most` most important entities, in order."""
    tied: defaultdict[str, float] = defaultdict(float)
    for pair, tie in ties.items():
        for key in pair:
            tied[key] += math.fsum(tie.support.values())
    return sorted(
        things,
        key=lambda key: (key not in focus, -tied[key], -things[key].spellings.total(), key),
    )[:most]


def _build_entity(key: str, thing: _EntityTally) -> Entity:
    name = _main_spelling(thing.spellings)
    return Entity(
        key=key,
        name=name,
        kind=_main_kind(thing.kinds),
        aliases=tuple(sorted(spelling for spelling in thing.spellings if spelling != name)),
        records=tuple(thing.records),
        mentions=thing.spellings.total(),
    )


def _build_relations(
    things: Mapping[str, _EntityTally], ties: Mapping[Pair, _PairTally], kept: frozenset[str], most: int
) -> tuple[Relation, ...]:
    found = [_build_relation(pair, tie, things) for pair, tie in ties.items() if kept.issuperset(pair)]
    return tuple(sorted(found, key=lambda each: (-each.strength, each.head, each.tail))[:most])


def _build_relation(pair: Pair, tie: _PairTally, things: Mapping[str, _EntityTally]) -> Relation:
    (head, tail), label = min(tie.labels, key=lambda each: (not each[1], -tie.labels[each], each))
    return Relation(
        head=head,
        tail=tail,
        label=label,
        strength=_relation_strength(pair, tie, things),
        support=tuple(sorted(tie.support, key=lambda each: (-tie.support[each], each.record_id, each.start, each.end))),
    )


def _relation_strength(pair: Pair, tie: _PairTally, things: Mapping[str, _EntityTally]) -> float:
    """The strength of a relation from 0 to 1.

    It grows mainly with the number of records that support it, and is lower for names that occur with many others and
    for names of which no text says how they are related.
    """
    best: dict[str, float] = {}
    for each, weight in tie.support.items():
        best[each.record_id] = max(best.get(each.record_id, 0.0), weight)
    records, total = math.fsum(best.values()), math.fsum(tie.support.values())
    said = records + 0.5 * (total - records)
    often = math.sqrt(math.prod(things[key].spellings.total() for key in pair))
    informative = 1.0 if any(label for _, label in tie.labels) else _UNLABELLED_SHARE
    return informative * said / (said + 1) * (0.5 + 0.5 * min(1.0, total / often))


def _main_kind(counts: Counter[str]) -> str:
    """The most frequent kind; ties go to the more specific one, by the order of `KINDS`."""
    return min(counts, key=lambda each: (-counts[each], KINDS.index(each) if each in KINDS else len(KINDS), each))


def _main_spelling(counts: Counter[str]) -> str:
    """The most frequent spelling of several words, else of one; ties go to the longest, then to the alphabetical first.

    A full name says more than the surname, however often that is used.
    """
    return min(
        counts, key=lambda each: (not _WORD_GAP.search(each) or _repeats_word(each), -counts[each], -len(each), each)
    )


_WORD_GAP = re.compile(r"\w[ -]\w")


def _repeats_word(name: str) -> bool:
    words = name.casefold().split()
    return len(set(words)) < len(words)


MAX_HOPS = 3
_MAX_WALKS = 50_000  # bounds the search: a dense graph has far more walks than are useful


def find_named_entities(graph: Graph, question: str) -> list[str]:
    """Keys of the entities that a question mentions by a name in any case or script, the most important first.

    A person is also found by a surname that names nobody and nothing else. A name that stands inside a longer one in
    the question does not name another entity.
    """
    wanted = _list_name_words(question)
    bearers = Counter(name_key(name) for each in graph.entities for name in (each.name, *each.aliases))
    bearers.update(name_key(surname) for each in graph.entities if (surname := _find_surname(each)))
    places: dict[str, NamePlace] = {}
    for entity in graph.entities:
        surname = _find_surname(entity)
        unique = [surname] if surname and bearers[name_key(surname)] == 1 else []
        names = (entity.name, *entity.aliases, *unique)
        if place := _find_name(names, wanted) or _find_name_by_sound(names, question):
            places[entity.key] = place
    return [key for key, place in places.items() if not any(_is_within(place, other) for other in places.values())]


def rank_paths(graph: Graph, ends: Sequence[str], *, hops: int, most: int = 10) -> list[EntityPath]:
    """Paths of at most `hops` steps, best first: between the entities in `ends`, or from the only one.

    A path visits no entity twice. Its score is the product of its relations' strengths, so longer paths score lower.
    Raises `InvalidRequest` when `hops` is out of range.
    """
    if not 1 <= hops <= MAX_HOPS:
        raise InvalidRequest(f"`hop_limit` must lie between 1 and {MAX_HOPS}, not {hops}")
    known = [key for key in dict.fromkeys(ends) if key in graph.entities_by_key]
    if len(known) == 1:
        walks = _iter_walks(graph, known[0], hops)
    else:
        walks = (walk for start, goal in combinations(known, 2) for walk in _iter_walks(graph, start, hops, goal))
    found = [_build_path(start, steps) for start, steps in islice(walks, _MAX_WALKS)]
    return sorted(found, key=lambda path: (-path.score, len(path.relations), path.entities))[:most]


Walk = tuple[str, tuple[Relation, ...]]


def _iter_walks(graph: Graph, start: str, hops: int, goal: str | None = None) -> Iterator[Walk]:
    """All walks from `start` of at most `hops` steps, or only those that end at `goal`."""

    def further(at: str, seen: tuple[str, ...], steps: tuple[Relation, ...]) -> Iterator[Walk]:
        for relation in graph.relations_by_key[at]:
            end = relation.other(at)
            if end in seen:
                continue
            walked = (*steps, relation)
            if goal in (None, end):
                yield start, walked
            if len(walked) < hops and end != goal:
                yield from further(end, (*seen, end), walked)

    return further(start, (start,), ())


def _build_path(start: str, steps: Sequence[Relation]) -> EntityPath:
    entities, score = [start], 1.0
    for relation in steps:
        entities.append(relation.other(entities[-1]))
        score *= relation.strength
    return EntityPath(entities=tuple(entities), relations=tuple(steps), score=score)


NamePlace = tuple[int, int]  # the words of a question that are a name: the first, and the one behind the last


def _find_surname(entity: Entity) -> str:
    """The last of a person's names; empty for anything else and for a single name."""
    first, _, last = entity.name.rpartition(" ")
    return last if first and entity.kind == PERSON else ""


def _list_name_words(text: str) -> tuple[str | None, ...]:
    """The words of a text without inflection, None for a stop word, so that words on both sides of one do not join."""
    words = ((word, term_id(word)) for word in split_words(text))
    return tuple(None if term is None else name_key(word) if is_cyrillic(word) else stem(word) for word, term in words)


def _find_name(names: Iterable[str], wanted: Sequence[str | None]) -> NamePlace | None:
    """Where a question has the longest of these names, its words one after the other; None if it has none."""
    spelled = {words for name in names if any(words := _list_name_words(name))}
    for words in sorted(spelled, key=lambda each: (-len(each), str(each))):
        starts = range(len(wanted) - len(words) + 1)
        start = next((at for at in starts if tuple(wanted[at : at + len(words)]) == words), None)
        if start is not None:
            return start, start + len(words)
    return None


def _find_name_by_sound(names: Iterable[str], question: str) -> NamePlace | None:
    """Where a question has one of these names in the other script, by its sound; None if it has none."""
    wanted = [(is_cyrillic(word), sound_skeleton(word)) for word in split_words(question)]
    for name in names:
        sounds = [(not is_cyrillic(word), sound_skeleton(word)) for word in split_words(name)]
        if not sounds or not all(sound for _, sound in sounds):
            continue
        starts = range(len(wanted) - len(sounds) + 1)
        start = next((at for at in starts if wanted[at : at + len(sounds)] == sounds), None)
        if start is not None:
            return start, start + len(sounds)
    return None


def _is_within(inner: NamePlace, outer: NamePlace) -> bool:
    return inner != outer and outer[0] <= inner[0] and inner[1] <= outer[1]
