"""Packing a whole prompt: every section within its share, and what one leaves lent to the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from contexture.pipeline.budget import allocate
from contexture.pipeline.greedy import worth
from contexture.pipeline.optimal import pack_optimal
from contexture.pipeline.pack import Item, Pack, Packing
from contexture.types import Budget, Section

_EMPTY = Packing(chosen={}, tokens=0, value=0.0, gap=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class SectionPacking:
    """One packing per section name; together they never exceed the budget."""

    sections: Mapping[str, Packing]

    @property
    def tokens(self) -> int:
        """What all sections cost together."""
        return sum(packing.tokens for packing in self.sections.values())

    @property
    def value(self) -> float:
        """What all sections are worth together."""
        return sum(packing.value for packing in self.sections.values())

    @property
    def chosen(self) -> Mapping[str, int]:
        """The option chosen per item id, over all sections."""
        return {item: option for packing in self.sections.values() for item, option in packing.chosen.items()}


def pack_sections(items: Sequence[Item], budget: Budget, pack: Pack = pack_optimal) -> SectionPacking:
    """Pack the items of every section within what `budget` grants it.

    Floors are honoured when there is demand, caps always, and a section that is not enabled stays
    empty. Room that a section could not use goes to the others, the one that left out the most
    valuable item first, so whatever is left out fits neither its cap nor the room left over.
    A section the budget does not name takes part without floor or cap. When no section has a floor,
    a cap or a weight of its own, all are packed as one.
    """
    sections = _all_sections(items, budget)
    groups = {section.name: [item for item in items if item.section == section.name] for section in sections}
    if all(section == Section(name=section.name) for section in sections):
        return SectionPacking(sections=_split(groups, pack(items, budget.available)))
    shares = allocate(budget.available, [_weighed(section, groups) for section in sections], _demand(groups))
    packed = {
        section.name: pack(groups[section.name], min(shares[section.name], budget.available))
        if section.enabled
        else _EMPTY
        for section in sections
    }
    return SectionPacking(sections=_lend(sections, groups, packed, shares, budget.available, pack))


def _all_sections(items: Sequence[Item], budget: Budget) -> list[Section]:
    named = {section.name: section for section in budget.sections}
    return [
        *named.values(),
        *(Section(name=name) for name in dict.fromkeys(item.section for item in items) if name not in named),
    ]


def _weighed(section: Section, groups: Mapping[str, Sequence[Item]]) -> Section:
    """The section with its weight multiplied by how much relevance it has to offer."""
    return replace(section, weight=section.weight * sum(worth(item) for item in groups[section.name]))


def _demand(groups: Mapping[str, Sequence[Item]]) -> dict[str, int]:
    return {
        name: sum(max((option.tokens for option in item.options), default=0) for item in group)
        for name, group in groups.items()
    }


def _split(groups: Mapping[str, Sequence[Item]], whole: Packing) -> dict[str, Packing]:
    """One packing as one per section; the gap was proven for all of them together."""
    return {name: _part(group, whole) for name, group in groups.items()}


def _part(group: Sequence[Item], whole: Packing) -> Packing:
    taken = {item.id: item.options[whole.chosen[item.id]] for item in group if item.id in whole.chosen}
    return Packing(
        chosen={item: whole.chosen[item] for item in taken},
        tokens=sum(option.tokens for option in taken.values()),
        value=sum(option.value for option in taken.values()),
        gap=whole.gap,
    )


def _lend(
    sections: Sequence[Section],
    groups: Mapping[str, Sequence[Item]],
    packed: dict[str, Packing],
    shares: Mapping[str, int],
    total: int,
    pack: Pack,
) -> dict[str, Packing]:
    room = total - sum(packing.tokens for packing in packed.values())
    order = sorted(sections, key=lambda section: -_left_out(groups[section.name], packed[section.name]))
    for section in order:
        if not section.enabled or room <= 0:
            continue
        limit = packed[section.name].tokens + room
        if section.cap is not None:
            limit = min(limit, section.cap)
        if limit > shares[section.name]:  # else what it has is already the best that fits
            more = pack(groups[section.name], limit)
            room += packed[section.name].tokens - more.tokens
            packed[section.name] = more
    return packed


def _left_out(group: Sequence[Item], packing: Packing) -> float:
    return max((worth(item) for item in group if item.id not in packing.chosen), default=0.0)
