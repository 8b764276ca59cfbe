"""The best ways from one entity to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice

from contexture.errors import InvalidRequest
from contexture.graph.values import Entity, Graph, Path, Relation
from contexture.text.terms import terms

MOST_HOPS = 3
_MOST_WALKED = 50_000  # steps: a dense graph has more ways than anyone reads


def asked_for(graph: Graph, question: str) -> list[str]:
    """Keys of the entities that a question names, under any of their names, the most important first."""
    wanted = frozenset(terms(question))
    return [entity.key for entity in graph.entities if _is_named(entity, wanted)]


def ranked_paths(graph: Graph, ends: Sequence[str], *, hops: int, most: int = 10) -> list[Path]:
    """Paths of at most `hops` steps, best first: between the entities in `ends`, or from the only one.

    A path visits nothing twice. Its score is the product of its relations' strengths, so that each step costs.
    """
    if not 1 <= hops <= MOST_HOPS:
        raise InvalidRequest(f"`hop_limit` must lie between 1 and {MOST_HOPS}, not {hops}")
    known = [key for key in dict.fromkeys(ends) if key in graph.by_key]
    if len(known) == 1:
        walks = _walks(graph, known[0], hops)
    else:
        walks = (walk for start, goal in combinations(known, 2) for walk in _walks(graph, start, hops, goal))
    found = [_path(start, steps) for start, steps in islice(walks, _MOST_WALKED)]
    return sorted(found, key=lambda path: (-path.score, len(path.relations), path.entities))[:most]


Walk = tuple[str, tuple[Relation, ...]]


def _walks(graph: Graph, start: str, hops: int, goal: str | None = None) -> Iterator[Walk]:
    """Every way from `start`, or only those that end at `goal`."""

    def further(at: str, seen: tuple[str, ...], steps: tuple[Relation, ...]) -> Iterator[Walk]:
        for relation in graph.touching[at]:
            end = relation.other(at)
            if end in seen:
                continue
            walked = (*steps, relation)
            if goal in (None, end):
                yield start, walked
            if len(walked) < hops and end != goal:
                yield from further(end, (*seen, end), walked)

    return further(start, (start,), ())


def _path(start: str, steps: Sequence[Relation]) -> Path:
    entities, score = [start], 1.0
    for relation in steps:
        entities.append(relation.other(entities[-1]))
        score *= relation.strength
    return Path(entities=tuple(entities), relations=tuple(steps), score=score)


def _is_named(entity: Entity, wanted: frozenset[int]) -> bool:
    return any((spelled := frozenset(terms(name))) and spelled <= wanted for name in (entity.name, *entity.aliases))
