"""`/graph query`: how entities are related, over how many steps, and which sentences say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from contexture.answer.commands._article_sentences import (
    ArticleSentence,
    ReadArticle,
    join_sentences,
    newsroom_names,
)
from contexture.answer.commands.answer import Findings, Statement, drop_lost_evidence
from contexture.answer.commands.job import Job
from contexture.builders.command.result import GraphEdge, GraphNode
from contexture.graph.assembly import assemble_graph, find_named_entities, rank_paths
from contexture.graph.entities import Entity, EntityPath, Graph, Relation, Support, name_key
from contexture.graph.store import drop_hidden_names
from contexture.news.articles import asks_for_latest
from contexture.text.terms import split_words
from contexture.types import ExtractedMentions

MAX_ARTICLES = 24
"""Maximum number of articles in one graph."""

_FRONTIER_SIZE = 3  # entities whose articles are searched at each further step
_ARTICLES_PER_NAME = 5
_MAX_PATHS = 8
_MAX_CITED_SENTENCES = 3  # sentences cited per relation


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphPath:
    """A path by entity names; `evidence` covers all its steps.

    `forward` says of each label whether it reads from the entity before it to the one behind it.
    """

    entities: tuple[str, ...]
    labels: tuple[str, ...]
    forward: tuple[bool, ...]
    score: float
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphDetails:
    """Entities, relations, and the ranked paths between the entities that were asked about."""

    asked: tuple[str, ...]
    hop_limit: int
    build_policy: str
    entities: tuple[GraphNode, ...]
    relations: tuple[GraphEdge, ...]
    paths: tuple[GraphPath, ...]

    def without_evidence(self, lost: frozenset[int]) -> GraphDetails:
        """The details without paths that lost a step and entities that lost their last relation."""
        if not lost:
            return self
        relations = drop_lost_evidence(self.relations, lost)
        named = {name for edge in relations for name in (edge.head, edge.tail)}
        return replace(
            self,
            entities=tuple(node for node in self.entities if node.name in named),
            relations=relations,
            paths=tuple(path for path in self.paths if lost.isdisjoint(path.evidence)),
        )


async def query_graph(job: Job) -> Findings:
    """Build the entity graph of the found articles and of the articles that their entities lead to.

    Returns its entities and relations, and the paths between the entities asked about.
    """
    found = await _collect_extractions(job)
    readings = await job.reader.read(job.scope, list(found), job.trace)
    found |= {each.source.article_id: _drop_newsroom(job, found[each.source.article_id], each) for each in readings}
    focus = find_named_entities(assemble_graph(found.values(), entities=10_000, relations=0), job.plan.question)
    if not focus and not asks_for_latest(job.plan.question):
        readings = await _keep_relevant(job, readings)
        found = {each.source.article_id: found[each.source.article_id] for each in readings}
    graph = assemble_graph(found.values(), focus=frozenset(focus))
    paths = rank_paths(graph, focus, hops=job.plan.hops, most=_MAX_PATHS)
    same = [each for each in readings if each.source.hash == found[each.source.article_id].hash]
    drawn = _FindingsBuilder(job, graph, {each.source.article_id: each for each in same})
    return drawn.build([key for key in focus if key in graph.entities_by_key], paths)


def _drop_newsroom(job: Job, found: ExtractedMentions, reading: ReadArticle) -> ExtractedMentions:
    """The mentions of an article without its own newsroom, which is no part of the news, unless it is asked about."""
    newsroom = newsroom_names(reading.source.name) - {name_key(word) for word in split_words(job.plan.question)}
    return drop_hidden_names(found, lambda name: name_key(name).replace(" ", "") in newsroom)


async def _keep_relevant(job: Job, readings: Sequence[ReadArticle]) -> list[ReadArticle]:
    """The articles that speak of the question, where it names no entity of them."""
    ranked = await job.ranker.rank(readings, job.plan.question)
    names = {each.sentence.source.article_id for group in ranked for each in group if each.is_relevant}
    return [each for each in readings if each.source.article_id in names]


async def _collect_extractions(job: Job) -> dict[str, ExtractedMentions]:
    """Return the mentions of the context's articles, then those of the articles their entities lead to."""
    plan = job.plan
    found = {each.record_id: each for each in await job.extract_names(plan.articles, learn=plan.learns)}
    for step in range(plan.hops):
        names = _next_entities(found.values(), plan.question)
        if len(found) >= MAX_ARTICLES or not names or not job.has_time_left(f"step {step + 1} of the graph"):
            break
        ids = [each for each in await _find_mentioning_articles(job, names) if each not in found][
            : MAX_ARTICLES - len(found)
        ]
        new = await job.extract_names(ids, learn=plan.learns)
        if not new:
            break
        found |= {each.record_id: each for each in new}
    return found


async def _find_mentioning_articles(job: Job, names: Sequence[str]) -> list[str]:
    """Find articles that mention these names: by search, or by lookup only if nothing may be learnt."""
    if not job.plan.learns:
        return list(await job.graph.ids_mentioning(job.scope, names, most=MAX_ARTICLES, trace=job.trace))
    found: dict[str, None] = {}
    for name in names:
        found |= {each.article.article_id: None for each in await job.find_articles(name, _ARTICLES_PER_NAME)}
    return list(found)


