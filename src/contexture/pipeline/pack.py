"""What packers speak: items with alternative forms, and the choice made among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

_ROUNDING = 1e-12


class Option(NamedTuple):
    """One form of an item: what it costs and what it is worth, neither below 0."""

    tokens: int
    value: float


@dataclass(frozen=True, slots=True)
class Item:
    """Something to pack in at most one of its forms; items are given best-ranked first."""

    id: str
    options: tuple[Option, ...]
    section: str = "context"


@dataclass(frozen=True, kw_only=True, slots=True)
class Packing:
    """The option chosen per item id, in the order of the items.

    `gap` bounds what a better choice could gain, as a share of the best value possible:
    0.0 is proven optimal.
    """

    chosen: Mapping[str, int]
    tokens: int
    value: float
    gap: float


Pack: TypeAlias = Callable[[Sequence[Item], int], Packing]
"""Chooses options whose tokens add up to at most the capacity.

Whatever it leaves out would not fit in the room left over, and equal input gives equal output.
"""


def packing(items: Sequence[Item], chosen: Mapping[int, int], upper: float) -> Packing:
    """The packing that takes option `chosen[position]` of the item there; `upper` bounds any value."""
    taken = {at: items[at].options[chosen[at]] for at in sorted(chosen)}
    value = math.fsum(option.value for option in taken.values())
    return Packing(
        chosen={items[at].id: chosen[at] for at in taken},
        tokens=sum(option.tokens for option in taken.values()),
        value=value,
        gap=_gap(value, upper),
    )


def _gap(value: float, upper: float) -> float:
    gap = (upper - value) / upper if upper > 0 else 0.0
    return gap if gap > _ROUNDING else 0.0


def best_fitting(options: Sequence[Option], room: int) -> int | None:
    """The most valuable option that fits, the cheapest of equals; None when none does."""
    if not options or min(options).tokens > room:
        return None
    fitting = [at for at, option in enumerate(options) if option.tokens <= room]
    return min(fitting, key=lambda at: (-options[at].value, options[at].tokens, at))


def most_valuable(options: Sequence[Option]) -> int:
    """The most valuable option, the cheapest of equals."""
    if len(options) == 1:
        return 0
    return min(range(len(options)), key=lambda at: (-options[at].value, options[at].tokens, at))


def fill(items: Sequence[Item], order: Iterable[int], chosen: dict[int, int], room: int) -> None:
    """Add to `chosen` every item not in it that still fits in `room`, taken in this order."""
    for at in order:
        if at not in chosen and (option := best_fitting(items[at].options, room)) is not None:
            chosen[at] = option
            room -= items[at].options[option].tokens
