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
        without, best = best, best.copy()
        for column, (cost, worth) in enumerate(zip(costs, worths, strict=True)):
            if worth > 0:
                tried = without[: len(without) - cost] + worth
                better = tried > best[cost:]
                np.copyto(best[cost:], tried, where=better)
                np.putmask(taken[row, cost:], better, column)
    return _traced(table, taken)


def _traced(table: Table, taken: np.ndarray[tuple[int, int], np.dtype[np.int16]]) -> Ints:
    columns = np.zeros(len(taken), np.int64)
    room = table.capacity
    for row in range(len(taken) - 1, -1, -1):
        columns[row] = taken[row, room]
        room -= int(table.tokens[row, columns[row]])
    return columns