def _next_entities(found: Iterable[ExtractedMentions], question: str) -> list[str]:
    """Return the entities to follow next: those asked about, then those most related to them."""
    graph = assemble_graph(found)
    focus = find_named_entities(graph, question)
    near = [relation.other(key) for key in focus for relation in graph.relations_by_key[key]]
    keys = list(dict.fromkeys((*focus, *near) or (entity.key for entity in graph.entities)))[
        : len(focus) + _FRONTIER_SIZE
    ]
    return [graph.entities_by_key[key].name for key in keys]


@dataclass(frozen=True, slots=True)
class _FindingsBuilder:
    """Builds findings from a graph; a relation without a sentence that can be shown is left out."""

    job: Job
    graph: Graph
    readings: Mapping[str, ReadArticle]

    def build(self, focus: Sequence[str], paths: Sequence[EntityPath]) -> Findings:
        """Return the statements and the details that fill the context."""
        routes = [route for path in paths if (route := self._build_path(path))]
        edges = [edge for relation in self.graph.relations if (edge := self._build_edge(relation))]
        details = GraphDetails(
            asked=tuple(self.graph.entities_by_key[key].name for key in focus),
            hop_limit=self.job.plan.hops,
            build_policy="on_demand" if self.job.plan.learns else "cached_only",
            entities=tuple(map(_build_node, self.graph.entities)),
            relations=tuple(edges),
            paths=tuple(routes),
        )
        asked = set(details.asked)
        near = [edge for edge in edges if not asked.isdisjoint((edge.head, edge.tail))] if asked else edges
        shown = [self._path_statement(route) for route in routes]
        overview = (
            self.job.make_section("paths", shown)
            if shown
            else self.job.make_section("relations", self._edge_statements(near))
        )
        return Findings(
            sections=(overview,),
            details=details,
            notes=self._build_notes(focus, routes, edges),
            readings=tuple(self.readings.values()),
        )

    def _build_notes(
        self, focus: Sequence[str], routes: Sequence[GraphPath], edges: Sequence[GraphEdge]
    ) -> tuple[str, ...]:
        if not focus:
            if not self.readings:
                part = self.job.reader.redact_line(self.job.plan.question)
                return (self.job.explain_missing("uncovered", {"part": part}),)
            return (self.job.explain_missing("unknown_entity" if edges else "no_entity"),)
        return () if routes else (self.job.explain_missing("no_path", {"hops": self.job.plan.hops}),)

    def _build_edge(self, relation: Relation) -> GraphEdge | None:
        evidence = self._cite_support(relation)
        if not evidence:
            return None
        return GraphEdge(
            head=self.graph.entities_by_key[relation.head].name,
            tail=self.graph.entities_by_key[relation.tail].name,
            label=relation.label,
            strength=round(relation.strength, 4),
            articles=tuple(dict.fromkeys(each.record_id for each in relation.support)),
            evidence=evidence,
        )

    def _build_path(self, path: EntityPath) -> GraphPath | None:
        steps = [self._cite_support(relation) for relation in path.relations]
        if not all(steps):
            return None
        return GraphPath(
            entities=tuple(self.graph.entities_by_key[key].name for key in path.entities),
            labels=tuple(relation.label for relation in path.relations),
            forward=tuple(relation.head == key for key, relation in zip(path.entities, path.relations, strict=False)),
            score=round(path.score, 4),
            evidence=tuple(dict.fromkeys(number for step in steps for number in step)),
        )

    def _cite_support(self, relation: Relation) -> tuple[int, ...]:
        found = [shown for each in relation.support if (shown := self._find_sentence(each))]
        return tuple(self.job.evidence_registry.cite(sentence) for sentence in found[:_MAX_CITED_SENTENCES])

    def _find_sentence(self, support: Support) -> ArticleSentence | None:
        """Return the sentence, or the two neighbouring sentences, that relate a pair."""
        reading = self.readings.get(support.record_id)
        inside = [
            each
            for each in (reading.sentences if reading else ())
            if support.start <= each.start and each.end <= support.end
        ]
        return join_sentences(inside) if inside else None

    def _path_statement(self, route: GraphPath) -> Statement:
        text = route.entities[0]
        for label, forward, name in zip(route.labels, route.forward, route.entities[1:], strict=True):
            said = label or self.job.localize("together")
            text += f" {_draw_step(said, label, forward=forward)} {name}"
        return Statement(text=text, lang=self.job.plan.lang, evidence=route.evidence)

    def _edge_statements(self, edges: Sequence[GraphEdge]) -> list[Statement]:
        together = self.job.localize("together")
        return [
            Statement(
                text=f"{edge.head} {_draw_step(edge.label or together, edge.label)} {edge.tail}",
                lang=self.job.plan.lang,
                evidence=edge.evidence,
            )
            for edge in edges[:_MAX_PATHS]
        ]


def _draw_step(said: str, label: str, *, forward: bool = True) -> str:
    """A relation as an arrow; without a label it has no direction."""
    if not label:
        return f"—[{said}]—"
    return f"—[{said}]→" if forward else f"←[{said}]—"


def _build_node(entity: Entity) -> GraphNode:
    return GraphNode(
        name=entity.name,
        kind=entity.kind,
        aliases=entity.aliases,
        articles=entity.records,
        mentions=entity.mentions,
    )
