"""The same thing is shown once: one candidate per key, and one of texts that nearly coincide."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from contexture.ledger import Reason, Trace
from contexture.pipeline.rank import ranked
from contexture.text.simhash import Shingle, shingles_of, surely_shared
from contexture.types import Candidate

_BITS = 64
_SPREADS = 3.0  # standard deviations of slack, so that chance hides hardly any true pair
_ROUNDING = 1e-9
_BLOCK = 512  # rows compared at once; bounds memory, not the result


def by_key(candidates: Iterable[Candidate], trace: Trace) -> list[Candidate]:
    """The best-scored candidate of every key, ties by id, in the order given.

    The others are dropped as duplicates of it. One id given twice is one candidate: the better
    copy stays, and the ledger has one entry for it.
    """
    given = list(candidates)
    best: dict[str, Candidate] = {}
    judged: set[str] = set()
    for candidate in ranked(given):
        winner = best.setdefault(candidate.key, candidate)
        if candidate.id not in judged and winner is not candidate:
            trace.drop(candidate, Reason.DUPLICATE, of=winner.id)
        judged.add(candidate.id)
    winners = {id(candidate) for candidate in best.values()}
    return [candidate for candidate in given if id(candidate) in winners]


def near_duplicates(candidates: Sequence[Candidate], trace: Trace, *, threshold: float = 0.85) -> list[Candidate]:
    """Those that do not nearly repeat a better-ranked one that stays, in the order given.

    Two texts nearly coincide when the Jaccard similarity of their three-word shingles reaches
    `threshold`. Where all of them have a stored hash, only pairs whose 64-bit hashes are within
    `reach(threshold)` bits are compared; else all that share enough shingles. Identical texts are
    always caught.
    """
    order = ranked(candidates)
    texts = _Texts(order)
    hashed = all(candidate.simhash for candidate in order)
    close = _close(order, reach(threshold)) if hashed else texts.sharing(threshold)
    first: dict[str, int] = {}
    keeper: dict[int, int] = {}  # dropped position to the kept one that it repeats
    for at, candidate in enumerate(order):
        twin = first.setdefault(candidate.text, at)
        new = twin == at
        of = _match(at, close.get(at, ()), keeper, texts, threshold) if new else keeper.get(twin, twin)
        if of is not None:
            same = candidate.text == order[of].text
            trace.drop(candidate, Reason.DUPLICATE if same else Reason.NEAR_DUPLICATE, of=order[of].id)
            keeper[at] = of
    gone = {id(order[at]) for at in keeper}
    return [candidate for candidate in candidates if id(candidate) not in gone]


def jaccard(left: frozenset[Shingle], right: frozenset[Shingle]) -> float:
    """Shared shingles over all shingles; 0 when there are none."""
    shared = len(left & right)
    union = len(left) + len(right) - shared
    return shared / union if union else 0.0


def reach(threshold: float) -> int:
    """How many bits the hashes of two texts may differ when their Jaccard similarity is `threshold`.

    Similarity J of equally long texts is a cosine of 2J/(1+J) between their votes; each bit then
    differs with the probability angle/pi. The mean plus three standard deviations is allowed.
    """
    chance = math.acos(min(1.0, max(-1.0, 2 * threshold / (1 + threshold)))) / math.pi
    return min(_BITS, math.ceil(_BITS * chance + _SPREADS * math.sqrt(_BITS * chance * (1 - chance))))


class _Texts:
    """The texts and shingles of candidates by place, each made when it is first asked for."""

    def __init__(self, order: Sequence[Candidate]) -> None:
        self._order = order
        self._without_case: dict[int, str] = {}
        self._sets: dict[int, frozenset[Shingle]] = {}

    def sharing(self, threshold: float) -> dict[int, list[int]]:
        """For each place, the better places whose texts may share so many shingles that they are alike.

        In any one order of all shingles, the first shingle that two texts share stands near the front of both when
        they share many: only those first few are compared.
        """
        holders: dict[Shingle, list[int]] = {}
        found: dict[int, list[int]] = {}
        for at in range(len(self._order)):
            front = _front(self._shingles(at), threshold)
            close = {other for shingle in front for other in holders.get(shingle, ())}
            if close:
                found[at] = sorted(close)
            for shingle in front:
                holders.setdefault(shingle, []).append(at)
        return found

    def alike(self, left: int, right: int, threshold: float) -> bool:
        """Whether the shingles of two texts reach a similarity; texts with one change are told without making them."""
        if surely_shared(self._plain(left), self._plain(right)) >= threshold:
            return True
        return jaccard(self._shingles(left), self._shingles(right)) >= threshold

    def _plain(self, at: int) -> str:
        if at not in self._without_case:
            self._without_case[at] = self._order[at].text.casefold()
        return self._without_case[at]

    def _shingles(self, at: int) -> frozenset[Shingle]:
        if at not in self._sets:
            self._sets[at] = shingles_of(self._plain(at).split())
        return self._sets[at]


def _front(own: frozenset[Shingle], threshold: float) -> list[Shingle]:
    """Shingles of which two texts have one in common whenever their similarity reaches the threshold."""
    shared = math.ceil(threshold * len(own) - _ROUNDING)  # at least so many, or the similarity is less
    return sorted(own)[: max(0, len(own) - max(0, shared) + 1)]


def _match(at: int, better: Sequence[int], dropped: Container[int], texts: _Texts, threshold: float) -> int | None:
    """The best-ranked kept candidate that the one `at` nearly repeats."""
    return next((other for other in better if other not in dropped and texts.alike(other, at, threshold)), None)


def _close(order: Sequence[Candidate], bits: int) -> dict[int, list[int]]:
    """For each position, the better positions whose hashes are at most `bits` apart."""
    hashes = np.array([candidate.simhash for candidate in order], dtype=np.uint64)
    found: dict[int, list[int]] = {}
    for start in range(0, len(order), _BLOCK):
        for worse, better in _pairs(hashes, start, bits):
            found.setdefault(worse, []).append(better)
    return found


def _pairs(hashes: npt.NDArray[np.uint64], start: int, bits: int) -> Iterable[tuple[int, int]]:
    rows = hashes[start : start + _BLOCK]
    near = np.bitwise_count(rows[:, None] ^ hashes[: start + len(rows)]) <= bits
    worse, better = np.nonzero(np.tril(near, k=start - 1))
    return zip((worse + start).tolist(), better.tolist(), strict=True)
