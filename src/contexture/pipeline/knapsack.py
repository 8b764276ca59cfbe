"""Packers by name: `pack_optimal` solves a multiple-choice knapsack, `pack_greedy` takes items in order of value.

A small knapsack is solved for every capacity at once. A large one is solved around its linear relaxation, which gives
a price per token: only items with an alternative that costs less than the gap to the best known packing are searched
exactly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from contexture.pipeline import packing

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

NO_OPTION = packing.PackingOption(0, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class OptionTable:
    """Options as matrices, one row per item; column 0, and every option over capacity, is `NO_OPTION`."""

    tokens: Ints
    values: Floats
    capacity: int


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Relaxation:
    """The linear relaxation at one price per token.

    `upper` bounds the value of every packing; `base` is the best column per item at `price` per token. `tokens` and
    `value` are those of `base`, which may exceed the capacity; `fitting` never does.
    """

    upper: float
    price: float
    base: Ints
    tokens: int
    value: float
    fitting: Ints


def tabulate_options(items: Sequence[packing.PackingItem], capacity: int) -> OptionTable:
    """The options of `items` as matrices for this capacity."""
    width = 1 + max((len(item.options) for item in items), default=0)
    cells: list[packing.PackingOption] = []
    for item in items:
        cells.append(NO_OPTION)
        cells += [option if option.tokens <= capacity else NO_OPTION for option in item.options]
        cells += [NO_OPTION] * (width - 1 - len(item.options))
    shape = (len(items), width)
    return OptionTable(
        tokens=np.array([option.tokens for option in cells], dtype=np.int64).reshape(shape),
        values=np.array([option.value for option in cells], dtype=np.float64).reshape(shape),
        capacity=capacity,
    )


def solve_relaxation(table: OptionTable) -> Relaxation:
    """Find the price of a token at which the best columns just fill the capacity.

    Each price gives a line that bounds the value of any packing. The lowest point of all lines is
    searched from both sides: a price too low overfills, one too high leaves room, and where the
    lines of the two meet is tried next.
    """
    low = _relax_at_price(table, 0.0)
    if low.tokens <= table.capacity:
        return low
    high = _relax_at_price(table, _prohibitive_price(table))
    best = min(low, high, key=lambda line: line.upper)
    while True:
        tried = _relax_at_price(table, (low.value - high.value) / (low.tokens - high.tokens))
        best = min(best, tried, key=lambda line: line.upper)
        if not high.tokens < tried.tokens < low.tokens:
            return replace(best, fitting=high.base)
        low, high = (tried, high) if tried.tokens > table.capacity else (low, tried)


def upper_bound(items: Sequence[packing.PackingItem], capacity: int) -> float:
    """An upper bound on the value of any packing of `items` within `capacity`."""
    return solve_relaxation(tabulate_options(items, capacity)).upper if items and capacity >= 0 else 0.0


def _relax_at_price(table: OptionTable, price: float) -> Relaxation:
    """The best column per item when a token costs `price`, and the upper bound that follows."""
    base = np.argmax(table.values - price * table.tokens, axis=1)
    rows = np.arange(len(base))
    tokens = int(table.tokens[rows, base].sum())
    value = float(table.values[rows, base].sum())
    upper = value + price * (table.capacity - tokens)
    return Relaxation(upper=upper, price=price, base=base, tokens=tokens, value=value, fitting=base)


def _prohibitive_price(table: OptionTable) -> float:
    """A price per token at which no option that costs tokens is worth taking."""
    costly = table.tokens > 0
    ratios = table.values[costly] / table.tokens[costly]
    return 1.0 + 2.0 * float(ratios.max(initial=0.0))


MAX_TABLE_CELLS = 300_000
"""Table size, options times tokens of capacity, up to which `solve_every_capacity` takes about a millisecond."""


def is_small_table(table: OptionTable) -> bool:
    """Whether the table is small enough for `solve_every_capacity`."""
    return table.tokens.size * (table.capacity + 1) <= MAX_TABLE_CELLS


def solve_every_capacity(table: OptionTable) -> Ints:
    """The column per item of the most valuable packing; ties go to the one with the better-ranked items."""
    best = np.zeros(table.capacity + 1)
    taken = np.zeros((len(table.tokens), table.capacity + 1), np.int16)
    for row, (costs, worths) in enumerate(zip(table.tokens.tolist(), table.values.tolist(), strict=True)):
        forms = [(column, costs[column], worth) for column, worth in enumerate(worths) if worth > 0]
        # Several forms all extend the values before this item, so those are copied before `best` is updated.
        without = best.copy() if len(forms) > 1 else best
        for column, cost, worth in forms:
            tried = without[: len(without) - cost] + worth
            room = best[cost:]
            np.putmask(taken[row, cost:], tried > room, column)
            np.maximum(room, tried, out=room)
    return _trace_back(table, taken)


def _trace_back(table: OptionTable, taken: np.ndarray[tuple[int, int], np.dtype[np.int16]]) -> Ints:
    columns = np.zeros(len(taken), np.int64)
    room = table.capacity
    for row in range(len(taken) - 1, -1, -1):
        columns[row] = taken[row, room]
        room -= int(table.tokens[row, columns[row]])
    return columns


_MAX_STATES = 1_500
_MAX_PARTIAL_CHOICES = 20_000  # partial choices explored before the search stops with the best found: about 2 ms
_ROUNDING_SHARE = 1e-12  # a gain below this share of the bound is rounding


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _DecidedItem:
    """One item decided: for every partial choice, the column taken and the choice it extends."""

    row: int
    columns: Ints
    parents: Ints


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _UndecidedItems:
    """The undecided items, most promising first, and how far the items after each can move the token count."""

    rows: list[int]
    shrink: Ints
    grow: Ints


class CoreSearch:
    """Improves on a known packing, and bounds how far the result is from the optimum.

    Every partial choice is a whole packing whose undecided items stay at `relaxed.base`, so the search can stop at any
    point. At most `states` partial choices are kept at once, the most promising ones, and the search stops after `work`
    of them in total; `upper` includes what the discarded ones could have been worth.
    """

    def __init__(
        self,
        table: OptionTable,
        relaxed: Relaxation,
        known: Ints,
        *,
        states: int = _MAX_STATES,
        work: int = _MAX_PARTIAL_CHOICES,
    ) -> None:
        self._table = table
        self._relaxed = relaxed
        self._known = known
        self._limit = states
        self._work = work
        self._value = float(table.values[np.arange(len(known)), known].sum())
        self._given_up = self._value
        self._steps: list[_DecidedItem] = []
        self._winner: tuple[int, int] | None = None
        self._tokens: Ints = np.array([relaxed.tokens], dtype=np.int64)
        self._values: Floats = np.array([relaxed.value])

    @property
    def upper(self) -> float:
        """An upper bound on the value of any packing; equal to the value found when that is proven optimal."""
        return max(self._given_up, self._value)

    def run(self) -> None:
        """Decide items one by one until no alternative can improve the packing or the work limit is reached."""
        self._note_best()
        reduced = self._table.values - self._relaxed.price * self._table.tokens
        losses = np.maximum(0.0, reduced.max(axis=1, keepdims=True) - reduced)
        core = self._find_undecided(losses)
        for at, row in enumerate(core.rows):
            columns = np.flatnonzero(losses[row] < self._possible_gain)
            if self._work < 0:
                self._give_up()
                return
            if len(columns) > 1:
                self._decide(row, columns, int(core.shrink[at]), int(core.grow[at]))

    def columns(self) -> Ints:
        """The best column per item."""
        if self._winner is None:
            return self._known
        columns = self._relaxed.base.copy()
        count, state = self._winner
        for step in reversed(self._steps[:count]):
            columns[step.row] = step.columns[state]
            state = int(step.parents[state])
        return columns

    @property
    def _possible_gain(self) -> float:
        """The largest loss against the relaxation that a better packing can still have."""
        return self._relaxed.upper * (1 - _ROUNDING_SHARE) - self._value

    def _find_undecided(self, losses: Floats) -> _UndecidedItems:
        """Items with an affordable alternative, and how far the items after each can move the token count."""
        affordable = losses < self._possible_gain
        rows = np.arange(len(losses))
        base = self._relaxed.base
        alternatives = losses.copy()
        alternatives[rows, base] = np.inf
        cheapest = alternatives.min(axis=1)
        order = np.argsort(cheapest, kind="stable")
        order = order[cheapest[order] < self._possible_gain]
        moves = np.where(affordable, self._table.tokens - self._table.tokens[rows, base, None], 0)[order]
        return _UndecidedItems(
            rows=order.tolist(), shrink=_suffix_sums(-moves.min(axis=1)), grow=_suffix_sums(moves.max(axis=1))
        )

    def _decide(self, row: int, columns: Ints, shrink: int, grow: int) -> None:
        """Extend every partial choice by every affordable column of one item, then prune."""
        base = self._relaxed.base[row]
        costs = self._table.tokens[row, columns] - self._table.tokens[row, base]
        gains = self._table.values[row, columns] - self._table.values[row, base]
        tokens = (costs[:, None] + self._tokens).ravel()
        values = (gains[:, None] + self._values).ravel()
        self._work -= len(tokens)
        kept = self._prune(tokens, values, shrink, grow)
        kept = kept[np.argsort(tokens[kept], kind="stable")]
        kept = kept[_undominated_positions(values[kept])]
        count = len(self._tokens)
        self._steps.append(_DecidedItem(row=row, columns=columns[kept // count], parents=kept % count))
        self._tokens, self._values = tokens[kept], values[kept]
        self._note_best()

    def _prune(self, tokens: Ints, values: Floats, shrink: int, grow: int) -> Ints:
        """Indices of partial choices that can still end within capacity and above the best packing known."""
        room = self._table.capacity - tokens
        bounds = values + self._relaxed.price * np.minimum(room, grow)
        alive = np.flatnonzero((room + shrink >= 0) & (bounds > self._value + self._relaxed.upper * _ROUNDING_SHARE))
        if len(alive) <= self._limit:
            return alive
        order = np.argsort(-bounds[alive], kind="stable")
        self._given_up = max(self._given_up, float(bounds[alive[order[self._limit]]]))
        return np.sort(alive[order[: self._limit]])

    def _give_up(self) -> None:
        bounds = self._values + self._relaxed.price * (self._table.capacity - self._tokens)
        self._given_up = max(self._given_up, float(bounds.max(initial=0.0)))

    def _note_best(self) -> None:
        at = int(np.searchsorted(self._tokens, self._table.capacity, side="right")) - 1
        if at >= 0 and self._values[at] > self._value:
            self._value, self._winner = float(self._values[at]), (len(self._steps), at)


def _suffix_sums(moves: Ints) -> Ints:
    """For each position, the sum of all moves after it."""
    return np.cumsum(moves[::-1])[::-1] - moves


def _undominated_positions(values: Floats) -> Ints:
    """Positions whose value exceeds all before them."""
    highest = np.maximum.accumulate(values)
    return np.flatnonzero(np.concatenate(([True], values[1:] > highest[:-1]))) if len(values) else np.empty(0, np.int64)


def pack_optimal(items: Sequence[packing.PackingItem], capacity: int) -> packing.PackingResult:
    """Choose the options of the highest total value that fit.

    The result is optimal unless the search reaches its limit on partial choices, which can happen with hundreds of
    items of nearly equal density; `gap` then bounds how much value is missing. Among items with equal options the
    better-ranked are preferred.
    """
    if capacity < 0 or not items:
        return packing.make_result(items, {}, 0.0)
    whole = _take_all_if_fitting(items, capacity)
    if whole is not None:
        return packing.make_result(items, whole, 0.0)
    columns, upper = _solve(tabulate_options(items, capacity))
    chosen = _chosen_options(items, columns, capacity)
    room = capacity - sum(items[at].options[option].tokens for at, option in chosen.items())
    packing.add_fitting_items(items, range(len(items)), chosen, room)
    return packing.make_result(items, _prefer_better_ranked(items, chosen, capacity), upper)


def _take_all_if_fitting(items: Sequence[packing.PackingItem], capacity: int) -> dict[int, int] | None:
    """Every item in its most valuable form, which is optimal, if all of them fit; None otherwise."""
    best = {at: packing.most_valuable_option(item.options) for at, item in enumerate(items) if item.options}
    spent = sum(items[at].options[option].tokens for at, option in best.items())
    return best if spent <= capacity else None


def _solve(table: OptionTable) -> tuple[Ints, float]:
    """The best column per item, and a bound on the value of any packing."""
    if is_small_table(table):
        columns = solve_every_capacity(table)
        return columns, float(table.values[np.arange(len(columns)), columns].sum())
    relaxed = solve_relaxation(table)
    search = CoreSearch(table, relaxed, _improve_greedily(table, relaxed.fitting))
    search.run()
    return search.columns(), search.upper


def _improve_greedily(table: OptionTable, base: Ints) -> Ints:
    """Change one item at a time, the most valuable change that fits first, until none helps."""
    columns = base.copy()
    rows = np.arange(len(columns))
    costs: Ints = table.tokens - table.tokens[rows, columns, None]
    gains: Floats = table.values - table.values[rows, columns, None]
    room = table.capacity - int(table.tokens[rows, columns].sum())
    while True:
        fitting = np.where(costs <= room, gains, 0.0)
        row, column = divmod(int(fitting.argmax()), fitting.shape[1])
        if fitting[row, column] <= 0:
            return columns
        room -= int(costs[row, column])
        columns[row] = column
        costs[row] -= costs[row, column]
        gains[row] -= gains[row, column]


def _chosen_options(items: Sequence[packing.PackingItem], columns: Ints, capacity: int) -> dict[int, int]:
    """Chosen options by item position; empty columns and options over capacity are left out."""
    listed: list[int] = columns.tolist()
    pairs = ((row, column - 1) for row, column in enumerate(listed) if column)
    return {
        row: option
        for row, option in pairs
        if option < len(items[row].options) and items[row].options[option].tokens <= capacity
    }


def _prefer_better_ranked(
    items: Sequence[packing.PackingItem], chosen: Mapping[int, int], capacity: int
) -> dict[int, int]:
    """The same choice, with the better options moved to the better-ranked among items with equal options."""
    alike: dict[tuple[packing.PackingOption, ...], list[int]] = {}
    for at, item in enumerate(items):
        alike.setdefault(tuple([option for option in item.options if option.tokens <= capacity]), []).append(at)
    result = dict(chosen)
    for places in alike.values():
        if len(places) > 1:
            taken = [items[at].options[result.pop(at)] for at in places if at in result]
            taken.sort(key=lambda option: (-option.value, option.tokens))
            result.update((at, items[at].options.index(option)) for at, option in zip(places, taken, strict=False))
    return result


def pack_greedy(items: Sequence[packing.PackingItem], capacity: int) -> packing.PackingResult:
    """Take items from the most valuable down, each in the best form that still fits.

    Items of equal value keep the order given. An item that does not fit in any form never blocks
    smaller items after it.
    """
    chosen: dict[int, int] = {}
    packing.add_fitting_items(items, sorted(range(len(items)), key=lambda at: -best_value(items[at])), chosen, capacity)
    return packing.make_result(items, chosen, upper_bound(items, capacity))


def best_value(item: packing.PackingItem) -> float:
    """The value of the item's best form, whatever it costs."""
    return max((option.value for option in item.options), default=0.0)


class Packer(StrEnum):
    """How candidates are chosen for the budget."""

    OPTIMAL = "optimal"
    GREEDY = "greedy"


PACKERS: Mapping[Packer, packing.PackFunction] = MappingProxyType(
    {Packer.OPTIMAL: pack_optimal, Packer.GREEDY: pack_greedy}
)
