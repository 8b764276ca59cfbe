"""`/memory store`, `/memory recall` and `/memory suggest`: subjects that are remembered, recalled or suggested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from contexture.answer.commands._article_sentences import (
    ArticleSentence,
    Evidence,
    ReadArticle,
    make_match,
    newsroom_names,
)
from contexture.answer.commands._sentence_ranking import covers_question
from contexture.answer.commands.answer import Findings, Statement, drop_lost_evidence
from contexture.answer.commands.job import Job, SemanticKey
from contexture.builders.command.result import Episode
from contexture.conversation import Memory, MemoryKind, Recall, Recalled
from contexture.errors import InvalidRequest, RedactionFailed, SourceError
from contexture.graph.assembly import assemble_graph
from contexture.graph.entities import Entity
from contexture.text.language import detect_language
from contexture.types import Citation, content_hash

COMMAND_TAG = "command"
"""Tag of every memory that a command stores."""

SUBJECT_TYPE = "subject"
"""Type of the memory that stores a semantic key."""

MEMORIES_COLLECTION = "memories"
_TOP_K = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredKey:
    """A remembered subject, its memory id, and its time to live in days."""

    key: str
    ttl_days: float
    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectSuggestion:
    """A subject worth remembering, and the articles that mention it."""

    key: str
    articles: int
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryDetails:
    """Stored keys, stored or recalled memories, and suggestions."""

    semantic_keys: tuple[StoredKey, ...] = ()
    episodic: tuple[Episode, ...] = ()
    suggestions: tuple[SubjectSuggestion, ...] = field(default=())

    def without_evidence(self, lost: frozenset[int]) -> MemoryDetails:
        """The details without memories and suggestions whose evidence is lost."""
        return replace(
            self,
            episodic=drop_lost_evidence(self.episodic, lost),
            suggestions=drop_lost_evidence(self.suggestions, lost),
        )


def build_recall(job: Job, kinds: tuple[MemoryKind, ...] = ()) -> Recall:
    """The recall request for the command's question."""
    return Recall(
        query=job.plan.question,
        now=job.plan.now,
        top_k=_TOP_K,
        threshold=job.memory_location.threshold,
        namespace=job.memory_location.namespace,
        universe=job.memory_location.universe,
        kinds=kinds,
    )


def quote_episode(episode: Episode, lang: str) -> Statement:
    """The text of a memory as a statement."""
    said = detect_language(episode.text)
    return Statement(text=episode.text, lang=said if said != "und" else lang, evidence=episode.evidence)


async def read_articles(job: Job) -> list[ReadArticle]:
    """Return the articles of the context, or if it has none, those that match the question."""
    if job.plan.articles:
        return await job.read_documents()
    found = await job.find_articles(job.plan.question, job.plan.k)
    matches = [make_match(each.article.article_id, each.score, each.candidates) for each in found]
    return await job.reader.read_matches(job.scope, matches, job.trace)


_SECONDS_PER_DAY = 86_400.0
_MAX_EPISODES = 5
_MIN_SUBJECT_COVERAGE = 0.6  # share of a subject's terms that a sentence about it must contain


async def store_memories(job: Job) -> Findings:
    """Store the subjects of the command and what articles say about them now; idempotent."""
    keys = job.plan.keys
    if not keys:
        raise InvalidRequest('there is nothing to store; say what, as in /memory store query="port strike"')
    episodes = [
        each
        for each in await job.ranker.select(await read_articles(job), job.plan.question, _MAX_EPISODES)
        if _is_about_any(each, keys)
    ]
    memories = [
        *(_subject_memory(job, key) for key in keys),
        *(_episode_memory(job, keys[0], sentence) for sentence in episodes),
    ]
    ids = await job.deadline.wait_for(job.memory.remember(job.scope, memories), "memory")
    subjects = [
        StoredKey(key=job.reader.redact_line(key.key), ttl_days=key.ttl_days, id=name)
        for key, name in zip(keys, ids, strict=False)
    ]
    kept = [
        Episode(
            id=name,
            text=sentence.text,
            kind=MemoryKind.EPISODIC,
            time=job.plan.now.isoformat(),
            score=1.0,
            evidence=(job.evidence_registry.cite(sentence),),
        )
        for name, sentence in zip(ids[len(keys) :], episodes, strict=True)
    ]
    return Findings(
        sections=(job.make_section("stored", [quote_episode(each, job.plan.lang) for each in kept]),),
        details=MemoryDetails(semantic_keys=tuple(subjects), episodic=tuple(kept)),
        notes=tuple(job.localize("stored", {"key": each.key, "days": f"{each.ttl_days:g}"}) for each in subjects),
    )


