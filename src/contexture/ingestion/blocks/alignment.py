"""Which block of a document is which block of its last version."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from contexture.ingestion.blocks.draft import Draft, drafts
from contexture.ingestion.blocks.memory import HINT, Kept, KeptDocument

_TELLING = 16  # characters of text that make a block known again anywhere in the document
_ALIKE = 0.5
_GAP = 24  # blocks on either side of a gap that are still compared with each other


@dataclass(kw_only=True, slots=True)
class Aligned:
    """By place in the new document: the block it was, and whether it still stands in order among its siblings."""

    was: dict[int, Kept] = field(default_factory=dict[int, Kept])
    stays: set[int] = field(default_factory=set[int])


def align(root: Draft, own: Sequence[str], before: KeptDocument) -> Aligned:
    """Pairs blocks that say the same below the same parent, then those edited in place, then those moved elsewhere.

    `own` are the ids that blocks have of their own, by place: such blocks are paired by them and by nothing else.
    """
    return _Alignment(root, own, before).done()


class _Alignment:
    """The two trees as lists with the places of children, and the pairs found so far."""

    def __init__(self, root: Draft, own: Sequence[str], before: KeptDocument) -> None:
        self.own = own
        self.new = [draft for draft, _ in drafts(root)]
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

    def done(self) -> Aligned:
        if self.old:
            self._by_own_ids()
            self._pair(0, 0)
            self._elsewhere()
        was = {new: self.old[old] for new, old in self.pairs.items()}
        return Aligned(was=was, stays=self.stays)

    def _by_own_ids(self) -> None:
        ids = {kept.id: at for at, kept in enumerate(self.old)}
        for at, name in enumerate(self.own):
            if name and name in ids:
                self._take(at, ids[name])
        for new, old in list(self.pairs.items()):
            self._below(new, old)

    def _pair(self, new: int, old: int) -> None:
        self._take(new, old)
        self._below(new, old)

    def _take(self, new: int, old: int) -> None:
        if new not in self.pairs and old not in self.taken:
            self.pairs[new] = old
            self.taken.add(old)

    def _below(self, new: int, old: int) -> None:
        """Pair the children of a pair, and theirs."""
        waiting = [(new, old)]
        while waiting:
            above, before = waiting.pop()
            waiting.extend(self._children(self.below_new[above], self.below_old[before]))

    def _children(self, new: Sequence[int], old: Sequence[int]) -> Iterator[tuple[int, int]]:
        here = set(old)
        own = {at: self.pairs[at] for at in new if self.pairs.get(at) in here}
        found = {**self._same(new, old), **own}
        kept = _rising([(at, found[at]) for at in new if at in found])
        self.stays.update(at for at, _ in kept)
        used = set(found.values()) | self.taken
        for gap_new, gap_old in _gaps(new, old, kept):
            found.update(self._edited(gap_new, gap_old, used, found))
        for at, before in found.items():
            if at not in self.pairs:
                self._take(at, before)
                yield at, before

    def _same(self, new: Sequence[int], old: Sequence[int]) -> dict[int, int]:
        """Those that say the same, the first with the first."""
        waiting: dict[str, list[int]] = defaultdict(list)
        for before in reversed(old):
            if before not in self.taken:
                waiting[self.old[before].digest].append(before)
        found: dict[int, int] = {}
        for at in new:
            if at not in self.pairs and not self.own[at] and waiting[self.digests[at]]:
                found[at] = waiting[self.digests[at]].pop()
        return found

    def _edited(
        self, new: Sequence[int], old: Sequence[int], used: Container[int], found: Container[int]
    ) -> dict[int, int]:
        """Pairs in one gap: in order where both sides hold as many, else by how alike they are."""
        left = [at for at in new if at not in found and at not in self.pairs and not self.own[at]]
        free = [before for before in old if before not in used]
        if len(left) == len(free):
            self.stays.update(left)
            return dict(zip(left, free, strict=True))
        if not left or not free or max(len(left), len(free)) > _GAP:
            return {}
        ranked = sorted(((self._alike(at, before), at, before) for at in left for before in free), reverse=True)
        pairs: dict[int, int] = {}
        for alike, at, before in ranked:
            if alike >= _ALIKE and at not in pairs and before not in pairs.values():
                pairs[at] = before
        self.stays.update(at for at, _ in _rising(sorted(pairs.items())))
        return pairs

    def _alike(self, at: int, before: int) -> float:
        return SequenceMatcher(None, self.new[at].text[:HINT], self.old[before].hint, autojunk=False).ratio()

    def _elsewhere(self) -> None:
        """Pair what was moved below another parent, where it says enough to be told from others."""
        left: dict[str, list[int]] = defaultdict(list)
        for before in range(len(self.old) - 1, -1, -1):
            if before not in self.taken and len(self.old[before].hint) >= _TELLING:
                left[self.old[before].digest].append(before)
        for at, digest in enumerate(self.digests):
            if at in self.pairs or self.own[at] or not left.get(digest):
                continue
            before = left[digest].pop()
            if before not in self.taken:
                self._pair(at, before)


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs whose second places rise: those that kept their order."""
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


def _gaps(
    new: Sequence[int], old: Sequence[int], kept: Sequence[tuple[int, int]]
) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """What stands on both sides between two neighbours that kept their order."""
    place_new = {at: number for number, at in enumerate(new)}
    place_old = {at: number for number, at in enumerate(old)}
    from_new = from_old = 0
    for at, before in kept:
        yield new[from_new : place_new[at]], old[from_old : place_old[before]]
        from_new, from_old = place_new[at] + 1, place_old[before] + 1
    yield new[from_new:], old[from_old:]
