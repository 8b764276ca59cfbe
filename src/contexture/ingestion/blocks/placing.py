"""Gives every block of a document its id, order and time, so that what did not change stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise

from contexture.ingestion.blocks.alignment import Aligned, align
from contexture.ingestion.blocks.draft import Document, Draft, drafts, made_id
from contexture.ingestion.blocks.memory import HINT, Kept, KeptDocument
from contexture.types import PUBLIC
from contexture.workspace import Block

_LEAST = 1e-6  # between two orders; closer ones are numbered anew


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A document as blocks, which of them must be written, what to remember, and ids that were given before."""

    blocks: tuple[Block, ...]
    fresh: tuple[Block, ...]
    kept: KeptDocument
    repeated: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ids:
    """The ids that one import has given out, each to one block, and those that the last import gave."""

    given: set[str] = field(default_factory=set[str])
    earlier: frozenset[str] = frozenset()
    tried: dict[tuple[str, ...], int] = field(default_factory=dict[tuple[str, ...], int])

    def free(self, *parts: str) -> str:
        """An id made from the parts, that nothing else has."""
        number = self.tried.get(parts, 0)  # of thousands of equal siblings none looks through those before it
        while (found := made_id(*parts, str(number))) in self.given or found in self.earlier:
            number += 1
        self.tried[parts] = number
        return found


def place(document: Document, before: KeptDocument | None, ids: Ids, *, source: str) -> Placed:
    """The blocks of a document, parents before their children; `before` is what it was at the last import.

    A block keeps its id and order when it was edited or when others came between, and its time when it says the
    same. New ids depend on the source, the path and the text alone, so that an interrupted import can be repeated; and
    on who may read the document where not everyone may, so that it meets no other that its writer cannot see.
    """
    was = before or KeptDocument(blocks=())
    top = document.root.known or (was.blocks[0].id if was.blocks else ids.free(source, *_named(document)))
    own = [top if above is None else _own(draft, top) for draft, above in drafts(document.root)]
    placing = _Placing(document, own, align(document.root, own, was), ids)
    blocks, kept = placing.run()
    stored = {each.id: each for each in was.blocks}
    return Placed(
        blocks=tuple(blocks),
        fresh=tuple(
            block
            for block, now in zip(blocks, kept, strict=True)
            if not _same(now, kept, stored.get(now.id), was) or (now.parent < 0 and was.under != document.under)
        ),
        kept=KeptDocument(blocks=tuple(kept), under=document.under),
        repeated=tuple(placing.repeated),
    )


class _Placing:
    def __init__(self, document: Document, own: Sequence[str], aligned: Aligned, ids: Ids) -> None:
        self._document = document
        self._own = own
        self._aligned = aligned
        self._ids = ids
        self.repeated: list[str] = []

    def run(self) -> tuple[list[Block], list[Kept]]:
        rows = list(drafts(self._document.root))
        place = {id(draft): at for at, (draft, _) in enumerate(rows)}
        orders = self._orders(rows, place)
        blocks: list[Block] = []
        kept: list[Kept] = []
        for at, (draft, above) in enumerate(rows):
            parent = -1 if above is None else place[id(above)]
            block = self._block(at, draft, blocks[parent].id if parent >= 0 else self._document.under, orders[at])
            blocks.append(block)
            kept.append(_kept(block, draft, parent))
        return blocks, kept

    def _block(self, at: int, draft: Draft, parent: str | None, order: float) -> Block:
        before = self._aligned.was.get(at)
        unchanged = before is not None and before.digest == draft.digest
        modified = _moment(before.modified) if before is not None and unchanged else draft.modified
        return Block(
            id=self._id(at, draft, parent),
            type=draft.type,
            text=draft.text,
            parent=parent,
            order=order,
            properties=draft.properties,
            readers=draft.readers,
            author=draft.author,
            created=draft.created,
            modified=modified,
        )

    def _id(self, at: int, draft: Draft, parent: str | None) -> str:
        before, own = self._aligned.was.get(at), self._own[at]
        if own and own not in self._ids.given:
            return self._take(own)
        if own:
            self.repeated.append(own)
        elif before is not None and before.id not in self._ids.given:
            return self._take(before.id)
        return self._take(self._ids.free(parent or self._document.path, draft.digest))

    def _take(self, name: str) -> str:
        self._ids.given.add(name)
        return name

    def _orders(self, rows: Sequence[tuple[Draft, Draft | None]], place: dict[int, int]) -> list[float]:
        orders = [0.0] * len(rows)
        orders[0] = self._document.order
        for draft, _ in rows:
            below = [place[id(child)] for child in draft.children]
            held = [self._aligned.was[at].order if at in self._aligned.stays else None for at in below]
            for at, order in zip(below, spread(held), strict=True):
                orders[at] = order
        return orders


def _named(document: Document) -> tuple[str, ...]:
    """What tells a document from the others of its name."""
    readers = document.root.readers
    return (document.path, *(() if readers is None or PUBLIC in readers else sorted(set(readers))))


def _own(draft: Draft, top: str) -> str:
    """The id that a block has of its own, if it has one."""
    return draft.known or (made_id(top, draft.key) if draft.key else "")


def spread(held: Sequence[float | None]) -> list[float]:
    """Rising numbers: those held stay, the others are put between; 1, 2, 3, ... where there is no room for that."""
    found: list[float] = []
    waiting = 0
    for order in held:
        if order is None:
            waiting += 1
            continue
        found.extend(_between(found[-1] if found else None, order, waiting))
        found.append(order)
        waiting = 0
    found.extend(_between(found[-1] if found else None, None, waiting))
    rising = all(later - earlier >= _LEAST for earlier, later in pairwise(found))
    return found if rising else [float(number) for number in range(1, len(held) + 1)]


def _between(low: float | None, high: float | None, count: int) -> list[float]:
    if high is None:
        return [(low or 0.0) + number for number in range(1, count + 1)]
    start = high - count - 1 if low is None else low
    step = (high - start) / (count + 1)
    return [start + step * number for number in range(1, count + 1)]


def _kept(block: Block, draft: Draft, parent: int) -> Kept:
    return Kept(
        id=block.id,
        digest=draft.digest,
        hint=draft.text[:HINT],
        parent=parent,
        order=block.order,
        modified=block.modified.timestamp() if block.modified else None,
    )


def _same(now: Kept, kept: Sequence[Kept], before: Kept | None, was: KeptDocument) -> bool:
    if before is None or (now.digest, now.order) != (before.digest, before.order):
        return False
    above = kept[now.parent].id if now.parent >= 0 else None
    return above == (was.blocks[before.parent].id if before.parent >= 0 else None)


def _moment(stamp: float | None) -> datetime | None:
    return None if stamp is None else datetime.fromtimestamp(stamp, UTC)
