"""`/memory suggest`: subjects worth remembering."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.answer.commands.job import Job
from contexture.answer.commands.memories import (
    SUBJECT,
    MemoryDetails,
    Suggestion,
    articles,
    asking,
)
from contexture.answer.commands.reading import Reading, Sentence
from contexture.answer.commands.values import Findings, Statement
from contexture.conversation import MemoryKind
from contexture.errors import SourceError
from contexture.graph.assemble import assemble
from contexture.graph.values import Entity

_SUGGESTED = 5


async def suggest(job: Job) -> Findings:
    """Subjects that the articles found speak of most and that are not remembered yet; nothing is stored."""
    readings = await articles(job)
    names = assemble(await job.names([each.source.article_id for each in readings])).entities
    known = await _known(job)
    fresh = [each for each in _by_articles(names) if each.name.casefold() not in known]
    found = [(entity, said) for entity in fresh if (said := _about(entity, readings))][:_SUGGESTED]
    suggestions = [
        Suggestion(key=entity.name, articles=len(entity.records), evidence=(job.notebook.cite(said),))
        for entity, said in found
    ]
    statements = [
        Statement(text=f"{each.key}: {said.text}", lang=said.source.lang, evidence=each.evidence)
        for each, (_, said) in zip(suggestions, found, strict=True)
    ]
    return Findings(
        sections=(job.section("suggested", statements),),
        details=MemoryDetails(suggestions=tuple(suggestions)),
        notes=tuple(job.say("known", {"key": key}) for key in sorted(known)),
    )


async def _known(job: Job) -> frozenset[str]:
    """Subjects near this one that are remembered already; without memory none is known, which is said."""
    try:
        question = asking(job, kinds=(MemoryKind.SEMANTIC,))
        found = await job.deadline.wait_for(job.memory.recall(job.scope, question), "memory")
    except SourceError as failure:
        job.trace.degraded("memory", failure)
        return frozenset()
    return frozenset(job.reader.shown(each.text, each.lang).casefold() for each in found if each.type == SUBJECT)


def _by_articles(names: Sequence[Entity]) -> list[Entity]:
    return sorted(names, key=lambda each: (-len(each.records), -each.mentions, each.key))


def _about(entity: Entity, readings: Sequence[Reading]) -> Sentence | None:
    """The first sentence that names the entity."""
    spellings = (entity.name, *entity.aliases)
    return next(
        (
            sentence
            for reading in readings
            for sentence in reading.sentences
            if any(name in sentence.text for name in spellings)
        ),
        None,
    )
