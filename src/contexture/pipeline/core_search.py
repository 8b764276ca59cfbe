"""The exact part of optimal packing: which of the undecided items depart from the relaxation's choice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from contexture.pipeline.relaxation import Floats, Ints, Relaxation, Table

_STATES = 1_500
_WORK = 20_000  # partial choices made before the search settles for what it has: about 2 ms
_NOISE = 1e-12  # a gain below this share of the bound is rounding


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Step:
    """One item decided: for every partial choice, the column taken and the choice it extends."""

    row: int
    columns: Ints
    parents: Ints


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Core:
    """The undecided items, likeliest first, and how far those after each can move the token count."""

    rows: list[int]
    shrink: Ints
    grow: Ints


class CoreSearch:
    """Improves on a known packing, and proves how far the result is from the best.

    Every partial choice is a whole packing whose undecided items stay at `relaxed.base`, so the
    search can stop anywhere. The least promising beyond `states` alive at once are given up, and
    all are after `work` in total; `upper` remembers what they might have been worth.
    """

    def __init__(
        self, table: Table, relaxed: Relaxation, known: Ints, *, states: int = _STATES, work: int = _WORK
    ) -> None:
        self._table = table
        self._relaxed = relaxed
        self._known = known
        self._limit = states
        self._work = work
        self._value = float(table.values[np.arange(len(known)), known].sum())
        self._given_up = self._value
        self._steps: list[_Step] = []
        self._winner: tuple[int, int] | None = None
        self._tokens: Ints = np.array([relaxed.tokens], dtype=np.int64)
        self._values: Floats = np.array([relaxed.value])

    @property
    def upper(self) -> float:
        """No packing is worth more; equal to the value found when that is proven best."""
        return max(self._given_up, self._value)

    def run(self) -> None:
        """Decide item after item, until no alternative can pay."""
        self._note_best()
        reduced = self._table.values - self._relaxed.price * self._table.tokens
        losses = np.maximum(0.0, reduced.max(axis=1, keepdims=True) - reduced)
        core = self._core(losses)
        for at, row in enumerate(core.rows):
            columns = np.flatnonzero(losses[row] < self._hope)
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
    def _hope(self) -> float:
        """What a better packing may still lose against the relaxation."""
        return self._relaxed.upper * (1 - _NOISE) - self._value

    def _core(self, losses: Floats) -> _Core:
        """Items with an affordable alternative, and the token moves that the rest of them can make."""
        affordable = losses < self._hope
        rows = np.arange(len(losses))
        base = self._relaxed.base
        alternatives = losses.copy()
        alternatives[rows, base] = np.inf
        cheapest = alternatives.min(axis=1)
        order = np.argsort(cheapest, kind="stable")
        order = order[cheapest[order] < self._hope]
        moves = np.where(affordable, self._table.tokens - self._table.tokens[rows, base, None], 0)[order]
        return _Core(rows=order.tolist(), shrink=_after(-moves.min(axis=1)), grow=_after(moves.max(axis=1)))

    def _decide(self, row: int, columns: Ints, shrink: int, grow: int) -> None:
        """Extend every partial choice by every affordable column of one item, then prune."""
        base = self._relaxed.base[row]
        costs = self._table.tokens[row, columns] - self._table.tokens[row, base]
        gains = self._table.values[row, columns] - self._table.values[row, base]
        tokens = (costs[:, None] + self._tokens).ravel()
        values = (gains[:, None] + self._values).ravel()
        self._work -= len(tokens)
        kept = self._promising(tokens, values, shrink, grow)
        kept = kept[np.argsort(tokens[kept], kind="stable")]
        kept = kept[_undominated(values[kept])]
        count = len(self._tokens)
        self._steps.append(_Step(row=row, columns=columns[kept // count], parents=kept % count))
        self._tokens, self._values = tokens[kept], values[kept]
        self._note_best()

    def _promising(self, tokens: Ints, values: Floats, shrink: int, grow: int) -> Ints:
        """Partial choices that may still end within capacity and above the best packing known."""
        room = self._table.capacity - tokens
        bounds = values + self._relaxed.price * np.minimum(room, grow)
        alive = np.flatnonzero((room + shrink >= 0) & (bounds > self._value + self._relaxed.upper * _NOISE))
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


def _after(moves: Ints) -> Ints:
    """For each position, the sum of all moves behind it."""
    return np.cumsum(moves[::-1])[::-1] - moves


def _undominated(values: Floats) -> Ints:
    """Positions whose value exceeds all before them."""
    highest = np.maximum.accumulate(values)
    return np.flatnonzero(np.concatenate(([True], values[1:] > highest[:-1]))) if len(values) else np.empty(0, np.int64)
