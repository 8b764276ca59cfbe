"""The linear relaxation of packing: an upper bound on any value, and the price of a token at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from contexture.pipeline.pack import Item, Option

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

NOTHING = Option(0, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Table:
    """Options as matrices, one row per item; column 0, and every option that cannot fit, is nothing."""

    tokens: Ints
    values: Floats
    capacity: int


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Relaxation:
    """`upper` bounds every packing; `base` is the best column per item at `price` a token.

    `tokens` and `value` are those of `base`, which may be too large; `fitting` never is.
    """

    upper: float
    price: float
    base: Ints
    tokens: int
    value: float
    fitting: Ints


def tabulate(items: Sequence[Item], capacity: int) -> Table:
    """The options of `items` as matrices for this capacity."""
    width = 1 + max((len(item.options) for item in items), default=0)
    cells: list[Option] = []
    for item in items:
        cells.append(NOTHING)
        cells += [option if option.tokens <= capacity else NOTHING for option in item.options]
        cells += [NOTHING] * (width - 1 - len(item.options))
    shape = (len(items), width)
    return Table(
        tokens=np.array([option.tokens for option in cells], dtype=np.int64).reshape(shape),
        values=np.array([option.value for option in cells], dtype=np.float64).reshape(shape),
        capacity=capacity,
    )


def relax(table: Table) -> Relaxation:
    """Find the price of a token at which the best columns just fill the capacity.

    Each price gives a line that bounds the value of any packing. The lowest point of all lines is
    searched from both sides: a price too low overfills, one too high leaves room, and where the
    lines of the two meet is tried next.
    """
    low = _at(table, 0.0)
    if low.tokens <= table.capacity:
        return low
    high = _at(table, _prohibitive(table))
    best = min(low, high, key=lambda line: line.upper)
    while True:
        tried = _at(table, (low.value - high.value) / (low.tokens - high.tokens))
        best = min(best, tried, key=lambda line: line.upper)
        if not high.tokens < tried.tokens < low.tokens:
            return replace(best, fitting=high.base)
        low, high = (tried, high) if tried.tokens > table.capacity else (low, tried)


def upper_bound(items: Sequence[Item], capacity: int) -> float:
    """No packing of `items` within `capacity` is worth more than this."""
    return relax(tabulate(items, capacity)).upper if items and capacity >= 0 else 0.0


def _at(table: Table, price: float) -> Relaxation:
    """The best column per item when a token costs `price`, and the bound that it proves."""
    base = np.argmax(table.values - price * table.tokens, axis=1)
    rows = np.arange(len(base))
    tokens = int(table.tokens[rows, base].sum())
    value = float(table.values[rows, base].sum())
    upper = value + price * (table.capacity - tokens)
    return Relaxation(upper=upper, price=price, base=base, tokens=tokens, value=value, fitting=base)


def _prohibitive(table: Table) -> float:
    """A price at which nothing that costs tokens is worth having."""
    costly = table.tokens > 0
    ratios = table.values[costly] / table.tokens[costly]
    return 1.0 + 2.0 * float(ratios.max(initial=0.0))
