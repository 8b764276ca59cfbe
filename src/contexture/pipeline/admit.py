"""What would have admitted an item that a packer left out; computed on demand by packing again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from contexture.errors import NotFound
from contexture.pipeline.greedy import worth
from contexture.pipeline.pack import Item, Option, Pack

_PRECISION = 1e-6
_HALVINGS = 60


def tokens_needed(
    items: Sequence[Item], capacity: int, item_id: str, pack: Pack, *, limit: int | None = None
) -> int | None:
    """A capacity at which `item_id` is chosen while one token less would not do.

    Returns `capacity` when it is chosen already, and None when it is not even at `limit` (by default
    the room for everything). Packers may drop an item again at a larger capacity, so there may be a
    smaller answer; the one given has been packed and does admit the item.
    """
    _find(items, item_id)
    if item_id in pack(items, capacity).chosen:
        return capacity
    most = _everything(items) if limit is None else limit
    if most <= capacity or item_id not in pack(items, most).chosen:
        return None
    low, high = capacity, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if item_id in pack(items, middle).chosen else (middle, high)
    return high


def value_needed(items: Sequence[Item], capacity: int, item_id: str, pack: Pack) -> float | None:
    """A value of the item's best form, smallest to six digits, at which it is chosen at this capacity.

    Its other forms are scaled alike. Returns its present value when it is chosen already, and None
    when no form fits at all. The value given has been packed and does admit the item.
    """
    item = _find(items, item_id)
    if not any(option.tokens <= capacity for option in item.options):
        return None

    def admits(value: float) -> bool:
        changed = [_worth(each, value) if each.id == item_id else each for each in items]
        return item_id in pack(changed, capacity).chosen

    present = worth(item)
    if item_id in pack(items, capacity).chosen:
        return present
    enough = _enough(items, present, admits)
    return None if enough is None else _bisect(present, enough, admits)


def _enough(items: Sequence[Item], present: float, admits: Callable[[float], bool]) -> float | None:
    """A value that admits: beyond the worth of all others together no packer should refuse."""
    value = 2.0 * max(present, sum(worth(item) for item in items), 1.0)
    for _ in range(_HALVINGS):
        if admits(value):
            return value
        value *= 2.0
    return None


def _bisect(low: float, high: float, admits: Callable[[float], bool]) -> float:
    for _ in range(_HALVINGS):
        if high - low <= _PRECISION * high:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if admits(middle) else (middle, high)
    return high


def _worth(item: Item, value: float) -> Item:
    """The item with its best form worth `value` and the others in proportion."""
    best = worth(item)
    shares = [option.value / best if best else 1.0 for option in item.options]
    options = tuple(Option(option.tokens, value * share) for option, share in zip(item.options, shares, strict=True))
    return replace(item, options=options)


def _find(items: Sequence[Item], item_id: str) -> Item:
    for item in items:
        if item.id == item_id:
            return item
    raise NotFound(f"there is no item {item_id!r} to admit")


def _everything(items: Sequence[Item]) -> int:
    return sum(max((option.tokens for option in item.options), default=0) for item in items)
