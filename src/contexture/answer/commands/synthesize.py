"""`/synthesize`: what sources agree on, where they differ, and what only one of them or none covers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from contexture.answer.commands.answer import Findings, Statement, drop_lost_evidence
from contexture.answer.commands.article_sentences import (
    ArticleSentence,
    ReadArticle,
    SentenceSimilarity,
    all_sentences,
    covers_question,
    drop_similar,
    extract_subject_terms,
    split_question,
)
from contexture.answer.commands.job import Job
from contexture.answer.grounding import find_differing_unit
from contexture.text.language import detect_language

MAX_SHOWN = 8
"""Maximum number of agreements, conflicts and gaps shown, each."""

_AGREEMENT_SIMILARITY = 0.5
_CONFLICT_SIMILARITY = 0.25  # minimum, when figures differ: same subject in other words
_LEAD_CONFLICT_SIMILARITY = 0.08  # minimum, when both sentences open articles on the same story
_DENIAL_SIMILARITY = 0.45
_DENIAL_PATTERN = re.compile(
    r"\b(?:not|no|never|denied|denies|deny|rejected|refuted|without|n['\u2019]t|isn|wasn|hasn|"
    r"не|нет|никогда|опроверг\w*|отрица\w*|отверг\w*|без)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
_MAX_COMPARED = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceStatement:
    """The statement of one source."""

    source: str
    text: str
    lang: str
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceComparison:
    """Statements of several sources side by side.

    `about` is the unit in which they differ, or `statement`; empty if they agree.
    """

    about: str
    sides: tuple[SourceStatement, ...]
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CoverageGap:
    """A statement of one source only, or a part of the question without an answer (and so without evidence)."""

    kind: str
    text: str
    source: str
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SynthesisDetails:
    """Agreements, conflicts and gaps."""

    agreements: tuple[SourceComparison, ...]
    conflicts: tuple[SourceComparison, ...]
    gaps: tuple[CoverageGap, ...]

    def without_evidence(self, lost: frozenset[int]) -> SynthesisDetails:
        """The details without comparisons that lost a side and gaps that lost their source."""
        return SynthesisDetails(
            agreements=_drop_incomplete(self.agreements, lost),
            conflicts=_drop_incomplete(self.conflicts, lost),
            gaps=drop_lost_evidence(self.gaps, lost),
        )


SentencePair = tuple[ArticleSentence, ArticleSentence]


async def synthesize(job: Job) -> Findings:
    """Compare the sources, sentence by sentence."""
    readings = await job.read_documents()
    pool = rank_sentences(filter_on_subject(readings, job.plan.question), job.plan.question)
    like = SentenceSimilarity(pool)
    conflicts = list(find_conflicts(pool, like))[:MAX_SHOWN]
    disputed = {sentence.key for _, *pair in conflicts for sentence in pair}
    agreed = group_agreements([each for each in pool if each.key not in disputed], like)[:MAX_SHOWN]
    taken = disputed | {sentence.key for group in agreed for sentence in group}
    single = drop_similar([each for each in pool if each.lead and each.key not in taken], like, MAX_SHOWN)
    return _build_findings(job, readings, conflicts, agreed, single)


def filter_on_subject(readings: Sequence[ReadArticle], question: str) -> Sequence[ReadArticle]:
    """Return the articles that share a word with the question; all of them if none does, as across languages."""
    wanted = extract_subject_terms(question)
    found = [each for each in readings if any(wanted & sentence.terms for sentence in each.sentences)]
    return found or readings


def rank_sentences(readings: Sequence[ReadArticle], question: str) -> list[ArticleSentence]:
    """Return the sentences to compare: those that match the question first, then the first of each article."""
    pool = all_sentences(readings)
    like = SentenceSimilarity(pool)
    wanted = extract_subject_terms(question)
    worth = {each.key: like.weight(each.terms & wanted) + each.lead for each in pool}
    return sorted(pool, key=lambda each: (-worth[each.key], each.key))[:_MAX_COMPARED]


def find_conflicts(
    pool: Sequence[ArticleSentence], like: SentenceSimilarity
) -> Iterator[tuple[str, ArticleSentence, ArticleSentence]]:
    """Yield pairs from different sources that differ in a figure, or of which one negates the other.

    Each sentence is in at most one pair.
    """
    taken: set[tuple[str, int]] = set()
    for one, other in _cross_source_pairs(pool):
        if taken & {one.key, other.key}:
            continue
        about = _describe_conflict(one, other, like(one, other))
        if about:
            taken |= {one.key, other.key}
            yield about, one, other


def group_agreements(pool: Sequence[ArticleSentence], like: SentenceSimilarity) -> list[list[ArticleSentence]]:
    """Return groups of sentences from different sources that say the same, the largest group first."""
    groups: list[list[ArticleSentence]] = []
    for sentence in pool:
        home = next((group for group in groups if _belongs_to_group(sentence, group, like)), None)
        if home is None:
            groups.append([sentence])
        else:
            home.append(sentence)
    confirmed = [group for group in groups if len(group) > 1]
    return sorted(confirmed, key=lambda group: (-len(group), group[0].key))


def _cross_source_pairs(pool: Sequence[ArticleSentence]) -> Iterator[SentencePair]:
    return ((one, other) for one, other in combinations(pool, 2) if one.source.name != other.source.name)


def _describe_conflict(one: ArticleSentence, other: ArticleSentence, alike: float) -> str:
    unit = find_differing_unit(one.text, other.text)
    if unit and alike >= (_LEAD_CONFLICT_SIMILARITY if one.lead and other.lead else _CONFLICT_SIMILARITY):
        return unit
    denies = bool(_DENIAL_PATTERN.search(one.text)) != bool(_DENIAL_PATTERN.search(other.text))
    return "statement" if denies and alike >= _DENIAL_SIMILARITY else ""


def _belongs_to_group(sentence: ArticleSentence, group: Sequence[ArticleSentence], like: SentenceSimilarity) -> bool:
    if any(sentence.source.name == each.source.name for each in group):
        return False
    return like(sentence, group[0]) >= _AGREEMENT_SIMILARITY


def _build_findings(
    job: Job,
    readings: Sequence[ReadArticle],
    conflicts: Sequence[tuple[str, ArticleSentence, ArticleSentence]],
    agreed: Sequence[Sequence[ArticleSentence]],
    single: Sequence[ArticleSentence],
) -> Findings:
    agreements = tuple(_build_comparison(job, "", group) for group in agreed)
    differences = tuple(_build_comparison(job, about, pair) for about, *pair in conflicts)
    alone = tuple(_single_source_gap(job, sentence) for sentence in single)
    unanswered = [
        job.reader.redact_line(part) for part in split_question(job.plan.question) if not _is_answered(readings, part)
    ]
    gaps = tuple(CoverageGap(kind="unanswered", text=part, source="", evidence=()) for part in unanswered)
    return Findings(
        sections=(
            job.make_section("agreements", [_comparison_statement(each, first=True) for each in agreements]),
            job.make_section("conflicts", [_comparison_statement(each) for each in differences]),
            job.make_section("single", [job.quote(sentence) for sentence in single]),
        ),
        details=SynthesisDetails(agreements=agreements, conflicts=differences, gaps=(*alone, *gaps)),
        notes=tuple(job.localize("uncovered", {"part": part}) for part in unanswered),
    )


def _is_answered(readings: Sequence[ReadArticle], part: str) -> bool:
    """Whether the sources cover a part; for sources in another language, words cannot decide that."""
    lang = detect_language(part)
    return any(each.source.lang != lang for each in readings) or covers_question(all_sentences(readings), part)


def _build_comparison(job: Job, about: str, found: Sequence[ArticleSentence]) -> SourceComparison:
    sides = tuple(
        SourceStatement(
            source=each.source.name, text=each.text, lang=each.source.lang, evidence=(job.evidence_registry.cite(each),)
        )
        for each in found
    )
    return SourceComparison(about=about, sides=sides, evidence=tuple(side.evidence[0] for side in sides))


def _single_source_gap(job: Job, sentence: ArticleSentence) -> CoverageGap:
    return CoverageGap(
        kind="single_source",
        text=sentence.text,
        source=sentence.source.name,
        evidence=(job.evidence_registry.cite(sentence),),
    )


def _comparison_statement(found: SourceComparison, *, first: bool = False) -> Statement:
    """Return the comparison as one statement: the first side if they agree, otherwise each side with its source."""
    sides = found.sides[:1] if first else found.sides
    text = " ↔ ".join(side.text if first else f"{side.source}: {side.text}" for side in sides)
    return Statement(text=text, lang=sides[0].lang, evidence=found.evidence)


def _drop_incomplete(found: Sequence[SourceComparison], lost: frozenset[int]) -> tuple[SourceComparison, ...]:
    return tuple(each for each in found if lost.isdisjoint(each.evidence))
