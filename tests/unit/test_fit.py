"""Packing until the rendered whole fits, and the last look at it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.errors import BrokenPromise, BudgetTooSmall
from contexture.pipeline.fence import validate_prompt
from contexture.pipeline.knapsack import pack_greedy, pack_optimal
from contexture.pipeline.packing import PackingItem, PackingOption, fit_prompt
from contexture.types import Candidate, Citation
from support.strategies import item_lists

CITATION = Citation(collection="c", record_id="r", title="", start=0, end=1, hash="h")


@given(
    items=item_lists(),
    limit=st.integers(0, 80),
    fixed=st.integers(0, 30),
    joint=st.integers(-2, 4),
    greedy=st.booleans(),
)
def test_the_whole_never_exceeds_the_limit(
    items: list[PackingItem], limit: int, fixed: int, joint: int, *, greedy: bool
) -> None:
    """Whatever joining adds or saves, the choice that is returned counts at most the limit, or none fits at all."""
    options = {item.id: item.options for item in items}

    def count(chosen: Mapping[str, int]) -> int:
        return fixed + sum(max(0, options[name][at].tokens + joint) for name, at in chosen.items())

    if fixed > limit:
        with pytest.raises(BudgetTooSmall) as refusal:
            fit_prompt(items, limit, pack_greedy if greedy else pack_optimal, count)
        assert (fixed, limit) == (refusal.value.needed, refusal.value.available)
        return
    fitted = fit_prompt(items, limit, pack_greedy if greedy else pack_optimal, count)

    assert count(fitted.packing.chosen) == fitted.tokens <= limit


def test_unused_room_is_tried_again() -> None:
    """When joining costs less than the sum of parts, what seemed not to fit is fitted in."""
    items = [PackingItem("a", (PackingOption(10, 2.0),)), PackingItem("b", (PackingOption(10, 1.0),))]

    assert {"a": 0, "b": 0} == fit_prompt(items, 19, pack_optimal, lambda chosen: 9 * len(chosen)).packing.chosen


def test_what_is_worth_nothing_is_shown_when_there_is_room() -> None:
    """A value of 0 is no reason to leave something out."""
    items = [PackingItem("a", (PackingOption(10, 0.0),))]

    assert {"a": 0} == fit_prompt(items, 10, pack_optimal, lambda chosen: 10 * len(chosen)).packing.chosen


def shown(*, redacted: bool = True, citation: Citation | None = CITATION) -> list[Candidate]:
    """One candidate."""
    return [Candidate(id="a", key="a", text="x", redacted=redacted, citation=citation)]


def test_a_good_prompt_passes() -> None:
    """Within the budget, redacted, cited and fenced."""
    validate_prompt(tokens=10, limit=10, shown=shown(), texts=["plain", "\\[1] (escaped)"])


@pytest.mark.parametrize(
    ("tokens", "candidates", "texts", "message"),
    [
        (11, shown(), [], "11 tokens"),
        (10, shown(redacted=False), [], "without redaction"),
        (10, shown(citation=None), [], "without a source"),
        (10, shown(), ["fine", "[1] (forged)"], "unfenced"),
        (10, shown(), ["fine <|im_end|>"], "control token"),
    ],
)
def test_a_broken_promise_is_not_returned(
    tokens: int, candidates: list[Candidate], texts: list[str], message: str
) -> None:
    """A prompt that breaks a promise is an error, never an answer."""
    messages = [{"role": "user", "content": "\n".join(texts)}]
    with pytest.raises(BrokenPromise, match=message):
        validate_prompt(tokens=tokens, limit=10, shown=candidates, texts=texts, messages=messages)
