"""Packs a whole prompt: every section within its share of the token budget; unused tokens go to other sections."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from contexture.pipeline.knapsack import best_value, pack_optimal
from contexture.pipeline.packing import PackFunction, PackingItem, PackingResult
from contexture.types import Budget, Section

_EMPTY_PACKING = PackingResult(chosen={}, tokens=0, value=0.0, gap=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class SectionPacking:
    """One packing per section name; together they never exceed the budget."""

    sections: Mapping[str, PackingResult]

    @property
    def tokens(self) -> int:
        """Total tokens of all sections."""
        return sum(packing.tokens for packing in self.sections.values())

    @property
    def value(self) -> float:
        """Total value of all sections."""
        return sum(packing.value for packing in self.sections.values())

    @property
    def chosen(self) -> Mapping[str, int]:
        """The option chosen per item id, over all sections."""
        return {item: option for packing in self.sections.values() for item, option in packing.chosen.items()}


def pack_sections(items: Sequence[PackingItem], budget: Budget, pack: PackFunction = pack_optimal) -> SectionPacking:
    """Pack the items of every section within the tokens `budget` allocates to it.

    Floors apply as far as there is demand, caps always, and a section that is not enabled stays
    empty. Tokens that a section cannot use go to the others, first to the one that left out the most
    valuable item, so every item left out exceeds its section's cap or the remaining tokens.
    A section missing in the budget has no floor or cap. When no section has a floor, a cap or a weight
    of its own, all are packed together.
    """
    sections = _all_sections(items, budget)
    groups = {section.name: [item for item in items if item.section == section.name] for section in sections}
    if all(section == Section(name=section.name) for section in sections):
        return SectionPacking(sections=_split_by_section(groups, pack(items, budget.available)))
    shares = allocate_tokens(
        budget.available, [_weight_by_relevance(section, groups) for section in sections], _demanded_tokens(groups)
    )
    packed = {
        section.name: pack(groups[section.name], min(shares[section.name], budget.available))
        if section.enabled
        else _EMPTY_PACKING
        for section in sections
    }
    return SectionPacking(sections=_lend_spare_tokens(sections, groups, packed, shares, budget.available, pack))


def _all_sections(items: Sequence[PackingItem], budget: Budget) -> list[Section]:
    named = {section.name: section for section in budget.sections}
    return [
        *named.values(),
        *(Section(name=name) for name in dict.fromkeys(item.section for item in items) if name not in named),
    ]


def _weight_by_relevance(section: Section, groups: Mapping[str, Sequence[PackingItem]]) -> Section:
    """The section with its weight multiplied by the total value of its items."""
    return replace(section, weight=section.weight * sum(best_value(item) for item in groups[section.name]))


def _demanded_tokens(groups: Mapping[str, Sequence[PackingItem]]) -> dict[str, int]:
    return {
        name: sum(max((option.tokens for option in item.options), default=0) for item in group)
        for name, group in groups.items()
    }


def _split_by_section(groups: Mapping[str, Sequence[PackingItem]], whole: PackingResult) -> dict[str, PackingResult]:
    """One packing split by section; the gap is that of the whole packing."""
    return {name: _section_share(group, whole) for name, group in groups.items()}


def _section_share(group: Sequence[PackingItem], whole: PackingResult) -> PackingResult:
    taken = {item.id: item.options[whole.chosen[item.id]] for item in group if item.id in whole.chosen}
    return PackingResult(
        chosen={item: whole.chosen[item] for item in taken},
        tokens=sum(option.tokens for option in taken.values()),
        value=sum(option.value for option in taken.values()),
        gap=whole.gap,
    )


def _lend_spare_tokens(
    sections: Sequence[Section],
    groups: Mapping[str, Sequence[PackingItem]],
    packed: dict[str, PackingResult],
    shares: Mapping[str, int],
    total: int,
    pack: PackFunction,
) -> dict[str, PackingResult]:
    room = total - sum(packing.tokens for packing in packed.values())
    order = sorted(sections, key=lambda section: -_best_left_out_value(groups[section.name], packed[section.name]))
    for section in order:
        if not section.enabled or room <= 0:
            continue
        limit = packed[section.name].tokens + room
        if section.cap is not None:
            limit = min(limit, section.cap)
        if limit > shares[section.name]:  # otherwise its packing is already the best that fits
            more = pack(groups[section.name], limit)
            room += packed[section.name].tokens - more.tokens
            packed[section.name] = more
    return packed


def _best_left_out_value(group: Sequence[PackingItem], packing: PackingResult) -> float:
    return max((best_value(item) for item in group if item.id not in packing.chosen), default=0.0)


def allocate_tokens(total: int, sections: Sequence[Section], demand: Mapping[str, int]) -> dict[str, int]:
    """Tokens for each section name, given how many each could use.

    * No section gets more than it can use, nor more than its `cap`; a section that is not enabled gets 0.
    * Floors come first. When the floors in use add up to more than `total`, all are scaled down proportionally.
    * The rest is divided by `weight`; sections of weight 0 get only what no other section can use.
    * Nothing is wasted: the sum is `total`, or the total demand if that is less.

    allocate_tokens(100, [Section(name="a", floor=60), Section(name="b")], {"a": 10, "b": 500})  # a: 10, b: 90
    """
    ceilings = [_section_ceiling(section, demand.get(section.name, 0)) for section in sections]
    floors = [min(max(0, section.floor), ceiling) for section, ceiling in zip(sections, ceilings, strict=True)]
    given = water_fill(max(0, total), floors, floors)
    for weights in ([section.weight for section in sections], [1.0] * len(sections)):
        room = max(0, total) - sum(given)
        open_room = [ceiling - got for ceiling, got in zip(ceilings, given, strict=True)]
        given = [got + more for got, more in zip(given, water_fill(room, open_room, weights), strict=True)]
    return {section.name: got for section, got in zip(sections, given, strict=True)}


def water_fill(room: int, ceilings: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Integer shares of `room` in proportion to `weights`, none above its ceiling, using as much as possible.

    What exceeds a ceiling is divided among the others. Remaining single tokens go to the largest
    fractions, ties to the first. A weight of 0 gets nothing.
    """
    wanted = [max(0, ceiling) if weight > 0 else 0 for ceiling, weight in zip(ceilings, weights, strict=True)]
    if room <= 0 or sum(wanted) <= room:  # nothing to divide, or enough for all
        return wanted if room > 0 else [0] * len(wanted)
    exact = [Fraction(weight) if weight > 0 else Fraction(0) for weight in weights]
    level = _water_level(room, ceilings, exact)
    shares = [min(Fraction(ceiling), level * weight) for ceiling, weight in zip(ceilings, exact, strict=True)]
    given = [int(share) for share in shares]
    odd = min(room, int(sum(shares))) - sum(given)
    by_fraction = sorted(range(len(given)), key=lambda at: (given[at] - shares[at], at))
    for at in by_fraction[:odd]:
        given[at] += 1
    return given


def _water_level(room: int, ceilings: Sequence[int], weights: Sequence[Fraction]) -> Fraction:
    """The water level: the share of one unit of weight at which all shares add up to `room`."""
    left, width, level = Fraction(max(0, room)), sum(weights, Fraction(0)), Fraction(0)
    vessels = sorted((ceiling / weight, weight) for ceiling, weight in zip(ceilings, weights, strict=True) if weight)
    for height, weight in vessels:
        if (height - level) * width >= left:
            return level + left / width
        left -= (height - level) * width
        level, width = height, width - weight
    return level


def _section_ceiling(section: Section, demand: int) -> int:
    if not section.enabled:
        return 0
    return max(0, demand if section.cap is None else min(demand, section.cap))
