"""Promises about filters: JSON keeps their meaning, and the logic is that of logic."""

from __future__ import annotations

import json

from hypothesis import given

from contexture.adapters.index.filters import check_filter, field_types, record_matches
from contexture.filters import filter_from_json, filter_to_json
from contexture.testing.index_records import COLLECTION
from contexture.testing.strategies import filters, records
from contexture.types import And, Filter, Not, Or, Record

FIELDS = field_types(COLLECTION)


@given(where=filters())
def test_a_filter_survives_json(where: Filter) -> None:
    """Written, sent as text and read again it is the same filter."""
    assert where == filter_from_json(json.loads(json.dumps(filter_to_json(where))))


@given(where=filters())
def test_generated_filters_are_accepted(where: Filter) -> None:
    """A filter over known fields passes the check."""
    check_filter(where, FIELDS)


@given(one=filters(max_leaves=3), other=filters(max_leaves=3), record=records())
def test_filters_follow_logic(one: Filter, other: Filter, record: Record) -> None:
    """Not of and is or of nots, double negation is nothing, and the empty cases are those of `all` and `any`."""
    both, neither = And((one, other)), Or((Not(one), Not(other)))

    assert record_matches(Not(both), record, FIELDS) == record_matches(neither, record, FIELDS)
    assert record_matches(Not(Not(one)), record, FIELDS) == record_matches(one, record, FIELDS)
    assert record_matches(And(()), record, FIELDS)
    assert not record_matches(Or(()), record, FIELDS)
