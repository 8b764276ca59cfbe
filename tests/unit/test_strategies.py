"""The shipped strategies generate what they say."""

from __future__ import annotations

from hypothesis import given

from contexture.testing.strategies import FIELDS, TENANTS, filters, record_lists, scopes
from contexture.types import And, Not, Or


def named_fields(tree):
    """Every field that a filter tree names."""
    if isinstance(tree, And | Or):
        return {name for part in tree.parts for name in named_fields(part)}
    return named_fields(tree.part) if isinstance(tree, Not) else {tree.field}


@given(tree=filters())
def test_filters_name_known_fields(tree):
    """A generated filter only names fields that generated records may have."""
    assert named_fields(tree) <= {*FIELDS, "rating", "pinned", "time"}


@given(records=record_lists())
def test_records_have_different_ids(records):
    """No two records of a list share an id, and times have a zone."""
    assert len(records) == len({record.id for record in records})
    assert all(record.time is None or record.time.tzinfo for record in records)


@given(scope=scopes())
def test_scopes_may_read_what_is_public(scope):
    """A generated scope has a known tenant and always the public principal."""
    assert scope.tenant in TENANTS
    assert "public" in scope.principals
