"""Budgets and packing by example."""

from __future__ import annotations

import random

import pytest

from contexture.pipeline.knapsack import CoreSearch, pack_greedy, pack_optimal, solve_relaxation, tabulate_options
from contexture.pipeline.packing import PackingItem, PackingOption
from contexture.pipeline.sections import allocate_tokens, pack_sections, water_fill
from contexture.types import Budget, Section

DEFAULTS = {"focus": 1500, "semantic": 1200, "relations": 800, "activity": 300, "history": 500, "system": 200}
PACKERS = pytest.mark.parametrize("pack", [pack_greedy, pack_optimal])


def item(name, *options, section="context"):
    """An item with options as (tokens, value) pairs."""
    return PackingItem(name, tuple(PackingOption(*option) for option in options), section)


def many(seed, count=200):
    """Items like those of a real build: long and short texts, each in four forms."""
    draw = random.Random(seed)
    forms = ((1.0, 1.0), (0.5, 0.8), (0.2, 0.45), (0.05, 0.1))
    sizes = [(int(draw.lognormvariate(5, 0.6)) + 20, draw.random()) for _ in range(count)]
    return [item(f"i{at}", *((int(n * a), v * b) for a, b in forms)) for at, (n, v) in enumerate(sizes)]


def test_default_floors_are_scaled_down_together():
    """Floors that add up to 4,500 of 4,000 are cut alike and use up the total."""
    sections = [Section(name=name, floor=floor) for name, floor in DEFAULTS.items()]
    shares = allocate_tokens(4000, sections, dict.fromkeys(DEFAULTS, 10_000))

    assert 4000 == sum(shares.values())
    assert all(abs(shares[name] - floor * 4000 / 4500) < 1 for name, floor in DEFAULTS.items())


def test_an_unused_floor_is_lent():
    """What the first section does not need goes to the others by weight."""
    sections = [Section(name="a", floor=600), Section(name="b", weight=3), Section(name="c")]

    assert {"a": 100, "b": 675, "c": 225} == allocate_tokens(1000, sections, {"a": 100, "b": 5000, "c": 5000})


def test_a_cap_holds_even_when_nobody_else_wants_the_rest():
    """A capped section never borrows beyond its cap, and one that is off gets nothing."""
    sections = [Section(name="a", cap=50, floor=80), Section(name="b", enabled=False, floor=10)]

    assert {"a": 50, "b": 0} == allocate_tokens(1000, sections, {"a": 900, "b": 900})


def test_weightless_sections_borrow_last():
    """A section of weight 0 gets its floor, and more only when the others are full."""
    sections = [Section(name="a", weight=0, floor=10), Section(name="b")]

    assert {"a": 10, "b": 90} == allocate_tokens(100, sections, {"a": 50, "b": 500})
    assert {"a": 50, "b": 20} == allocate_tokens(100, sections, {"a": 50, "b": 20})


def test_odd_tokens_go_to_the_largest_fraction():
    """Whole tokens are dealt by largest remainder, then by position."""
    assert [4, 3, 3] == water_fill(10, [10, 10, 10], [1, 1, 1])


@PACKERS
def test_one_large_item_never_blocks_smaller_ones(pack):
    """The best item is too large in every form; those after it are packed."""
    packing = pack([item("large", (500, 9.0)), item("b", (60, 2.0)), item("c", (40, 1.0))], 100)

    assert {"b": 0, "c": 0} == packing.chosen


@PACKERS
def test_a_shorter_form_is_tried(pack):
    """An item whose full form does not fit is packed in the form that does."""
    packing = pack([item("a", (80, 1.0)), item("b", (80, 0.9), (20, 0.5))], 100)

    assert ({"a": 0, "b": 1}, 100) == (packing.chosen, packing.tokens)


def test_optimal_gives_up_one_for_two():
    """Two middling items beat the single best one that would fill the room."""
    items = [item("a", (100, 1.0)), item("b", (50, 0.8)), item("c", (50, 0.8))]

    assert ["a"] == list(pack_greedy(items, 100).chosen)
    assert ["b", "c"] == list(pack_optimal(items, 100).chosen)


