"""`/memory store`: subjects kept for a while, and what is read about them now."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from contexture.answer.commands.choose import chosen, covered
from contexture.answer.commands.job import Job
from contexture.answer.commands.memories import (
    SUBJECT,
    TAG,
    Episode,
    KeptKey,
    MemoryDetails,
    articles,
    quoted,
)
from contexture.answer.commands.plan import SemanticKey
from contexture.answer.commands.reading import Sentence
from contexture.answer.commands.values import Findings
from contexture.conversation import Memory, MemoryKind
from contexture.errors import InvalidRequest
from contexture.types import content_hash

_DAY = 86_400.0
_EPISODES = 5
_ABOUT = 0.6  # of a subject must be in a sentence about it


async def store(job: Job) -> Findings:
    """Keep the subjects of the command, and what articles say about them now; storing twice changes nothing."""
    keys = job.plan.keys
    if not keys:
        raise InvalidRequest('there is nothing to store; say what, as in /memory store query="port strike"')
    episodes = [each for each in chosen(await articles(job), job.plan.question, _EPISODES) if _speaks_of(each, keys)]
    memories = [*(_subject(job, key) for key in keys), *(_episode(job, keys[0], sentence) for sentence in episodes)]
    ids = await job.deadline.wait_for(job.memory.remember(job.scope, memories), "memory")
    subjects = [
        KeptKey(key=job.reader.shown(key.key), ttl_days=key.ttl_days, id=name)
        for key, name in zip(keys, ids, strict=False)
    ]
    kept = [
        Episode(
            id=name,
            text=sentence.text,
            kind=MemoryKind.EPISODIC,
            time=job.plan.now.isoformat(),
            score=1.0,
            evidence=(job.notebook.cite(sentence),),
        )
        for name, sentence in zip(ids[len(keys) :], episodes, strict=True)
    ]
    return Findings(
        sections=(job.section("stored", [quoted(each, job.plan.lang) for each in kept]),),
        details=MemoryDetails(semantic_keys=tuple(subjects), episodic=tuple(kept)),
        notes=tuple(job.say("stored", {"key": each.key, "days": f"{each.ttl_days:g}"}) for each in subjects),
    )


def _speaks_of(sentence: Sentence, keys: Sequence[SemanticKey]) -> bool:
    """Whether a sentence is about one of the subjects, and not only near it."""
    return any(covered([sentence], key.key, _ABOUT) for key in keys)


def _subject(job: Job, key: SemanticKey) -> Memory:
    return Memory(
        text=key.key,
        kind=MemoryKind.SEMANTIC,
        type=SUBJECT,
        namespace=job.place.namespace,
        universe=job.place.universe,
        tags=(TAG,),
        ttl_seconds=key.ttl_days * _DAY,
        time=job.plan.now,
        idempotency_key=f"{TAG}:{content_hash(key.key.casefold())[:32]}",
        metadata={"ttl_days": key.ttl_days},
    )


def _episode(job: Job, key: SemanticKey, sentence: Sentence) -> Memory:
    """What was read about a subject; it carries the citation, so that recalling it can check it."""
    source = sentence.source
    place = f"{key.key.casefold()}:{source.article_id}:{source.hash}:{sentence.start}"
    return Memory(
        text=sentence.text,
        kind=MemoryKind.EPISODIC,
        type="news",
        namespace=job.place.namespace,
        universe=job.place.universe,
        tags=(TAG,),
        ttl_seconds=key.ttl_days * _DAY,
        time=job.plan.now,
        idempotency_key=f"{TAG}:{content_hash(place)[:32]}",
        metadata={
            "source": source.name,
            "key": key.key,
            "article": {
                **{name: getattr(source, name) for name in ("article_id", "title", "url", "date", "lang")},
                "citation": msgspec.structs.asdict(sentence.citation),
            },
        },
    )
