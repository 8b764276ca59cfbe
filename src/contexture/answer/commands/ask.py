"""`/ask`: splits a question into parts and searches until each is answered, for at most three rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from contexture.answer.commands._article_sentences import ArticleMatch, ArticleSentence, ReadArticle, make_match
from contexture.answer.commands._sentence_ranking import SentenceRanker, covers_question, split_question
from contexture.answer.commands.answer import Findings
from contexture.answer.commands.job import Job
from contexture.news.articles import FoundArticle, asks_for_latest
from contexture.retrieval.search import SEMANTIC

MAX_ROUNDS = 3

_SENTENCES_OF_ONE_PART = 4
_SENTENCES_PER_PART = 3  # of a question with several parts
_ARTICLES_PER_PART = 5  # articles to search for, per part
_MIN_SIMILARITY = 0.8  # calibrated similarity at which an article answers without sharing words
_MIN_SIMILARITY_OTHER_LANGUAGE = 0.5  # the same for an article in another language


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionPart:
    """One part of the question, whether it is covered, and by which evidence."""

    text: str
    covered: bool
    evidence: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchRound:
    """The queries of one search round, and the ids of the new articles."""

    number: int
    queries: tuple[str, ...]
    articles: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AskDetails:
    """The parts of the question and the search rounds."""

    parts: tuple[QuestionPart, ...]
    rounds: tuple[SearchRound, ...]

    def without_evidence(self, lost: frozenset[int]) -> AskDetails:
        """The details without lost evidence; a part that loses all of it is uncovered."""
        left = (replace(part, evidence=tuple(n for n in part.evidence if n not in lost)) for part in self.parts)
        return replace(self, parts=tuple(replace(part, covered=part.covered and bool(part.evidence)) for part in left))


@dataclass(slots=True)
class _SearchState:
    """Articles read so far, rounds made, the sentences chosen for each part, and parts with a similar article."""

    ranker: SentenceRanker
    most: int
    readings: list[ReadArticle]
    rounds: list[SearchRound]
    chosen: dict[str, list[ArticleSentence]] = field(default_factory=dict[str, list[ArticleSentence]])
    semantically_covered: set[str] = field(default_factory=set[str])

    async def choose(self, parts: Sequence[str]) -> None:
        """Choose the best sentences for these parts; one that asks for any news gets the lead of each article."""
        for part in parts:
            if asks_for_latest(part):
                self.chosen[part] = [lead for reading in self.readings if (lead := reading.lead)]
            else:
                self.chosen[part] = await self.ranker.select(self.readings, part, self.most)

    def is_covered(self, part: str) -> bool:
        """Whether a part is answered, by shared words or, across languages, by semantic similarity."""
        found = self.chosen[part]
        return bool(found) and (part in self.semantically_covered or covers_question(found, part))


async def answer_question(job: Job) -> Findings:
    """Return the sentences that answer each part of the question, and the parts without an answer."""
    parts = split_question(job.plan.question)
    search = await _search_parts(job, parts)
    quoted = {part: [job.quote(sentence) for sentence in search.chosen[part]] for part in parts}
    answered = tuple(
        QuestionPart(
            text=job.reader.redact_line(part),
            covered=search.is_covered(part),
            evidence=tuple(number for statement in quoted[part] for number in statement.evidence),
        )
        for part in parts
    )
    unique = {statement.evidence: statement for part in parts for statement in quoted[part]}
    return Findings(
        sections=(job.make_section("answer", list(unique.values())),),
        details=AskDetails(parts=answered, rounds=tuple(search.rounds)),
        notes=tuple(job.localize("uncovered", {"part": part.text}) for part in answered if not part.covered),
        readings=tuple(search.readings),
    )


async def _search_parts(job: Job, parts: Sequence[str]) -> _SearchState:
    """Read the articles of the context, and those found by further rounds for uncovered parts."""
    plan = job.plan
    first = SearchRound(number=1, queries=(job.reader.redact_line(plan.question),), articles=plan.articles)
    most = _SENTENCES_OF_ONE_PART if len(parts) == 1 else _SENTENCES_PER_PART
    search = _SearchState(job.ranker, most, await job.read_documents(), [first])
    await search.choose(parts)
    while len(search.rounds) < MAX_ROUNDS:
        left = [part for part in parts if not search.is_covered(part)]
        if not left or not job.has_time_left(f"round {len(search.rounds) + 1}"):
            break
        if await _run_round(job, search, left):
            await search.choose(left)
    return search


async def _run_round(job: Job, search: _SearchState, parts: Sequence[str]) -> bool:
    """Run one more round: each uncovered part alone, then together with the subject of the best article.

    Returns whether it found articles that were not read before.
    """
    number = len(search.rounds) + 1
    queries = {part: _build_query(job, search, part, number) for part in parts}
    new: dict[str, ArticleMatch] = {}
    known = {reading.source.article_id for reading in search.readings}
    for part, query in queries.items():
        found = await job.find_articles(query, _ARTICLES_PER_PART)
        new |= {
            each.article.article_id: make_match(each.article.article_id, each.score, each.candidates)
            for each in found
            if known.isdisjoint(_article_ids(each))
        }
        if any(_is_semantic_match(each, job.plan.lang) for each in found):
            search.semantically_covered.add(part)
    search.readings += await job.reader.read_matches(job.scope, list(new.values()), job.trace)
    search.rounds.append(
        SearchRound(number=number, queries=tuple(map(job.reader.redact_line, queries.values())), articles=tuple(new))
    )
    return bool(new)


def _build_query(job: Job, search: _SearchState, part: str, number: int) -> str:
    if number < MAX_ROUNDS:
        return part
    about = search.readings[0].source.title if search.readings else job.plan.question
    return f"{about}: {part}"


def _article_ids(found: FoundArticle) -> set[str]:
    """The ids of an article and of its copies."""
    return {found.article.article_id, *(other.article_id for other in found.article.also)}


def _is_semantic_match(found: FoundArticle, lang: str) -> bool:
    """Whether an article matches semantically; the threshold is lower across languages, where words cannot match."""
    enough = _MIN_SIMILARITY if found.article.lang == lang else _MIN_SIMILARITY_OTHER_LANGUAGE
    return any(candidate.signals.get(SEMANTIC, 0.0) >= enough for candidate in found.candidates)