@PACKERS
@pytest.mark.parametrize("capacity", [-1, 0])
def test_no_room(pack, capacity):
    """Only what costs nothing fits in no room, and nothing fits in less."""
    packing = pack([item("a", (1, 1.0)), item("free", (0, 0.1)), item("none")], capacity)

    assert ([] if capacity < 0 else ["free"]) == list(packing.chosen)


@PACKERS
def test_worthless_items_fill_room_left_over(pack):
    """An item of no value is packed when there is room, and the gap is 0."""
    packing = pack([item("a", (5, 0.0)), item("b", (10**12, 3.0))], 10)

    assert ({"a": 0}, 0.0, 0.0) == (packing.chosen, packing.value, packing.gap)


@pytest.mark.parametrize("capacity", [500, 2_000, 8_000, 32_000])
@pytest.mark.parametrize("seed", range(5))
def test_realistic_packings_are_proven_within_one_percent(seed, capacity):
    """Two hundred items in four forms pack to within 1 % of the bound, never below greedy."""
    items = many(seed)
    best = pack_optimal(items, capacity)

    assert best.tokens <= capacity
    assert best.gap <= 0.01
    assert best.value >= pack_greedy(items, capacity).value


def test_values_in_proportion_to_tokens_end_in_time():
    """When every choice is equally dense the search stops at its bound and reports a small gap."""
    draw = random.Random(3)
    sizes = [draw.randint(37, 900) for _ in range(300)]
    items = [item(f"i{at}", (n, n / 7), (n // 2, n // 2 / 7), (n // 5, n // 5 / 7)) for at, n in enumerate(sizes)]

    assert pack_optimal(items, 8_191).gap < 0.01


@pytest.mark.parametrize(("states", "work"), [(1, 10**9), (2, 10**9), (10**9, 0), (10**9, 20)])
def test_what_a_short_search_gives_up_stays_within_its_bound(states, work):
    """However early the search stops, its bound is not below what the full search finds."""
    for seed in range(40):
        draw = random.Random(seed)
        sizes = [draw.randint(5, 60) for _ in range(14)]
        items = [item(f"i{at}", (n, n + draw.random()), (n // 2, n / 2)) for at, n in enumerate(sizes)]
        table = tabulate_options(items, 101)
        relaxed = solve_relaxation(table)
        search = CoreSearch(table, relaxed, relaxed.fitting, states=states, work=work)
        search.run()

        assert search.upper >= pack_optimal(items, 101).value - 1e-9


def test_equal_items_are_taken_from_the_top():
    """Of three equal items with room for two, the first two are packed."""
    items = [item(name, (50, 1.0)) for name in "abc"]

    assert ["a", "b"] == list(pack_optimal(items, 100).chosen)


def test_forms_that_cannot_fit_do_not_hide_equality():
    """The better-ranked of two items alike but for a form that is too large anyway is packed."""
    items = [item("a", (3, 3.0)), item("b", (900, 0.4), (2, 2.9)), item("c", (800, 0.5), (2, 2.9))]

    assert {"a": 0, "b": 1} == pack_optimal(items, 5).chosen


def test_sections_without_claims_are_packed_as_one():
    """With no floors, caps or weights the most valuable items win, whatever their section."""
    items = [item("a", (60, 0.9), section="memory"), item("b", (60, 0.5), section="news")]
    packed = pack_sections(items, Budget(total=100, reserve=20))

    assert {"a": 0} == packed.chosen
    assert ({}, 60, 0.9) == (packed.sections["news"].chosen, packed.tokens, packed.value)


def test_a_floor_protects_a_weaker_section():
    """A section with a floor keeps its room against more valuable items elsewhere."""
    items = [item("a", (80, 0.9), section="memory"), item("b", (40, 0.1), section="news")]
    sections = (Section(name="memory"), Section(name="news", floor=40))

    assert {"b": 0} == pack_sections(items, Budget(total=100, sections=sections)).chosen


def test_room_left_by_rounding_is_lent_to_the_most_relevant():
    """Room that no section could use alone goes to the one that left out the best item."""
    items = [item(f"m{at}", (40, 0.9), section="memory") for at in range(3)]
    items += [item(f"n{at}", (40, 0.3), section="news") for at in range(3)]
    sections = (Section(name="memory", floor=60), Section(name="news", floor=60))
    packed = pack_sections(items, Budget(total=120, sections=sections))

    assert (2, 1) == (len(packed.sections["memory"].chosen), len(packed.sections["news"].chosen))
