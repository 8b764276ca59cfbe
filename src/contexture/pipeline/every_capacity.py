"""Packing solved for every capacity at once, which is quickest while there is little to choose from."""

from __future__ import annotations

import numpy as np

from contexture.pipeline.relaxation import Ints, Table

CELLS = 300_000
"""Options times tokens of capacity up to which this takes about a millisecond."""


def is_small(table: Table) -> bool:
    """Whether solving for every capacity is worth it."""
    return table.tokens.size * (table.capacity + 1) <= CELLS


def solve(table: Table) -> Ints:
    """The column per item of the most valuable packing; of equals the one with the better-ranked items."""
    best = np.zeros(table.capacity + 1)
    taken = np.zeros((len(table.tokens), table.capacity + 1), np.int16)
    for row, (costs, worths) in enumerate(zip(table.tokens.tolist(), table.values.tolist(), strict=True)):
        forms = [(column, costs[column], worth) for column, worth in enumerate(worths) if worth > 0]
        # What the items before leave is read while this one changes it, unless it has a single form.
        without = best.copy() if len(forms) > 1 else best
        for column, cost, worth in forms:
            tried = without[: len(without) - cost] + worth
            room = best[cost:]
            np.putmask(taken[row, cost:], tried > room, column)
            np.maximum(room, tried, out=room)
    return _traced(table, taken)


def _traced(table: Table, taken: np.ndarray[tuple[int, int], np.dtype[np.int16]]) -> Ints:
    columns = np.zeros(len(taken), np.int64)
    room = table.capacity
    for row in range(len(taken) - 1, -1, -1):
        columns[row] = taken[row, room]
        room -= int(table.tokens[row, columns[row]])
    return columns
