"""Packs by the sum of parts, counts the whole, and corrects until the rendered prompt really fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from contexture.errors import BudgetTooSmall
from contexture.pipeline.pack import Item, Pack, Packing

_ROUNDS = 4
_CLOSE = 100  # a hundredth of the limit left over is not worth another round


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """A choice whose rendered prompt costs `tokens`; `capacity` is what the packer was given for it."""

    packing: Packing
    tokens: int
    capacity: int


def fit(items: Sequence[Item], limit: int, pack: Pack, count: Callable[[Mapping[str, int]], int]) -> Fitted:
    """The best choice found whose prompt, rendered and counted as a whole, is within `limit`.

    Tokens of joined texts are not the sum of their parts, so the packer's capacity is moved by what
    the last count was off, a few times, and the most valuable choice that fits wins. Raises
    `BudgetTooSmall` when the prompt is too large even without any item.
    """
    fixed = count({})
    if fixed > limit:
        raise BudgetTooSmall(needed=fixed, available=limit)
    capacity = limit - fixed
    best = Fitted(packing=pack((), capacity), tokens=fixed, capacity=capacity)
    tried: set[int] = set()
    while items and capacity > 0 and capacity not in tried:
        tried.add(capacity)
        packing = pack(items, capacity)
        used = count(packing.chosen)
        if used <= limit and _worth(packing) > _worth(best.packing):
            best = Fitted(packing=packing, tokens=used, capacity=capacity)
        if _settled(items, packing, limit - used, limit) or (len(tried) >= _ROUNDS and best.packing.chosen):
            break
        capacity += limit - used
    return best


def _worth(packing: Packing) -> tuple[float, int]:
    """What decides between choices: their value, and where that is equal, showing more."""
    return packing.value, len(packing.chosen)


def _settled(items: Sequence[Item], packing: Packing, slack: int, limit: int) -> bool:
    """Whether nothing is to be gained: it fits, and what is left over is little, or too little for any other item."""
    if slack < 0:
        return False
    others = (option.tokens for item in items if item.id not in packing.chosen for option in item.options)
    return slack * _CLOSE <= limit or slack < min(others, default=slack + 1)
