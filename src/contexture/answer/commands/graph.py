"""`/graph query`: who and what is tied to whom, over how many steps, and where that is said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from contexture.answer.commands.job import Job
from contexture.answer.commands.reading import Reading, Sentence, joined
from contexture.answer.commands.values import Findings, Statement, grounded
from contexture.graph.assemble import assemble
from contexture.graph.paths import asked_for, ranked_paths
from contexture.graph.values import Entity, Graph, Path, Relation, Support
from contexture.types import Extracted

MOST_ARTICLES = 24
"""Articles that one graph is made of."""

_FRONTIER = 3  # entities whose articles are looked for at each further step
_WIDE = 5
_MOST_PATHS = 8
_MOST_CITED = 3  # sentences that are numbered for one relation


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """An entity with the articles that mention it."""

    name: str
    kind: str
    aliases: tuple[str, ...]
    articles: tuple[str, ...]
    mentions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """A relation by the names of its ends, with the articles and sentences that support it."""

    head: str
    tail: str
    label: str
    strength: float
    articles: tuple[str, ...]
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """A path by the names along it; `evidence` holds that of each of its steps."""

    entities: tuple[str, ...]
    labels: tuple[str, ...]
    score: float
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphDetails:
    """Entities, relations, and the ranked paths between the entities that were asked about."""

    asked: tuple[str, ...]
    hop_limit: int
    build_policy: str
    entities: tuple[Node, ...]
    relations: tuple[Edge, ...]
    paths: tuple[Route, ...]

    def without(self, lost: frozenset[int]) -> GraphDetails:
        """A path goes with any of its steps, an entity with its last relation."""
        if not lost:
            return self
        relations = grounded(self.relations, lost)
        named = {name for edge in relations for name in (edge.head, edge.tail)}
        return replace(
            self,
            entities=tuple(node for node in self.entities if node.name in named),
            relations=relations,
            paths=tuple(path for path in self.paths if lost.isdisjoint(path.evidence)),
        )


async def graph_query(job: Job) -> Findings:
    """The graph of the articles found and of those that its own entities lead to, and the paths through it."""
    found = await _extractions(job)
    focus = asked_for(assemble(found.values(), entities=10_000, relations=0), job.plan.question)
    graph = assemble(found.values(), focus=frozenset(focus))
    paths = ranked_paths(graph, focus, hops=job.plan.hops, most=_MOST_PATHS)
    readings = await job.reader.read(job.scope, list(found), job.trace)
    same = [each for each in readings if each.source.hash == found[each.source.article_id].hash]
    drawn = _Drawing(job, graph, {each.source.article_id: each for each in same})
    return drawn.findings([key for key in focus if key in graph.by_key], paths)


async def _extractions(job: Job) -> dict[str, Extracted]:
    """What the context's articles say, then what those say to which the entities on the way lead."""
    plan = job.plan
    found = {each.record_id: each for each in await job.names(plan.articles, learn=plan.learns)}
    for step in range(plan.hops):
        names = _frontier(found.values(), plan.question)
        if len(found) >= MOST_ARTICLES or not names or not job.in_time(f"step {step + 1} of the graph"):
            break
        ids = [each for each in await _leads(job, names) if each not in found][: MOST_ARTICLES - len(found)]
        new = await job.names(ids, learn=plan.learns)
        if not new:
            break
        found |= {each.record_id: each for each in new}
    return found


async def _leads(job: Job, names: Sequence[str]) -> list[str]:
    """Articles that speak of these names: searched for, or only looked up where nothing may be learnt."""
    if not job.plan.learns:
        return list(await job.graph.mentioning(job.scope, names, most=MOST_ARTICLES, trace=job.trace))
    found: dict[str, None] = {}
    for name in names:
        found |= {each.article.article_id: None for each in await job.find(name, _WIDE)}
    return list(found)


