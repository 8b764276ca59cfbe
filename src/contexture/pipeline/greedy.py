"""Packing in ranking order: what an engineer would do by hand, and a yardstick for the optimal packer."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.pipeline.pack import Item, Packing, fill, packing
from contexture.pipeline.relaxation import upper_bound


def pack_greedy(items: Sequence[Item], capacity: int) -> Packing:
    """Take items from the most valuable down, each in the best form that still fits.

    Items of equal value keep the order given. One that does not fit in any form never blocks
    smaller ones after it.
    """
    chosen: dict[int, int] = {}
    fill(items, sorted(range(len(items)), key=lambda at: -worth(items[at])), chosen, capacity)
    return packing(items, chosen, upper_bound(items, capacity))


def worth(item: Item) -> float:
    """The value of the item's best form, whatever it costs."""
    return max((option.value for option in item.options), default=0.0)
