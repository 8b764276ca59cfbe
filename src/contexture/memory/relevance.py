"""How well a memory answers a question, as a number from 0 to 1 that a threshold can be set on.

A passage has two witnesses: its calibrated similarity, and its coverage, the share of the question's terms
that stand in it. Together they say `1 - (1 - semantic)(1 - coverage)`, which is low only when both are. This
carries 60 % of the relevance; 40 % is the score of hybrid search, which orders what is close together better
but always finds its best match good. Unrelated memories end below .45, and so .5 means something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from contexture.conversation import Piece, Recall
from contexture.retrieval.search import BM25, SEMANTIC, Found
from contexture.text.terms import terms
from contexture.types import Record

COVERAGE = "coverage"
HYBRID = "hybrid"
RELEVANCE = "relevance"

_HYBRID_SHARE = 0.4
_MOST = 1.0

HINTS: Mapping[str, float] = {"importance": 0.05, "feedback": 0.05, "session": 0.03, "persona": 0.02}
"""The most that each hint adds to a relevance, or, the first two, takes from it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rated:
    """A memory that was found, its score, what the score is made of, and its passages, best first."""

    record: Record
    hash: str
    score: float
    signals: Mapping[str, float]
    pieces: tuple[Piece, ...]


def rated(found: Sequence[Found], query: Recall) -> list[Rated]:
    """The memories to which the passages belong, best first, ties by id."""
    asked = frozenset(terms(query.query))
    passages: dict[str, list[tuple[float, Found, Mapping[str, float]]]] = {}
    for each in found:
        signals = _signals(each, asked)
        passages.setdefault(each.hit.record.id, []).append((signals[RELEVANCE], each, signals))
    memories = [_rated(sorted(group, key=_order), query) for group in passages.values()]
    return sorted(memories, key=lambda memory: (-memory.score, memory.record.id))


def opinion(record: Record) -> float:
    """What readers think of a memory, from -1 to 1: the mean over readers of each one's mean."""
    given: Mapping[str, Sequence[float]] = record.payload.get("feedback", {})
    means = [each[0] for each in given.values()]
    return sum(means) / len(means) if means else 0.0


def _signals(found: Found, asked: frozenset[int]) -> dict[str, float]:
    coverage = _shared(found, asked) / len(asked) if asked else 0.0
    either = 1 - (1 - found.signals.get(SEMANTIC, 0.0)) * (1 - coverage)
    relevance = _HYBRID_SHARE * min(found.score, _MOST) + (1 - _HYBRID_SHARE) * either
    return {**found.signals, COVERAGE: coverage, HYBRID: found.score, RELEVANCE: relevance}


def _rated(group: Sequence[tuple[float, Found, Mapping[str, float]]], query: Recall) -> Rated:
    relevance, best, signals = group[0]
    hints = _hints(best.hit.record, query)
    return Rated(
        record=best.hit.record,
        hash=best.hit.hash,
        score=min(_MOST, max(0.0, relevance + sum(hints.values()))),
        signals={**signals, **hints},
        pieces=tuple(
            Piece(found.hit.passage.start, found.hit.passage.end, min(_MOST, score)) for score, found, _ in group
        ),
    )


def _hints(record: Record, query: Recall) -> dict[str, float]:
    """What each hint adds to the score of a memory."""
    strength = {
        "importance": 2 * record.payload.get("importance", 0.5) - 1,
        "feedback": opinion(record),
        "session": float(bool(query.session_id) and record.session == query.session_id),
        "persona": float(bool(query.persona_id) and record.payload.get("persona") == query.persona_id),
    }
    return {name: most * strength[name] for name, most in HINTS.items()}


def _shared(found: Found, asked: frozenset[int]) -> int:
    """How many of the question's terms a passage holds, as the index says, or as its text does."""
    if found.signals[BM25] <= 0:
        return 0
    return len(asked & _terms_in(found.hit.text)) if found.hit.matched is None else found.hit.matched


@lru_cache(maxsize=4_096)
def _terms_in(text: str) -> frozenset[int]:
    """The terms of a passage; a conversation meets the same ones turn after turn."""
    return frozenset(terms(text))


def _order(passage: tuple[float, Found, Mapping[str, float]]) -> tuple[float, int]:
    return (-passage[0], passage[1].hit.ordinal)
