"""How deep JSON may be, and that finding out is exact."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.service._body_limits import is_nested_deeper

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('ab"\\[]{}\n'), max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


def depth(value):
    """Lists and objects within each other."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@given(value=VALUES, most=st.integers(0, 6))
def test_depth_is_what_a_parser_would_find(value, most):
    """Brackets and quotes inside of texts count for nothing."""
    assert (depth(value) > most) is is_nested_deeper(json.dumps(value).encode(), most)


@pytest.mark.parametrize(("levels", "status"), [(64, 200), (65, 422)])
async def test_a_body_that_is_too_deep_is_refused_before_it_is_parsed(client, levels, status):
    """The limit is the setting's, and the answer names it."""
    inner = levels - 3  # the body, the list of records and the record
    body = '{"records": [{"id": "x", "text": "y", "z": ' + "[" * inner + "]" * inner + "}]}"
    answer = await client.post("/v1/ingest/documents", content=body, headers={"Content-Type": "application/json"})

    assert status == answer.status_code
    if status == 422:
        assert "nested more than 64 levels deep" in answer.json()["error"]["user_message"]