def _is_about_any(sentence: ArticleSentence, keys: Sequence[SemanticKey]) -> bool:
    """Whether a sentence is about one of the subjects, not just similar to it."""
    return any(covers_question([sentence], key.key, _MIN_SUBJECT_COVERAGE) for key in keys)


def _subject_memory(job: Job, key: SemanticKey) -> Memory:
    return Memory(
        text=key.key,
        kind=MemoryKind.SEMANTIC,
        type=SUBJECT_TYPE,
        namespace=job.memory_location.namespace,
        universe=job.memory_location.universe,
        tags=(COMMAND_TAG,),
        ttl_seconds=key.ttl_days * _SECONDS_PER_DAY,
        time=job.plan.now,
        idempotency_key=f"{COMMAND_TAG}:{content_hash(key.key.casefold())[:32]}",
        metadata={"ttl_days": key.ttl_days},
    )


def _episode_memory(job: Job, key: SemanticKey, sentence: ArticleSentence) -> Memory:
    """Build a memory of what an article says about a subject; its citation lets a recall verify it."""
    source = sentence.source
    place = f"{key.key.casefold()}:{source.article_id}:{source.hash}:{sentence.start}"
    return Memory(
        text=sentence.text,
        kind=MemoryKind.EPISODIC,
        type="news",
        namespace=job.memory_location.namespace,
        universe=job.memory_location.universe,
        tags=(COMMAND_TAG,),
        ttl_seconds=key.ttl_days * _SECONDS_PER_DAY,
        time=job.plan.now,
        idempotency_key=f"{COMMAND_TAG}:{content_hash(place)[:32]}",
        metadata={
            "source": source.name,
            "key": key.key,
            "article": {
                **{name: getattr(source, name) for name in ("article_id", "title", "url", "date", "lang")},
                "citation": msgspec.structs.asdict(sentence.citation),
            },
        },
    )


async def recall_memories(job: Job) -> Findings:
    """Return the scope's memories of the subject, without memories of articles it can no longer see."""
    found = await job.deadline.wait_for(job.memory.recall(job.scope, build_recall(job)), "memory")
    episodes = [episode for each in found if (episode := _to_episode(job, each))]
    keys = [
        StoredKey(key=episode.text, ttl_days=_ttl_days(each), id=each.id)
        for each, episode in zip(found, episodes, strict=False)
        if each.type == SUBJECT_TYPE and each.id == episode.id
    ]
    return Findings(
        sections=(job.make_section("recalled", [quote_episode(each, job.plan.lang) for each in episodes]),),
        details=MemoryDetails(semantic_keys=tuple(keys), episodic=tuple(episodes)),
        notes=() if episodes else (job.explain_missing("nothing"),),
    )


def _to_episode(job: Job, memory: Recalled) -> Episode | None:
    try:
        text = job.reader.redact_line(memory.text, memory.lang)
    except RedactionFailed as failure:
        job.trace.add_degradation("redactor", str(failure))
        return None
    return Episode(
        id=memory.id,
        text=text,
        kind=memory.kind,
        time=memory.time.isoformat() if memory.time else "",
        score=round(memory.score, 4),
        evidence=(_cite_memory(job, memory, text),),
    )


def _cite_memory(job: Job, memory: Recalled, text: str) -> int:
    """The evidence number of the article a memory came from, or of the memory itself."""
    article: object = memory.metadata.get("article")
    try:
        read = msgspec.convert(article, _ArticleMetadata) if isinstance(article, dict) else None
    except msgspec.ValidationError:
        read = None  # a field of the same name with another meaning
    if read is None:
        return _cite_memory_itself(job, memory, text)
    return job.evidence_registry.register(
        read.citation,
        lambda number: Evidence(
            number=number,
            article_id=read.article_id,
            title=read.title,
            url=read.url,
            source=str(memory.metadata.get("source", "")),
            date=read.date,
            lang=read.lang,
            text=text,
            citation=read.citation,
        ),
    )


