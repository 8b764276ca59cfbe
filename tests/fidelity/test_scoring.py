"""The scoring tables of the original builders, number for number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from contexture.pipeline.scoring import (
    COMPOSITE_WEIGHTS,
    composite_score,
    linear_decay,
    recency,
    salience,
    structural_proximity,
    type_match,
)

NOW = datetime(2025, 12, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("days", "boost"), [(0, 1.000), (1, 0.967), (7, 0.792), (14, 0.627), (30, 0.368), (60, 0.135), (90, 0.05)]
)
def test_recency_boost(days, boost):
    """Recency follows the documented table of ages."""
    assert round(recency(NOW - timedelta(days=days), NOW), 2 if days == 90 else 3) == boost


@pytest.mark.parametrize(
    ("base", "days", "boost", "final"),
    [(0.95, 1, 0.97, 0.96), (0.90, 60, 0.14, 0.67), (0.60, 2, 0.94, 0.70), (0.55, 90, 0.05, 0.40)],
    ids=["recent high relevance", "old high relevance", "recent low relevance", "old low relevance"],
)
def test_salience_examples(base, days, boost, final):
    """Salience gives the documented final scores for the documented snippets."""
    fresh = recency(NOW - timedelta(days=days), NOW)

    assert boost == round(fresh, 2)
    assert final == round(salience(base, fresh), 2)


def test_a_missing_timestamp_is_neutral():
    """Without a timestamp both decays are one half."""
    assert (0.5, 0.5) == (recency(None, NOW), linear_decay(None, NOW))


def test_a_future_timestamp_counts_as_now():
    """A time after the clock has age 0."""
    tomorrow = NOW + timedelta(days=1)

    assert (1.0, 1.0) == (recency(tomorrow, NOW), linear_decay(tomorrow, NOW))


@pytest.mark.parametrize(("days", "expected"), [(0, 1.0), (3, 0.9), (15, 0.5), (30, 0.0), (45, 0.0)])
def test_linear_decay_over_thirty_days(days, expected):
    """The workspace's recency falls in a straight line to 0 at thirty days."""
    assert linear_decay(NOW - timedelta(days=days), NOW) == pytest.approx(expected)


@pytest.mark.parametrize(("distance", "expected"), [(0, 1.0), (1, 0.9), (4, 0.6), (10, 0.0), (25, 0.0), (None, 0.5)])
def test_structural_score(distance, expected):
    """Closeness loses a tenth per step in the tree; without a focus it is one half."""
    assert structural_proximity(distance) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kind", "query", "expected"),
    [
        ("todo", "What task is next?", 0.9),
        ("kanban_card", "open tasks", 0.9),
        ("page", "a summary, please", 0.8),
        ("todo", "what is next?", 0.5),
        ("page", "open tasks", 0.5),
        ("paragraph", "task summary", 0.5),
    ],
)
def test_type_match(kind, query, expected):
    """A kind that the query asks for scores higher, all others one half."""
    assert expected == type_match(kind, query)


def test_composite_weights_are_the_documented_ones():
    """The five weights add up to 1, and a candidate of full marks scores 1."""
    assert {"semantic": 0.35, "structural": 0.25, "recency": 0.15, "type_match": 0.15, "affinity": 0.10} == dict(
        COMPOSITE_WEIGHTS
    )
    assert composite_score(dict.fromkeys(COMPOSITE_WEIGHTS, 1.0)).score == pytest.approx(1.0)
