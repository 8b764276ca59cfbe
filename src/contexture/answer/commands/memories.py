"""What the commands about memory have in common: what they answer, and how they ask."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from contexture.answer.commands.job import Job
from contexture.answer.commands.reading import Reading
from contexture.answer.commands.values import Statement, grounded
from contexture.conversation import MemoryKind, Recall
from contexture.text.language import detect

TAG = "command"
"""On every memory that a command stores."""

SUBJECT = "subject"
"""Type of the memory that a semantic key is kept as."""

MEMORIES = "memories"
_TOP_K = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptKey:
    """A subject that is remembered, under which id, and for how many days from when it was stored."""

    key: str
    ttl_days: float
    id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """A memory and what it rests on: the article it was read in, or itself."""

    id: str
    text: str
    kind: str
    time: str
    score: float
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    """A subject worth remembering, and the articles that speak of it."""

    key: str
    articles: int
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryDetails:
    """What is kept, what was recalled, and what is suggested."""

    semantic_keys: tuple[KeptKey, ...] = ()
    episodic: tuple[Episode, ...] = ()
    suggestions: tuple[Suggestion, ...] = field(default=())

    def without(self, lost: frozenset[int]) -> MemoryDetails:
        """A memory goes with the article it was read in."""
        return replace(self, episodic=grounded(self.episodic, lost), suggestions=grounded(self.suggestions, lost))


def asking(job: Job, kinds: tuple[MemoryKind, ...] = ()) -> Recall:
    """The question of a command, put to memory."""
    return Recall(
        query=job.plan.question,
        now=job.plan.now,
        top_k=_TOP_K,
        threshold=job.place.threshold,
        namespace=job.place.namespace,
        universe=job.place.universe,
        kinds=kinds,
    )


def quoted(episode: Episode, lang: str) -> Statement:
    """A memory as a statement, in its own words."""
    said = detect(episode.text)
    return Statement(text=episode.text, lang=said if said != "und" else lang, evidence=episode.evidence)


async def articles(job: Job) -> list[Reading]:
    """The context's articles; where it has none, those that the question finds."""
    if job.plan.articles:
        return await job.documents()
    found = await job.find(job.plan.question, job.plan.k)
    return await job.reader.read(job.scope, [each.article.article_id for each in found], job.trace)
