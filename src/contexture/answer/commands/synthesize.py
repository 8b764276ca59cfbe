"""`/synthesize`: what sources agree on, where they differ, which figures changed, and what only one or none covers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from contexture.answer.commands import _sentence_comparison as comparison
from contexture.answer.commands import _sentence_ranking as sentence_ranking
from contexture.answer.commands._article_sentences import ArticleSentence, ReadArticle, all_sentences
from contexture.answer.commands.answer import Findings, Statement, drop_lost_evidence
from contexture.answer.commands.job import Job
from contexture.errors import SourceError
from contexture.news.articles import asks_for_latest
from contexture.text.language import detect_language

MAX_SHOWN = 8
"""Maximum number of agreements, conflicts, updates and gaps shown, each."""

_SENTENCES_PER_ARTICLE = 6  # most relevant sentences of an article that are compared
_MAX_FOREIGN = 6  # sentences of each language that are compared across languages, by embedding


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceStatement:
    """The statement of one source, and when it was published."""

    source: str
    date: str
    text: str
    lang: str
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceComparison:
    """Statements of several sources side by side.

    `about` is the unit in which they differ, or `statement`; empty if they agree. Of an update the older side is first.
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
    """Agreements, conflicts, updates of figures, and gaps."""

    agreements: tuple[SourceComparison, ...]
    conflicts: tuple[SourceComparison, ...]
    updates: tuple[SourceComparison, ...]
    gaps: tuple[CoverageGap, ...]

    def without_evidence(self, lost: frozenset[int]) -> SynthesisDetails:
        """The details without comparisons that lost a side and gaps that lost their source."""
        return SynthesisDetails(
            agreements=_drop_incomplete(self.agreements, lost),
            conflicts=_drop_incomplete(self.conflicts, lost),
            updates=_drop_incomplete(self.updates, lost),
            gaps=drop_lost_evidence(self.gaps, lost),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceDifference:
    """Two sentences that differ in a figure or statement; the older one first if one updates the other."""

    about: str
    one: ArticleSentence
    other: ArticleSentence
    is_update: bool

    @property
    def keys(self) -> set[tuple[str, int]]:
        """The keys of both sentences."""
        return {self.one.key, self.other.key}


async def synthesize(job: Job) -> Findings:
    """Compare what the sources say about the subject, sentence by sentence."""
    readings = await job.read_documents()
    pool = await _select_pool(job, readings)
    meaning = await _compare_across_languages(job, pool)
    differences = find_differences(pool, meaning)
    disputed = {key for each in differences for key in each.keys}
    agreed = group_agreements([each for each in pool if each.key not in disputed], meaning)[:MAX_SHOWN]
    taken = disputed | {sentence.key for group in agreed for sentence in group}
    like = sentence_ranking.SentenceSimilarity(pool)
    single = sentence_ranking.drop_similar(_best_of_untaken(pool, taken), like, MAX_SHOWN)
    return _build_findings(job, readings, differences, agreed, single)


async def _select_pool(job: Job, readings: Sequence[ReadArticle]) -> list[ArticleSentence]:
    """The sentences to compare, those of the best article first: only what speaks of the subject."""
    if asks_for_latest(job.plan.question):
        return sentence_ranking.list_leads(readings)
    ranked = await job.ranker.rank(readings, job.plan.question)
    return [each.sentence for found in ranked for each in found[:_SENTENCES_PER_ARTICLE] if each.is_relevant]


def _best_of_untaken(pool: Sequence[ArticleSentence], taken: Collection[tuple[str, int]]) -> list[ArticleSentence]:
    """The lead, or else the best sentence, of each article of which no sentence is taken."""
    articles = {each.source.article_id for each in pool if each.key in taken}
    best: dict[str, ArticleSentence] = {}
    for each in pool:
        name = each.source.article_id
        if name not in articles and (name not in best or each.lead):
            best[name] = each
    return list(best.values())


ForeignMeaning = Mapping[frozenset[tuple[str, int]], float]


async def _compare_across_languages(job: Job, pool: Sequence[ArticleSentence]) -> ForeignMeaning:
    """Similarities of the best sentences in different languages, by the keys of both; empty for one language."""
    by_lang: dict[str, list[ArticleSentence]] = {}
    for each in pool:
        by_lang.setdefault(each.source.lang, []).append(each)
    found: dict[frozenset[tuple[str, int]], float] = {}
    compare = job.ranker.compare
    if compare is None or not pool:
        return found
    first, *others = (each[:_MAX_FOREIGN] for each in by_lang.values())
    if not others:
        return found
    foreign = [each for group in others for each in group]
    for sentence in first:
        try:
            rows = await compare(
                sentence.text, sentence.source.lang, [e.text for e in foreign], [e.source.lang for e in foreign]
            )
        except SourceError as failure:
            job.trace.add_degradation("sentences", failure)
            break
        found |= {frozenset((sentence.key, each.key)): row for each, row in zip(foreign, rows, strict=True)}
    return found


def find_differences(pool: Sequence[ArticleSentence], meaning: ForeignMeaning) -> list[SentenceDifference]:
    """Pairs of different articles that contradict each other or of which the later one has a newer figure.

    Conflicts are between different sources. Each sentence is in at most one pair.
    """
    found: list[SentenceDifference] = []
    taken: set[tuple[str, int]] = set()
    for one, other in combinations(pool, 2):
        if one.source.article_id == other.source.article_id or taken & {one.key, other.key}:
            continue
        verdict = _judge(one, other, meaning)
        update = verdict.relation is comparison.SentenceRelation.UPDATE
        conflict = verdict.relation is comparison.SentenceRelation.CONFLICT and one.source.name != other.source.name
        if update or conflict:
            first, second = (
                sorted((one, other), key=lambda each: (each.source.date, each.key)) if update else (one, other)
            )
            taken |= {one.key, other.key}
            found.append(SentenceDifference(about=verdict.about, one=first, other=second, is_update=update))
    return found


def group_agreements(pool: Sequence[ArticleSentence], meaning: ForeignMeaning) -> list[list[ArticleSentence]]:
    """Return groups of sentences from different sources that all say the same, the largest group first."""
    groups: list[list[ArticleSentence]] = []
    for sentence in pool:
        home = next((group for group in groups if _belongs_to_group(sentence, group, meaning)), None)
        if home is None:
            groups.append([sentence])
        else:
            home.append(sentence)
    confirmed = [group for group in groups if len(group) > 1]
    return sorted(confirmed, key=lambda group: (-len(group), group[0].key))


def _belongs_to_group(sentence: ArticleSentence, group: Sequence[ArticleSentence], meaning: ForeignMeaning) -> bool:
    if any(sentence.source.name == each.source.name for each in group):
        return False
    return all(_judge(sentence, each, meaning).relation is comparison.SentenceRelation.AGREEMENT for each in group)


def _judge(one: ArticleSentence, other: ArticleSentence, meaning: ForeignMeaning) -> comparison.SentenceVerdict:
    return comparison.compare_sentences(
        _to_compared(one), _to_compared(other), meaning.get(frozenset((one.key, other.key)))
    )


def _to_compared(sentence: ArticleSentence) -> comparison.ComparedSentence:
    source = sentence.source
    return comparison.ComparedSentence(text=sentence.text, lang=source.lang, time=source.published)


def _build_findings(
    job: Job,
    readings: Sequence[ReadArticle],
    differences: Sequence[SentenceDifference],
    agreed: Sequence[Sequence[ArticleSentence]],
    single: Sequence[ArticleSentence],
) -> Findings:
    agreements = tuple(_build_comparison(job, "", group) for group in agreed)
    conflicts, updates = (
        tuple(
            _build_comparison(job, each.about, (each.one, each.other))
            for each in differences
            if each.is_update == is_update
        )[:MAX_SHOWN]
        for is_update in (False, True)
    )
    alone = tuple(_single_source_gap(job, sentence) for sentence in single)
    unanswered = [
        job.reader.redact_line(part)
        for part in sentence_ranking.split_question(job.plan.question)
        if not _is_answered(readings, part)
    ]
    gaps = tuple(CoverageGap(kind="unanswered", text=part, source="", evidence=()) for part in unanswered)
    return Findings(
        sections=(
            job.make_section("agreements", [_comparison_statement(each, first=True) for each in agreements]),
            job.make_section("conflicts", [_comparison_statement(each) for each in conflicts]),
            job.make_section("updates", [_comparison_statement(each, arrow="→") for each in updates]),
            job.make_section("single", [job.quote(sentence) for sentence in single]),
        ),
        details=SynthesisDetails(agreements=agreements, conflicts=conflicts, updates=updates, gaps=(*alone, *gaps)),
        notes=tuple(job.explain_missing("uncovered", {"part": part}) for part in unanswered),
        readings=tuple(readings),
    )


def _is_answered(readings: Sequence[ReadArticle], part: str) -> bool:
    """Whether the sources cover a part; for sources in another language, words cannot decide that."""
    lang = detect_language(part)
    return any(each.source.lang != lang for each in readings) or sentence_ranking.covers_question(
        all_sentences(readings), part
    )


def _build_comparison(job: Job, about: str, found: Sequence[ArticleSentence]) -> SourceComparison:
    sides = tuple(
        SourceStatement(
            source=each.source.name,
            date=each.source.date,
            text=each.text,
            lang=each.source.lang,
            evidence=(job.evidence_registry.cite(each),),
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


def _comparison_statement(found: SourceComparison, *, first: bool = False, arrow: str = "↔") -> Statement:
    """The comparison as one statement: the first side if they agree, otherwise each side with source and date."""
    sides = found.sides[:1] if first else found.sides
    text = f" {arrow} ".join(side.text if first else f"{side.source} ({side.date}): {side.text}" for side in sides)
    return Statement(text=text, lang=sides[0].lang, evidence=found.evidence)


def _drop_incomplete(found: Sequence[SourceComparison], lost: frozenset[int]) -> tuple[SourceComparison, ...]:
    return tuple(each for each in found if lost.isdisjoint(each.evidence))
