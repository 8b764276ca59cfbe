"""Signals about a candidate that are plain formulas, and the weighted sum that makes them a score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

UNKNOWN = 0.5
"""What a signal is worth when nothing is known: neither help nor harm."""

DECAY_DAYS = 30.0
RELEVANCE_SHARE = 0.7
RECENCY_SHARE = 0.3
STEP_LOSS = 0.1

COMPOSITE_WEIGHTS: Mapping[str, float] = MappingProxyType(
    {"semantic": 0.35, "structural": 0.25, "recency": 0.15, "type_match": 0.15, "affinity": 0.10}
)
TYPE_HINTS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {"todo": ("task", 0.9), "kanban_card": ("task", 0.9), "page": ("summary", 0.8)}
)
"""Per kind: the word in a query that asks for it, and what a match is then worth."""

_DAY = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """A score and what each signal added to it; the parts sum to the score."""

    score: float
    parts: Mapping[str, float]


def age_days(time: datetime, now: datetime) -> float:
    """Days from `time` to `now`; the future counts as today, a time without a zone as UTC."""
    return max(0.0, (_aware(now) - _aware(time)).total_seconds() / _DAY)


def recency(time: datetime | None, now: datetime) -> float:
    """`exp(-age/30)` in days: 1 today, .37 after a month, .14 after two; .5 without a time."""
    return UNKNOWN if time is None else math.exp(-age_days(time, now) / DECAY_DAYS)


def linear_decay(time: datetime | None, now: datetime) -> float:
    """`1 - age/30` in days, never below 0; .5 without a time."""
    return UNKNOWN if time is None else max(0.0, 1.0 - age_days(time, now) / DECAY_DAYS)


def structural(distance: int | None) -> float:
    """`1 - distance/10` for steps in the block tree, never below 0; .5 when there is no focus."""
    return UNKNOWN if distance is None else max(0.0, 1.0 - STEP_LOSS * distance)


def type_match(kind: str, query: str) -> float:
    """How well a kind of record suits the words of a query; .5 when they say nothing about it."""
    word, value = TYPE_HINTS.get(kind, ("", UNKNOWN))
    return value if word in query else UNKNOWN


def salience(relevance: float, recency: float) -> float:
    """70 % relevance, 30 % recency."""
    return RELEVANCE_SHARE * relevance + RECENCY_SHARE * recency


def composite(signals: Mapping[str, float], weights: Mapping[str, float] = COMPOSITE_WEIGHTS) -> Scored:
    """The weighted sum of the signals that `weights` names, with each part; a missing signal adds 0."""
    parts = {name: weight * signals.get(name, 0.0) for name, weight in weights.items()}
    return Scored(score=math.fsum(parts.values()), parts=parts)


def _aware(time: datetime) -> datetime:
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time
