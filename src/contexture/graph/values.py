"""Frozen values of a graph: entities, the relations between them, paths, and what supports each."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

PERSON = "person"
ORGANIZATION = "organization"
PLACE = "place"
NAME = "name"
KINDS = (PLACE, PERSON, ORGANIZATION, NAME)
"""Kinds of entities, those first that a model is seldom wrong about; the last says nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Support:
    """Characters `start` to `end` of a record: the sentence that ties two entities."""

    record_id: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Entity:
    """A named thing, whatever it is called: `aliases` are its other names, `records` where it is mentioned."""

    key: str
    name: str
    kind: str
    aliases: tuple[str, ...]
    records: tuple[str, ...]
    mentions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Relation:
    """Two entities that sentences mention together; `label` is what stands between them, where that is short."""

    head: str
    tail: str
    label: str
    strength: float
    support: tuple[Support, ...]

    def other(self, key: str) -> str:
        """The entity at the other end."""
        return self.tail if key == self.head else self.head


@dataclass(frozen=True, kw_only=True, slots=True)
class Path:
    """Entities from one end to the other, and the relation for each step; shorter and stronger ones score higher."""

    entities: tuple[str, ...]
    relations: tuple[Relation, ...]
    score: float


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Entities and relations, the most important first."""

    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = field(default=())

    @cached_property
    def by_key(self) -> dict[str, Entity]:
        """Entities by key."""
        return {entity.key: entity for entity in self.entities}

    @cached_property
    def touching(self) -> dict[str, list[Relation]]:
        """The relations of each entity, strongest first."""
        found: dict[str, list[Relation]] = {entity.key: [] for entity in self.entities}
        for relation in self.relations:
            found[relation.head].append(relation)
            found[relation.tail].append(relation)
        return found
