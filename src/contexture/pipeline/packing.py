"""Packing items into a token budget.

Types of items with alternative forms and of packing results, `fit_prompt`, which repacks until the rendered prompt
fits, and the verdicts that follow from it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from contexture.errors import BudgetTooSmall
from contexture.ledger import Reason, Trace
from contexture.text.skeleton import describe_invisible
from contexture.types import Candidate, Variant

_ROUNDING_GAP = 1e-12


class PackingOption(NamedTuple):
    """One form of an item: its cost in tokens and its value, neither below 0."""

    tokens: int
    value: float


@dataclass(frozen=True, slots=True)
class PackingItem:
    """An item to pack in at most one of its forms; items are given best-ranked first."""

    id: str
    options: tuple[PackingOption, ...]
    section: str = "context"


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingResult:
    """The option chosen per item id, in the order of the items.

    `gap` is an upper bound on the value that a better choice could gain, as a share of the highest
    possible value; 0.0 means proven optimal.
    """

    chosen: Mapping[str, int]
    tokens: int
    value: float
    gap: float


PackFunction: TypeAlias = Callable[[Sequence[PackingItem], int], PackingResult]
"""Chooses options whose tokens add up to at most the capacity.

No item it leaves out fits in the remaining capacity, and equal input gives equal output.
"""


VariantsById: TypeAlias = Mapping[str, Sequence[Variant]]
"""The variants of each candidate by its id, the full one first."""


def make_pack_items(candidates: Sequence[Candidate], forms: VariantsById) -> list[PackingItem]:
    """The candidates as items for a packer: one option per variant."""
    return [
        PackingItem(each.id, tuple(PackingOption(form.tokens, form.value) for form in forms[each.id]), each.section)
        for each in candidates
    ]


def record_verdicts(
    candidates: Sequence[Candidate], forms: VariantsById, shown: Mapping[str, Variant], trace: Trace
) -> None:
    """Record each candidate as kept in the variant of `shown`, or as over budget when it has none there.

    The note of a kept one says how many invisible characters of its text are not shown.
    """
    for candidate in candidates:
        form = shown.get(candidate.id)
        if form is None:
            trace.drop(candidate, Reason.OVER_BUDGET, tokens=forms[candidate.id][0].tokens)
        else:
            trace.keep(candidate, tokens=form.tokens, form=form.form, note=describe_invisible(candidate.text))


def make_result(items: Sequence[PackingItem], chosen: Mapping[int, int], upper: float) -> PackingResult:
    """The packing with option `chosen[position]` of each item; `upper` is a bound on the value of any packing."""
    taken = {at: items[at].options[chosen[at]] for at in sorted(chosen)}
    value = math.fsum(option.value for option in taken.values())
    return PackingResult(
        chosen={items[at].id: chosen[at] for at in taken},
        tokens=sum(option.tokens for option in taken.values()),
        value=value,
        gap=_optimality_gap(value, upper),
    )


def _optimality_gap(value: float, upper: float) -> float:
    gap = (upper - value) / upper if upper > 0 else 0.0
    return gap if gap > _ROUNDING_GAP else 0.0


def best_fitting_option(options: Sequence[PackingOption], room: int) -> int | None:
    """The index of the most valuable option that fits, the cheapest of equals; None when none fits."""
    if not options or min(options).tokens > room:
        return None
    fitting = [at for at, option in enumerate(options) if option.tokens <= room]
    return min(fitting, key=lambda at: (-options[at].value, options[at].tokens, at))


def most_valuable_option(options: Sequence[PackingOption]) -> int:
    """The index of the most valuable option, the cheapest of equals."""
    if len(options) == 1:
        return 0
    return min(range(len(options)), key=lambda at: (-options[at].value, options[at].tokens, at))


def add_fitting_items(items: Sequence[PackingItem], order: Iterable[int], chosen: dict[int, int], room: int) -> None:
    """Add to `chosen` every other item that still fits in `room`, in this order, in its best fitting form."""
    for at in order:
        if at not in chosen and (option := best_fitting_option(items[at].options, room)) is not None:
            chosen[at] = option
            room -= items[at].options[option].tokens


_MAX_ROUNDS = 4
_SLACK_DIVISOR = 100  # a hundredth of the limit unused is not worth another round


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedPacking:
    """A packing whose rendered prompt has `tokens` tokens; `capacity` is what the packer was given."""

    packing: PackingResult
    tokens: int
    capacity: int


def fit_prompt(
    items: Sequence[PackingItem], limit: int, pack: PackFunction, count: Callable[[Mapping[str, int]], int]
) -> FittedPacking:
    """The best packing found whose prompt, rendered and counted as a whole, is within `limit`.

    The token count of joined texts is not the sum of their parts, so the packer's capacity is corrected
    by the last difference, a few times, and the most valuable packing that fits is returned. Raises
    `BudgetTooSmall` when the prompt is too large even without any item.
    """
    fixed = count({})
    if fixed > limit:
        raise BudgetTooSmall(needed=fixed, available=limit)
    capacity = limit - fixed
    best = FittedPacking(packing=pack((), capacity), tokens=fixed, capacity=capacity)
    tried: set[int] = set()
    while items and capacity > 0 and capacity not in tried:
        tried.add(capacity)
        packing = pack(items, capacity)
        used = count(packing.chosen)
        if used <= limit and _preference(packing) > _preference(best.packing):
            best = FittedPacking(packing=packing, tokens=used, capacity=capacity)
        if _is_settled(items, packing, limit - used, limit) or (len(tried) >= _MAX_ROUNDS and best.packing.chosen):
            break
        capacity += limit - used
    return best


def _preference(packing: PackingResult) -> tuple[float, int]:
    """The sort key of packings: value, then number of items."""
    return packing.value, len(packing.chosen)


def _is_settled(items: Sequence[PackingItem], packing: PackingResult, slack: int, limit: int) -> bool:
    """Whether another round is useless: the prompt fits, and the slack is small or too small for any other item."""
    if slack < 0:
        return False
    others = (option.tokens for item in items if item.id not in packing.chosen for option in item.options)
    return slack * _SLACK_DIVISOR <= limit or slack < min(others, default=slack + 1)
