"""Verdicts on candidates, one each."""

from __future__ import annotations

import pytest

from contexture.errors import BrokenPromise, SourceTimeout
from contexture.ledger import Degradation, Reason, State, Trace
from contexture.types import Candidate, Form

A, B, C = (Candidate(id=name, key=name, text=name, score=0.5, signals={"bm25": 1.0}) for name in "abc")


def test_every_verdict_is_kept() -> None:
    """Kept, shortened and dropped candidates are found by id and counted by state."""
    trace = Trace()
    trace.keep(A, tokens=5)
    trace.keep(B, tokens=3, form=Form.EXTRACT)
    trace.drop(C, Reason.DUPLICATE, of="a", note="same text")
    ledger = trace.finish([A, B, C])

    assert [1, 1, 1] == [ledger.count(state) for state in State]
    assert [Reason.FITS, Reason.MADE_TO_FIT, Reason.DUPLICATE] == [entry.reason for entry in ledger.entries]
    assert ("a", "same text", 0) == tuple(getattr(ledger.find("c"), name) for name in ("of", "note", "tokens"))
    assert ledger.find("nobody") is None


def test_a_second_verdict_is_refused() -> None:
    """A candidate cannot be both in and out."""
    trace = Trace()
    trace.keep(A, tokens=5)
    with pytest.raises(BrokenPromise, match="judged twice"):
        trace.drop(A, Reason.OVER_BUDGET)


def test_a_missing_verdict_is_refused() -> None:
    """A ledger without an entry for every candidate is not handed out."""
    trace = Trace()
    trace.keep(A, tokens=5)
    with pytest.raises(BrokenPromise, match="'b'"):
        trace.finish([A, B])


def test_degradations_are_named_once() -> None:
    """The same loss is listed once; an exception is named by its type and message."""
    trace = Trace()
    for _ in range(2):
        trace.add_degradation("search", SourceTimeout("no answer"))
        trace.add_degradation("window", "widened")

    expected = (
        Degradation(source="search", reason="SourceTimeout: no answer"),
        Degradation(source="window", reason="widened"),
    )
    assert expected == trace.finish([]).degradations
