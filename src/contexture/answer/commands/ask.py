"""`/ask`: a question taken apart, its parts looked for until each is answered or three rounds are over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from contexture.answer.commands.choose import chosen, covered
from contexture.answer.commands.decompose import parts_of
from contexture.answer.commands.job import Job
from contexture.answer.commands.reading import Reading, Sentence
from contexture.answer.commands.values import Findings
from contexture.news.articles import FoundArticle
from contexture.news.newest import asks_for_anything
from contexture.retrieval.search import SEMANTIC

ROUNDS = 3

_PER_PART = 3
_WIDE = 5  # articles looked for, for each part
_MEANT = 0.8  # calibrated similarity at which an article answers without using the question's words
_MEANT_ELSEWHERE = 0.5  # the same for an article in another language


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One part of the question, whether something answers it, and what."""

    text: str
    covered: bool
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """What was looked for in one round, and the articles that were new."""

    number: int
    queries: tuple[str, ...]
    articles: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AskDetails:
    """The parts of the question and the rounds it took."""

    parts: tuple[Part, ...]
    rounds: tuple[Round, ...]

    def without(self, lost: frozenset[int]) -> AskDetails:
        """A part that nothing answers any more is uncovered."""
        left = (replace(part, evidence=tuple(n for n in part.evidence if n not in lost)) for part in self.parts)
        return replace(self, parts=tuple(replace(part, covered=part.covered and bool(part.evidence)) for part in left))


@dataclass(slots=True)
class _Search:
    """What is known so far."""

    readings: list[Reading]
    rounds: list[Round]
    meant: set[str] = field(default_factory=set[str])

    def sentences(self, part: str) -> list[Sentence]:
        """The best sentences for a part; one that asks for any news is answered by how the articles begin."""
        if asks_for_anything(part):
            return [reading.sentences[0] for reading in self.readings if reading.sentences]
        return chosen(self.readings, part, _PER_PART)

    def covers(self, part: str) -> bool:
        """Whether a part is answered, by its words or, across languages, by its meaning."""
        return part in self.meant or covered(self.sentences(part), part)


async def ask(job: Job) -> Findings:
    """The sentences that answer each part, and which parts nothing answers."""
    parts = parts_of(job.plan.question)
    search = await _searched(job, parts)
    quoted = {part: [job.quote(sentence) for sentence in search.sentences(part)] for part in parts}
    told = tuple(
        Part(
            text=job.reader.shown(part),
            covered=search.covers(part),
            evidence=tuple(number for statement in quoted[part] for number in statement.evidence),
        )
        for part in parts
    )
    unique = {statement.evidence: statement for part in parts for statement in quoted[part]}
    return Findings(
        sections=(job.section("answer", list(unique.values())),),
        details=AskDetails(parts=told, rounds=tuple(search.rounds)),
        notes=tuple(job.say("uncovered", {"part": part.text}) for part in told if not part.covered),
    )


async def _searched(job: Job, parts: Sequence[str]) -> _Search:
    """The articles of the context, and those that further rounds bring for the parts that are open."""
    plan = job.plan
    first = Round(number=1, queries=(job.reader.shown(plan.question),), articles=plan.articles)
    search = _Search(await job.documents(), [first])
    while len(search.rounds) < ROUNDS:
        left = [part for part in parts if not search.covers(part)]
        if not left or not job.in_time(f"round {len(search.rounds) + 1}"):
            break
        await _further(job, search, left)
    return search


async def _further(job: Job, search: _Search, parts: Sequence[str]) -> None:
    """One more round: each open part by itself, then together with what the best article is about."""
    number = len(search.rounds) + 1
    queries = {part: _query(job, search, part, number) for part in parts}
    new: dict[str, None] = {}
    known = {reading.source.article_id for reading in search.readings}
    for part, query in queries.items():
        found = await job.find(query, _WIDE)
        new |= {each.article.article_id: None for each in found if known.isdisjoint(_told_by(each))}
        if any(_is_meant(each, job.plan.lang) for each in found):
            search.meant.add(part)
    search.readings += await job.reader.read(job.scope, list(new), job.trace)
    search.rounds.append(
        Round(number=number, queries=tuple(map(job.reader.shown, queries.values())), articles=tuple(new))
    )


def _query(job: Job, search: _Search, part: str, number: int) -> str:
    if number < ROUNDS:
        return part
    about = search.readings[0].source.title if search.readings else job.plan.question
    return f"{about}: {part}"


def _told_by(found: FoundArticle) -> set[str]:
    """The ids of an article and of its copies."""
    return {found.article.article_id, *(other.article_id for other in found.article.also)}


def _is_meant(found: FoundArticle, lang: str) -> bool:
    """Whether an article answers by its meaning; across languages words cannot tell, so less of it is enough."""
    enough = _MEANT if found.article.lang == lang else _MEANT_ELSEWHERE
    return any(candidate.signals.get(SEMANTIC, 0.0) >= enough for candidate in found.candidates)
