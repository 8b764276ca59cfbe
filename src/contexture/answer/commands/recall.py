"""`/memory recall`: what is remembered of a subject, as far as its sources may still be seen."""

from __future__ import annotations

import msgspec

from contexture.answer.commands.job import Job
from contexture.answer.commands.memories import (
    MEMORIES,
    SUBJECT,
    Episode,
    KeptKey,
    MemoryDetails,
    asking,
    quoted,
)
from contexture.answer.commands.values import Evidence, Findings
from contexture.conversation import Recalled
from contexture.errors import RedactionFailed
from contexture.text.language import detect
from contexture.types import Citation, content_hash


async def recall(job: Job) -> Findings:
    """What the scope remembers of the subject; a memory of an article that it may not see any more is left out."""
    found = await job.deadline.wait_for(job.memory.recall(job.scope, asking(job)), "memory")
    episodes = [episode for each in found if (episode := _recalled(job, each))]
    keys = [
        KeptKey(key=episode.text, ttl_days=_days(each), id=each.id)
        for each, episode in zip(found, episodes, strict=False)
        if each.type == SUBJECT and each.id == episode.id
    ]
    return Findings(
        sections=(job.section("recalled", [quoted(each, job.plan.lang) for each in episodes]),),
        details=MemoryDetails(semantic_keys=tuple(keys), episodic=tuple(episodes)),
        notes=() if episodes else (job.say("nothing"),),
    )


def _recalled(job: Job, memory: Recalled) -> Episode | None:
    try:
        text = job.reader.shown(memory.text, memory.lang)
    except RedactionFailed as failure:
        job.trace.degraded("redactor", str(failure))
        return None
    return Episode(
        id=memory.id,
        text=text,
        kind=memory.kind,
        time=memory.time.isoformat() if memory.time else "",
        score=round(memory.score, 4),
        evidence=(_evidence(job, memory, text),),
    )


def _evidence(job: Job, memory: Recalled, text: str) -> int:
    """The article that a memory was read in, or the memory itself."""
    article: object = memory.metadata.get("article")
    try:
        read = msgspec.convert(article, _Read) if isinstance(article, dict) else None
    except msgspec.ValidationError:
        read = None  # somebody else's field of the same name
    if read is None:
        return _of_memory(job, memory, text)
    return job.notebook.enter(
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


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    """The article in a memory's metadata."""

    article_id: str
    title: str
    url: str
    date: str
    lang: str
    citation: Citation


def _of_memory(job: Job, memory: Recalled, text: str) -> int:
    citation = Citation(
        collection=MEMORIES,
        record_id=memory.id,
        title="",
        start=0,
        end=len(memory.text),
        hash=memory.hash or content_hash(memory.text),
    )
    return job.notebook.enter(
        citation,
        lambda number: Evidence(
            number=number,
            article_id="",
            title="",
            url="",
            source=str(memory.metadata.get("source", memory.type)),
            date=memory.time.date().isoformat() if memory.time else "",
            lang=memory.lang or detect(text),
            text=text,
            citation=citation,
        ),
    )


def _days(memory: Recalled) -> float:
    days = memory.metadata.get("ttl_days")
    return float(days) if isinstance(days, int | float) else 0.0
