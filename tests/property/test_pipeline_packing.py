"""Promises of budgets and packers, checked against trying every choice."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.pipeline.knapsack import (
    CoreSearch,
    pack_greedy,
    pack_optimal,
    solve_every_capacity,
    solve_relaxation,
    tabulate_options,
    upper_bound,
)
from contexture.pipeline.packing import PackingItem, PackingOption
from contexture.pipeline.sections import allocate_tokens, pack_sections, water_fill
from contexture.types import Budget
from support.strategies import item_lists, section_lists

CAPACITY = st.integers(-2, 15) | st.integers(0, 80)
NAMES = ("focus", "semantic", "activity")
PACKERS = pytest.mark.parametrize("pack", [pack_greedy, pack_optimal])


def best_value(items, capacity):
    """The highest value of any choice that fits, by trying them all."""
    if capacity < 0:
        return 0.0
    choices = product(*((PackingOption(0, 0.0), *item.options) for item in items))
    return max(
        sum(option.value for option in choice)
        for choice in choices
        if sum(option.tokens for option in choice) <= capacity
    )


def left_out(items, packing):
    """The items that a packing does without."""
    return [item for item in items if item.id not in packing.chosen]


@given(items=item_lists(), capacity=CAPACITY)
def test_optimal_equals_brute_force(items, capacity):
    """On small inputs the optimal packer finds the best value there is, and says that it is proven."""
    packing = pack_optimal(items, capacity)

    assert packing.value == pytest.approx(best_value(items, capacity), abs=1e-9)
    assert packing.gap == pytest.approx(0.0, abs=1e-9)


@PACKERS
@given(items=item_lists(max_size=12), capacity=CAPACITY)
def test_never_over_capacity(pack, items, capacity):
    """Tokens and value are those of the chosen options, and fit."""
    packing = pack(items, capacity)
    taken = [item.options[packing.chosen[item.id]] for item in items if item.id in packing.chosen]

    assert sum(option.tokens for option in taken) == packing.tokens <= max(0, capacity)
    assert sum(option.value for option in taken) == pytest.approx(packing.value)
    assert len(taken) == len(packing.chosen)


@PACKERS
@given(items=item_lists(max_size=12), capacity=CAPACITY)
def test_nothing_left_out_would_still_fit(pack, items, capacity):
    """Every form of every item left out is larger than the room left over."""
    packing = pack(items, capacity)
    room = capacity - packing.tokens

    assert all(option.tokens > room for item in left_out(items, packing) for option in item.options)


@PACKERS
@given(items=item_lists(), capacity=CAPACITY)
def test_the_gap_is_honest(pack, items, capacity):
    """No choice is worth more than the value found and its gap allow."""
    packing = pack(items, capacity)

    assert 0 <= packing.gap <= 1
    assert best_value(items, capacity) * (1 - packing.gap) <= packing.value + 1e-9


@given(items=item_lists(), capacity=CAPACITY)
def test_the_relaxation_bounds_every_choice(items, capacity):
    """The linear relaxation is never below the best value."""
    assert upper_bound(items, capacity) >= best_value(items, capacity) - 1e-9


@given(items=item_lists(max_size=6), capacity=st.integers(0, 80))
def test_both_ways_to_the_best_packing_agree(items: list[PackingItem], capacity: int) -> None:
    """Solving for every capacity and searching around the relaxation reach the same value."""
    table = tabulate_options(items, capacity)
    relaxed = solve_relaxation(table)
    search = CoreSearch(table, relaxed, relaxed.fitting)
    search.run()
    rows = np.arange(len(items))
    values = [float(table.values[rows, columns].sum()) for columns in (solve_every_capacity(table), search.columns())]

    assert values[0] == pytest.approx(values[1])
    assert int(table.tokens[rows, solve_every_capacity(table)].sum()) <= capacity


@given(items=item_lists(max_size=6), capacity=st.integers(0, 80), states=st.integers(1, 4), work=st.integers(0, 20))
def test_a_search_cut_short_still_bounds_the_best(items, capacity, states, work):
    """With hardly any states allowed, the result fits and its bound is still true."""
    table = tabulate_options(items, capacity)
    relaxed = solve_relaxation(table)
    search = CoreSearch(table, relaxed, relaxed.fitting, states=states, work=work)
    search.run()
    columns = search.columns()
    rows = range(len(items))

    assert sum(int(table.tokens[row, columns[row]]) for row in rows) <= capacity
    assert search.upper >= best_value(items, capacity) - 1e-9


@given(items=item_lists(max_size=8), capacity=CAPACITY)
def test_of_equal_items_the_better_ranked_is_packed(items, capacity):
    """Of two items that fit in the same forms, the earlier one never has the less valuable form."""
    packing = pack_optimal(items, capacity)
    forms = {item.id: [option for option in item.options if option.tokens <= capacity] for item in items}
    worth = {item.id: item.options[packing.chosen[item.id]].value for item in items if item.id in packing.chosen}

    for at, better in enumerate(items):
        for worse in items[at + 1 :]:
            if forms[better.id] == forms[worse.id]:
                assert worth.get(better.id, -1.0) >= worth.get(worse.id, -1.0)


@given(
    total=st.integers(-5, 200),
    sections=section_lists(),
    demand=st.fixed_dictionaries({name: st.integers(0, 120) for name in NAMES}),
)
def test_allocation_keeps_every_rule(total, sections, demand):
    """Shares respect switches, caps and demand, honour floors that fit, and waste nothing."""
    shares = allocate_tokens(total, sections, demand)
    ceilings = {s.name: min(demand[s.name], demand[s.name] if s.cap is None else s.cap) * s.enabled for s in sections}
    claims = {s.name: min(s.floor, ceilings[s.name]) for s in sections}

    assert all(0 <= shares[name] <= ceilings[name] for name in shares)
    assert sum(shares.values()) == min(max(0, total), sum(ceilings.values()))
    if sum(claims.values()) <= total:
        assert all(shares[name] >= claims[name] for name in shares)
    else:
        assert all(shares[name] <= claims[name] for name in shares)


@given(
    room=st.integers(0, 500),
    vessels=st.lists(st.tuples(st.integers(0, 100), st.floats(0.001, 100)), min_size=1, max_size=6),
)
def test_pouring_is_proportional_until_full(room, vessels):
    """A share that is not full has, within one token, at least its weight's part of any other."""
    ceilings, weights = zip(*vessels, strict=True)
    given_out = water_fill(room, ceilings, weights)

    assert sum(given_out) == min(room, sum(ceilings))
    for got, (ceiling, weight) in zip(given_out, vessels, strict=True):
        if got < ceiling:
            assert all(
                (got + 1) / weight >= (other - 1) / heavy for other, heavy in zip(given_out, weights, strict=True)
            )


@PACKERS
@given(items=item_lists(max_size=10, sections=NAMES), sections=section_lists(), total=st.integers(-5, 150))
def test_sections_together_never_exceed_the_budget(pack, items, sections, total):
    """The whole fits the budget, each section its cap, and a switched-off section stays empty."""
    packed = pack_sections(items, Budget(total=total, sections=tuple(sections)), pack)

    assert packed.tokens <= max(0, total)
    for section in sections:
        tokens = packed.sections[section.name].tokens
        assert section.cap is None or tokens <= section.cap
        assert section.enabled or not packed.sections[section.name].chosen


@PACKERS
@given(items=item_lists(max_size=10, sections=NAMES), sections=section_lists(), total=st.integers(0, 150))
def test_unused_room_is_lent(pack, items, sections, total):
    """Nothing left out of a section fits both the room left over and the section's cap."""
    packed = pack_sections(items, Budget(total=total, sections=tuple(sections)), pack)

    for section in (section for section in sections if section.enabled):
        mine = packed.sections[section.name]
        room = min(total - packed.tokens, total if section.cap is None else section.cap - mine.tokens)
        missing = [item for item in items if item.section == section.name and item.id not in mine.chosen]
        assert all(option.tokens > room for item in missing for option in item.options)
