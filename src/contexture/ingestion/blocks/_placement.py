"""Gives imported blocks ids, order and times that are stable between imports.

The blocks of a document are aligned with those of the last import by id, content and position; unchanged blocks keep
their id, order and time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import SequenceMatcher
from itertools import pairwise

from msgspec.structs import replace

from contexture.ingestion.blocks.draft import BlockDraft, DraftDocument, make_block_id, walk_drafts
from contexture.ingestion.blocks.history import HINT_LENGTH, ImportedBlock, ImportedDocument
from contexture.types import PUBLIC
from contexture.workspace import Block

_MIN_ORDER_STEP = 1e-6  # minimum distance between two orders; closer ones are renumbered


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedDocument:
    """A document's blocks, those to write, the snapshot for the next import, and ids used more than once.

    `same_readers` are the ids of the blocks for which the last import named the same readers.
    """

    blocks: tuple[Block, ...]
    fresh: tuple[Block, ...]
    kept: ImportedDocument
    repeated: tuple[str, ...] = ()
    same_readers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class IdAllocator:
    """The ids used in one import, each for one block, and those of the previous import."""

    given: set[str] = field(default_factory=set[str])
    earlier: frozenset[str] = frozenset()
    tried: dict[tuple[str, ...], int] = field(default_factory=dict[tuple[str, ...], int])

    def unused_id(self, *parts: str) -> str:
        """Return an id derived from the parts that is not in use."""
        number = self.tried.get(parts, 0)  # so that thousands of equal siblings are not quadratic
        while (found := make_block_id(*parts, str(number))) in self.given or found in self.earlier:
            number += 1
        self.tried[parts] = number
        return found


def place_document(
    document: DraftDocument, before: ImportedDocument | None, ids: IdAllocator, *, source: str
) -> PlacedDocument:
    """Return the blocks of a document, parents before their children; `before` is its snapshot of the last import.

    A block keeps its id and order when it is edited or others are inserted, and its time when its content is unchanged.
    New ids depend only on the source, the path and the text, so that an interrupted import can be repeated. The ids of
    a document that is not public also depend on its readers, so that they do not collide with those of a document that
    the writer cannot see.
    """
    was = before or ImportedDocument(blocks=())
    top = document.root.known or (was.blocks[0].id if was.blocks else ids.unused_id(source, *_document_key(document)))
    own = [top if above is None else _own_id(draft, top) for draft, above in walk_drafts(document.root)]
    placing = _Placer(document, own, align_blocks(document.root, own, was), ids)
    stored = {each.id: each for each in was.blocks}
    blocks, drafted = placing.run()
    kept = [_without_forgotten_text(now, stored.get(now.id)) for now in drafted]
    return PlacedDocument(
        blocks=tuple(blocks),
        fresh=tuple(
            block
            for block, now in zip(blocks, kept, strict=True)
            if not _is_unchanged(now, kept, stored.get(now.id), was) or (now.parent < 0 and was.under != document.under)
        ),
        kept=ImportedDocument(blocks=tuple(kept), under=document.under),
        repeated=tuple(placing.repeated),
        same_readers=tuple(
            now.id for now in kept if (known := stored.get(now.id)) is not None and known.readers == now.readers
        ),
    )


class _Placer:
    def __init__(self, document: DraftDocument, own: Sequence[str], aligned: BlockAlignment, ids: IdAllocator) -> None:
        self._document = document
        self._own = own
        self._aligned = aligned
        self._ids = ids
        self.repeated: list[str] = []

    def run(self) -> tuple[list[Block], list[ImportedBlock]]:
        rows = list(walk_drafts(self._document.root))
        place = {id(draft): at for at, (draft, _) in enumerate(rows)}
        orders = self._assign_orders(rows, place)
        blocks: list[Block] = []
        kept: list[ImportedBlock] = []
        for at, (draft, above) in enumerate(rows):
            parent = -1 if above is None else place[id(above)]
            block = self._build_block(at, draft, blocks[parent].id if parent >= 0 else self._document.under, orders[at])
            blocks.append(block)
            kept.append(_to_imported(block, draft, parent))
        return blocks, kept

    def _build_block(self, at: int, draft: BlockDraft, parent: str | None, order: float) -> Block:
        before = self._aligned.was.get(at)
        unchanged = before is not None and before.digest == draft.digest
        modified = _to_datetime(before.modified) if before is not None and unchanged else draft.modified
        return Block(
            id=self._choose_id(at, draft, parent),
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

    def _choose_id(self, at: int, draft: BlockDraft, parent: str | None) -> str:
        before, own = self._aligned.was.get(at), self._own[at]
        if own and own not in self._ids.given:
            return self._reserve_id(own)
        if own:
            self.repeated.append(own)
        elif before is not None and before.id not in self._ids.given:
            return self._reserve_id(before.id)
        return self._reserve_id(self._ids.unused_id(parent or self._document.path, draft.digest))

    def _reserve_id(self, name: str) -> str:
        self._ids.given.add(name)
        return name

    def _assign_orders(
        self, rows: Sequence[tuple[BlockDraft, BlockDraft | None]], place: dict[int, int]
    ) -> list[float]:
        orders = [0.0] * len(rows)
        orders[0] = self._document.order
        for draft, _ in rows:
            below = [place[id(child)] for child in draft.children]
            held = [self._aligned.was[at].order if at in self._aligned.stays else None for at in below]
            for at, order in zip(below, spread_orders(held), strict=True):
                orders[at] = order
        return orders


def _document_key(document: DraftDocument) -> tuple[str, ...]:
    """Return the key that identifies a document among those with the same name."""
    readers = document.root.readers
    return (document.path, *(() if readers is None or PUBLIC in readers else sorted(set(readers))))


def _own_id(draft: BlockDraft, top: str) -> str:
    """Return the id that a block has from its source or key; empty if it has neither."""
    return draft.known or (make_block_id(top, draft.key) if draft.key else "")


def spread_orders(held: Sequence[float | None]) -> list[float]:
    """Return rising numbers: given ones are kept, the others are placed between; 1, 2, 3, ... if there is no room."""
    found: list[float] = []
    waiting = 0
    for order in held:
        if order is None:
            waiting += 1
            continue
        found.extend(_interpolate(found[-1] if found else None, order, waiting))
        found.append(order)
        waiting = 0
    found.extend(_interpolate(found[-1] if found else None, None, waiting))
    rising = all(later - earlier >= _MIN_ORDER_STEP for earlier, later in pairwise(found))
    return found if rising else [float(number) for number in range(1, len(held) + 1)]


def keep_rising(orders: Sequence[float | None]) -> list[float | None]:
    """Return the orders with as few as possible replaced by None, so that the others rise."""
    ranks = {order: at for at, order in enumerate(sorted({order for order in orders if order is not None}))}
    held = {
        at for at, _ in _longest_increasing([(at, ranks[each]) for at, each in enumerate(orders) if each is not None])
    }
    return [order if at in held else None for at, order in enumerate(orders)]


def _interpolate(low: float | None, high: float | None, count: int) -> list[float]:
    if high is None:
        return [(low or 0.0) + number for number in range(1, count + 1)]
    start = high - count - 1 if low is None else low
    step = (high - start) / (count + 1)
    return [start + step * number for number in range(1, count + 1)]


def _to_imported(block: Block, draft: BlockDraft, parent: int) -> ImportedBlock:
    return ImportedBlock(
        id=block.id,
        digest=draft.digest,
        hint=draft.text[:HINT_LENGTH],
        parent=parent,
        order=block.order,
        modified=block.modified.timestamp() if block.modified else None,
        readers=draft.readers,
    )


def _without_forgotten_text(now: ImportedBlock, before: ImportedBlock | None) -> ImportedBlock:
    """The block without the beginning of its text, if that was forgotten since and the source still says the same."""
    forgotten = before is not None and not before.hint and before.digest == now.digest
    return replace(now, hint="") if forgotten else now


def _is_unchanged(
    now: ImportedBlock, kept: Sequence[ImportedBlock], before: ImportedBlock | None, was: ImportedDocument
) -> bool:
    if before is None or (now.digest, now.order) != (before.digest, before.order):
        return False
    above = kept[now.parent].id if now.parent >= 0 else None
    return above == (was.blocks[before.parent].id if before.parent >= 0 else None)


def _to_datetime(stamp: float | None) -> datetime | None:
    return None if stamp is None else datetime.fromtimestamp(stamp, UTC)


_MIN_HINT_LENGTH = 16  # length of text by which a block is recognised anywhere in the document
_MIN_SIMILARITY = 0.5
_MAX_GAP = 24  # blocks on either side of a gap that are still compared pairwise


@dataclass(kw_only=True, slots=True)
class BlockAlignment:
    """The earlier block that each new position matches, and whether it kept its order."""

    was: dict[int, ImportedBlock] = field(default_factory=dict[int, ImportedBlock])
    stays: set[int] = field(default_factory=set[int])


def align_blocks(root: BlockDraft, own: Sequence[str], before: ImportedDocument) -> BlockAlignment:
    """Pair blocks of equal content below the same parent, then those edited in place, then those moved elsewhere.

    `own` are the ids that blocks have of their own, by position: such blocks are paired by id only.
    """
    return _Aligner(root, own, before).run()


class _Aligner:
    """The two trees as lists with the positions of children, and the pairs found so far."""

    def __init__(self, root: BlockDraft, own: Sequence[str], before: ImportedDocument) -> None:
        self.own = own
        self.new = [draft for draft, _ in walk_drafts(root)]
        place = {id(draft): at for at, draft in enumerate(self.new)}
        self.below_new = [[place[id(child)] for child in draft.children] for draft in self.new]
        self.digests = [draft.digest for draft in self.new]
        self.old = before.blocks
        self.below_old: list[list[int]] = [[] for _ in self.old]
        for at, kept in enumerate(self.old):
            if kept.parent >= 0:
                self.below_old[kept.parent].append(at)
        self.pairs: dict[int, int] = {}
        self.taken: set[int] = set()
        self.stays: set[int] = set()

    def run(self) -> BlockAlignment:
        if self.old:
            self._pair_by_own_ids()
            self._pair_subtree(0, 0)
            self._pair_moved()
        was = {new: self.old[old] for new, old in self.pairs.items()}
        return BlockAlignment(was=was, stays=self.stays)

    def _pair_by_own_ids(self) -> None:
        ids = {kept.id: at for at, kept in enumerate(self.old)}
        for at, name in enumerate(self.own):
            if name and name in ids:
                self._add_pair(at, ids[name])
        for new, old in list(self.pairs.items()):
            self._pair_descendants(new, old)

    def _pair_subtree(self, new: int, old: int) -> None:
        self._add_pair(new, old)
        self._pair_descendants(new, old)

    def _add_pair(self, new: int, old: int) -> None:
        if new not in self.pairs and old not in self.taken:
            self.pairs[new] = old
            self.taken.add(old)

    def _pair_descendants(self, new: int, old: int) -> None:
        """Pair the children of a pair, recursively."""
        waiting = [(new, old)]
        while waiting:
            above, before = waiting.pop()
            waiting.extend(self._pair_children(self.below_new[above], self.below_old[before]))

    def _pair_children(self, new: Sequence[int], old: Sequence[int]) -> Iterator[tuple[int, int]]:
        here = set(old)
        own = {at: self.pairs[at] for at in new if self.pairs.get(at) in here}
        found = {**self._pair_equal(new, old), **own}
        kept = _longest_increasing([(at, found[at]) for at in new if at in found])
        self.stays.update(at for at, _ in kept)
        used = set(found.values()) | self.taken
        for gap_new, gap_old in _iter_gaps(new, old, kept):
            found.update(self._pair_edited(gap_new, gap_old, used, found))
        for at, before in found.items():
            if at not in self.pairs:
                self._add_pair(at, before)
                yield at, before

    def _pair_equal(self, new: Sequence[int], old: Sequence[int]) -> dict[int, int]:
        """Pair blocks of equal content, the first with the first."""
        waiting: dict[str, list[int]] = defaultdict(list)
        for before in reversed(old):
            if before not in self.taken:
                waiting[self.old[before].digest].append(before)
        found: dict[int, int] = {}
        for at in new:
            if at not in self.pairs and not self.own[at] and waiting[self.digests[at]]:
                found[at] = waiting[self.digests[at]].pop()
        return found

    def _pair_edited(
        self, new: Sequence[int], old: Sequence[int], used: Container[int], found: Container[int]
    ) -> dict[int, int]:
        """Pair blocks in one gap: in order if both sides have the same number, otherwise by similarity."""
        left = [at for at in new if at not in found and at not in self.pairs and not self.own[at]]
        free = [before for before in old if before not in used]
        if len(left) == len(free):
            self.stays.update(left)
            return dict(zip(left, free, strict=True))
        if not left or not free or max(len(left), len(free)) > _MAX_GAP:
            return {}
        ranked = sorted(((self._similarity(at, before), at, before) for at in left for before in free), reverse=True)
        pairs: dict[int, int] = {}
        for alike, at, before in ranked:
            if alike >= _MIN_SIMILARITY and at not in pairs and before not in pairs.values():
                pairs[at] = before
        self.stays.update(at for at, _ in _longest_increasing(sorted(pairs.items())))
        return pairs

    def _similarity(self, at: int, before: int) -> float:
        return SequenceMatcher(None, self.new[at].text[:HINT_LENGTH], self.old[before].hint, autojunk=False).ratio()

    def _pair_moved(self) -> None:
        """Pair blocks that moved below another parent, if their content is long enough to be distinctive."""
        left: dict[str, list[int]] = defaultdict(list)
        for before in range(len(self.old) - 1, -1, -1):
            if before not in self.taken and len(self.old[before].hint) >= _MIN_HINT_LENGTH:
                left[self.old[before].digest].append(before)
        for at, digest in enumerate(self.digests):
            if at in self.pairs or self.own[at] or not left.get(digest):
                continue
            before = left[digest].pop()
            if before not in self.taken:
                self._pair_subtree(at, before)


def _longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of pairs with rising second positions: those that kept their order."""
    tails: list[int] = []
    ends: list[int] = []
    back: list[int] = []
    for at, (_, old) in enumerate(pairs):
        place = bisect_left(tails, old)
        back.append(ends[place - 1] if place else -1)
        tails[place : place + 1] = [old]
        ends[place : place + 1] = [at]
    found: list[tuple[int, int]] = []
    at = ends[-1] if ends else -1
    while at >= 0:
        found.append(pairs[at])
        at = back[at]
    return found[::-1]


def _iter_gaps(
    new: Sequence[int], old: Sequence[int], kept: Sequence[tuple[int, int]]
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Yield what is on both sides between two neighbouring pairs that kept their order."""
    place_new = {at: number for number, at in enumerate(new)}
    place_old = {at: number for number, at in enumerate(old)}
    from_new = from_old = 0
    for at, before in kept:
        yield new[from_new : place_new[at]], old[from_old : place_old[before]]
        from_new, from_old = place_new[at] + 1, place_old[before] + 1
    yield new[from_new:], old[from_old:]
