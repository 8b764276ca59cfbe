"""One round of deliveries: in batches by scope, and one by one where a batch is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from contexture.adapters.outbox.rows import Item
from contexture.errors import ContextError, ContractError, SourceError
from contexture.ports import MemoryService
from contexture.types import Scope

_OUTAGE = 3  # refusals in a row, with nothing taken, after which the rest of a round is not tried


@dataclass(slots=True)
class Round:
    """What became of the items of one round; an item is in exactly one of the three lists."""

    taken: list[Item] = field(default_factory=list[Item])
    failed: list[tuple[Item, ContextError]] = field(default_factory=list[tuple[Item, ContextError]])
    untried: list[Item] = field(default_factory=list[Item])

    @property
    def outage(self) -> bool:
        """Whether the service takes nothing at all, as far as this round can tell."""
        downs = sum(isinstance(failure, SourceError) for _, failure in self.failed)
        return not self.taken and downs >= _OUTAGE

    def blames(self, failure: ContextError) -> bool:
        """Whether a failure is the item's own: it was refused as such, or the service took others."""
        return bool(self.taken) or not isinstance(failure, SourceError)


async def deliver(memory: MemoryService, items: Sequence[Item], batch: int) -> Round:
    """Try the items, those of one scope together."""
    outcome = Round()
    for portion in _portions(items, batch):
        if outcome.outage:
            outcome.untried.extend(portion)
        elif len(portion) == 1 or not await _together(memory, portion, outcome):
            await _one_by_one(memory, portion, outcome)
    return outcome


def _portions(items: Sequence[Item], batch: int) -> list[list[Item]]:
    by_scope: dict[Scope, list[Item]] = {}
    for item in items:
        by_scope.setdefault(item.scope, []).append(item)
    return [group[at : at + batch] for group in by_scope.values() for at in range(0, len(group), batch)]


async def _together(memory: MemoryService, items: list[Item], outcome: Round) -> bool:
    if await _refusal(memory, items) is not None:
        return False
    outcome.taken.extend(items)
    return True


async def _one_by_one(memory: MemoryService, items: list[Item], outcome: Round) -> None:
    for item in items:
        if outcome.outage:
            outcome.untried.append(item)
        elif (failure := await _refusal(memory, [item])) is not None:
            outcome.failed.append((item, failure))
        else:
            outcome.taken.append(item)


async def _refusal(memory: MemoryService, items: list[Item]) -> ContextError | None:
    """Why the items, which are of one scope, were not taken; None when they were.

    A service that breaks its contract is a refusal too: one item it stumbles over must not end all deliveries.
    """
    work = memory.remember(items[0].scope, [item.memory for item in items])
    (found,) = await asyncio.gather(work, return_exceptions=True)
    if isinstance(found, ContextError):
        return found
    if isinstance(found, Exception):
        return ContractError(f"the memory service raised {type(found).__name__}: {found}")
    if isinstance(found, BaseException):
        raise found
    return None
