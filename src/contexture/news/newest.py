"""What is new, for questions whose words say nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from contexture.news.articles import NewsQuestion
from contexture.news.records import aware, moved, undated
from contexture.retrieval.search import Found
from contexture.text.terms import stem, words
from contexture.types import Hit, Vector

RECENCY = "recency"
"""The signal that orders passages where only their age counts.

It is 1 for the newest, less for each day behind that, and 0 where nobody knows the age.
"""

_DAYS = 30.0
_SECONDS = 86_400.0
_SHORT = timedelta(days=2)  # commands look a day ahead, for clocks that are wrong
_PARTS = 32

_NEWS = frozenset(
    map(
        stem,
        """news headline headlines new latest newest recent recently today happened happening update updates
        новости новостей новость новое нового последние последних свежие свежее сегодня сегодняшние случилось произошло
        происходит событие события событий""".split(),
    )
)
_FILLERS = frozenset(
    map(
        stem,
        """a all and any are been day did for from give going has have here hour hours i in is just last main me most
        month now of on or out please right s show since so tell the there this to top up was week were what whats
        which world
        а в во все всё главные главное день дня за и из какие какое какой месяц мир мира мире мне на недели неделю
        пожалуйста покажи расскажи сейчас тут у час часа часов что это эти""".split(),
    )
)


def asks_for_anything(text: str) -> bool:
    """Whether a question is for news and names nothing that they should be about: "what happened today?"."""
    spoken = {stem(word) for word in words(text)}
    return not spoken.isdisjoint(_NEWS) and spoken <= _NEWS | _FILLERS


def anything(vectors: Mapping[str, int]) -> dict[str, Vector]:
    """Vectors that prefer nothing: searched for, they propose whatever a filter admits, without an embedder."""
    return {name: np.full(size, 1 / math.sqrt(size), np.float32) for name, size in vectors.items()}


def by_age(hits: Sequence[Hit]) -> list[Found]:
    """Passages from the newest article to the oldest, each article's in order, scored by how far it is behind.

    What is dated by its loading comes last.
    """
    newest = max((_seconds(hit.record.time) for hit in hits), default=0.0)
    found = [_aged(hit, newest - _seconds(hit.record.time)) for hit in hits]
    return sorted(found, key=lambda each: (-each.score, each.hit.record.id, each.hit.ordinal))


def published_since(hits: Sequence[Hit], enough: int) -> datetime | None:
    """A time since which at least `enough` articles were published, or None where there are fewer."""
    times = sorted({hit.record.id: _seconds(hit.record.time) for hit in hits}.values(), reverse=True)
    return datetime.fromtimestamp(times[enough - 1], UTC) if len(times) >= enough else None


def last_part(question: NewsQuestion) -> NewsQuestion | None:
    """The question for the end of its window alone, or None where it has no end or is short already.

    How much that is depends on the question and on nothing else, so that what is hidden changes nothing.
    """
    if question.before is None:
        return None
    before = aware(question.before)
    span = _SHORT if question.since is None else max(_SHORT, (before - aware(question.since)) / _PARTS)
    since = moved(before, -span)
    whole = since is None or (question.since is not None and since <= aware(question.since))
    return None if whole else replace(question, since=since)


def _aged(hit: Hit, behind: float) -> Found:
    score = 0.0 if undated(hit.record) else math.exp(-behind / _SECONDS / _DAYS)
    return Found(hit=hit, score=score, signals={RECENCY: score})


def _seconds(time: datetime | None) -> float:
    return aware(time).timestamp() if time else 0.0