def _frontier(found: Iterable[Extracted], question: str) -> list[str]:
    """The entities to follow next: those asked about, then those most tied to them."""
    graph = assemble(found)
    focus = asked_for(graph, question)
    near = [relation.other(key) for key in focus for relation in graph.touching[key]]
    keys = list(dict.fromkeys((*focus, *near) or (entity.key for entity in graph.entities)))[: len(focus) + _FRONTIER]
    return [graph.by_key[key].name for key in keys]


@dataclass(frozen=True, slots=True)
class _Drawing:
    """Turns keys into names and places into numbers; a relation without a sentence to show is left out."""

    job: Job
    graph: Graph
    readings: Mapping[str, Reading]

    def findings(self, focus: Sequence[str], paths: Sequence[Path]) -> Findings:
        """Statements, details, and what fills the context."""
        routes = [route for path in paths if (route := self._route(path))]
        edges = [edge for relation in self.graph.relations if (edge := self._edge(relation))]
        details = GraphDetails(
            asked=tuple(self.graph.by_key[key].name for key in focus),
            hop_limit=self.job.plan.hops,
            build_policy="on_demand" if self.job.plan.learns else "cached_only",
            entities=tuple(map(_node, self.graph.entities)),
            relations=tuple(edges),
            paths=tuple(routes),
        )
        shown = [self._told(route) for route in routes]
        told = self.job.section("paths", shown) if shown else self.job.section("relations", self._strongest(edges))
        return Findings(sections=(told,), details=details, notes=self._notes(focus, routes, edges))

    def _notes(self, focus: Sequence[str], routes: Sequence[Route], edges: Sequence[Edge]) -> tuple[str, ...]:
        if not focus:
            return (self.job.say("unknown_entity" if edges else "no_entity"),)
        return () if routes else (self.job.say("no_path", {"hops": self.job.plan.hops}),)

    def _edge(self, relation: Relation) -> Edge | None:
        evidence = self._evidence(relation)
        if not evidence:
            return None
        return Edge(
            head=self.graph.by_key[relation.head].name,
            tail=self.graph.by_key[relation.tail].name,
            label=relation.label,
            strength=round(relation.strength, 4),
            articles=tuple(dict.fromkeys(each.record_id for each in relation.support)),
            evidence=evidence,
        )

    def _route(self, path: Path) -> Route | None:
        steps = [self._evidence(relation) for relation in path.relations]
        if not all(steps):
            return None
        return Route(
            entities=tuple(self.graph.by_key[key].name for key in path.entities),
            labels=tuple(relation.label for relation in path.relations),
            score=round(path.score, 4),
            evidence=tuple(dict.fromkeys(number for step in steps for number in step)),
        )

    def _evidence(self, relation: Relation) -> tuple[int, ...]:
        found = [shown for each in relation.support if (shown := self._sentence(each))]
        return tuple(self.job.notebook.cite(sentence) for sentence in found[:_MOST_CITED])

    def _sentence(self, support: Support) -> Sentence | None:
        """The sentence, or the two neighbours, that tie a pair."""
        reading = self.readings.get(support.record_id)
        inside = [
            each
            for each in (reading.sentences if reading else ())
            if support.start <= each.start and each.end <= support.end
        ]
        return joined(inside) if inside else None

    def _told(self, route: Route) -> Statement:
        text = route.entities[0]
        for label, name in zip(route.labels, route.entities[1:], strict=True):
            text += f" —[{label or self.job.say('together')}]→ {name}"
        return Statement(text=text, lang=self.job.plan.lang, evidence=route.evidence)

    def _strongest(self, edges: Sequence[Edge]) -> list[Statement]:
        together = self.job.say("together")
        return [
            Statement(
                text=f"{edge.head} —[{edge.label or together}]→ {edge.tail}",
                lang=self.job.plan.lang,
                evidence=edge.evidence,
            )
            for edge in edges[:_MOST_PATHS]
        ]


def _node(entity: Entity) -> Node:
    return Node(
        name=entity.name,
        kind=entity.kind,
        aliases=entity.aliases,
        articles=entity.records,
        mentions=entity.mentions,
    )
