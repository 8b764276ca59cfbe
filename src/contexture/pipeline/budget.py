"""How many tokens each section of a prompt may spend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from contexture.types import Section


def allocate(total: int, sections: Sequence[Section], demand: Mapping[str, int]) -> dict[str, int]:
    """Tokens for each section name, given how many each could use.

    * Nobody gets more than it can use, nor more than its `cap`; a section that is not enabled gets 0.
    * Floors come first. When the floors in use add up to more than `total`, all are scaled down alike.
    * What is left is lent by `weight`; sections of weight 0 borrow only what nobody else can use.
    * Nothing is wasted: the sum is `total`, or everything that was asked for if that is less.

    allocate(100, [Section(name="a", floor=60), Section(name="b")], {"a": 10, "b": 500})  # a: 10, b: 90
    """
    ceilings = [_ceiling(section, demand.get(section.name, 0)) for section in sections]
    floors = [min(max(0, section.floor), ceiling) for section, ceiling in zip(sections, ceilings, strict=True)]
    given = pour(max(0, total), floors, floors)
    for weights in ([section.weight for section in sections], [1.0] * len(sections)):
        room = max(0, total) - sum(given)
        open_room = [ceiling - got for ceiling, got in zip(ceilings, given, strict=True)]
        given = [got + more for got, more in zip(given, pour(room, open_room, weights), strict=True)]
    return {section.name: got for section, got in zip(sections, given, strict=True)}


def pour(room: int, ceilings: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Whole shares of `room` in proportion to `weights`, none above its ceiling, as much as fits.

    What a full share cannot take flows on to the others. Odd tokens go to the largest fractions,
    then to the first. A weight of 0 gets nothing.
    """
    wanted = [max(0, ceiling) if weight > 0 else 0 for ceiling, weight in zip(ceilings, weights, strict=True)]
    if room <= 0 or sum(wanted) <= room:  # nothing to share out, or enough for everyone
        return wanted if room > 0 else [0] * len(wanted)
    exact = [Fraction(weight) if weight > 0 else Fraction(0) for weight in weights]
    level = _level(room, ceilings, exact)
    shares = [min(Fraction(ceiling), level * weight) for ceiling, weight in zip(ceilings, exact, strict=True)]
    given = [int(share) for share in shares]
    odd = min(room, int(sum(shares))) - sum(given)
    by_fraction = sorted(range(len(given)), key=lambda at: (given[at] - shares[at], at))
    for at in by_fraction[:odd]:
        given[at] += 1
    return given


def _level(room: int, ceilings: Sequence[int], weights: Sequence[Fraction]) -> Fraction:
    """How high the water stands: the share of one unit of weight when `room` is poured."""
    left, width, level = Fraction(max(0, room)), sum(weights, Fraction(0)), Fraction(0)
    vessels = sorted((ceiling / weight, weight) for ceiling, weight in zip(ceilings, weights, strict=True) if weight)
    for height, weight in vessels:
        if (height - level) * width >= left:
            return level + left / width
        left -= (height - level) * width
        level, width = height, width - weight
    return level


def _ceiling(section: Section, demand: int) -> int:
    if not section.enabled:
        return 0
    return max(0, demand if section.cap is None else min(demand, section.cap))
