"""Groups passages by article and collapses copies of one story into its best article."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace as changed

from contexture.news._fingerprint import MAX_REPRINT_DELAY, Fingerprint, is_copy, read_fingerprint
from contexture.news.articles import (
    ARTICLES,
    Article,
    ArticleCopy,
    FoundArticle,
    assume_utc,
    is_undated,
    record_to_article,
    shift_time,
)
from contexture.pipeline.scoring import RRF_K, fuse_channels
from contexture.ports import Index
from contexture.text.terms import question_terms
from contexture.types import And, Candidate, Equals, Filter, Query, Range, Record, Scope

if TYPE_CHECKING:
    from contexture.retrieval.search import FoundPassage

RANKS = "ranks"
"""The signal that orders passages when there is no reranking."""


@dataclass(frozen=True, slots=True)
class ArticleHits:
    """An article with its passages that were found, and its fingerprint."""

    record: Record
    passages: tuple[Candidate, ...]
    print: Fingerprint

    @property
    def score(self) -> float:
        """The score of its best passage."""
        return self.passages[0].score


def rank_by_rrf(found: Sequence[FoundPassage]) -> list[FoundPassage]:
    """The passages scored and ordered by reciprocal rank fusion alone, ties by record id and ordinal."""
    channels = max((len(each.hit.ranks) for each in found), default=1)
    scored = [_score_by_rank(each, max(1, channels)) for each in found]
    return sorted(scored, key=lambda each: (-each.score, each.hit.record.id, each.hit.ordinal))


def group_by_article(passages: Sequence[tuple[Record, Candidate]]) -> list[ArticleHits]:
    """Passages, given best first, grouped into articles, best first, ties by id."""
    groups: dict[str, tuple[Record, list[Candidate]]] = {}
    for record, candidate in passages:
        groups.setdefault(record.id, (record, []))[1].append(candidate)
    shown = [ArticleHits(record, tuple(found), read_fingerprint(record.payload)) for record, found in groups.values()]
    return sorted(shown, key=lambda each: (-each.score, each.record.id))


def collapse_duplicates(articles: Sequence[ArticleHits]) -> list[FoundArticle]:
    """One article per story, best first, ties by id: the best copy, with the others in `also`.

    The best copy is the longest, then a dated one, then the first published, then the lowest id, so the choice depends
    neither on the order of arrival nor on the question. A copy must match the best article itself; being a copy is not
    transitive.
    """
    leads: list[ArticleHits] = []
    others: dict[str, list[ArticleHits]] = {}
    for each in sorted(articles, key=lambda one: copy_sort_key(one.record, one.print)):
        lead = next((lead for lead in leads if is_same_story(lead, each)), None)
        if lead is None:
            leads.append(each)
        else:
            others.setdefault(lead.record.id, []).append(each)
    found = [_to_found_article(lead, others.get(lead.record.id, ())) for lead in leads]
    return sorted(found, key=lambda each: (-each.score, each.article.article_id))


def is_same_story(one: ArticleHits, other: ArticleHits) -> bool:
    """Whether two articles are copies that were published at about the same time."""
    return is_copy(one.print, other.print) and _is_close_in_time(one.record.time, other.record.time)


def merge_duplicate(known: FoundArticle, other: FoundArticle) -> FoundArticle | None:
    """The known article with the other one added to its `also` if that is a copy of it, else None.

    The article found first is kept, even if the other is the better copy, because its search was stricter.
    """
    one, two = known.article, other.article
    if not (is_copy(known.print, other.print) and _is_close_in_time(one.published, two.published)):
        return None
    copies = {each.article_id: each for each in (*two.also, _to_copy(two), *one.also)}
    also = tuple(copies[name] for name in sorted(copies) if name != one.article_id)
    return replace(known, article=replace(one, also=also))


def copy_sort_key(record: Record, known: Fingerprint) -> tuple[int, bool, float, str]:
    """A sort key that puts the best of several copies first."""
    time = assume_utc(record.time).timestamp() if record.time else math.inf
    return (-known.length, is_undated(record), time, record.id)


def _to_found_article(lead: ArticleHits, others: Sequence[ArticleHits]) -> FoundArticle:
    copies = sorted((_to_copy(record_to_article(each.record)) for each in others), key=lambda other: other.article_id)
    return FoundArticle(
        article=replace(record_to_article(lead.record), text="", also=tuple(copies)),
        candidates=lead.passages,
        score=lead.score,
        dated_by_loading=is_undated(lead.record),
        print=lead.print,
    )


def _to_copy(article: Article) -> ArticleCopy:
    return ArticleCopy(source=article.source, url=article.url, article_id=article.article_id)


def _is_close_in_time(one: datetime | None, other: datetime | None) -> bool:
    return one is None or other is None or abs(assume_utc(one) - assume_utc(other)) <= MAX_REPRINT_DELAY


def _score_by_rank(found: FoundPassage, channels: int) -> FoundPassage:
    score = sum(1 / (RRF_K + rank) for rank in found.hit.ranks.values()) * (RRF_K + 1) / channels
    return changed(found, score=score, signals={**found.signals, RANKS: score})


_QUERY_TERMS = 12  # terms from the beginning of the text, which copies share
_MAX_CANDIDATES = 16


async def has_better_copy(index: Index, scope: Scope, record: Record) -> bool:
    """Whether a better copy of an article is stored that the scope may read."""
    own = read_fingerprint(record.payload)
    words = islice(question_terms(record.text, record.lang), _QUERY_TERMS)
    asked = tuple(dict.fromkeys(term for ids in words for term in sorted(ids)))
    if not own.runs or not asked:
        return False
    query = Query(
        collection=ARTICLES.name,
        terms=asked,
        where=_neighbour_filter(record),
        k=_MAX_CANDIDATES,
        fuse=fuse_channels,
    )
    others = [hit.record for hit in await index.search(scope, query) if hit.record.id != record.id]
    rank = copy_sort_key(record, own)
    known = ((other, read_fingerprint(other.payload)) for other in others)
    return any(copy_sort_key(other, found) < rank and is_copy(own, found) for other, found in known)


def _neighbour_filter(record: Record) -> Filter:
    same_language = Equals("lang", record.lang)
    if record.time is None:
        return same_language
    time = assume_utc(record.time)
    return And(
        (
            same_language,
            Range(field="time", gte=shift_time(time, -MAX_REPRINT_DELAY), lte=shift_time(time, MAX_REPRINT_DELAY)),
        )
    )
