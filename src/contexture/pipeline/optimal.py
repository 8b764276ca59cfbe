"""Packing for the highest total value: a multiple-choice knapsack.

A small one is solved for every capacity at once. A large one is solved around its relaxation, which
prices a token. At that price most items have one form that is clearly right; only those with an
alternative that costs less than the gap to the best packing known can differ. Those few are searched
exactly, dropping every partial choice that a cheaper one equals or beats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from contexture.pipeline.core_search import CoreSearch
from contexture.pipeline.every_capacity import is_small, solve
from contexture.pipeline.pack import Item, Option, Packing, fill, most_valuable, packing
from contexture.pipeline.relaxation import Floats, Ints, Table, relax, tabulate


def pack_optimal(items: Sequence[Item], capacity: int) -> Packing:
    """Choose the options of the highest total value that fit.

    Exact, unless the search meets its bound on partial choices, as it may with hundreds of items
    of nearly equal density; `gap` then says how much is missing at most. Of items that fit in
    the same forms the better-ranked are preferred.
    """
    if capacity < 0 or not items:
        return packing(items, {}, 0.0)
    whole = _everything(items, capacity)
    if whole is not None:
        return packing(items, whole, 0.0)
    columns, upper = _solved(tabulate(items, capacity))
    chosen = _chosen(items, columns, capacity)
    room = capacity - sum(items[at].options[option].tokens for at, option in chosen.items())
    fill(items, range(len(items)), chosen, room)
    return packing(items, _prefer_better_ranked(items, chosen, capacity), upper)


def _everything(items: Sequence[Item], capacity: int) -> dict[int, int] | None:
    """Every item in its best form, if that fits: nothing can be worth more."""
    best = {at: most_valuable(item.options) for at, item in enumerate(items) if item.options}
    spent = sum(items[at].options[option].tokens for at, option in best.items())
    return best if spent <= capacity else None


def _solved(table: Table) -> tuple[Ints, float]:
    """The best column per item, and a bound on the value of any packing."""
    if is_small(table):
        columns = solve(table)
        return columns, float(table.values[np.arange(len(columns)), columns].sum())
    relaxed = relax(table)
    search = CoreSearch(table, relaxed, _polish(table, relaxed.fitting))
    search.run()
    return search.columns(), search.upper


def _polish(table: Table, base: Ints) -> Ints:
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


def _chosen(items: Sequence[Item], columns: Ints, capacity: int) -> dict[int, int]:
    """Options by position; columns that stand for nothing, or for what cannot fit, are left out."""
    listed: list[int] = columns.tolist()
    pairs = ((row, column - 1) for row, column in enumerate(listed) if column)
    return {
        row: option
        for row, option in pairs
        if option < len(items[row].options) and items[row].options[option].tokens <= capacity
    }


def _prefer_better_ranked(items: Sequence[Item], chosen: Mapping[int, int], capacity: int) -> dict[int, int]:
    """The same choice with the better forms moved to the better-ranked of items that fit in equal forms."""
    alike: dict[tuple[Option, ...], list[int]] = {}
    for at, item in enumerate(items):
        alike.setdefault(tuple([option for option in item.options if option.tokens <= capacity]), []).append(at)
    result = dict(chosen)
    for places in alike.values():
        if len(places) > 1:
            taken = [items[at].options[result.pop(at)] for at in places if at in result]
            taken.sort(key=lambda option: (-option.value, option.tokens))
            result.update((at, items[at].options.index(option)) for at, option in zip(places, taken, strict=False))
    return result
