"""Filters as JSON, form by form."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

import pytest

from contexture.errors import InvalidRequest
from contexture.filters import check_form, filter_from_json, filter_to_json, redact_filter
from contexture.types import And, AnyOf, Contains, Equals, Filter, Not, Or, Range

FORMS = (
    ({"and": []}, And(())),
    ({"or": [{"equals": ["source", "wiki"]}]}, Or((Equals("source", "wiki"),))),
    ({"not": {"any": ["lang", ["ru", 1, True]]}}, Not(AnyOf("lang", ("ru", 1, True)))),
    ({"equals": ["rating", 4.5]}, Equals("rating", 4.5)),
    ({"equals": ["pinned", False]}, Equals("pinned", False)),
    ({"contains": ["title", "pump"]}, Contains("title", "pump")),
    ({"range": ["rating", {}]}, Range(field="rating")),
    ({"range": ["rating", {"gte": 1, "lt": 2.5}]}, Range(field="rating", gte=1, lt=2.5)),
    (
        {"range": ["time", {"gt": "2026-01-01T00:00:00+00:00", "lte": "2026-02-01T00:00:00+00:00"}]},
        Range(field="time", gt=datetime(2026, 1, 1, tzinfo=UTC), lte=datetime(2026, 2, 1, tzinfo=UTC)),
    ),
)


@pytest.mark.parametrize(("data", "where"), FORMS, ids=lambda value: str(value)[:30])
def test_every_form_is_read_and_written(data: object, where: object) -> None:
    """What is read is what was meant, and it is written as it was read."""
    assert where == filter_from_json(data)
    assert data == filter_to_json(filter_from_json(data))


@pytest.mark.parametrize(("data", "where"), FORMS, ids=lambda value: str(value)[:30])
def test_a_filter_that_says_nothing_secret_is_shown_as_it_is(data: object, where: Filter) -> None:
    """Numbers stay numbers, and flags stay flags."""
    assert data == filter_to_json(redact_filter(where, str))


def test_values_are_shown_as_a_text_would_be() -> None:
    """In every form, also a number that must not be shown."""
    card = 4111111111111111
    where = Or((Equals("card", card), Not(AnyOf("tag", ("a", card))), Contains("title", str(card))))

    assert Or((Equals("card", "<CARD>"), Not(AnyOf("tag", ("a", "<CARD>"))), Contains("title", "<CARD>"))) == (
        redact_filter(where, lambda text: text.replace(str(card), "<CARD>"))
    )


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "source=wiki",
        {},
        {"and": [], "or": []},
        {"xor": []},
        {"and": {}},
        {"and": [None]},
        {"not": []},
        {"equals": ["source"]},
        {"equals": [1, "wiki"]},
        {"equals": ["source", None]},
        {"equals": ["source", ["wiki"]]},
        {"any": ["source", "wiki"]},
        {"any": ["source", [None]]},
        {"contains": ["title", 1]},
        {"range": ["time", []]},
        {"range": ["time", {"from": 1}]},
        {"range": ["time", {"gte": "yesterday"}]},
        {"range": ["time", {"gte": True}]},
        {"range": ["time", {"gte": None}]},
    ],
    ids=str,
)
def test_anything_else_is_refused(data: object) -> None:
    """A form that does not exist is the caller's mistake, and the message says which forms there are."""
    with pytest.raises(InvalidRequest):
        filter_from_json(data)


def test_nesting_is_bounded() -> None:
    """Thirty-two levels are read; more are refused instead of overflowing the stack."""
    data: object = {"equals": ["source", "wiki"]}
    for _ in range(32):
        data = {"not": data}
    filter_from_json(data)

    with pytest.raises(InvalidRequest, match="32 levels"):
        filter_from_json({"not": data})


def nested(form: str, levels: int) -> Filter:
    """A filter with this many others around it."""
    where: Filter = Equals("source", "wiki")
    for _ in range(levels):
        where = Not(where) if form == "not" else And((where,)) if form == "and" else Or((where,))
    return where


@pytest.mark.parametrize("form", ["not", "and", "or"])
@pytest.mark.parametrize("levels", [33, 900, 5_000])
def test_a_filter_of_python_is_nested_no_deeper_than_one_of_json(form: str, levels: int) -> None:
    """What JSON may say passes, and one level more is refused, however deep it goes on below."""
    check_form(nested(form, 32))

    with pytest.raises(InvalidRequest, match="32 levels deep"):
        check_form(nested(form, levels))


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("wiki", "not a value of type str"),
        ({"equals": ["source", "wiki"]}, "not a value of type dict"),
        (Not(cast("Filter", {"equals": ["source", "wiki"]})), "not a value of type dict"),
        (And(cast("tuple[Filter]", [Equals("source", "wiki")])), "'parts' of And must be a tuple of filters"),
        (AnyOf("source", cast("tuple[str]", ["wiki"])), "'values' of AnyOf must be a tuple"),
        (AnyOf("source", cast("tuple[str]", "wiki")), "'values' of AnyOf must be a tuple"),
        (Equals("source", cast("str", ["wiki"])), "'value' of Equals must be a string"),
        (Contains("source", cast("str", 3)), "'piece' of Contains must be a string"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_filter_is_refused(where: object, told: str) -> None:
    """A filter that nobody understands would find everything, so it is named instead."""
    with pytest.raises(InvalidRequest, match=told):
        check_form(where)
