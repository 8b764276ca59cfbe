"""Passages grouped back to their articles, and copies of one story shown as one article."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from msgspec.structs import replace as changed

from contexture.news.articles import Article, FoundArticle, Other
from contexture.news.copies import APART, Print, copies, stored_print
from contexture.news.records import article_of, aware, undated
from contexture.retrieval.search import Found
from contexture.types import Candidate, Record

RANKS = "ranks"
"""The signal that orders passages when nothing reranks them."""

_RRF = 60


@dataclass(frozen=True, slots=True)
class Shown:
    """An article with its passages and its fingerprint."""

    record: Record
    passages: tuple[Candidate, ...]
    print: Print

    @property
    def score(self) -> float:
        """That of its best passage."""
        return self.passages[0].score


def by_ranks(found: Sequence[Found]) -> list[Found]:
    """The passages in the order of reciprocal rank fusion alone, which is their score, ties by id and place."""
    channels = max((len(each.hit.ranks) for each in found), default=1)
    scored = [_ranked(each, max(1, channels)) for each in found]
    return sorted(scored, key=lambda each: (-each.score, each.hit.record.id, each.hit.ordinal))


def grouped(passages: Sequence[tuple[Record, Candidate]]) -> list[Shown]:
    """The articles of passages that come best first, best first, ties by id."""
    groups: dict[str, tuple[Record, list[Candidate]]] = {}
    for record, candidate in passages:
        groups.setdefault(record.id, (record, []))[1].append(candidate)
    shown = [Shown(record, tuple(found), stored_print(record.payload)) for record, found in groups.values()]
    return sorted(shown, key=lambda each: (-each.score, each.record.id))


def stories(articles: Sequence[Shown]) -> list[FoundArticle]:
    """One article a story, best first, ties by id: the best copy, with the others in `also`.

    The best is the fullest, then one with a date, then the first published, then the lowest id, so neither the order
    of arrival nor the question decides. A copy is one of the best article itself; chains of copies do not add up.
    """
    leads: list[Shown] = []
    others: dict[str, list[Shown]] = {}
    for each in sorted(articles, key=lambda one: quality(one.record, one.print)):
        lead = next((lead for lead in leads if one_story(lead, each)), None)
        if lead is None:
            leads.append(each)
        else:
            others.setdefault(lead.record.id, []).append(each)
    found = [_found(lead, others.get(lead.record.id, ())) for lead in leads]
    return sorted(found, key=lambda each: (-each.score, each.article.article_id))


def one_story(one: Shown, other: Shown) -> bool:
    """Whether two articles are copies that were published at about the same time."""
    return copies(one.print, other.print) and _together(one.record.time, other.record.time)


def retold(known: FoundArticle, other: FoundArticle) -> FoundArticle | None:
    """The known article with another in its `also`, when that is a copy which a later search found; else None.

    The one that was found first stays, whichever is better: its search asked for more.
    """
    one, two = known.article, other.article
    if not (copies(known.print, other.print) and _together(one.published, two.published)):
        return None
    told = {each.article_id: each for each in (*two.also, _other(two), *one.also)}
    also = tuple(told[name] for name in sorted(told) if name != one.article_id)
    return replace(known, article=replace(one, also=also))


def quality(record: Record, known: Print) -> tuple[int, bool, float, str]:
    """A key that puts the best of several copies first."""
    time = aware(record.time).timestamp() if record.time else math.inf
    return (-known.length, undated(record), time, record.id)


def _found(lead: Shown, others: Sequence[Shown]) -> FoundArticle:
    told = sorted((_other(article_of(each.record)) for each in others), key=lambda other: other.article_id)
    return FoundArticle(
        article=replace(article_of(lead.record), text="", also=tuple(told)),
        candidates=lead.passages,
        score=lead.score,
        dated_by_loading=undated(lead.record),
        print=lead.print,
    )


def _other(article: Article) -> Other:
    return Other(source=article.source, url=article.url, article_id=article.article_id)


def _together(one: datetime | None, other: datetime | None) -> bool:
    return one is None or other is None or abs(aware(one) - aware(other)) <= APART


def _ranked(found: Found, channels: int) -> Found:
    score = sum(1 / (_RRF + rank) for rank in found.hit.ranks.values()) * (_RRF + 1) / channels
    return changed(found, score=score, signals={**found.signals, RANKS: score})
