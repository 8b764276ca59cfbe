"""A graph from what records say: names merged, relations weighed, both bounded."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from contexture.graph.names import key_of, same_names
from contexture.graph.values import KINDS, Entity, Graph, Relation, Support
from contexture.types import Extracted

MOST_ENTITIES = 60
MOST_RELATIONS = 120

Pair = tuple[str, str]


@dataclass(slots=True)
class _Thing:
    """What is known of one entity while records are read."""

    spellings: Counter[str] = field(default_factory=Counter[str])
    kinds: Counter[str] = field(default_factory=Counter[str])
    records: dict[str, None] = field(default_factory=dict[str, None])


@dataclass(slots=True)
class _Tie:
    """What is known of one pair while records are read."""

    labels: Counter[tuple[Pair, str]] = field(default_factory=Counter[tuple[Pair, str]])
    support: dict[Support, float] = field(default_factory=dict[Support, float])


def assemble(
    found: Iterable[Extracted],
    *,
    focus: Collection[str] = (),
    entities: int = MOST_ENTITIES,
    relations: int = MOST_RELATIONS,
) -> Graph:
    """The graph of these records, entities in `focus` first, then by how often they are tied and mentioned.

    Equal records in any order give an equal graph; ties are broken by key.
    """
    records = sorted({each.record_id: each for each in found}.values(), key=lambda each: each.record_id)
    stands = _merged(records)
    things, ties = _things(records, stands), _ties(records, stands)
    kept = _kept(things, ties, focus, entities)
    return Graph(
        entities=tuple(_entity(key, things[key]) for key in kept),
        relations=_relations(things, ties, frozenset(kept), relations),
    )


def _merged(records: Sequence[Extracted]) -> dict[str, str]:
    """The key that stands for each key of the records."""
    things = _things(records, {})
    return same_names({key: (_kind(thing.kinds), sorted(thing.spellings)) for key, thing in things.items()})


def _things(records: Sequence[Extracted], stands: Mapping[str, str]) -> dict[str, _Thing]:
    found: defaultdict[str, _Thing] = defaultdict(_Thing)
    for record in records:
        for mention in record.mentions:
            key = key_of(mention.name)
            thing = found[stands.get(key, key)]
            thing.spellings[mention.name] += 1
            thing.kinds[mention.kind] += 1
            thing.records[record.record_id] = None
    return found


def _ties(records: Sequence[Extracted], stands: Mapping[str, str]) -> dict[Pair, _Tie]:
    found: defaultdict[Pair, _Tie] = defaultdict(_Tie)
    for record in records:
        keys = [key_of(mention.name) for mention in record.mentions]
        ends = [stands.get(key, key) for key in keys]
        for bond in record.bonds:
            head, tail = ends[bond.head], ends[bond.tail]
            if head != tail:
                tie = found[min(head, tail), max(head, tail)]
                tie.labels[(head, tail), bond.label] += 1
                tie.support[Support(record_id=record.record_id, start=bond.start, end=bond.end)] = bond.weight
    return found


def _kept(things: Mapping[str, _Thing], ties: Mapping[Pair, _Tie], focus: Collection[str], most: int) -> list[str]:
    """The entities worth keeping, most important first."""
    tied: defaultdict[str, float] = defaultdict(float)
    for pair, tie in ties.items():
        for key in pair:
            tied[key] += math.fsum(tie.support.values())
    return sorted(
        things,
        key=lambda key: (key not in focus, -tied[key], -things[key].spellings.total(), key),
    )[:most]


def _entity(key: str, thing: _Thing) -> Entity:
    name = _most(thing.spellings)
    return Entity(
        key=key,
        name=name,
        kind=_kind(thing.kinds),
        aliases=tuple(sorted(spelling for spelling in thing.spellings if spelling != name)),
        records=tuple(thing.records),
        mentions=thing.spellings.total(),
    )


def _relations(
    things: Mapping[str, _Thing], ties: Mapping[Pair, _Tie], kept: frozenset[str], most: int
) -> tuple[Relation, ...]:
    found = [_relation(pair, tie, things) for pair, tie in ties.items() if kept.issuperset(pair)]
    return tuple(sorted(found, key=lambda each: (-each.strength, each.head, each.tail))[:most])


def _relation(pair: Pair, tie: _Tie, things: Mapping[str, _Thing]) -> Relation:
    (head, tail), label = min(tie.labels, key=lambda each: (not each[1], -tie.labels[each], each))
    return Relation(
        head=head,
        tail=tail,
        label=label,
        strength=_strength(pair, tie, things),
        support=tuple(sorted(tie.support, key=lambda each: (-tie.support[each], each.record_id, each.start, each.end))),
    )


def _strength(pair: Pair, tie: _Tie, things: Mapping[str, _Thing]) -> float:
    """From 0 to 1: records that tie the two count most, and names that stand beside everything tie little."""
    best: dict[str, float] = {}
    for each, weight in tie.support.items():
        best[each.record_id] = max(best.get(each.record_id, 0.0), weight)
    records, total = math.fsum(best.values()), math.fsum(tie.support.values())
    said = records + 0.5 * (total - records)
    often = math.sqrt(math.prod(things[key].spellings.total() for key in pair))
    return said / (said + 1) * (0.5 + 0.5 * min(1.0, total / often))


def _kind(counts: Counter[str]) -> str:
    """The most frequent kind; of equals the one that says most."""
    return min(counts, key=lambda each: (-counts[each], KINDS.index(each) if each in KINDS else len(KINDS), each))


def _most(counts: Counter[str]) -> str:
    """The most frequent, of equals the longest, then the first."""
    return min(counts, key=lambda each: (-counts[each], -len(each), each))