class _ArticleMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The article that a memory came from, as stored in the memory's metadata."""

    article_id: str
    title: str
    url: str
    date: str
    lang: str
    citation: Citation


def _cite_memory_itself(job: Job, memory: Recalled, text: str) -> int:
    citation = Citation(
        collection=MEMORIES_COLLECTION,
        record_id=memory.id,
        title="",
        start=0,
        end=len(memory.text),
        hash=memory.hash or content_hash(memory.text),
    )
    return job.evidence_registry.register(
        citation,
        lambda number: Evidence(
            number=number,
            article_id="",
            title="",
            url="",
            source=str(memory.metadata.get("source", memory.type)),
            date=memory.time.date().isoformat() if memory.time else "",
            lang=memory.lang or detect_language(text),
            text=text,
            citation=citation,
        ),
    )


def _ttl_days(memory: Recalled) -> float:
    days = memory.metadata.get("ttl_days")
    return float(days) if isinstance(days, int | float) else 0.0


_MAX_SUGGESTIONS = 5


async def suggest_memories(job: Job) -> Findings:
    """Suggest the subjects most mentioned in the found articles that are not remembered yet; stores nothing."""
    readings = await read_articles(job)
    names = assemble_graph(await job.extract_names([each.source.article_id for each in readings])).entities
    known = await _known_subjects(job)
    newsrooms = frozenset[str]().union(*(newsroom_names(reading.source.name) for reading in readings))
    fresh = [
        each
        for each in _sort_by_articles(names)
        if each.name.casefold() not in known and each.key.replace(" ", "") not in newsrooms
    ]
    found = _choose_mentions(fresh, readings)
    suggestions = [
        SubjectSuggestion(key=entity.name, articles=len(entity.records), evidence=(job.evidence_registry.cite(said),))
        for entity, said in found
    ]
    statements = [
        Statement(text=f"{each.key}: {said.text}", lang=said.source.lang, evidence=each.evidence)
        for each, (_, said) in zip(suggestions, found, strict=True)
    ]
    return Findings(
        sections=(job.make_section("suggested", statements),),
        details=MemoryDetails(suggestions=tuple(suggestions)),
        notes=tuple(job.localize("known", {"key": key}) for key in sorted(known)),
    )


async def _known_subjects(job: Job) -> frozenset[str]:
    """Return similar subjects that are already remembered; empty, with a degradation, when memory fails."""
    try:
        question = build_recall(job, kinds=(MemoryKind.SEMANTIC,))
        found = await job.deadline.wait_for(job.memory.recall(job.scope, question), "memory")
    except SourceError as failure:
        job.trace.add_degradation("memory", failure)
        return frozenset()
    return frozenset(
        job.reader.redact_line(each.text, each.lang).casefold() for each in found if each.type == SUBJECT_TYPE
    )


def _sort_by_articles(names: Sequence[Entity]) -> list[Entity]:
    return sorted(names, key=lambda each: (-len(each.records), -each.mentions, each.key))


def _choose_mentions(names: Sequence[Entity], readings: Sequence[ReadArticle]) -> list[tuple[Entity, ArticleSentence]]:
    """The first suggestions, each with the first sentence that names it, one that no other shows if there is one."""
    found: list[tuple[Entity, ArticleSentence]] = []
    for entity in names:
        mentions = _find_mentions(entity, readings)
        shown = {said.key for _, said in found}
        said = next((each for each in mentions if each.key not in shown), next(iter(mentions), None))
        if said is not None:
            found.append((entity, said))
        if len(found) == _MAX_SUGGESTIONS:
            break
    return found


def _find_mentions(entity: Entity, readings: Sequence[ReadArticle]) -> list[ArticleSentence]:
    """The sentences that name an entity, in order."""
    spellings = (entity.name, *entity.aliases)
    return [
        sentence
        for reading in readings
        for sentence in reading.sentences
        if sentence.whole and any(name in sentence.text for name in spellings)
    ]
