"""`/synthesize`: what sources agree on, where they differ, and what only one of them, or none, says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from contexture.answer.commands.choose import covered, distinct
from contexture.answer.commands.decompose import parts_of, subject_of
from contexture.answer.commands.figures import differing
from contexture.answer.commands.job import Job
from contexture.answer.commands.likeness import Likeness
from contexture.answer.commands.reading import Reading, Sentence, all_sentences
from contexture.answer.commands.values import Findings, Statement, grounded
from contexture.text.language import detect

MOST = 8
"""Agreements, conflicts and gaps of each kind that are shown."""

_ALIKE = 0.5
_CLOSE = 0.25  # for sentences whose figures differ: they speak of one thing in other words
_CLOSE_LEADS = 0.08  # for those that begin articles on the same story: what they count is the story
_DENIED = 0.45
_DENIAL = re.compile(
    r"\b(?:not|no|never|denied|denies|deny|rejected|refuted|without|n['\u2019]t|isn|wasn|hasn|"
    r"не|нет|никогда|опроверг\w*|отрица\w*|отверг\w*|без)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
_MOST_COMPARED = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """What one source says."""

    source: str
    text: str
    lang: str
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Sources side by side; `about` is what they count differently, or `statement`, or empty where they agree."""

    about: str
    sides: tuple[Side, ...]
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Something that one source alone says, or a part of the question that none answers and so has no evidence."""

    kind: str
    text: str
    source: str
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SynthesisDetails:
    """Agreements, conflicts and gaps."""

    agreements: tuple[Comparison, ...]
    conflicts: tuple[Comparison, ...]
    gaps: tuple[Gap, ...]

    def without(self, lost: frozenset[int]) -> SynthesisDetails:
        """A comparison needs all of its sides; a gap its source."""
        return SynthesisDetails(
            agreements=_whole(self.agreements, lost),
            conflicts=_whole(self.conflicts, lost),
            gaps=grounded(self.gaps, lost),
        )


Pair = tuple[Sentence, Sentence]


async def synthesize(job: Job) -> Findings:
    """The sources compared, sentence by sentence."""
    readings = await job.documents()
    pool = relevant(on_subject(readings, job.plan.question), job.plan.question)
    like = Likeness(pool)
    conflicts = list(conflicting(pool, like))[:MOST]
    disputed = {sentence.place for _, *pair in conflicts for sentence in pair}
    agreed = agreeing([each for each in pool if each.place not in disputed], like)[:MOST]
    taken = disputed | {sentence.place for group in agreed for sentence in group}
    single = distinct([each for each in pool if each.lead and each.place not in taken], like, MOST)
    return _findings(job, readings, conflicts, agreed, single)


def on_subject(readings: Sequence[Reading], question: str) -> Sequence[Reading]:
    """The articles that use a word of the question; all of them when none does, as across languages."""
    wanted = subject_of(question)
    found = [each for each in readings if any(wanted & sentence.terms for sentence in each.sentences)]
    return found or readings


def relevant(readings: Sequence[Reading], question: str) -> list[Sentence]:
    """The sentences to compare: those that match the question first, then those that begin an article."""
    pool = all_sentences(readings)
    like = Likeness(pool)
    wanted = subject_of(question)
    worth = {each.place: like.worth(each.terms & wanted) + each.lead for each in pool}
    return sorted(pool, key=lambda each: (-worth[each.place], each.place))[:_MOST_COMPARED]


def conflicting(pool: Sequence[Sentence], like: Likeness) -> Iterator[tuple[str, Sentence, Sentence]]:
    """Pairs from different sources that differ in a figure, or of which one denies; each sentence once."""
    taken: set[tuple[str, int]] = set()
    for one, other in _across(pool):
        if taken & {one.place, other.place}:
            continue
        about = _difference(one, other, like(one, other))
        if about:
            taken |= {one.place, other.place}
            yield about, one, other


def agreeing(pool: Sequence[Sentence], like: Likeness) -> list[list[Sentence]]:
    """Groups of sentences from different sources that say the same, the most confirmed first."""
    groups: list[list[Sentence]] = []
    for sentence in pool:
        home = next((group for group in groups if _joins(sentence, group, like)), None)
        if home is None:
            groups.append([sentence])
        else:
            home.append(sentence)
    confirmed = [group for group in groups if len(group) > 1]
    return sorted(confirmed, key=lambda group: (-len(group), group[0].place))


def _across(pool: Sequence[Sentence]) -> Iterator[Pair]:
    return ((one, other) for one, other in combinations(pool, 2) if one.source.name != other.source.name)


def _difference(one: Sentence, other: Sentence, alike: float) -> str:
    unit = differing(one.text, other.text)
    if unit and alike >= (_CLOSE_LEADS if one.lead and other.lead else _CLOSE):
        return unit
    denies = bool(_DENIAL.search(one.text)) != bool(_DENIAL.search(other.text))
    return "statement" if denies and alike >= _DENIED else ""


def _joins(sentence: Sentence, group: Sequence[Sentence], like: Likeness) -> bool:
    if any(sentence.source.name == each.source.name for each in group):
        return False
    return like(sentence, group[0]) >= _ALIKE


def _findings(
    job: Job,
    readings: Sequence[Reading],
    conflicts: Sequence[tuple[str, Sentence, Sentence]],
    agreed: Sequence[Sequence[Sentence]],
    single: Sequence[Sentence],
) -> Findings:
    agreements = tuple(_comparison(job, "", group) for group in agreed)
    differences = tuple(_comparison(job, about, pair) for about, *pair in conflicts)
    alone = tuple(_alone(job, sentence) for sentence in single)
    unanswered = [job.reader.shown(part) for part in parts_of(job.plan.question) if not _answers(readings, part)]
    gaps = tuple(Gap(kind="unanswered", text=part, source="", evidence=()) for part in unanswered)
    return Findings(
        sections=(
            job.section("agreements", [_statement(each, first=True) for each in agreements]),
            job.section("conflicts", [_statement(each) for each in differences]),
            job.section("single", [job.quote(sentence) for sentence in single]),
        ),
        details=SynthesisDetails(agreements=agreements, conflicts=differences, gaps=(*alone, *gaps)),
        notes=tuple(job.say("uncovered", {"part": part}) for part in unanswered),
    )


def _answers(readings: Sequence[Reading], part: str) -> bool:
    """Whether the sources speak of a part; of those in another language nobody can tell by words."""
    lang = detect(part)
    return any(each.source.lang != lang for each in readings) or covered(all_sentences(readings), part)


def _comparison(job: Job, about: str, found: Sequence[Sentence]) -> Comparison:
    sides = tuple(
        Side(source=each.source.name, text=each.text, lang=each.source.lang, evidence=(job.notebook.cite(each),))
        for each in found
    )
    return Comparison(about=about, sides=sides, evidence=tuple(side.evidence[0] for side in sides))


def _alone(job: Job, sentence: Sentence) -> Gap:
    return Gap(
        kind="single_source",
        text=sentence.text,
        source=sentence.source.name,
        evidence=(job.notebook.cite(sentence),),
    )


def _statement(found: Comparison, *, first: bool = False) -> Statement:
    """The sides as one statement: the first for all where they agree, each with its source where they do not."""
    sides = found.sides[:1] if first else found.sides
    text = " ↔ ".join(side.text if first else f"{side.source}: {side.text}" for side in sides)
    return Statement(text=text, lang=sides[0].lang, evidence=found.evidence)


def _whole(found: Sequence[Comparison], lost: frozenset[int]) -> tuple[Comparison, ...]:
    return tuple(each for each in found if lost.isdisjoint(each.evidence))
